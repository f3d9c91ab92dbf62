"""The dry run: what a table of subscriptions would cost, and what in it cannot work, without running anything.

Memory is that of the compiled engine of a sample, scaled up; the index serves a subscription whose filter consists of predicates
(an attribute against a constant), while comparisons of expressions are verified on every candidate.
"""

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidings.broker import catalog
from tidings.model.filter import Comparison, Op, Predicate, leaves, names
from tidings.model.value import kind
from tidings.spark.compiled import SHARE_BYTES
from tidings.spark.schema import Roles, incomparable, kinds, resolve
from tidings.spark.subscriptions import Problem, parsed

if TYPE_CHECKING:
    from pyspark.sql import types as T

SAMPLE = 50_000


class Estimate(msgspec.Struct, frozen=True):
    subscriptions: int
    usable: int
    problems: tuple[str, ...]
    indexed: float  # share of the usable
    bytes_per_subscription: float
    memory_bytes: int
    shards: int
    attributes: dict[str, int]  # how many filters ask for it
    absent: tuple[str, ...] = ()  # attributes that no column can hold
    incomparable: tuple[str, ...] = ()  # columns that no filter can compare
    never: tuple[str, ...] = ()  # attributes that filters compare with another kind than their column has


def estimate(
    table: pa.Table,
    schema: "T.StructType | None" = None,
    roles: Roles = Roles(),
    *,
    engine: str | None = None,
    share_bytes: int = SHARE_BYTES,
) -> Estimate:
    """The report on a table in normal form, and on a schema of events if there is one."""
    problems: list[Problem] = []
    asked: Counter[str] = Counter()
    constants: dict[str, Counter[str]] = {}
    usable = indexed = 0
    matcher = catalog.matcher(engine or catalog.DEFAULT_MATCHER)()
    sample: list[Any] = []
    for _, subscription in parsed(table, problems):
        usable += 1
        found = list(leaves(subscription.filter))
        indexed += not any(isinstance(leaf, Comparison) for leaf in found)
        asked.update(names(subscription.filter))
        for leaf in found:
            if isinstance(leaf, Predicate) and leaf.value is not None:
                constants.setdefault(leaf.attribute, Counter())[_kind_wanted(leaf)] += 1
        if len(sample) < SAMPLE:
            sample.append(subscription)
    matcher.add_all(sample)
    each = len(matcher.snapshot()) / max(1, len(sample))
    absent: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    if schema is not None:
        absent = tuple(resolve(schema, list(asked), roles, None, lenient=True).absent)
        bad = tuple(incomparable(schema, roles))
        have = kinds(schema)
        never = tuple(
            f"{name}: {count} filters compare it with a {wanted}, but the column is a {have[name]}"
            for name, counted in sorted(constants.items())
            for wanted, count in counted.items()
            if name in have and wanted not in ("any", have[name])
        )
    return Estimate(
        len(table),
        usable,
        tuple(map(str, problems)),
        indexed / usable if usable else 1.0,
        each,
        round(each * usable),
        max(1, math.ceil(each * usable / share_bytes)),
        dict(asked.most_common()),
        absent,
        bad,
        never,
    )


def _kind_wanted(leaf: Predicate) -> str:
    """The kind of value that a predicate can be true of."""
    if leaf.op in (Op.IN, Op.NOT_IN):
        return kind(next(iter(leaf.value), "")) if leaf.value else "any"
    if leaf.op in (Op.CONTAINS, Op.NOT_CONTAINS):
        return "any"
    return kind(leaf.value)
