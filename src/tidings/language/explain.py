"""Why a filter matches an event or does not, leaf by leaf; and what an index can serve of a filter.

With an event each leaf shows the values seen and whether it held: true, false, or unknown (missing, or of another kind).
Without one the alternatives of the normal form are shown: those predicates that an index can serve, and what has to be
verified on each candidate.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.model import text
from tidings.model.filter import (
    COMPARISONS,
    FAILS,
    NULL_OPS,
    Filter,
    Op,
    leaves,
    matches,
    names,
    positive,
    truth,
)
from tidings.model.normal import Conjunction, normal_form
from tidings.model.value import TYPE, Value, checked_attributes, kind

# An index finds values; what speaks of all others (NOT CONTAINS), or of the inside of a string, it can only verify.
INDEXABLE = frozenset(
    {*COMPARISONS, *NULL_OPS, Op.IN, Op.NOT_IN, Op.PREFIX, Op.SUFFIX, Op.CONTAINS, Op.SUBSET, Op.SUPERSET}
)
_MARKS = {True: "✓", False: "✗", None: "?"}


class Leaf(msgspec.Struct, frozen=True):
    """One predicate or comparison. `held` is None for unknown, and where there is no event."""

    text: str
    indexed: bool
    held: bool | None = None
    seen: dict[str, Any] = {}
    missing: tuple[str, ...] = ()


class Alternative(msgspec.Struct, frozen=True):
    """One conjunction of the normal form."""

    indexed: tuple[str, ...]
    verified: tuple[str, ...]


class Explanation(msgspec.Struct, frozen=True):
    """`matches` is None for a filter alone."""

    filter: str
    matches: bool | None
    leaves: tuple[Leaf, ...]
    alternatives: tuple[Alternative, ...]

    def __str__(self) -> str:
        lines = self._alternatives() if self.matches is None else self._verdict()
        return "\n".join(line.rstrip() for line in lines)

    def _verdict(self) -> list[str]:
        width = max((len(leaf.text) for leaf in self.leaves), default=0)
        return [
            f"{'matches' if self.matches else 'does not match'}: {self.filter}",
            *(f"  {_MARKS[leaf.held]} {leaf.text:<{width}}  {_seen(leaf)}" for leaf in self.leaves),
        ]

    def _alternatives(self) -> list[str]:
        if not self.alternatives:
            return [self.filter, "no event can match"]
        lines = [self.filter]
        for number, alternative in enumerate(self.alternatives, 1):
            lines.append(f"alternative {number} of {len(self.alternatives)}")
            lines.extend(f"  index   {part}" for part in alternative.indexed)
            lines.extend(f"  verify  {part}" for part in alternative.verified)
            if not alternative.indexed and not alternative.verified:
                lines.append("  every event")
        return lines


def explain(filter: Filter, event_attributes: Mapping[str, Any] | None = None, missing: str = FAILS) -> Explanation:
    """The explanation of a filter, for an event or alone. `missing` is the rule of the matching engine."""
    alternatives = normal_form(filter)
    in_index = {predicate for a in alternatives for predicate in a.predicates if predicate.op in INDEXABLE}
    # The same leaves in the same order, but as the index sees them: with NOT pushed down into them.
    pushed = positive(filter)
    event = None if event_attributes is None else _seen_by_filters(event_attributes)
    shown = filter if missing == FAILS else pushed
    return Explanation(
        str(filter),
        None if event is None else matches(filter, event, missing),
        tuple(
            _leaf(leaf, indexed in in_index, event, missing != FAILS)
            for leaf, indexed in zip(leaves(shown), leaves(pushed), strict=True)
        ),
        tuple(_alternative(alternative) for alternative in alternatives),
    )


def _seen_by_filters(attributes: Mapping[str, Any]) -> dict[str, Value]:
    present = {name: value for name, value in attributes.items() if value is not None}
    event_type = {TYPE: present.pop(TYPE)} if TYPE in present else {}
    return {**checked_attributes(present), **event_type}


def _leaf(leaf: Filter, indexed: bool, event: Mapping[str, Value] | None, lenient: bool) -> Leaf:
    if event is None:
        return Leaf(str(leaf), indexed)
    mentioned = names(leaf)
    return Leaf(
        str(leaf),
        indexed,
        truth(leaf, event, lenient),
        {name: _plain(event[name]) for name in mentioned if name in event},
        tuple(name for name in mentioned if name not in event),
    )


def _plain(value: Value) -> Any:
    """Sets as lists, so that the same explanation is always the same JSON."""
    return sorted(value) if isinstance(value, frozenset) else value


def _alternative(alternative: Conjunction) -> Alternative:
    indexed = tuple(predicate for predicate in alternative.predicates if predicate.op in INDEXABLE)
    verified = tuple(predicate for predicate in alternative.predicates if predicate.op not in INDEXABLE)
    return Alternative(tuple(map(str, indexed)), tuple(map(str, verified + alternative.residuals)))


def _seen(leaf: Leaf) -> str:
    parts = [f"{name} is {_value(value, leaf.held is None)}" for name, value in leaf.seen.items()]
    return ", ".join(parts + [f"{name} is missing" for name in leaf.missing])


def _value(value: Any, with_kind: bool) -> str:
    if isinstance(value, list):
        value = frozenset(value)
    shown = text.literal(value)
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return f"the {kind(value)} {shown}" if with_kind else shown
