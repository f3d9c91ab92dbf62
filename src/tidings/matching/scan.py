"""scan: every subscription is a range of each column; an event is compared with whole columns by NumPy.

No paper: what an array language does well without any index, and so the least that an index has to beat. Whole columns are
compared while many subscriptions are left, then only those that are.

Cost: O(subscriptions) per event, 16 bytes per subscription and attribute, whether the subscription mentions it or not.
"""

import numpy as np

from tidings.matching.conjunctive import ConjunctiveMatcher, Flags
from tidings.matching.families import ABOVE, BELOW, EQUAL, LOWER, UPPER, Floats, Ints, Ranges, ranges
from tidings.matching.rows import Longs

BOTH = 3  # a dimension with bounds of several directions
_FEW = 8  # indices pay off when less than one row in so many is left


class Scan(ConjunctiveMatcher):
    name = "scan"

    def _clear(self) -> None:
        super()._clear()
        self._low: Floats = np.empty((0, 0))  # dimension, row; -inf and inf where a row says nothing
        self._high: Floats = np.empty((0, 0))
        self._equal: Longs = np.zeros(0, np.int64)  # dimension -> rows that allow just one value
        self._columns: list[tuple[int, int]] = []  # dimension, direction: what has to be compared, equalities first
        self._known_families = 0

    def _insert(self, row: int, codes: Ints, keys: Floats) -> None:
        self._make_room()
        box = self._box(codes, keys)
        self._low[:, row], self._high[:, row] = -np.inf, np.inf
        self._low[box.dimension, row], self._high[box.dimension, row] = box.low, box.high
        self._equal[box.dimension] += box.low == box.high

    def _delete(self, row: int, codes: Ints, keys: Floats) -> None:
        """A row without predicates is left out of the answers; its columns may stay."""
        box = self._box(codes, keys)
        self._equal[box.dimension] -= box.low == box.high

    def _box(self, codes: Ints, keys: Floats) -> Ranges:
        return ranges(np.array([len(codes)], np.int32), codes, keys, self.families)

    def _rebuild(self) -> None:
        self._low = self._high = np.empty((0, 0))
        self._equal = np.zeros(0, np.int64)
        self._make_room()
        rows, counts, codes, keys = self.rows.live()
        boxes = ranges(counts, codes, keys, self.families)
        of = np.repeat(rows, boxes.counts)
        self._low[boxes.dimension, of], self._high[boxes.dimension, of] = boxes.low, boxes.high
        self._equal = np.bincount(boxes.dimension[boxes.low == boxes.high], minlength=len(self._low))

    def _candidates(self, probe: Floats) -> Ints:
        self._choose_columns()
        rows = self.rows.size
        every = not self.rows.unused and not self._everywhere
        mask: Flags | None = None if every else self.rows.count[:rows] > 0
        left: Longs | None = None
        for dimension, direction in self._columns:
            below, above = probe[BELOW, dimension], probe[ABOVE, dimension]
            low, high = self._low[dimension, :rows], self._high[dimension, :rows]
            if left is not None:
                if direction != UPPER:
                    left = left[low.take(left) <= below]
                if direction != LOWER:
                    left = left[high.take(left) >= above]
                continue
            if direction == EQUAL and below == above and every and self._equal[dimension] == rows:
                held = low == below
            elif direction == UPPER:
                held = high >= above
            else:
                held = low <= below
                if direction != LOWER:
                    held &= high >= above
            mask = held if mask is None else np.logical_and(mask, held, out=mask)
            if np.count_nonzero(mask) * _FEW < rows:
                left = np.flatnonzero(mask)
        if left is None:
            left = np.empty(0, np.int64) if mask is None else np.flatnonzero(mask)
        return left.astype(np.int32)

    def _choose_columns(self) -> None:
        families = self.families
        if len(families) > self._known_families:
            self._known_families = len(families)
            directions: dict[int, set[int]] = {}
            for dimension, direction in zip(families.dimension.tolist(), families.direction.tolist(), strict=True):
                directions.setdefault(dimension, set()).add(direction)
            both = {dimension: min(used) if len(used) == 1 else BOTH for dimension, used in directions.items()}
            equal = {dimension for dimension, used in directions.items() if EQUAL in used}
            self._columns = sorted(both.items(), key=lambda column: (column[0] not in equal, column[0]))

    def _make_room(self) -> None:
        families = self.families
        wide, long = self._low.shape
        if families.dimensions > wide or len(self.rows.slot) > long:
            shape = (wide if families.dimensions <= wide else max(families.dimensions, 2 * wide)), len(self.rows.slot)
            low, high = np.full(shape, -np.inf), np.full(shape, np.inf)
            low[:wide, :long], high[:wide, :long] = self._low, self._high
            self._low, self._high = low, high
            self._equal = np.append(self._equal, np.zeros(shape[0] - len(self._equal), np.int64))
