"""JSON patterns, as EventBridge users write them, to filters: the second front end of the same filters.

Differences from EventBridge: a dotted path is one attribute name, null means that the attribute is missing, values of other
kinds never match (`anything-but "x"` wants a string), and a set attribute is not searched for its elements. What has no
counterpart in the filter language (equals-ignore-case, cidr) is refused by name.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from tidings.errors import FilterError
from tidings.language import wildcard
from tidings.language.selector import MAX_LENGTH
from tidings.model.filter import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    NEGATION,
    And,
    Filter,
    Op,
    Or,
    Predicate,
    conjunction,
    disjunction,
    leaves,
)

_NUMERIC = {op.value: op for op in (Op.LT, Op.LE, Op.EQ, Op.GE, Op.GT)}


def from_pattern(pattern: Mapping[str, Any] | str) -> Filter:
    """The filter that a JSON pattern describes, or FilterError naming the path. The empty object matches everything."""
    if isinstance(pattern, str):
        if len(pattern) > MAX_LENGTH:
            raise FilterError(f"a pattern has at most {MAX_LENGTH:,} characters, found {len(pattern):,}")
        try:
            pattern = msgspec.json.decode(pattern)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise FilterError(f"the pattern is no JSON: {error}") from None
    filter = _object(pattern, "", "", 1)
    count = sum(1 for _ in leaves(filter))
    if count > MAX_CONDITIONS:
        raise FilterError(f"a pattern has at most {MAX_CONDITIONS:,} conditions, found {count:,}")
    return filter


def _object(pattern: Any, prefix: str, path: str, depth: int) -> Filter:
    """All fields of an object must match."""
    if not isinstance(pattern, Mapping):
        raise _error(path, "an object", pattern)
    if path and not pattern:
        raise _error(path, "an object with at least one field", pattern)
    if depth > MAX_DEPTH:
        raise FilterError(f"pattern at {path[:60]}: a pattern nests at most {MAX_DEPTH} levels deep")
    parts: list[Filter] = []
    for key, value in pattern.items():
        if not isinstance(key, str):
            raise _error(path, "a field name", key)
        here = f"{path}.{key}" if path else key or "''"
        if key == "$or":
            found = [
                _object(alternative, prefix, f"{here}[{index}]", depth + 1)
                for index, alternative in _items(value, here)
            ]
            part = disjunction(_flat(Or, found))
        elif isinstance(value, Mapping):
            part = _object(value, f"{prefix}{key}.", here, depth + 1)
        else:
            part = _field(f"{prefix}{key}", value, here)
        parts.append(part)
    return conjunction(_flat(And, parts))


def _field(name: str, wanted: Any, path: str) -> Filter:
    """One of the wanted values or tests; plain values of one kind become one IN."""
    parts: list[Filter] = []
    plain: dict[str, list[Any]] = {}
    for index, item in _items(wanted, path):
        here = f"{path}[{index}]"
        if isinstance(item, Mapping):
            parts.append(_test(name, item, here))
        elif item is None:
            parts.append(_predicate(here, name, Op.MISSING))
        else:
            plain.setdefault(_kind(item, here), []).append(item)
    exact = (_one_of(path, name, values, Op.EQ, Op.IN) for values in plain.values())
    return disjunction(_flat(Or, [*exact, *parts]))


def _test(name: str, item: Mapping[str, Any], path: str) -> Filter:
    if len(item) != 1:
        raise _error(path, "an object with one test", item)
    word, wanted = next(iter(item.items()))
    here = f"{path}.{word}"
    if word == "exists":
        if not isinstance(wanted, bool):
            raise _error(here, "true or false", wanted)
        return _predicate(here, name, Op.EXISTS if wanted else Op.MISSING)
    if word == "numeric":
        return _numeric(name, wanted, here)
    if word == "anything-but":
        return _anything_but(name, wanted, here)
    return _string_test(name, word, wanted, here)


def _string_test(name: str, word: Any, wanted: Any, path: str, negated: bool = False) -> Predicate:
    if word not in ("prefix", "suffix", "wildcard"):
        raise FilterError(
            f"pattern at {path}: expected prefix, suffix, wildcard, numeric, exists or anything-but, found {word!r}"
        )
    if not isinstance(wanted, str):
        raise _error(path, "a string", wanted)
    if word == "wildcard":
        return _guarded(path, lambda: wildcard.predicate(name, wildcard.pieces(wanted, "\\", {"*": "%"}), negated))
    op = Op.PREFIX if word == "prefix" else Op.SUFFIX
    return _predicate(path, name, NEGATION[op] if negated else op, wanted)


def _numeric(name: str, wanted: Any, path: str) -> Filter:
    """Pairs of a comparison and a number: [">", 0, "<=", 5]."""
    items = [item for _, item in _items(wanted, path)]
    if len(items) % 2:
        raise _error(path, 'pairs such as [">", 0, "<=", 5]', wanted)
    parts = []
    for index in range(0, len(items), 2):
        op, number = items[index : index + 2]
        if not isinstance(op, str) or op not in _NUMERIC:
            raise _error(f"{path}[{index}]", "one of " + " ".join(_NUMERIC), op)
        if _kind(number, f"{path}[{index + 1}]") != "number":
            raise _error(f"{path}[{index + 1}]", "a number", number)
        parts.append(_predicate(path, name, _NUMERIC[op], number))
    return conjunction(tuple(parts))


def _anything_but(name: str, wanted: Any, path: str) -> Filter:
    if isinstance(wanted, Mapping):
        if len(wanted) != 1:
            raise _error(path, "an object with one test", wanted)
        word, strings = next(iter(wanted.items()))
        return conjunction(
            tuple(
                _string_test(name, word, string, f"{path}.{word}", negated=True)
                for string in (strings if isinstance(strings, list) and strings else [strings])
            )
        )
    plain: dict[str, list[Any]] = {}
    for index, item in _items(wanted if isinstance(wanted, list) else [wanted], path):
        plain.setdefault(_kind(item, f"{path}[{index}]"), []).append(item)
    # A value has one kind: the test of that kind decides, the others are unknown.
    return disjunction(tuple(_one_of(path, name, values, Op.NE, Op.NOT_IN) for values in plain.values()))


def _one_of(path: str, name: str, values: list[Any], one: Op, many: Op) -> Filter:
    if len(values) == 1:
        return _predicate(path, name, one, values[0])
    if isinstance(values[0], bool):  # sets hold no bools
        parts = tuple(_predicate(path, name, one, value) for value in dict.fromkeys(values))
        return disjunction(parts) if one is Op.EQ else conjunction(parts)
    return _predicate(path, name, many, frozenset(values))


def _flat(joint: type[And] | type[Or], parts: list[Filter]) -> tuple[Filter, ...]:
    """No AND inside an AND, no OR inside an OR: the same filter as its text would give."""
    return tuple(leaf for part in parts for leaf in (part.parts if isinstance(part, joint) else (part,)))


def _predicate(path: str, name: str, op: Op, value: Any = None) -> Predicate:
    return _guarded(path, lambda: Predicate(name, op, value))


def _guarded(path: str, make: Callable[[], Predicate]) -> Predicate:
    try:
        return make()
    except ValueError as error:
        raise FilterError(f"pattern at {path}: {error}") from None


def _items(value: Any, path: str) -> Iterator[tuple[int, Any]]:
    if not isinstance(value, list | tuple) or not value:
        raise _error(path, "an array with at least one element", value)
    return enumerate(value)


def _kind(value: Any, path: str) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
    raise _error(path, "a string, number or bool", value)


def _error(path: str, expected: str, found: Any) -> FilterError:
    where = f"pattern at {path}" if path else "pattern"
    return FilterError(f"{where}: expected {expected}, found {_shown(found)}")


def _shown(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()[:60]
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return f"a Python {type(value).__name__}"
