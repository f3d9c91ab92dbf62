"""Every interchangeable part by name. A new engine or scheduler is one file and one line here."""

from collections.abc import Mapping
from typing import TypeVar

from tidings.errors import UnknownName
from tidings.matching.base import Matcher
from tidings.matching.boxtree.engine import BoxTree
from tidings.matching.ceem import Ceem
from tidings.matching.counting import Counting
from tidings.matching.elsewhere import Elsewhere
from tidings.matching.naive import Naive
from tidings.matching.tree import Tree
from tidings.overlay.base import Overlay
from tidings.overlay.lone import Lone
from tidings.overlay.mesh import Mesh
from tidings.scheduling.base import Scheduler
from tidings.scheduling.fcfs import Fcfs
from tidings.scheduling.fix import Fix
from tidings.scheduling.lrt import Lrt
from tidings.scheduling.mtep import Mtep
from tidings.scheduling.priced import Priced

MATCHERS: dict[str, type[Matcher]] = {
    "boxtree": BoxTree,
    "ceem": Ceem,
    "counting": Counting,
    "tree": Tree,
    "naive": Naive,
}
SCHEDULERS: dict[str, type[Scheduler]] = {"fcfs": Fcfs, "fix": Fix, "lrt": Lrt, "mtep": Mtep, "priced": Priced}
OVERLAYS: dict[str, type[Overlay]] = {"lone": Lone, "mesh": Mesh}

DEFAULT_MATCHER = "boxtree"
DEFAULT_SCHEDULER = "priced"

ELSEWHERE = "elsewhere"  # for brokers whose events somebody else matches: nobody chooses it by name

Part = TypeVar("Part")


def matcher(name: str) -> type[Matcher]:
    return _look_up("matching engine", MATCHERS, name)


def running_matcher(name: str) -> type[Matcher]:
    """Also the engine that is none."""
    return Elsewhere if name == ELSEWHERE else matcher(name)


def scheduler(name: str) -> type[Scheduler]:
    return _look_up("scheduler", SCHEDULERS, name)


def overlay(name: str) -> type[Overlay]:
    return _look_up("overlay", OVERLAYS, name)


def _look_up(what: str, parts: Mapping[str, Part], name: str) -> Part:
    if name not in parts:
        raise UnknownName(f"unknown {what} {name!r}: expected one of {', '.join(sorted(parts))}")
    return parts[name]
