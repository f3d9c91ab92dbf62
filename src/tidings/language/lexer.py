"""Filter text as tokens, and its constants as values.

A filter's shape is its text with every constant replaced by a stand-in of the same kind: filters that differ only in their
constants have one shape, and the grammar sees nothing else. Columns are found again only when an error needs one, so
that good filters do not pay for them.
"""

import re
import string
from typing import Any

from tidings.model.value import INT_MAX, MAX_NAME_LENGTH, NUMBER, STRING

# A constant begins with one set of characters, so that the search skips whatever cannot be one; the looks behind say which
# of the set it was, and that it does not stand inside a word.
_NUMBER = (
    r"(?:(?<=0)[xX][0-9a-fA-F]+[lL]?"
    r"|(?:(?<=[0-9])[0-9]*(?:\.[0-9]*)?|(?<=\.)[0-9]+)(?:[eE][+-]?[0-9]+)?[lLdDfF]?)(?![\w$.])"
)
_ANY_CONSTANT = rf"['.0-9](?:(?<=')[^']*(?:''[^']*)*'|(?<![\w$.].){_NUMBER})"
_CONSTANT = re.compile(f"({_ANY_CONSTANT})")
_TOKEN = re.compile(
    r"\s*([a-zA-Z_$][a-zA-Z0-9_$.]*[\w$.]*|[=()+*/,-]|<[=>]?|>=?|!=?"
    rf"|{_ANY_CONSTANT}"
    r'|[^\W\d][\w$.]*|"[^"]*(?:""[^"]*)*"'
    r"|[\w$.]+|\S)"  # a malformed word, or whatever else stands there
)
_LONGEST_INTEGER = 400  # characters: far more than 64 bits need

_LETTERS = frozenset(string.ascii_letters)

STAND_INS: dict[type, str] = {int: "1", float: "1.0", str: "''"}
KINDS = {"1": NUMBER, "1.0": NUMBER, "''": STRING}  # of the stand-ins
_SIGNS = frozenset([*KINDS, *"= <> != < <= > >= + - * / ( ) ,".split()])


class Problem(Exception):
    """Something is wrong at a token. The message may name what stands there (`found`) and what precedes it (`after`)."""

    def __init__(self, at: int, reason: str, *, found: bool = True, after: bool = False) -> None:
        super().__init__(reason)
        self.at, self.reason, self.found, self.after = at, reason, found, after


class BadConstant(Exception):
    """A number that no attribute can have."""


def split(text: str) -> tuple[tuple[Any, ...], list[Any]]:
    """The shape of a text without double-quoted names, and its constants. The fast way."""
    pieces = _CONSTANT.split(text)
    constants = [
        int(constant) if constant.isdecimal() and constant[0] != "0" and len(constant) < 19 else value(constant)
        for constant in pieces[1::2]
    ]
    return (*pieces[::2], *map(type, constants)), constants


def shape_tokens(shape: tuple[Any, ...]) -> list[str]:
    """The tokens of a shape that `split` gave."""
    between, kinds = shape[: len(shape) // 2 + 1], shape[len(shape) // 2 + 1 :]
    pieces = [""] * len(shape)
    pieces[::2] = between
    pieces[1::2] = [STAND_INS[kind] for kind in kinds]
    text = "".join(pieces)
    # Where blanks stand around every token, as they mostly do, there is nothing to search for.
    words = text.split()
    if text.isascii() and not [word for word in words if word not in _SIGNS and not word.isidentifier()]:
        return [*words, ""]
    return _tokens(text)


def scan(text: str) -> tuple[list[str], list[Any]]:
    """The tokens of any text with stand-ins for its constants, and the constants. The slow way."""
    tokens, constants = _tokens(text), []
    for at, token in enumerate(tokens):
        if _CONSTANT.fullmatch(token):
            try:
                constants.append(value(token))
            except BadConstant as error:
                raise Problem(at, str(error), found=False) from None
            tokens[at] = STAND_INS[type(constants[-1])]
    return tokens, constants


def locate(text: str, at: int) -> tuple[str, int]:
    """The token at a place and its column; the empty token stands for the end."""
    text = text.rstrip()
    for place, token in enumerate(_TOKEN.finditer(text)):
        if place == at:
            return token[1], token.start(1) + 1
    return "", len(text) + 1


def _tokens(text: str) -> list[str]:
    # Blanks at the end would be tried again from each of them.
    return [*_TOKEN.findall(text.rstrip()), ""]


def is_plain(token: str) -> bool:
    """Whether a token is a plain name (or a keyword) without any doubt."""
    return token[0] in _LETTERS and token.isascii() and len(token) <= MAX_NAME_LENGTH


def is_name(token: str) -> bool:
    first = token[:1]
    return (first.isalnum() and not first.isdecimal()) or first in ("_", "$") or (first == '"' and len(token) > 1)


def value(constant: str) -> Any:
    """The value of a number or string. An integer may still be one beyond 64 bits: a sign may precede it."""
    if constant[0] == "'":
        return constant[1:-1].replace("''", "'")
    body = constant.rstrip("lL")
    if body.isdecimal():
        if len(body) > 1 and body[0] == "0":
            # Java reads 010 as eight, SQL as ten: nobody should have to guess.
            raise BadConstant(f"the number {constant:.40} begins with 0; write it without")
        number = int(body) if len(body) < _LONGEST_INTEGER else INT_MAX + 2
    elif body[:2] in ("0x", "0X"):
        number = int(body, 16) if len(body) < _LONGEST_INTEGER else INT_MAX + 2
    elif body == constant:
        return float(constant.rstrip("dDfF"))
    else:
        raise BadConstant(f"{constant:.40} is not a number: L stands after whole numbers only")
    if number > INT_MAX + 1:
        raise BadConstant(f"the integer {constant:.40} is beyond 64 bits")
    return number


def described(token: str) -> str:
    """A token as it stands in an error message."""
    if not token:
        return "end of text"
    if token in ("'", '"'):
        return "a string that is not closed" if token == "'" else "a name that is not closed"
    shown = token if len(token) <= 40 else token[:37] + "..."
    bare = token[0] in "'\"" or token.isupper() or token[0].isdecimal()
    return shown if bare else f"'{shown}'"
