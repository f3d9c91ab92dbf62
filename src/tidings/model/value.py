"""Attribute values: which kinds there are, what is refused at the door, and how two values compare.

Kinds: number (int of 64 bit or float; the two compare by exact value, also beyond 2^53), string (by code point), bool,
date (an instant in UTC, microseconds), set (of strings or of numbers). Values of different kinds are never compared.
"""

import datetime
import math
from typing import Any

from tidings.errors import InvalidEvent, InvalidInput

Number = int | float
Scalar = int | float | str | bool | datetime.datetime
Value = Scalar | frozenset[str] | frozenset[int | float]

NUMBER, STRING, BOOL, DATE, SET = "number", "string", "bool", "date", "set"

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
MAX_NAME_LENGTH = 255
TYPE = "$type"  # filters address an event's type by this name; no attribute may bear it
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_KINDS: dict[type, str] = {
    int: NUMBER,
    float: NUMBER,
    str: STRING,
    bool: BOOL,
    datetime.datetime: DATE,
    frozenset: SET,
}


def kind(value: Any) -> str:
    """The kind of a value that passed the door."""
    return _KINDS[type(value)]


def microseconds(date: datetime.datetime) -> int:
    """The instant as whole microseconds since 1970, exact for every year that datetime knows."""
    since = date - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_microseconds(count: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=count)


def checked(value: Any, where: str) -> Value:
    """The value as the system carries it, or InvalidInput naming `where`, what was found and what was expected."""
    match value:
        case bool():
            return value
        case int():
            if not INT_MIN <= value <= INT_MAX:
                raise InvalidInput(f"{where}: the integer {_short(value)} is beyond 64 bits")
            return int(value)
        case float():
            if math.isnan(value):
                raise InvalidInput(f"{where}: NaN is not a value; leave the attribute out instead")
            return float(value)
        case str():
            if not is_text(value):
                raise InvalidInput(f"{where}: a string with a lone surrogate is not text")
            return str(value)
        case datetime.datetime():
            if value.tzinfo is None:
                raise InvalidInput(f"{where}: the date {value} has no time zone")
            try:
                return value.astimezone(datetime.UTC)
            except OverflowError:
                raise InvalidInput(f"{where}: the date {value} is outside of the years 1 to 9999 in UTC") from None
        case datetime.date():
            return datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.UTC)
        case set() | frozenset() | list() | tuple():
            return _checked_set(value, where)
    raise InvalidInput(
        f"{where}: {_article(type(value).__name__)} is not allowed; expected a number, string, bool, date or set of scalars"
    )


def _checked_set(elements: Any, where: str) -> frozenset[Any]:
    checked_elements = [checked(element, f"{where}: an element of the set") for element in elements]
    kinds = {kind(element) for element in checked_elements}
    if kinds - {STRING, NUMBER}:
        raise InvalidInput(f"{where}: a set holds strings or numbers, found {', '.join(sorted(kinds))}")
    if len(kinds) > 1:
        raise InvalidInput(f"{where}: a set holds strings or numbers, not both")
    return frozenset(checked_elements)


def checked_name(name: Any) -> str:
    """An attribute name that a filter can address: 1 to 255 characters of text."""
    if not isinstance(name, str):
        raise InvalidInput(f"attribute name {name!r}: expected a string")
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise InvalidInput(
            f"attribute name {name[:40]!r}: expected 1 to {MAX_NAME_LENGTH} characters, found {len(name)}"
        )
    if not is_text(name):
        raise InvalidInput(f"attribute name {name!r}: a name with a lone surrogate cannot be addressed")
    return name


def checked_attributes(attributes: Any) -> dict[str, Value]:
    """All attributes of an event, or InvalidEvent naming the first that cannot be carried."""
    if not isinstance(attributes, dict):
        raise InvalidEvent(
            f"attributes: expected a mapping of names to values, found {_article(type(attributes).__name__)}"
        )
    if TYPE in attributes:
        raise InvalidEvent(f"attribute {TYPE!r}: this name is reserved for the event's type")
    try:
        return {checked_name(name): checked(value, f"attribute {name!r}") for name, value in attributes.items()}
    except InvalidInput as error:
        raise InvalidEvent(str(error)) from None


def is_text(string: str) -> bool:
    return string.isascii() or not any("\ud800" <= character <= "\udfff" for character in string)


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _short(number: int) -> str:
    return str(number) if number.bit_length() < 200 else f"of {number.bit_length()} bits"
