"""The order of lanes in a segment: boxes that an event is likely to meet together stand together.

a) Where a box has one very selective row (an equality on a large domain, an id, an element of a set), boxes are grouped by
   the dimension of that row, so that an event without it passes them all by.
b) Each group is cut again and again (cuts.py), by what at most 512 of its boxes say about the best cut, until the parts fit
   into leaves. Cuts below 512 boxes are moved so that leaves are full.

Records are sparse (codes.py): cost and memory follow the rows that there are, however many dimensions are known. About 0.8 us
per box of five rows.
"""

from typing import Any

import numpy as np

from tidings.compiled import kernel
from tidings.matching.boxtree.codes import Codes, dim_of, high_of, low_of
from tidings.matching.boxtree.cuts import (
    BEGIN,
    DIMS,
    SMALLEST_SIDE,
    Workbench,
    best_cut,
    collect,
    near_end,
    select,
    share,
)
from tidings.matching.boxtree.memory import Bytes, Floats, Ints, Longs, Words, ints, longs, words
from tidings.matching.boxtree.vector import LANES

STRONG = 0.004  # a row that so few events satisfy is worth a group
_PREFERRED = 0.7  # a less used dimension must be this much stronger to be preferred
_SAMPLE = 256  # boxes that a cut is estimated from, up to twice as many
_FILLED = 8 * LANES  # below this, cuts keep leaves full
_WINDOW, _WINDOW_RECORDS = 4_096, 65_536  # lanes, and their records, that are brought together to stay in the cache


@kernel(
    "void(int64[::1], uint64[::1], float64[::1], float64[::1], uint8[::1], int32[::1])",
    nogil=True,
)
def group_lanes(starts: Longs, records: Words, codes: Floats, presence: Floats, grouping: Bytes, group: Ints) -> None:
    """group[lane] = 1 + the dimension of its strongest row among those that group; 0 if it has none."""
    for lane in range(group.size):
        best, chosen = STRONG, -1
        for k in range(starts[lane], starts[lane + 1]):
            a = dim_of(records[k])
            if grouping[a]:
                best = min(best, share(low_of(records[k]), high_of(records[k]), codes[a], presence[a]))
        for k in range(starts[lane], starts[lane + 1]):
            a = dim_of(records[k])
            if grouping[a]:
                admits = share(low_of(records[k]), high_of(records[k]), codes[a], presence[a])
                if admits < STRONG and _PREFERRED * admits <= best and (chosen < 0 or a < chosen):
                    chosen = a
        group[lane] = chosen + 1


@kernel(
    "void(int64[::1], uint64[::1], int64, float64[::1], float64[::1], int64[::1], int64[::1])",
    nogil=True,
)
def count_strong(
    starts: Longs, records: Words, step: int, codes: Floats, presence: Floats, rows: Longs, strong: Longs
) -> None:
    """Per dimension, among every `step`-th lane: how many rows there are, and how many of them are strong."""
    for lane in range(0, starts.size - 1, step):
        for k in range(starts[lane], starts[lane + 1]):
            a = dim_of(records[k])
            rows[a] += 1
            if share(low_of(records[k]), high_of(records[k]), codes[a], presence[a]) < STRONG:
                strong[a] += 1


@kernel("void(int32[::1], int64[::1], int32[::1])", nogil=True)
def sort_groups(group: Ints, groups: Longs, lanes: Ints) -> None:
    """The lanes sorted by group, those of groups too small for a leaf before all others; group g begins at groups[g]."""
    for lane in range(group.size):
        groups[group[lane] + 1] += 1
    few = 0
    for g in range(1, groups.size - 1):
        if groups[g + 1] < LANES:
            few += groups[g + 1]
            groups[g + 1] = -1
    groups[1] += few
    for lane in range(group.size):
        if groups[group[lane] + 1] < 0:
            group[lane] = 0
    for g in range(1, groups.size):
        groups[g] = groups[g - 1] + max(0, groups[g])
    for lane in range(group.size):  # groups[g] runs from its beginning to its end, which is the next one's beginning
        g = group[lane]
        lanes[groups[g]] = lane
        groups[g] += 1
    for g in range(groups.size - 1, 0, -1):
        groups[g] = groups[g - 1]
    groups[0] = 0


