"""The compiled parts of boxtree one by one, and where they are kept."""

import os
import sys
import tempfile
from pathlib import Path

import numba
import numpy as np
import pytest

from tidings import compiled, kernels
from tidings.matching.boxtree import BoxTree, vector
from tidings.matching.boxtree.cuts import share
from tidings.matching.boxtree.delta import key_of
from tidings.matching.boxtree.memory import ints, shorts
from tidings.model.event import Event
from tidings.model.filter import Op, Predicate
from tidings.model.subscription import Subscription


@numba.njit
def _masks16(lanes, top, bottom):  # type: ignore[no-untyped-def]
    p = shorts(lanes.ctypes.data)
    return (
        vector.within(p, 0, 64, top, bottom),
        vector.at_most(p, 0, top),
        vector.at_least(p, 64, bottom),
        vector.equal(p, 0, top),
    )


@numba.njit
def _masks32(lanes, top, bottom):  # type: ignore[no-untyped-def]
    p = ints(lanes.ctypes.data)
    return (
        vector.within(p, 0, 64, top, bottom),
        vector.at_most(p, 0, top),
        vector.at_least(p, 64, bottom),
        vector.equal(p, 0, top),
    )


@pytest.mark.parametrize(("function", "dtype"), [(_masks16, np.int16), (_masks32, np.int32)])
def test_lanes_are_compared_as_numbers_are(function, dtype) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(1)
    edge = np.iinfo(dtype)
    for _ in range(50):
        lanes = rng.choice(np.array([edge.min, -3, -2, -1, 0, 1, 2, 3, edge.max], dtype), 128)
        top, bottom = rng.choice(lanes, 2)
        low, high = lanes[:64], lanes[64:]
        expected = [(low <= top) & (bottom <= high), low <= top, high >= bottom, low == top]
        bits = [
            np.unpackbits(np.array([mask], np.uint64).view(np.uint8), bitorder="little")
            for mask in function(lanes, top, bottom)
        ]
        assert np.array_equal(bits, expected)


@numba.njit
def _bits(mask):  # type: ignore[no-untyped-def]
    return vector.lowest(mask), vector.ones(mask)


def test_bits() -> None:
    for mask in (1, 2, 0x8000_0000_0000_0000, 0xFFFF_FFFF_FFFF_FFFF, 0b1010_0000):
        assert _bits(np.uint64(mask)) == ((mask & -mask).bit_length() - 1, mask.bit_count())
    assert _bits(np.uint64(0)) == (64, 0)


@numba.njit
def _key(x):  # type: ignore[no-untyped-def]
    return key_of(x)


def test_keys_rise_with_their_numbers() -> None:
    numbers = [-np.inf, -1e300, -2.5, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, np.nextafter(1, 2), 2.5, 1e300, np.inf]
    keys = [_key(number) for number in numbers]
    assert keys == sorted(keys)
    assert _key(-0.0) == _key(0.0) == 0


@numba.njit
def _share(low, high, codes, presence):  # type: ignore[no-untyped-def]
    return share(low, high, codes, presence)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-32766, -32765, 0.02), (-32767, 32766, 1.0), (-32666, 32766, 0.0), (-32716, 32766, 0.5), (0, -5, 0.0)],
)
def test_the_share_that_an_interval_of_codes_admits(low: int, high: int, expected: float) -> None:
    assert _share(low, high, 100.0, 1.0) == pytest.approx(expected)
    assert _share(low, high, 100.0, 0.5) == pytest.approx(expected / 2)


def test_each_kernel_is_compiled_for_one_signature() -> None:
    """Another array type slipping in would compile again, for seconds, in the middle of a match."""
    engine = BoxTree()
    engine.add_all([Subscription(str(n), "ann", Predicate("a", Op.GE, n)) for n in range(3_000)])
    for _ in range(2):
        engine.add(Subscription("x", "ann", Predicate("b", Op.NE, "x")))
        engine.match(Event("e", "", {"a": 5}))
        engine.match_batch({"a": np.arange(3.0)})
        for n in range(2_000):
            engine.remove(str(n))
        while job := engine.maintenance():
            job()
        engine = BoxTree.load(bytes(engine.snapshot()))
        for n in range(2_000):
            engine.add(Subscription(str(n), "ann", Predicate("a", Op.GE, n)))
    assert not [dispatcher for dispatcher in compiled._KERNELS if len(dispatcher.signatures) > 1]


def test_all_kernels_can_be_compiled_ahead() -> None:
    steps: list[tuple[int, int, str]] = []
    count = kernels.warm(lambda *step: steps.append(step))
    assert steps[-1] == (count, count, "")
    assert "match_one" in [name for _, _, name in steps]


def test_without_a_cache_kernels_are_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_it = numba.njit

    def without_cache(cache: bool = False, **options):  # type: ignore[no-untyped-def]
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return compile_it(**options)

    monkeypatch.setattr(compiled.numba, "njit", without_cache)
    monkeypatch.setattr(compiled, "_KERNELS", {})
    double = compiled.kernel("int64(int64)")(lambda x: 2 * x)
    assert [name for _, _, name in compiled.compile_all()] == ["<lambda>"]
    assert double(4) == 8


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Sources, a home and a folder for temporary files of our own."""
    monkeypatch.setenv(kernels.VARIABLE, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "SOURCES", tmp_path / "sources")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    monkeypatch.setattr(numba.config, "CACHE_DIR", numba.config.CACHE_DIR)
    return tmp_path


@pytest.mark.parametrize(
    ("blocked", "expected"),
    [
        ([], "sources/__pycache__"),
        (["sources"], "cache/numba"),
        (["sources", "cache"], "tmp"),
        (["sources", "cache", "tmp"], None),
    ],
)
def test_the_cache_goes_where_it_can(places: Path, blocked: list[str], expected: str | None) -> None:
    for name in blocked:
        (places / name).write_text("a file where a folder should be")
    folder = kernels.prepare_cache()
    if expected is None:
        assert folder is None
    else:
        assert folder is not None
        assert folder.is_relative_to(places / expected)
        assert kernels.prepare_cache() == folder
    assert os.environ[kernels.VARIABLE] == (str(folder) if expected == "tmp" else ""), "numba knows the other places"


def test_a_temporary_folder_that_others_can_write_to_is_not_trusted(places: Path) -> None:
    for name in ("sources", "cache"):
        (places / name).write_text("")
    folder = kernels.prepare_cache()
    assert folder is not None
    os.environ[kernels.VARIABLE] = ""
    folder.chmod(0o777)
    assert kernels.prepare_cache() is None


def test_a_place_that_the_user_chose_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(kernels.VARIABLE, str(tmp_path))
    assert kernels.prepare_cache() == tmp_path


def test_a_change_in_any_source_makes_cached_kernels_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels contain what they use of other files."""
    for package in (tmp_path / "one", tmp_path / "one" / "deep"):
        package.mkdir()
        (package / "__init__.py").write_text("")
    source = tmp_path / "one" / "deep" / "two.py"
    monkeypatch.setattr(sys.modules["tidings"], "__path__", [str(tmp_path)])
    digest = compiled.digest.__wrapped__
    source.write_text("A = 1")
    before = digest(("one",))
    assert digest(("one",)) == before
    source.write_text("A = 2")
    assert digest(("one",)) != before
    stamps = {dispatcher._cache._cache_file._source_stamp[1] for dispatcher in compiled._KERNELS}
    assert stamps == {compiled.digest(compiled.SOURCES)}
