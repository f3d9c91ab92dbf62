"""The compiled parts of boxtree one by one, and where they are kept."""

import os
from pathlib import Path

import numba
import numpy as np
import pytest

from tidings import kernels
from tidings.matching.boxtree import BoxTree, kernel, vector
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
    assert not [dispatcher for dispatcher, _ in kernel._KERNELS if len(dispatcher.signatures) > 1]


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

    monkeypatch.setattr(kernel.numba, "njit", without_cache)
    monkeypatch.setattr(kernel, "_KERNELS", [])
    double = kernel.kernel("int64(int64)")(lambda x: 2 * x)
    assert [name for _, _, name in kernel.compile_all()] == ["<lambda>"]
    assert double(4) == 8


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package, a home and a folder for temporary files of our own."""
    monkeypatch.delenv(kernels.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "PACKAGE", tmp_path / "package")
    monkeypatch.setattr(kernels.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "package" / "matching").mkdir(parents=True)
    (tmp_path / "package" / "matching" / "engine.py").write_text("1")
    return tmp_path


def test_the_cache_goes_where_it_can(places: Path) -> None:
    folder = kernels.prepare_cache()
    assert folder is not None
    assert folder.is_relative_to(places / "package")
    assert os.environ[kernels.VARIABLE] == str(folder)
    assert kernels.prepare_cache() == folder


@pytest.mark.parametrize(
    ("blocked", "expected"),
    [(["package/__pycache__"], "cache/tidings"), (["package/__pycache__", "cache"], "tmp")],
)
def test_a_place_that_cannot_be_written_is_passed_over(places: Path, blocked: list[str], expected: str) -> None:
    for name in blocked:
        (places / name).write_text("a file where a folder should be")
    folder = kernels.prepare_cache()
    assert folder is not None
    assert folder.is_relative_to(places / expected)


def test_without_any_place_there_is_no_cache(places: Path) -> None:
    for name in ("package/__pycache__", "cache", "tmp"):
        (places / name).write_text("")
    assert kernels.prepare_cache() is None


def test_a_folder_that_others_can_write_to_is_not_trusted(places: Path) -> None:
    folder = kernels.prepare_cache()
    assert folder is not None
    os.environ.pop(kernels.VARIABLE)
    folder.chmod(0o777)
    other = kernels.prepare_cache()
    assert other is not None
    assert not other.is_relative_to(places / "package")


def test_changed_sources_mean_another_folder(places: Path) -> None:
    found = set()
    for text in "12345":
        (places / "package" / "matching" / "engine.py").write_text(text)
        os.environ.pop(kernels.VARIABLE, None)
        found.add(kernels.prepare_cache())
    assert len(found) == 5
    assert len(list((places / "package" / "__pycache__").iterdir())) == 4, "old ones are forgotten"
