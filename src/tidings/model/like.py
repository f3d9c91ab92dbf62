"""SQL LIKE patterns in linear time: `%` is any run of characters, `_` exactly one, a backslash quotes the next character.

A pattern is cut at its `%` into pieces of fixed length. The first is anchored at the start, the last at the end, and those
between are found leftmost first, one after the other: taking the leftmost place never loses a match, so nothing is ever
tried twice. Cost O(string x longest piece), whatever the pattern; no backtracking.
"""

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

ESCAPE = "\\"


class _Piece(NamedTuple):
    """Characters between two `%`; None stands for `_`."""

    characters: tuple[str | None, ...]

    def finder(self) -> Callable[[str, int], int]:
        """A function (string, start) -> first place at or after start where the piece stands, or -1."""
        if None not in self.characters:
            literal = "".join(character or "" for character in self.characters)
            return lambda string, start: string.find(literal, start)
        search = re.compile(
            "".join("." if character is None else re.escape(character) for character in self.characters), re.DOTALL
        ).search

        def find(string: str, start: int) -> int:
            found = search(string, start)
            return found.start() if found else -1

        return find

    def stands_at(self, string: str, start: int) -> bool:
        return len(string) - start >= len(self.characters) >= 0 <= start and all(
            character is None or string[start + offset] == character for offset, character in enumerate(self.characters)
        )


def dangling_escape(pattern: str, escape: str = ESCAPE) -> bool:
    """Whether the pattern ends in an escape character with nothing to quote."""
    quoted = False
    for character in pattern:
        quoted = character == escape and not quoted
    return quoted


@functools.lru_cache(maxsize=4096)
def compiled(pattern: str) -> Callable[[str], bool]:
    """A function that tells whether a string is like the pattern."""
    pieces = _pieces(pattern)
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return lambda string: len(string) == len(first.characters) and first.stands_at(string, 0)
    middle = [(piece.finder(), len(piece.characters)) for piece in pieces[1:-1] if piece.characters]

    def like(string: str) -> bool:
        end = len(string) - len(last.characters)
        at = len(first.characters)
        if end < at or not first.stands_at(string, 0) or not last.stands_at(string, end):
            return False
        for find, length in middle:
            at = find(string, at)
            if at < 0:
                return False
            at += length
        return at <= end

    return like


def _pieces(pattern: str) -> list[_Piece]:
    pieces: list[list[str | None]] = [[]]
    quoted = False
    for character in pattern:
        if quoted:
            pieces[-1].append(character)
            quoted = False
        elif character == ESCAPE:
            quoted = True
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "_" else character)
    return [_Piece(tuple(piece)) for piece in pieces]
