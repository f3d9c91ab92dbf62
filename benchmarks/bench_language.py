"""How fast filter text becomes a filter, and that LIKE takes linear time.

Parsing: the filters of ceem's first experiment (8 predicates: 2 equalities, 3 ranges), once each with attribute names never seen
before (a new shape) and once with new constants only (a kept shape). The goal is 40 and 20 microseconds; the ratio to building
the same filter by hand is what can be compared between machines.

LIKE: patterns that make a backtracking matcher hang, on strings of doubling length. The goal is a factor of 2 at most; the first
pattern stays below it, because its end is looked at first.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tidings.language import parse
from tidings.model.filter import And, Filter, Op, Predicate
from tidings.model.like import compiled

HOSTILE = ["%a%a%a%a%a%a%a%a%b", "%a%a%a%a%a%a%a%a%b%", "%a_a%a_a%a_a%a_b%"]
LENGTHS = [25_000, 50_000, 100_000, 200_000]
FILTERS = 2_000
ROUNDS = 7


def constants(rng: random.Random) -> list[int]:
    ranges = [sorted((rng.randrange(65_536), rng.randrange(65_536))) for _ in range(3)]
    return [rng.randrange(6), rng.randrange(6), *(bound for bounds in ranges for bound in bounds)]


def ceem1(names: Sequence[str], values: Sequence[int]) -> str:
    e0, e1, r0, r1, r2 = names
    a, b, *bounds = values
    ranges = zip((r0, r1, r2), bounds[::2], bounds[1::2], strict=True)
    return f"{e0} = {a} AND {e1} = {b} AND " + " AND ".join(f"{r} > {low} AND {r} < {high}" for r, low, high in ranges)


def by_hand(values: Sequence[int]) -> Filter:
    names = ["e0", "e1", "r0", "r0", "r1", "r1", "r2", "r2"]
    ops = [Op.EQ, Op.EQ, *(Op.GT, Op.LT) * 3]
    return And(tuple(map(Predicate, names, ops, values)))


def microseconds(run: Callable[[Any], object], items: Sequence[Sequence[Any]]) -> float:
    """CPU time per item: the best round, because other work only ever adds."""
    best = float("inf")
    for round_items in items:
        start = time.process_time()
        for item in round_items:
            run(item)
        best = min(best, time.process_time() - start)
    return best / len(items[0]) * 1e6


def parsing() -> list[dict[str, Any]]:
    rng = random.Random(1)
    values = [[constants(rng) for _ in range(FILTERS)] for _ in range(ROUNDS)]
    plain = ["e0", "e1", "r0", "r1", "r2"]
    kept = [[ceem1(plain, v) for v in part] for part in values]
    new = [
        [ceem1([f"{name}_{r}_{i}" for name in plain], v) for i, v in enumerate(part)] for r, part in enumerate(values)
    ]
    mixed = [
        [f"(s LIKE 'x{v[2]}%_' OR s IN ('a{v[3]}', 'b')) AND r0 BETWEEN -{v[4]} AND {v[5]} AND {v[0]} < a + {v[1]} AND "
         f"d > DATE '2026-11-{v[0] + 10}'" for v in part]
        for part in values
    ]  # fmt: skip
    rows = [
        ("by hand, 8 predicates", microseconds(by_hand, values), 8, None),
        ("new shape, 8 predicates", microseconds(parse, new), 8, 40),
        ("kept shape, 8 predicates", microseconds(parse, kept), 8, 20),
        ("kept shape, LIKE IN BETWEEN DATE + (6)", microseconds(parse, mixed), 6, None),
        ("print, 8 predicates", microseconds(str, [[parse(text) for text in part] for part in kept[:2]]), 8, None),
    ]
    base = rows[0][1]
    return [
        {"what": what, "us": us, "us_per_predicate": us / n, "times_by_hand": us / base, "goal_us": goal}
        for what, us, n, goal in rows
    ]


def like() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for pattern in HOSTILE:
        matches, before = compiled(pattern), None
        for length in LENGTHS:
            us = microseconds(matches, [["a" * length] * 5] * ROUNDS)
            rows.append({"pattern": pattern, "letters": length, "us": us, "growth": us / before if before else None})
            before = us
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = arguments.parse_args().json
    result = {"parse": parsing(), "like": like()}
    if as_json:
        json.dump(result, sys.stdout, indent=2)
        print()
        return
    print(f"{'parse':<40} {'us':>8} {'us/predicate':>13} {'x by hand':>10} {'goal':>6}")
    for row in result["parse"]:
        goal = f"{row['goal_us']:>6}" if row["goal_us"] else ""
        print(
            f"{row['what']:<40} {row['us']:>8.1f} {row['us_per_predicate']:>13.2f} {row['times_by_hand']:>10.1f} {goal}"
        )
    print(f"\n{'LIKE':<24} {'letters a':>10} {'us':>10} {'growth':>8}")
    for row in result["like"]:
        growth = f"{row['growth']:>8.2f}" if row["growth"] else ""
        print(f"{row['pattern']:<24} {row['letters']:>10,} {row['us']:>10.1f} {growth}".rstrip())


if __name__ == "__main__":
    main()
