"""Fields: which dimensions an attribute has, and what an event's value is in each of them.

Dimensions are made when a subscription first needs them, one per attribute and aspect:

    NUMBER, DATE   the number, or the microseconds since 1970; an integer that is no float is the open interval between its two
                   neighbours, which meets the same bounds as the integer itself
    BOOL           0 or 1
    TEXT           a code per string that some subscription compares with; -1 for all others
    ORDER, ENDING  the first 6 bytes of a string in UTF-8, and the last 6 reversed, as one number: a prefix or suffix of up to 6
                   bytes is exactly a range of it, order is kept but for ties
    STRING         there if the value is a string, for those who search inside of it
    PRESENT        a flag: 1 where the event has the attribute
    ELEMENT        of a set: one dimension per element that some subscription asks for, there if the set has it
    SIZE, BUCKETS  of a set: how many elements, and 32 dimensions, each there if an element falls into it: for an attribute
                   of which more elements are asked for than can have dimensions of their own

A predicate fails on a value of another kind, also where the lack of a value would satisfy it: then the dimensions that a
present value does not have are told to fail.

Cost: 0.1 us per number of an event; strings and sets a few times that.
"""

import datetime
import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidings.matching.boxtree.rows import (
    FAILS,
    HI_OPEN,
    IS_ZERO,
    LO_OPEN,
    NEVER,
    NOTHING,
    PASSES,
    TAG_SHIFT,
    UPPER_FOLLOWS,
)
from tidings.model.value import Value, microseconds

NUMBER, DATE, BOOL, TEXT, ORDER, ENDING, PRESENT, SIZE = (
    "number",
    "date",
    "bool",
    "text",
    "order",
    "ending",
    "present",
    "size",
)
NEVER_THERE, NEVER_TAG = "never", 0 << TAG_SHIFT
STRING = "string"
ELEMENT, BUCKET = "element", "bucket"
STRING_ASPECTS = (TEXT, ORDER, ENDING, STRING)

KEY_BYTES = 6
EXACT = 2**53  # integers up to here are floats
_BUCKETS = 32
MAX_ELEMENTS, MAX_LENIENT_ELEMENTS = (
    4_096,
    64,
)  # with a dimension of their own; where kinds are guarded, each costs a pair
_RARE = 0.002  # the share of events that are expected to have an element, or a string where sets are searched
_MAX_CACHED = 4_096  # strings per field whose pairs are remembered; all are forgotten when there are more

Pairs = list[float]  # tag, number, tag, number, ...
Aspect = str | tuple[str, Any]  # ELEMENT and BUCKET with which one


class Field:
    """One attribute. `tags` of its dimensions are `dimension << 8`, by aspect."""

    def __init__(self, lenient: bool) -> None:
        self.tags: dict[Aspect, int] = {}
        self.codes: dict[str, int] = {}  # string -> its number in TEXT
        self.texts: list[str] = []
        self.plain: int | None = None  # the tag of NUMBER, if that is all there is
        self.crowded = False  # some elements have to share buckets
        self._lenient = lenient  # the lack of a value satisfies: kinds have to be guarded
        self._cached: dict[str, Pairs] = {}

    def add(self, aspect: Aspect, dimension: int) -> None:
        self.tags = {**self.tags, aspect: dimension << TAG_SHIFT}  # others may be going through the old one
        self.plain = self.tags[NUMBER] if aspect == NUMBER and len(self.tags) == 1 else None
        self._cached = {}

    def learn(self, text: str) -> None:
        """Give a string its number in TEXT."""
        self.codes[text] = len(self.texts)
        self.texts.append(text)
        self._cached = {}

    def encode(self, value: Value, pairs: Pairs) -> None:
        """Append the pairs of a value."""
        kind = type(value)
        if kind is str:
            cached = self._cached
            known = cached.get(value)  # type: ignore[arg-type]
            if known is None:
                known = self._guarded(self._string(value))  # type: ignore[arg-type]
                if len(cached) >= _MAX_CACHED:
                    cached.clear()
                cached[value] = known  # type: ignore[index]
            pairs += known
        else:
            pairs += self._guarded(_ENCODERS[kind](self, value))

    def _guarded(self, own: Pairs) -> Pairs:
        """The pairs of a value, with what follows from it being there at all."""
        tags = self.tags
        if PRESENT in tags:
            own += (tags[PRESENT], 1.0)
        if self._lenient:
            there = {int(tag) >> TAG_SHIFT for tag in own[::2]}
            for aspect, tag in tags.items():
                if aspect != PRESENT and tag >> TAG_SHIFT not in there:
                    own += (tag | NOTHING, 0.0)
        return own

    def _number(self, value: int | float) -> Pairs:
        tag = self.tags.get(NUMBER)
        return [] if tag is None else number_pairs(tag, value)

    def _date(self, value: datetime.datetime) -> Pairs:
        tag = self.tags.get(DATE)
        return [] if tag is None else number_pairs(tag, microseconds(value))

    def _bool(self, value: bool) -> Pairs:
        tag = self.tags.get(BOOL)
        return [] if tag is None else [tag, float(value)]

    def _string(self, value: str) -> Pairs:
        found: Pairs = []
        tags = self.tags
        if TEXT in tags:
            found += (tags[TEXT], self.codes.get(value, -1))
        if ORDER in tags:
            found += (tags[ORDER], order_key(value))
        if ENDING in tags:
            found += (tags[ENDING], ending_key(value))
        if STRING in tags:
            found += (tags[STRING], 1.0)
        return found

    def _set(self, value: frozenset[Any]) -> Pairs:
        found: Pairs = []
        if SIZE in self.tags:
            found += (self.tags[SIZE], float(len(value)))
        tags = self.tags
        for element in value:
            tag = tags.get((ELEMENT, element))
            if tag is not None:
                found += (tag, 1.0)
        if self.crowded:
            for aspect in {bucket(element) for element in value}:
                if aspect in tags:
                    found += (tags[aspect], 1.0)
        return found


