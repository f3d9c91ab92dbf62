"""Random events and filters of every kind of value, from one seed."""

import datetime
import random
from typing import Any

NUMBERS, WORDS, TAGS = range(6), ["a", "ab", "abc", "b", "ba", ""], ["x", "y", "z"]
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
SCHEMA = (
    "id string, type string, timestamp timestamp, timeout_s double, n long, f double, s string, b boolean, d timestamp, "
    "tags array<string>, nums array<double>, deep struct<x: double, y: struct<z: string>>, open map<string, double>"
)


def event(chance: random.Random, number: int) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    return {
        "id": f"e{number}",
        "type": chance.choice(["quote", "trade"]),
        "timestamp": NOON + datetime.timedelta(seconds=number),
        "timeout_s": maybe(float(chance.choice([5, 30, 1e9]))),
        "n": maybe(chance.choice([*NUMBERS, 2**53 + 1])),
        "f": maybe(chance.choice([0.0, -0.0, 0.5, 1.0, 2.5, float(2**53), float("inf")])),
        "s": maybe(chance.choice(WORDS)),
        "b": maybe(chance.random() < 0.5),
        "d": maybe(NOON + datetime.timedelta(hours=chance.randrange(4))),
        "tags": maybe(chance.sample(TAGS, chance.randrange(4))),
        "nums": maybe([float(n) for n in chance.sample(NUMBERS, chance.randrange(4))]),
        "deep": maybe({"x": maybe(float(chance.choice(NUMBERS))), "y": maybe({"z": maybe(chance.choice(WORDS))})}),
        "open": maybe({name: float(chance.choice(NUMBERS)) for name in chance.sample(["p", "q"], chance.randrange(3))}),
    }


def attributes(row: dict[str, Any]) -> dict[str, Any]:
    """The same event as the embedded matcher takes it."""
    deep = row["deep"] or {}
    found = {name: row[name] for name in ("n", "f", "s", "b", "d", "tags", "nums")}
    found |= {"deep.x": deep.get("x"), "deep.y.z": (deep.get("y") or {}).get("z"), **(row["open"] or {})}
    return {name: value for name, value in found.items() if value is not None}


def leaf(chance: random.Random) -> str:
    compare = chance.choice(["=", "<>", "<", "<=", ">", ">="])
    number = chance.choice([*NUMBERS, 0.5, 2.5, 2**53 + 1, -1])
    word, tag = chance.choice(WORDS), chance.choice(TAGS)
    hour = chance.randrange(10, 16)
    return chance.choice(
        [
            f"{chance.choice(['n', 'f', 'p', 'q', 'deep.x'])} {compare} {number}",
            f"n BETWEEN {chance.randrange(3)} AND {chance.randrange(3, 6)}",
            f"s {compare} '{word}'",
            f"s STARTS WITH '{word}'",
            f"s ENDS WITH '{word}'",
            f"s LIKE '%{word}%'",
            f"deep.y.z IN ('{word}', 'b')",
            f"b = {chance.choice(['TRUE', 'FALSE'])}",
            f"d {compare} TIMESTAMP '2026-01-01T{hour}:00:00Z'",
            f"tags CONTAINS '{tag}'",
            f"tags SUBSET OF ('{tag}', 'y')",
            f"nums SUPERSET OF ({chance.choice(NUMBERS)}, 1)",
            f"{chance.choice(['n', 's', 'tags', 'p', 'd'])} IS {chance.choice(['', 'NOT '])}NULL",
            f"n + 1 {compare} f * 2",
            f"n {compare} p",
        ]
    )


def condition(chance: random.Random, depth: int = 2) -> str:
    if depth == 0 or chance.random() < 0.3:
        return leaf(chance)
    parts = [condition(chance, depth - 1) for _ in range(chance.randrange(2, 4))]
    text = f" {chance.choice(['AND', 'AND', 'OR'])} ".join(f"({part})" for part in parts)
    return f"NOT ({text})" if chance.random() < 0.15 else text


def subscription(chance: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": f"s{number}",
        "types": chance.choice([None, [], ["quote"], ["quote", "trade"]]),
        "filter": condition(chance),
        "deadline_s": chance.choice([None, 20.0, 60.0]),
        "price": float(chance.randrange(1, 4)),
        "penalty": chance.choice([0.1, 0.3]),
        "subscriber": f"client{number % 7}",
        "home": f"broker{number % 3}",
    }
