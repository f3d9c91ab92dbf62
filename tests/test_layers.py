"""The house rules that a reader must be able to rely on: imports point one way, and the core is pure."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1] / "src" / "tidings"

# Each part of the package and the parts it stands on. It may import those and whatever they stand on, nothing
# else: so neighbours in one row of the house, and the drivers (sim, net, spark, bus), never see each other.
# "tidings" is the package's own __init__, which only what is above the drivers may import.
STANDS_ON = {
    "errors": "",
    "model": "errors",
    "language": "model",
    "compiled": "",
    "matching": "model compiled",
    "scheduling": "model compiled",
    "membership": "model",
    "store": "model",
    "overlay": "language matching scheduling membership",
    "broker": "overlay",
    "sim": "broker",
    "stream": "broker",
    "net": "broker store stream",
    "spark": "broker store",
    "bus": "broker store stream",
    "connection": "bus net",
    "sync": "connection",
    "kernels": "matching scheduling",
    "tidings": "sync net kernels",
    "monitor": "tidings sim spark",
    "cli": "tidings sim spark",
    "__main__": "cli",
}
PURE = {"errors", "compiled", "model", "language", "matching", "scheduling", "membership", "overlay", "broker"}

# What a pure part may not touch: clocks, the outside world, concurrency, randomness that no caller seeded.
IMPURE_MODULES = """
    _thread asyncio concurrent glob http importlib io logging mmap multiprocessing os pathlib random sched
    secrets select selectors shutil signal socket socketserver sqlite3 ssl subprocess tempfile threading time
    uuid
    """.split()
IMPURE_CALLS = """
    open input print __import__ datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today
    datetime.date.today numpy.load numpy.save numpy.savez numpy.memmap numpy.fromfile
    """.split()
PURE_THIRD_PARTY = {"numpy", "numba", "llvmlite", "msgspec"}
AS_TYPE_ONLY = {"random"}  # `random.Random` may be named in a signature: the caller brings it, seeded


def reach(part: str) -> set[str]:
    """Everything below a part."""
    below = set(STANDS_ON[part].split())
    return below.union(*(reach(lower) for lower in below))


class Import(NamedTuple):
    line: int
    module: str
    name: str  # what the importing module calls it
    means: str  # and what that stands for: after `import numpy as np`, np means numpy
    typing: bool  # only for the type checker


def imports(node: ast.AST, package: str, typing: bool = False) -> Iterator[Import]:
    """Every import below a node, wherever it hides."""
    match node:
        case ast.Import(names):
            for alias in names:
                top = alias.name.partition(".")[0]
                name, means = (alias.asname, alias.name) if alias.asname else (top, top)
                yield Import(node.lineno, alias.name, name, means, typing)
        case ast.ImportFrom(module, names, level):
            home = package.split(".")
            base = home[: len(home) + 1 - level] if level else []
            for alias in names:
                full = ".".join([*base, *([module] if module else []), alias.name])
                yield Import(node.lineno, full, alias.asname or alias.name, full, typing)
        case ast.If(test, body, orelse):
            only_typing = ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
            for child in body:
                yield from imports(child, package, typing or only_typing)
            for child in orelse:
                yield from imports(child, package, typing)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from imports(child, package, typing)


def part_of(module: str) -> str:
    """tidings.model.filter -> model; tidings itself -> tidings."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "tidings"


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Every breach of the rules in one module's source, as readable lines."""
    tree = ast.parse(source)
    here = part_of(module)
    found: list[tuple[int, str]] = []
    meanings: dict[str, str] = {}

    for line, target, name, means, typing in imports(tree, module if is_package else module.rpartition(".")[0]):
        meanings[name] = means
        top = target.partition(".")[0]
        if top == "tidings":
            # `from tidings import connect`: a name that is no part comes out of the package's __init__
            part = part_of(target) if part_of(target) in STANDS_ON else "tidings"
            if part != here and part not in reach(here):
                found.append((line, f"{here} imports {part}"))
        elif here in PURE:
            foreign = top not in sys.stdlib_module_names and top not in PURE_THIRD_PARTY
            if foreign or (top in IMPURE_MODULES and not (typing and top in AS_TYPE_ONLY)):
                found.append((line, f"{here} is pure, but imports {top}"))

    if here in PURE:
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            first, dot, rest = ast.unparse(call.func).partition(".")
            called = meanings.get(first, first) + dot + rest
            seeded = called == "numpy.random.default_rng" and (call.args or call.keywords)
            if called in IMPURE_CALLS or (called.startswith("numpy.random.") and not seeded):
                found.append((call.lineno, f"{here} is pure, but calls {called}"))

    return [f"{module}:{line}: {what}" for line, what in sorted(found)]


