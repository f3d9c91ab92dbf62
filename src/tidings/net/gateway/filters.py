"""The filter dialects of the CloudEvents Subscriptions API, as filters of ours.

`exact`, `prefix` and `suffix` name context attributes, or a member of the data as `data.name`; `sql` is the filter language of
Tidings. The dialects know two truth values: `not` also holds where the attribute is missing. `sql` keeps its three.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidings.errors import FilterError, InvalidInput
from tidings.language import parse
from tidings.model.filter import (
    EVERYTHING,
    NEGATION,
    And,
    Filter,
    Not,
    Op,
    Or,
    Predicate,
    conjunction,
    disjunction,
)
from tidings.model.value import TYPE
from tidings.net.gateway.cloudevents import NAME
from tidings.net.gateway.problems import Problem, from_error

_DATA = "data."
_MAX_DEPTH = 32

Wanted = Annotated[dict[str, str], Meta(min_length=1, max_length=100)]


class Dialect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"not_": "not"}):
    """Exactly one of these."""

    exact: Wanted | UnsetType = UNSET
    prefix: Wanted | UnsetType = UNSET
    suffix: Wanted | UnsetType = UNSET
    all: Annotated[tuple["Dialect", ...], Meta(min_length=1, max_length=100)] | UnsetType = UNSET
    any: Annotated[tuple["Dialect", ...], Meta(min_length=1, max_length=100)] | UnsetType = UNSET
    not_: "Dialect | UnsetType" = UNSET
    sql: str | UnsetType = UNSET


def wanted(
    source: str | UnsetType, filters: tuple[Dialect, ...], text: str = "", text_where: str = "config.filter"
) -> Filter:
    """All of them together; a Problem that says where if one cannot be used."""
    parts = [_dialect(filter, f"filters[{place}]", False, 1) for place, filter in enumerate(filters)]
    if isinstance(source, str):
        parts.insert(0, Predicate("$source", Op.EQ, source))
    if text:
        parts.append(_parsed(text, text_where))
    return conjunction(tuple(leaf for part in parts if part != EVERYTHING for leaf in _flat(And, part)))


def _dialect(filter: Dialect, where: str, negated: bool, depth: int) -> Filter:
    """The filter, or its opposite."""
    given = [name for name in filter.__struct_fields__ if getattr(filter, name) is not UNSET]
    if len(given) != 1:
        expected = "exactly one of exact, prefix, suffix, all, any, not, sql"
        raise Problem(400, f"found {' and '.join(given).replace('_', '') or 'none'}", where, expected, kind="filter")
    if depth > _MAX_DEPTH:
        raise Problem(400, "nested too deeply", where, f"at most {_MAX_DEPTH} levels", kind="filter")
    if isinstance(filter.exact, dict):
        return _test(filter.exact, Op.EQ, f"{where}.exact", negated)
    if isinstance(filter.prefix, dict):
        return _test(filter.prefix, Op.PREFIX, f"{where}.prefix", negated)
    if isinstance(filter.suffix, dict):
        return _test(filter.suffix, Op.SUFFIX, f"{where}.suffix", negated)
    if isinstance(filter.all, tuple):
        return _joined(filter.all, f"{where}.all", negated, True, depth)
    if isinstance(filter.any, tuple):
        return _joined(filter.any, f"{where}.any", negated, False, depth)
    if isinstance(filter.not_, Dialect):
        return _dialect(filter.not_, f"{where}.not", not negated, depth + 1)
    assert isinstance(filter.sql, str)
    parsed = _parsed(filter.sql, f"{where}.sql")
    return Not(parsed) if negated else parsed


def _joined(filters: tuple[Dialect, ...], where: str, negated: bool, every: bool, depth: int) -> Filter:
    parts = [_dialect(filter, f"{where}[{place}]", negated, depth + 1) for place, filter in enumerate(filters)]
    if every != negated:
        return conjunction(tuple(leaf for part in parts for leaf in _flat(And, part)))
    return disjunction(tuple(leaf for part in parts for leaf in _flat(Or, part)))


def _test(wanted: Mapping[str, str], op: Op, where: str, negated: bool) -> Filter:
    """All attributes must fit; the opposite is that one does not, or is not there."""
    try:
        if not negated:
            return conjunction(tuple(Predicate(_name(name, where), op, value) for name, value in wanted.items()))
        return disjunction(
            tuple(
                leaf
                for name, value in wanted.items()
                for leaf in (
                    Predicate(_name(name, where), NEGATION[op], value),
                    Predicate(_name(name, where), Op.MISSING),
                )
            )
        )
    except InvalidInput as error:
        raise from_error(error, where) from None


def _name(name: str, where: str) -> str:
    if name.startswith(_DATA):
        return name.removeprefix(_DATA)
    if not NAME.fullmatch(name):
        expected = f"a context attribute (lower-case letters and digits), or a member of the data: {_DATA}name"
        raise Problem(400, f"attribute name {name!r:.80}", where, expected, kind="filter")
    return TYPE if name == "type" else f"${name}"


def _parsed(text: str, where: str) -> Filter:
    try:
        return parse(text)
    except FilterError as error:
        raise from_error(error, where) from None


def _flat(joint: type[And] | type[Or], part: Filter) -> tuple[Filter, ...]:
    return part.parts if isinstance(part, joint) else (part,)
