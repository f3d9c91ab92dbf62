"""Patterns with wildcards as the cheapest predicate that means the same: what needs no LIKE can be served by an index."""

from collections.abc import Iterable

from tidings.model.filter import NEGATION, Op, Predicate
from tidings.model.like import ESCAPE

ANY, ONE = "%", "_"


def predicate(attribute: str, pieces: Iterable[tuple[bool, str]], negated: bool = False) -> Predicate:
    """The predicate for a pattern given as (is a wildcard, character) pairs."""
    pairs = list(pieces)
    wildcards = [character for wild, character in pairs if wild]
    plain = "".join(character for wild, character in pairs if not wild)
    if not wildcards:
        op, value = Op.EQ, plain
    elif wildcards == [ANY] and pairs[-1][0]:
        op, value = Op.PREFIX, plain
    elif wildcards == [ANY] and pairs[0][0]:
        op, value = Op.SUFFIX, plain
    else:
        op, value = Op.LIKE, "".join(c if wild or c not in "%_\\" else ESCAPE + c for wild, c in pairs)
    return Predicate(attribute, NEGATION[op] if negated else op, value)


def pieces(pattern: str, escape: str, wildcards: dict[str, str]) -> Iterable[tuple[bool, str]]:
    """The pairs of a pattern in which `escape` (may be empty) quotes the next character."""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            quoted = next(characters, None)
            if quoted is None:
                raise ValueError("the pattern ends in its escape character")
            yield False, quoted
        elif character in wildcards:
            yield True, wildcards[character]
        else:
            yield False, character