def modules() -> Iterator[tuple[Path, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        yield path, ".".join(parts[:-1] if path.stem == "__init__" else parts)


def test_imports_point_one_way_and_the_core_is_pure() -> None:
    found = [
        line
        for path, module in modules()
        for line in violations(path.read_text("utf-8"), module, is_package=path.stem == "__init__")
    ]
    assert not found, "\n".join(found)


def test_every_part_has_its_place_in_the_table() -> None:
    parts = {part_of(module) for _, module in modules()}
    assert parts <= STANDS_ON.keys()
    assert "model" in parts, "the walk over the sources found nothing"


@pytest.mark.parametrize("driver", ["sim", "net", "spark", "bus"])
def test_drivers_never_see_each_other(driver: str) -> None:
    assert reach(driver).isdisjoint({"sim", "net", "spark", "bus", "cli", "monitor", "tidings"})


OFFENCES = {
    "upwards": ("model", "from tidings.broker import ledger", "model imports broker"),
    "upwards, relative": ("model", "from ..language.parser import parse", "model imports language"),
    "upwards, relative to the root": ("language", "from .. import bus", "language imports bus"),
    "upwards, inside a function": (
        "matching",
        "def f():\n    import tidings.cli.main",
        "matching imports cli",
    ),
    "upwards, for types": (
        "model",
        "if TYPE_CHECKING:\n    from tidings.broker.broker import Broker",
        "model imports broker",
    ),
    "sideways": ("matching", "from tidings.language import parse", "matching imports language"),
    "driver to driver": ("net", "import tidings.sim.loop", "net imports sim"),
    "the public face from below": ("broker", "from tidings import connect", "broker imports tidings"),
    "store from the core": ("broker", "from tidings.store import sqlite", "broker imports store"),
    "clock": ("broker", "import time", "broker is pure, but imports time"),
    "clock, submodule": ("broker", "from os.path import join", "broker is pure, but imports os"),
    "thread, even for types": (
        "overlay",
        "if TYPE_CHECKING:\n    import threading",
        "overlay is pure, but imports threading",
    ),
    "random at run time": (
        "membership",
        "from random import Random",
        "membership is pure, but imports random",
    ),
    "spark": ("matching", "from pyspark.sql import Row", "matching is pure, but imports pyspark"),
    "uvloop": ("broker", "import uvloop", "broker is pure, but imports uvloop"),
    "now": (
        "model",
        "from datetime import UTC, datetime as clock\nclock.now(UTC)",
        "model is pure, but calls datetime.datetime.now",
    ),
    "now, by module": (
        "model",
        "import datetime\ndatetime.datetime.utcnow()",
        "model is pure, but calls datetime.datetime.utcnow",
    ),
    "file": ("language", "def f():\n    return open('x')", "language is pure, but calls open"),
    "global random": (
        "scheduling",
        "import numpy as np\nnp.random.rand()",
        "scheduling is pure, but calls numpy.random.rand",
    ),
    "unseeded": (
        "scheduling",
        "import numpy as np\nnp.random.default_rng()",
        "scheduling is pure, but calls numpy.random.default_rng",
    ),
}


@pytest.mark.parametrize(("part", "source", "complaint"), OFFENCES.values(), ids=OFFENCES)
def test_the_check_can_fail(part: str, source: str, complaint: str) -> None:
    (line,) = violations(source, f"tidings.{part}.example")
    assert line.endswith(f": {complaint}")


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "tidings.model.event",
            "from tidings.errors import TidingsError\nfrom . import value\nfrom .value import Value",
        ),
        ("tidings.broker.broker", "from ..matching.base import Matcher\nfrom tidings.model import event"),
        ("tidings.overlay.tree", "if TYPE_CHECKING:\n    from random import Random"),
        ("tidings.model.value", "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)"),
        ("tidings.matching.naive", "import numpy as np\nrng = np.random.default_rng(7)"),
        ("tidings.bus", "import asyncio, time\nfrom tidings.broker.broker import Broker"),
        ("tidings.cli.main", "from tidings import __version__\nfrom tidings.language import explain"),
    ],
)
def test_the_check_can_pass(module: str, source: str) -> None:
    assert violations(source, module) == []
