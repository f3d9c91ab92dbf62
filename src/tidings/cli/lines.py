"""Files of lines: filters and events in, bad lines reported by file and line while the rest goes on.

Lines come in batches, one per read: a command that flushes after each batch is quick on a file and prompt on a pipe. A line
has a bound; of a longer one only the beginning is kept until it is refused.
"""

import codecs
import contextlib
import datetime
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from tidings.cli.output import complain
from tidings.errors import InvalidEvent, InvalidInput, TidingsError
from tidings.language import from_pattern, parse
from tidings.model.event import Event, checked_event
from tidings.model.filter import Filter
from tidings.model.subscription import Subscription

STANDARD_INPUT = "-"
MAX_LINE_BYTES = 1 << 24
_READ_BYTES = 1 << 18
_JSON_LINES = {".jsonl", ".ndjson"}

Shape = TypeVar("Shape")


class Line(NamedTuple):
    file: str
    number: int
    text: bytes

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}"


class Complaints:
    """Tells what is bad on standard error, as `file:line: reason`, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def about(self, place: str, reason: object) -> None:
        self.count += 1
        complain(f"{place}: {reason}")


def batches(path: str, complaints: Complaints) -> Iterator[list[Line]]:
    """The lines of a file that are not blank, as many at a time as one read gave; `-` is standard input."""
    name = os.fsencode(path).decode(errors="replace")  # a file's name may be no text
    try:
        with _opened(path) as stream:
            yield from _batches(name, stream)
    except OSError as error:
        complaints.about(name, error.strerror or error)


def _opened(path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    return contextlib.nullcontext(sys.stdin.buffer) if path == STANDARD_INPUT else open(path, "rb")


def _batches(file: str, stream: Any) -> Iterator[list[Line]]:
    number, rest, at_end = 0, b"", False
    while not at_end:
        read = stream.read1(_READ_BYTES)
        at_end = not read
        *texts, rest = (rest + read).split(b"\n")
        if at_end:
            texts.append(rest)
        rest = rest[: MAX_LINE_BYTES + 1]
        if number == 0 and texts:
            texts[0] = texts[0].removeprefix(codecs.BOM_UTF8)
        yield [Line(file, at, text) for at, text in enumerate(texts, number + 1) if text.strip()]
        number += len(texts)


def subscriptions(path: str, complaints: Complaints) -> list[Subscription]:
    """A file of filters: JSON lines if its name says so, else one filter per line with `#` comments."""
    read = _from_json if Path(path).suffix in _JSON_LINES else _from_text
    found: dict[str, tuple[Subscription, int]] = {}
    for batch in batches(path, complaints):
        for line in batch:
            try:
                subscription = read(line)
                if subscription is None:
                    continue
                if subscription.id in found:
                    raise InvalidInput(f"the id {subscription.id!r} is taken by line {found[subscription.id][1]}")
                found[subscription.id] = subscription, line.number
            except TidingsError as error:
                complaints.about(line.place, error)
    return [subscription for subscription, _ in found.values()]


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a JSON-lines file of filters."""

    filter: str | dict[str, Any]
    id: str | int | None = None
    types: tuple[str, ...] = ()
    deadline_s: float | None = None
    price: float = 1.0
    penalty: float = 0.0


def _from_json(line: Line) -> Subscription:
    wanted = _converted(json_object(line.text), _Wanted)
    filter = from_pattern(wanted.filter) if isinstance(wanted.filter, dict) else parse(wanted.filter)
    id = str(line.number if wanted.id is None else wanted.id)
    deadline_s = math.inf if wanted.deadline_s is None else wanted.deadline_s
    return Subscription(id, "match", filter, wanted.types, deadline_s, wanted.price, wanted.penalty)


def _from_text(line: Line) -> Subscription | None:
    text = _decoded(line.text).rstrip()
    if text.lstrip().startswith("#"):
        return None
    return Subscription(str(line.number), "match", filter_of(text))


def filter_of(text: str) -> Filter:
    """Filter text, or a JSON pattern if it begins like an object: no filter text begins with a brace."""
    return from_pattern(text) if text.lstrip().startswith("{") else parse(text)


