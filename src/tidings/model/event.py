"""Event: what a publisher published, nothing else."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.errors import InvalidEvent
from tidings.model.value import TYPE, Value, checked_attributes, is_text

MAX_ID_LENGTH = 255


class Event(msgspec.Struct, frozen=True):
    """Attributes are matched; `data` is carried and stored but never looked at. `timestamp_s` is set by the system."""

    id: str
    type: str
    attributes: dict[str, Any]
    timestamp_s: float = 0.0
    timeout_s: float = math.inf
    data: bytes = b""
    content_type: str = ""
    size_kb: float = 0.0

    def matchable(self) -> dict[str, Value]:
        """What filters see: the attributes, and the type under its reserved name."""
        return {**self.attributes, TYPE: self.type}

    def summary(self) -> str:
        """One readable line."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.attributes.items())
        return f"{self.type or 'event'} {self.id} {{{shown}}}"


def checked_event(
    id: str,
    attributes: Mapping[str, Any],
    type: str = "",
    *,
    timestamp_s: float = 0.0,
    timeout_s: float = math.inf,
    data: bytes = b"",
    content_type: str = "",
    size_kb: float | None = None,
) -> Event:
    """The door: an event whose every part the system can carry, or InvalidEvent naming the part."""
    for what, text, least in (("id", id, 1), ("type", type, 0), ("content_type", content_type, 0)):
        if not isinstance(text, str) or not least <= len(text) <= MAX_ID_LENGTH or not is_text(text):
            raise InvalidEvent(f"{what} {text!r:.60}: expected text of {least} to {MAX_ID_LENGTH} characters")
    if not _is_number(timeout_s) or not timeout_s > 0:
        raise InvalidEvent(f"timeout_s {timeout_s!r}: expected a positive number of seconds")
    if not isinstance(data, bytes):
        raise InvalidEvent(f"data: expected bytes, found {data.__class__.__name__}")
    checked = checked_attributes(dict(attributes) if isinstance(attributes, Mapping) else attributes)
    if size_kb is None:
        size_kb = (len(msgspec.msgpack.encode(checked)) + len(data)) / 1024
    elif not _is_number(size_kb) or not 0 <= size_kb < math.inf:
        raise InvalidEvent(f"size_kb {size_kb!r}: expected a finite number that is not negative")
    return Event(id, type, checked, timestamp_s, float(timeout_s), data, content_type, float(size_kb))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
