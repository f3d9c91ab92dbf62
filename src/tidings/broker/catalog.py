"""Every interchangeable part by name. A new engine or scheduler is one file and one line here."""

from collections.abc import Mapping
from typing import TypeVar

from tidings.errors import UnknownName
from tidings.matching.base import Matcher
from tidings.matching.naive import Naive
from tidings.scheduling.base import Scheduler
from tidings.scheduling.fcfs import Fcfs

MATCHERS: dict[str, type[Matcher]] = {"naive": Naive}
SCHEDULERS: dict[str, type[Scheduler]] = {"fcfs": Fcfs}

DEFAULT_MATCHER = "naive"
DEFAULT_SCHEDULER = "fcfs"

Part = TypeVar("Part")


def matcher(name: str) -> type[Matcher]:
    return _look_up("matching engine", MATCHERS, name)


def scheduler(name: str) -> type[Scheduler]:
    return _look_up("scheduler", SCHEDULERS, name)


def _look_up(what: str, parts: Mapping[str, Part], name: str) -> Part:
    if name not in parts:
        raise UnknownName(f"unknown {what} {name!r}: expected one of {', '.join(sorted(parts))}")
    return parts[name]