def names_of(text: str) -> frozenset[str]:
    """The attribute names of an option: separated by commas."""
    return frozenset(name for name in text.split(",") if name)


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """An event with more than its attributes."""

    attributes: dict[str, Any]
    id: str | None = None
    type: str = ""
    timeout_s: float | None = None
    data: bytes = b""
    content_type: str = ""


class EventReader:
    """JSON objects to events. `flatten` turns nested objects into dotted names, `dates` names attributes that are dates."""

    def __init__(self, flatten: bool = False, dates: frozenset[str] = frozenset()) -> None:
        self.flatten = flatten
        self.dates = dates

    def event(self, text: bytes, id: str) -> Event:
        """The event of one line; `id` is for one that brings none."""
        found = json_object(text)
        if not isinstance(found.get("attributes"), dict):
            return checked_event(id, self._attributes(found), size_kb=0.0)
        envelope = _converted(found, _Envelope)
        return checked_event(
            id if envelope.id is None else envelope.id,
            self._attributes(envelope.attributes),
            envelope.type,
            timeout_s=math.inf if envelope.timeout_s is None else envelope.timeout_s,
            data=envelope.data,
            content_type=envelope.content_type,
        )

    def _attributes(self, found: Mapping[str, Any]) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for name, value in self._flat(found) if self.flatten else found.items():
            if value is None:  # null is a missing attribute
                continue
            if type(value) is dict or name in self.dates:
                value = self._special(name, value)
            if name in attributes:
                raise InvalidEvent(f"attribute {name!r}: there twice after flattening")
            attributes[name] = value
        return attributes

    def _special(self, name: str, value: Any) -> datetime.datetime:
        if type(value) is dict:
            if value.keys() != {"$date"}:
                raise InvalidEvent(
                    f"attribute {name!r}: a nested object is not allowed; --flatten makes dotted names of it"
                )
            value = value["$date"]
        return date_of(value, name)

    def _flat(self, found: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
        for name, value in found.items():
            if type(value) is dict and value.keys() != {"$date"}:
                yield from self._flat(value, f"{prefix}{name}.")
            else:
                yield prefix + name, value


def date_of(text: Any, name: str) -> datetime.datetime:
    """An instant in ISO 8601; UTC if it names no time zone."""
    try:
        date = datetime.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise InvalidEvent(
            f"attribute {name!r}: expected a date such as 2026-01-31T12:00:00Z, found {text!r:.60}"
        ) from None
    return date.replace(tzinfo=datetime.UTC) if date.tzinfo is None else date


def json_object(text: bytes) -> dict[str, Any]:
    """The object that a line holds, or InvalidInput saying what it holds instead."""
    if len(text) > MAX_LINE_BYTES:
        raise InvalidInput(f"longer than {MAX_LINE_BYTES:,} bytes")
    try:
        found = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        found = _explained(text)
    if type(found) is not dict:
        raise InvalidInput(f"expected a JSON object, found {text.strip().decode(errors='replace')!r:.60}")
    return found


def _explained(text: bytes) -> Any:
    """The slower decoder says where it stopped, and reads NaN and Infinity, for the model to refuse them by name."""
    decoded = _decoded(text)
    try:
        return json.loads(decoded)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"no JSON: {error.msg.lower()} at column {error.pos + 1}") from None
    except RecursionError:
        raise InvalidInput("no JSON that we read: nested too deeply") from None
    except ValueError as error:
        raise InvalidInput(f"no JSON that we read: {str(error).partition(';')[0].lower()}") from None


def _decoded(text: bytes) -> str:
    if len(text) > MAX_LINE_BYTES:
        raise InvalidInput(f"longer than {MAX_LINE_BYTES:,} bytes")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"no UTF-8: byte {text[error.start]:#04x} at column {error.start + 1}") from None


def _converted(found: dict[str, Any], shape: type[Shape]) -> Shape:
    try:
        return msgspec.convert(found, shape)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error).replace("`", "'")) from None
