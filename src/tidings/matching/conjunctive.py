"""What the engines `counting`, `ceem`, `tree` and `scan` have in common: everything but their index structure.

A condition is brought into disjunctive normal form; each alternative is one row, a conjunction of placed predicates (see
families.py). A structure answers a probe with rows; here rows become slots, each once, and where a condition says more than
its rows can, it is verified on the candidate. So every engine serves the whole model, exactly, and for conditions that rows
say completely no filter is kept.

Cost: families, strings and rows that are no longer used are dropped when more than half of all predicates are (then
everything is made anew, inside of `remove`).
"""

import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from tidings.matching.base import Matcher, Slots
from tidings.matching.boxes import Boxes, checked_ids
from tidings.matching.families import EQUAL, LOWER, UPPER, Families, Family, Floats, Ints
from tidings.matching.ids import Ids
from tidings.matching.rows import NONE, Rows, grown
from tidings.matching.seal import sealed, unsealed
from tidings.model.domain import overlaps, satisfiable
from tidings.model.filter import FAILS, And, Filter, Predicate, conjunction, matches
from tidings.model.normal import Conjunction, normal_form
from tidings.model.subscription import Region, Subscription
from tidings.model.value import NUMBER, STRING, Value

Encoded = tuple[Floats, Mapping[str, Value]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

_MANY = 8  # a batch of at least one in so many is worth a rebuild
_FEW_PREDICATES = 4096  # so many dead ones are never worth one


class _State(msgspec.Struct, array_like=True):
    """Everything an engine knows, without gaps: rows in the order of their slots, arrays as little-endian bytes."""

    missing: str
    ids: list[str]
    owners: list[str]
    families: list[tuple[str, str, int]]
    texts: list[str]
    slots: bytes
    counts: bytes
    codes: bytes
    thresholds: bytes
    conditions: dict[int, Filter]


class ConjunctiveMatcher(Matcher):
    """Engines add a structure over rows: `_insert`, `_delete`, `_rebuild`, `_candidates`."""

    most_predicates: ClassVar[int] = 1 << 30  # of one row; what is beyond is verified

    def __init__(self, missing: str = FAILS) -> None:
        super().__init__(missing)
        self._clear()

    def _clear(self) -> None:
        self.slots, self.ids = {}, Ids()
        self.owners: list[str] = []  # slot -> subscriber
        self.families = Families(self.missing)
        self.rows = Rows(self.families)
        self._free_slots: list[int] = []
        self._first: Ints = np.empty(0, np.int32)  # slot -> its first row
        self._conditions: dict[int, Filter] = {}  # slot -> condition, where its rows do not say everything
        self._verified: Flags = np.zeros(0, bool)  # by slot: is it in _conditions?
        self._everywhere: dict[int, None] = {}  # rows without a placed predicate: candidates of every event
        self._alternatives = 0  # rows beyond the first of their slot

    @abc.abstractmethod
    def _insert(self, row: int, codes: Ints, keys: Floats) -> None:
        """Take a row into the structure."""

    @abc.abstractmethod
    def _delete(self, row: int, codes: Ints, keys: Floats) -> None:
        """Take a row out of the structure."""

    @abc.abstractmethod
    def _rebuild(self) -> None:
        """Make the structure anew from `rows.live`."""

    @abc.abstractmethod
    def _candidates(self, probe: Floats) -> Ints:
        """The rows, of those that have a predicate, all of whose predicates hold for the probe."""

    def add(self, subscription: Subscription) -> None:
        self._forget([subscription.id])
        for row in self._register(subscription):
            codes, keys = self.rows.keys(row)
            if len(codes):
                self._insert(row, codes, keys)

    def add_all(self, subscriptions: Iterable[Subscription]) -> None:
        last = {subscription.id: subscription for subscription in subscriptions}
        if _MANY * len(last) < len(self):
            for subscription in last.values():
                self.add(subscription)
            return
        self._forget(last)
        for subscription in last.values():
            self._register(subscription)
        self._rebuild()

    def add_boxes(self, ids: Sequence[str], boxes: Boxes) -> None:
        checked_ids(ids, boxes)
        self._forget(ids)
        counts = np.diff(boxes.pointers)
        # What the columns of a box cannot say exactly goes the way of any other condition.
        odd = np.isposinf(boxes.low) | np.isneginf(boxes.high)
        for bound, is_open in ((boxes.low, boxes.open_low), (boxes.high, boxes.open_high)):
            odd |= is_open & (np.abs(bound) >= 2.0**53) & np.isfinite(bound)
        alone = (counts == 0) | (counts > self.most_predicates // 2)
        alone[np.repeat(np.arange(len(boxes)), counts)[odd]] = True
        for box in np.flatnonzero(alone).tolist():
            self._register(boxes.subscription(box, ids[box]))
        self._register_boxes([ids[box] for box in np.flatnonzero(~alone).tolist()], boxes, ~alone)
        self._rebuild()

    def remove(self, id: str) -> None:
        slot = self.slot_of(id)
        rows, first = self.rows, int(self._first[slot])
        row = first
        while row != NONE:
            following = int(rows.next[row])
            codes, keys = rows.keys(row)
            if len(codes):
                self._delete(row, codes, keys)
            self._everywhere.pop(row, None)
            self._alternatives -= row != first
            rows.free(row)
            row = following
        del self.slots[id]
        self.ids[slot], self.owners[slot] = None, ""
        self._conditions.pop(slot, None)
        self._verified[slot] = False
        self._free_slots.append(slot)
        if rows.dead > _FEW_PREDICATES and 2 * rows.dead > rows.used:
            self._become(self._state())

    def encode(self, attributes: Mapping[str, Value]) -> Encoded:
        return self.families.probe(attributes), attributes

    def find(self, encoded: Encoded) -> Slots:
        probe, attributes = encoded
        if probe.shape[1] != self.families.dimensions:  # encoded before the engine changed
            probe = self.families.probe(attributes)
        rows = self._candidates(probe)
        if self._everywhere:
            rows = np.concatenate([rows, np.fromiter(self._everywhere, np.int32)])
        slots = self.rows.slot[rows]
        if self._alternatives:
            slots = np.unique(slots)
        if not self._conditions:
            return slots
        doubtful, conditions, missing = self._verified[slots], self._conditions, self.missing
        confirmed = [slot for slot in slots[doubtful].tolist() if matches(conditions[slot], attributes, missing)]
        return np.concatenate([slots[~doubtful], np.array(confirmed, np.int32)])

    def match_region(self, region: Region) -> list[str]:
        wanted = conjunction(region.predicates)
        candidates = self._candidates(self.families.region_probe(region.predicates)).tolist()
        held: dict[int, bool] = {}
        for row in [*candidates, *self._everywhere]:
            slot = int(self.rows.slot[row])
            condition = self._conditions.get(slot)
            if condition is None:
                held[slot] = held.get(slot, False) or satisfiable(region.predicates + self.rows.predicates(row))
            elif slot not in held:
                held[slot] = overlaps(wanted, condition)
        return self.names(np.array([slot for slot, true in held.items() if true], np.int32))

    def nbytes(self) -> int:
        """All arrays, the structure's among them."""
        return self.rows.nbytes() + sum(held.nbytes for held in vars(self).values() if isinstance(held, np.ndarray))

    def indexed(self) -> float:
        return 1 - len(self._conditions) / max(1, len(self))

    def snapshot(self) -> bytes:
        return sealed(self.name, msgspec.msgpack.encode(self._state()))

    @classmethod
    def load(cls, buffer: bytes | memoryview) -> Self:
        state = msgspec.msgpack.decode(unsealed(cls.name, buffer), type=_State)
        engine = cls(state.missing)
        engine._become(state)
        return engine

    def _forget(self, ids: Iterable[str]) -> None:
        for id in [id for id in ids if id in self.slots]:
            self.remove(id)

    def _register(self, subscription: Subscription) -> list[int]:
        """Give a new subscription its slot and rows; the structure does not know them yet."""
        condition, families = subscription.condition, self.families
        slot = self._new_slot(subscription.id, subscription.subscriber)
        rows: list[int] = []
        for alternative in _alternatives(condition):
            placed = [place for predicate in alternative.predicates if (place := families.place(predicate))]
            places = placed[: self.most_predicates]
            if len(places) < len(alternative.predicates) or alternative.residuals:
                self._conditions[slot] = condition
                self._verified[slot] = True
            row = self.rows.new(slot, int(self._first[slot]), places)
            if not places:
                self._everywhere[row] = None
            self._first[slot] = row
            rows.append(row)
        self._alternatives += max(0, len(rows) - 1)
        return rows

    def _new_slot(self, id: str, owner: str) -> int:
        if self._free_slots:
            slot = self._free_slots.pop()
            self.ids[slot], self.owners[slot] = id, owner
        else:
            slot = len(self.ids)
            self.ids.append(id)
            self.owners.append(owner)
            self._first, self._verified = grown(slot + 1, self._first, self._verified)
        self._first[slot] = NONE
        self.slots[id] = slot
        return slot

    def _new_slots(self, ids: list[str], owners: list[str]) -> Ints:
        """Many slots, all of them behind those there are."""
        slots = np.arange(len(self.ids), len(self.ids) + len(ids), dtype=np.int32)
        self._first, self._verified = grown(len(self.ids) + len(ids), self._first, self._verified)
        self._first[slots] = NONE
        self.slots.update(zip(ids, slots.tolist(), strict=True))
        self.ids.extend(ids)
        self.owners.extend(owners)
        return slots

    def _register_boxes(self, ids: list[str], boxes: Boxes, chosen: Flags) -> None:
        """As `_register`, for many boxes at once."""
        entries = np.repeat(chosen, np.diff(boxes.pointers))
        columns = (boxes.attribute, boxes.low, boxes.high, boxes.open_low, boxes.open_high)
        attribute, low, high, open_low, open_high = (column[entries] for column in columns)
        of = np.repeat(np.arange(len(ids)), np.diff(boxes.pointers)[chosen])
        equal = (low == high) & ~open_low & ~open_high
        placed: list[tuple[Any, Any, Any]] = []
        for direction, used, bound, is_open in (
            (EQUAL, equal, low, np.zeros_like(open_low)),
            (LOWER, ~equal & (low > -np.inf), low, open_low),
            (UPPER, ~equal & (high < np.inf), high, open_high),
        ):
            numbers = np.zeros(len(boxes.names), np.int32)
            for name in np.flatnonzero(np.bincount(attribute[used], minlength=len(boxes.names))).tolist():
                numbers[name] = self.families.number(Family(boxes.names[name], NUMBER, direction))
            placed.append((2 * numbers[attribute[used]] + is_open[used], bound[used] + 0.0, of[used]))
        codes, thresholds, of = (np.concatenate(column) for column in zip(*placed, strict=True))
        order = np.lexsort((codes >> 1, self.families.direction[codes >> 1] != EQUAL, of))
        slots = self._new_slots(ids, ["boxes"] * len(ids))
        self._extend(slots, np.bincount(of, minlength=len(ids)).astype(np.int32), codes[order], thresholds[order])

    def _extend(self, slots: Ints, counts: Ints, codes: Ints, thresholds: Floats) -> None:
        rows = self.rows.extend(slots, counts, codes.astype(np.int32), thresholds)
        self._first[slots[::-1]] = rows[::-1]  # the first row of a slot is written last
        self._alternatives += len(rows) - len(np.unique(slots))
        self._everywhere.update(dict.fromkeys(rows[counts == 0].tolist()))

    def _state(self) -> _State:
        rows, families = self.rows, self.families
        held = [slot for slot, id in enumerate(self.ids) if id is not None]
        renumbered = np.full(len(self.ids), NONE, np.int32)
        renumbered[held] = np.arange(len(held), dtype=np.int32)
        ordered = rows.by_slot()
        places = rows.places(ordered)
        codes, thresholds = rows.codes[places], rows.thresholds[places]
        numbers, codes_left = np.unique(codes >> 1, return_inverse=True)
        used = [families.families[number] for number in numbers.tolist()]
        is_text = np.array([family.kind == STRING for family in used], bool)[codes_left]
        texts, thresholds[is_text] = np.unique(thresholds[is_text], return_inverse=True)
        return _State(
            self.missing,
            [id for id in self.ids if id is not None],
            [self.owners[slot] for slot in held],
            [tuple(family) for family in used],
            [families.texts[int(code)] for code in texts],
            renumbered[rows.slot[ordered]].astype("<i4").tobytes(),
            rows.count[ordered].astype("<i4").tobytes(),
            (2 * codes_left + (codes & 1)).astype("<i4").tobytes(),
            thresholds.astype("<f8").tobytes(),
            {int(renumbered[slot]): condition for slot, condition in self._conditions.items()},
        )

    def _become(self, state: _State) -> None:
        self._clear()
        for family in state.families:
            self.families.number(Family(*family))
        for text in state.texts:
            self.families.code(text)
        self._new_slots(state.ids, state.owners)
        slots, counts, codes = (
            np.frombuffer(column, "<i4").astype(np.int32) for column in (state.slots, state.counts, state.codes)
        )
        self._extend(slots, counts, codes, np.frombuffer(state.thresholds, "<f8").astype(np.float64))
        self._conditions = state.conditions
        self._verified[list(state.conditions)] = True
        self._rebuild()


def _alternatives(condition: Filter) -> Sequence[Conjunction]:
    """The normal form; the common case, a conjunction of predicates, without the detour."""
    if type(condition) is And and all(type(part) is Predicate for part in condition.parts):
        return (Conjunction(condition.parts),)  # type: ignore[arg-type]
    return normal_form(condition)