_ENCODERS: dict[type, Callable[[Field, Any], Pairs]] = {
    int: Field._number,
    float: Field._number,
    bool: Field._bool,
    datetime.datetime: Field._date,
    frozenset: Field._set,
}


def number_pairs(tag: int, value: int | float) -> Pairs:
    low, high = neighbours(value)
    if low == high:
        return [tag, low]
    return [tag | LO_OPEN | HI_OPEN | UPPER_FOLLOWS, low, 0, high]


def neighbours(value: int | float) -> tuple[float, float]:
    """The greatest float that is not above an exact number, and the least that is not below it."""
    near = float(value)
    if near == value:
        return near, near
    return (math.nextafter(near, -math.inf), near) if near > value else (near, math.nextafter(near, math.inf))


def order_key(text: str) -> float:
    return _key(text[:KEY_BYTES].encode()[:KEY_BYTES])


def ending_key(text: str) -> float:
    return _key(text[-KEY_BYTES:].encode()[: -KEY_BYTES - 1 : -1])


def _key(start: bytes) -> float:
    return float(int.from_bytes(start.ljust(KEY_BYTES, b"\0"), "big"))


def bucket(element: Any) -> Aspect:
    """The same for equal elements, in every process: numbers hash alike everywhere, strings do not."""
    number = zlib.crc32(element.encode()) if type(element) is str else hash(element)
    return BUCKET, number % _BUCKETS


class Fields:
    """All attributes that subscriptions speak of. `version` changes whenever an event's pairs might."""

    def __init__(self, new_dimension: Callable[[int, float], int], lenient: bool) -> None:
        """`new_dimension` makes one, and is told what an event without it has (see rows.py) and how many events have it."""
        self.lenient = lenient
        self.by_name: dict[str, Field] = {}
        self.dimensions: list[tuple[str, Aspect]] = []  # attribute and aspect, by dimension
        self.version = 0
        self._new_dimension = new_dimension

    def begin(self) -> None:
        """Nothing is known yet; the first dimension is what no event has, for boxes that nothing meets."""
        self._make("", NEVER_THERE)

    def element(self, attribute: str, element: Any) -> tuple[int, bool]:
        """The tag that sets with this element have, and whether others have it too."""
        field = self.by_name.get(attribute)
        if field is None or (ELEMENT, element) not in field.tags:
            if field is not None and len(field.tags) >= (MAX_LENIENT_ELEMENTS if self.lenient else MAX_ELEMENTS):
                field.crowded = True
                return self.tag(attribute, bucket(element)), True
        return self.tag(attribute, (ELEMENT, element)), False

    def tag(self, attribute: str, aspect: Aspect) -> int:
        """The tag of an attribute's aspect, which is made if it is new."""
        field = self.by_name.get(attribute)
        if field is None:
            field = self.by_name[attribute] = Field(self.lenient)
        tag = field.tags.get(aspect)
        if tag is None:
            field.add(aspect, self._make(attribute, aspect))
            tag = field.tags[aspect]
        return tag

    def code(self, attribute: str, text: str) -> float:
        """The number of a string in TEXT of an attribute, from now on."""
        field = self.by_name[attribute]
        if text not in field.codes:
            field.learn(text)
            self.version += 1
        return float(field.codes[text])

    def pairs(self, attributes: Mapping[str, Value]) -> Pairs:
        """The pairs of an event."""
        pairs: Pairs = []
        fields = self.by_name
        for name, value in attributes.items():
            field = fields.get(name)
            if field is None:
                continue
            kind = type(value)
            if field.plain is not None and (kind is float or (kind is int and -EXACT <= value <= EXACT)):  # type: ignore[operator]
                pairs += (field.plain, value)  # type: ignore[arg-type]
            else:
                field.encode(value, pairs)
        return pairs

    def restore(self, dimensions: Sequence[tuple[str, Aspect]], texts: Mapping[str, Sequence[str]]) -> None:
        """Know these dimensions, which exist, and strings."""
        self.dimensions = list(dimensions)
        for number, (attribute, aspect) in enumerate(dimensions):
            if aspect != NEVER_THERE:
                field = self.by_name.setdefault(attribute, Field(self.lenient))
                field.add(aspect, number)
                field.crowded |= aspect[0] == BUCKET
        for attribute, known in texts.items():
            for text in known:
                self.by_name[attribute].learn(text)

    def _make(self, attribute: str, aspect: Aspect) -> int:
        absent = _ABSENT.get(aspect, PASSES if self.lenient else FAILS)
        dimension = self._new_dimension(absent, _RARE if aspect == STRING or aspect[0] == ELEMENT else 0.0)
        self.dimensions.append((attribute, aspect))
        self.version += 1
        return dimension


_ABSENT: dict[Aspect, int] = {PRESENT: IS_ZERO, NEVER_THERE: NEVER}


def packer(numbers: int) -> Callable[..., bytes]:
    """What makes the bytes that a kernel reads of pairs that are so many numbers."""
    while numbers >= len(_PACKERS):
        _PACKERS.append(struct.Struct("=" + len(_PACKERS) // 2 * "qd").pack)
    return _PACKERS[numbers]


_PACKERS: list[Callable[..., bytes]] = []
