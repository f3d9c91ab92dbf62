"""Bounded disjunctive normal form: what an index can serve, and what is left to verify on its candidates.

A filter becomes alternatives (conjunctions) of predicates. Whatever is no predicate, or would make more alternatives than the
bound allows, stays whole as a residual of its conjunction, so the form always means the same as the filter.
"""

from typing import NamedTuple

from tidings.model.filter import And, Bool, Filter, Or, Predicate, conjunction, disjunction, positive

MAX_CONJUNCTIONS = 64


class Conjunction(NamedTuple):
    """All predicates and all residuals must hold."""

    predicates: tuple[Predicate, ...] = ()
    residuals: tuple[Filter, ...] = ()

    def as_filter(self) -> Filter:
        return conjunction(self.predicates + self.residuals)


def normal_form(filter: Filter, limit: int = MAX_CONJUNCTIONS) -> tuple[Conjunction, ...]:
    """Alternatives, at most `limit`; none at all for a filter that is FALSE."""
    return _alternatives(positive(filter), limit)


def as_filter(alternatives: tuple[Conjunction, ...]) -> Filter:
    return disjunction(tuple(alternative.as_filter() for alternative in alternatives))


def _alternatives(filter: Filter, limit: int) -> tuple[Conjunction, ...]:
    match filter:
        case Predicate():
            return (Conjunction((filter,)),)
        case Bool():
            return (Conjunction(),) if filter.value else ()
        case Or():
            found = tuple(c for part in filter.parts for c in _alternatives(part, limit))
            return found if len(found) <= limit else (Conjunction((), (filter,)),)
        case And():
            found = (Conjunction(),)
            for part in filter.parts:
                choices = _alternatives(part, limit)
                if len(found) * len(choices) > limit:
                    choices = (Conjunction((), (part,)),)
                found = tuple(
                    Conjunction(a.predicates + b.predicates, a.residuals + b.residuals) for a in found for b in choices
                )
            return found
        case _:
            return (Conjunction((), (filter,)),)
