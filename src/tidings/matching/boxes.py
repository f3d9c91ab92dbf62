"""Boxes: many conjunctions of number comparisons as columns, for loading a million subscriptions without a million objects.

Box i owns the entries `pointers[i]:pointers[i + 1]`, each a range of one attribute; an infinite end is no bound, two equal
closed ends are an equality. A box may have any number of entries, and several on one attribute.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tidings.errors import InvalidInput
from tidings.model.filter import Op, Predicate, conjunction
from tidings.model.subscription import Subscription

Array = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Boxes:
    names: tuple[str, ...]  # attributes, by number
    pointers: Array  # int64, one more than boxes
    attribute: Array  # int32, per entry: index into names
    low: Array  # float64, per entry
    high: Array  # float64, per entry
    open_low: Array  # bool, per entry: `>` rather than `>=`
    open_high: Array  # bool, per entry: `<` rather than `<=`

    def __len__(self) -> int:
        return len(self.pointers) - 1

    def checked(self) -> "Boxes":
        """Itself, or InvalidInput: columns of different lengths, bad pointers, NaN, or an entry without a finite bound."""
        entries = len(self.attribute)
        if any(len(column) != entries for column in (self.low, self.high, self.open_low, self.open_high)):
            raise InvalidInput("boxes: the columns of the entries have different lengths")
        if self.pointers[0] != 0 or self.pointers[-1] != entries or (np.diff(self.pointers) < 0).any():
            raise InvalidInput(f"boxes: pointers must rise from 0 to {entries}, the number of entries")
        if entries and not 0 <= self.attribute.min() <= self.attribute.max() < len(self.names):
            raise InvalidInput(f"boxes: an attribute number is outside of 0 to {len(self.names) - 1}")
        bounded = np.isfinite(self.low) | np.isfinite(self.high)
        if not bounded.all() or np.isnan(self.low).any() or np.isnan(self.high).any():
            raise InvalidInput("boxes: each entry needs a finite bound, and NaN is no bound")
        return self

    def predicates(self, box: int) -> tuple[Predicate, ...]:
        found: list[Predicate] = []
        for entry in range(int(self.pointers[box]), int(self.pointers[box + 1])):
            name = self.names[self.attribute[entry]]
            low, high = float(self.low[entry]), float(self.high[entry])
            if low == high and not self.open_low[entry] and not self.open_high[entry]:
                found.append(Predicate(name, Op.EQ, low))
                continue
            if low > -np.inf:
                found.append(Predicate(name, Op.GT if self.open_low[entry] else Op.GE, low))
            if high < np.inf:
                found.append(Predicate(name, Op.LT if self.open_high[entry] else Op.LE, high))
        return tuple(found)

    def subscription(self, box: int, id: str, subscriber: str = "boxes") -> Subscription:
        return Subscription(id, subscriber, conjunction(self.predicates(box)))


def checked_ids(ids: Sequence[str], boxes: Boxes) -> None:
    """Nothing, or InvalidInput: an id for each box, no id twice, and boxes that are well formed."""
    boxes.checked()
    if len(ids) != len(boxes) or len(set(ids)) != len(ids):
        raise InvalidInput(f"boxes: expected {len(boxes)} different ids, found {len(set(ids))} among {len(ids)}")