@kernel(
    "int64(int64[::1], uint64[::1], int32[::1], int64[::1], float64[::1], float64[::1], int64[::1], int32[::1], int64[::1],"
    "int64[::1])",
    nogil=True,
)
def order_lanes(
    all_starts: Longs,
    all_records: Words,
    order: Ints,
    groups: Longs,
    codes: Floats,
    presence: Floats,
    workbench: Longs,
    workspace: Ints,
    window: Longs,
    cuts: Longs,
) -> Any:
    """Reorder the lanes inside of their groups; leaf i becomes cuts[i] to cuts[i + 1]. Returns the number of leaves.

    `workspace` is two numbers per lane; `window` is as large as _WINDOW and _WINDOW_RECORDS say.
    """
    total = order.size
    bench, lanes = longs(workbench.ctypes.data), ints(order.ctypes.data)
    dims, begin = ints(bench[DIMS]), ints(bench[BEGIN])
    keys, moved = ints(workspace.ctypes.data), ints(workspace.ctypes.data + 4 * total)
    starts, records = longs(all_starts.ctypes.data), words(all_records.ctypes.data)
    window_starts, window_records = longs(window.ctypes.data), words(window.ctypes.data + 8 * (_WINDOW + 1))
    window_lanes = ints(window.ctypes.data + 8 * (_WINDOW + 1 + _WINDOW_RECORDS))
    window_starts[0] = 0
    window_first = window_last = 0
    stack = np.empty((groups.size + 4096, 2), np.int64)
    depth = 0
    for g in range(groups.size - 2, -1, -1):
        if groups[g + 1] > groups[g]:
            stack[depth, 0], stack[depth, 1] = groups[g], groups[g + 1]
            depth += 1
    leaves = 0
    while depth > 0:
        depth -= 1
        first, last = stack[depth, 0], stack[depth, 1]
        size = last - first
        if first >= window_last and window_last > window_first:
            for i in range(window_first, window_last):
                lanes[i] = window_lanes[lanes[i]]
            window_first = window_last = 0
            starts, records = longs(all_starts.ctypes.data), words(all_records.ctypes.data)
        if size <= LANES:
            cuts[leaves] = first
            leaves += 1
            continue
        if size <= _WINDOW and window_last == 0:
            end = 0
            for i in range(size):
                lane = np.int64(lanes[first + i])
                if end + starts[lane + 1] - starts[lane] > _WINDOW_RECORDS:
                    end = -1
                    break
                for k in range(starts[lane], starts[lane + 1]):
                    window_records[end] = records[k]
                    end += 1
                window_lanes[i] = lane
                window_starts[i + 1] = end
            if end >= 0:
                window_first, window_last = first, last
                starts, records = window_starts, window_records
                for i in range(size):
                    lanes[first + i] = i
        step = max(1, size // _SAMPLE)
        sampled = (size + step - 1) // step
        columns = collect(starts, records, lanes, first, last, step, bench)
        best, best_dim, best_sign, threshold = 2.0, np.int64(-1), 1, np.int64(0)
        for c in range(columns):
            a, absent = np.int64(dims[c]), sampled - (begin[c + 1] - begin[c])
            if (sampled - absent) * SMALLEST_SIDE < sampled:
                continue
            for sign in (1, -1):
                cost, at = best_cut(begin[c], begin[c + 1], sign, absent, codes[a], presence[a], bench)
                if cost < best:
                    best, best_dim, best_sign, threshold = cost, a, sign, at
        cut = first
        if best_dim >= 0:
            right = 0
            for i in range(first, last):
                lane = lanes[i]
                key = near_end(starts, records, np.int64(lane), best_dim, best_sign)
                if key < threshold:
                    keys[cut - first] = key
                    lanes[cut] = lane
                    cut += 1
                else:
                    keys[total - 1 - right] = key
                    moved[right] = lane
                    right += 1
            for i in range(right):
                lanes[cut + i] = moved[i]
            if size <= _FILLED:
                for i in range(right):
                    moved[i] = keys[total - 1 - i]
                for i in range(right):
                    keys[cut - first + i] = moved[i]
                full = first + max(1, (cut - first + LANES // 2) // LANES) * LANES
                if full >= last:
                    full = first + (size - 1) // LANES * LANES
                if full > cut:
                    select(keys, lanes, first, cut, last, full)
                elif full < cut:
                    select(keys, lanes, first, first, cut, full)
                cut = full
        if cut <= first or cut >= last:
            cut = first + max(1, size // 2 // LANES) * LANES
        stack[depth, 0], stack[depth, 1] = cut, last
        stack[depth + 1, 0], stack[depth + 1, 1] = first, cut
        depth += 2
    for i in range(window_first, window_last):
        lanes[i] = window_lanes[lanes[i]]
    cuts[leaves] = total
    return leaves


def ordered(starts: Longs, records: Words, codes: Codes, presence: Floats) -> tuple[Ints, Longs]:
    """All lanes in a good order, and where its leaves begin (and the last one ends)."""
    count = len(starts) - 1
    widths = codes.counts()
    group = np.zeros(count, np.int32)
    rows, strong = np.zeros(len(widths), np.int64), np.zeros(len(widths), np.int64)
    count_strong(starts, records, max(1, count // 4096), widths, presence, rows, strong)
    grouping = (2 * strong >= rows) & (rows > 0)
    if grouping.any():
        group_lanes(starts, records, widths, presence, grouping.astype(np.uint8), group)
    lanes, groups = np.empty(count, np.int32), np.zeros(len(widths) + 2, np.int64)
    sort_groups(group, groups, lanes)
    cuts = np.empty(count + 2, np.int64)
    room = min(int(starts[-1]), 2 * _SAMPLE * int(np.diff(starts).max(initial=0))) + 1
    bench, workspace = Workbench(room, len(widths)), np.empty(2 * count, np.int32)
    window = np.empty(2 * (_WINDOW + 1) + _WINDOW_RECORDS, np.int64)
    leaves = order_lanes(starts, records, lanes, groups, widths, presence, bench.table, workspace, window, cuts)
    return lanes, cuts[: leaves + 1].copy()
