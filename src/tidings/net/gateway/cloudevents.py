"""CloudEvents 1.0 to events and back.

Filters see the context attributes under their name with a `$` in front (`$source`, `$subject`, as `$type` in all of Tidings) and
the members of a JSON object in `data` under their own names, those of nested objects by dotted path. An array of strings or of
numbers is a set, `{"$date": "..."}` a date. What no filter can compare (null, mixed arrays, integers beyond 64 bits) is carried.

An event is known by source and id together, so its id in Tidings is both of them. `data` travels as a body of its own only where
the attributes do not give it back exactly.
"""

import base64
import binascii
import datetime
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from tidings.errors import InvalidInput
from tidings.model.event import MAX_ID_LENGTH, Event, checked_event
from tidings.model.value import INT_MAX, INT_MIN, MAX_NAME_LENGTH, from_microseconds
from tidings.net.gateway.problems import Problem, decoded, from_error

STRUCTURED, BATCHED = "application/cloudevents+json", "application/cloudevents-batch+json"
MAX_BATCH = 1_000
MAX_TEXT = 1_024  # characters of id and of source
NO_SOURCE, NO_TYPE = "urn:tidings", "tidings.event"  # of events that were not published as CloudEvents
NAME = re.compile(r"[a-z0-9]{1,64}")
SOURCE = re.compile(r"[^\x00-\x20\x7f]+")  # a URI-reference has no blanks
_DEPTH = 32  # levels of nested objects that filters see
_DATES = ("time", "expirytime")
_OURS = "tidings"  # extensions that begin so are what a delivery adds
_JSON = re.compile(r"[^/]+/(.+\+)?json", re.IGNORECASE)


def from_request(headers: Iterable[tuple[bytes, bytes]], body: bytes, now_s: float) -> list[Event]:
    """The events of a POST, whichever mode they come in; a Problem if any of them cannot be used."""
    lower = [(name.decode("latin-1").lower(), value) for name, value in headers]
    content_type = next((value.decode("latin-1") for name, value in lower if name == "content-type"), "")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == STRUCTURED:
        return [_structured(decoded(body, dict[str, msgspec.Raw]), "", now_s)]
    if media_type == BATCHED:
        batch = decoded(body, list[dict[str, msgspec.Raw]])
        if len(batch) > MAX_BATCH:
            raise Problem(
                400, f"{len(batch)} events", "body", f"at most {MAX_BATCH} events in one request", kind="limit"
            )
        return [_structured(raw, f"[{place}].", now_s) for place, raw in enumerate(batch)]
    if media_type.startswith("application/cloudevents"):
        raise Problem(
            415, media_type, "Content-Type", f"{STRUCTURED}, {BATCHED}, or the data's own type with ce- headers"
        )
    context = {name[3:]: _header(name, value) for name, value in lower if name.startswith("ce-")}
    if "specversion" not in context:
        expected = f"a CloudEvent: ce-specversion, ce-id, ce-source and ce-type, or Content-Type: {STRUCTURED}"
        raise Problem(400, "there is no header ce-specversion", "headers", expected, kind="cloudevent")
    if content_type:
        context["datacontenttype"] = content_type
    return [_event(context, body or None, lambda name: "body" if name == "data" else f"ce-{name}", now_s)]


def _header(name: str, value: bytes) -> str:
    """The HTTP binding percent-encodes what is no printable ASCII."""
    try:
        return unquote(value.decode().strip(' "'), errors="strict")
    except UnicodeDecodeError:
        raise Problem(400, "bytes that are no text", name, "UTF-8, percent-encoded", kind="cloudevent") from None


def _structured(raw: dict[str, msgspec.Raw], where: str, now_s: float) -> Event:
    data = encoded = None
    context: dict[str, Any] = {}
    for name, value in raw.items():
        if name == "data":
            data = value
        elif name == "data_base64":
            encoded = decoded(value, str | None, where + name)
        elif (plain := decoded(value, Any, where + name)) is not None:  # null is as good as absent
            context[name] = plain
    if data is not None and encoded is not None:
        raise Problem(400, "data and data_base64", where + "data", "one of the two", kind="cloudevent")
    if encoded is not None:
        return _event(context, _unbase64(encoded, where), lambda name: where + name, now_s)
    return _event(context, _body(data, context, where), lambda name: where + name, now_s)


def _unbase64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Problem(400, f"no base64: {error}", where + "data_base64", "base64", kind="cloudevent") from None


def _body(data: msgspec.Raw | None, context: Mapping[str, Any], where: str) -> bytes | None:
    """`data` as the bytes that binary mode would carry: JSON as it stands, text of another type without its quotes."""
    if data is None:
        return None
    if _is_json(context.get("datacontenttype", "")):
        return bytes(data)
    text = decoded(data, Any, where + "data")
    if not isinstance(text, str):
        expected = f"a string, since datacontenttype is {context['datacontenttype']!r:.80}; or no datacontenttype"
        raise Problem(400, "data is no string", where + "data", expected, kind="cloudevent")
    return text.encode()


def _is_json(content_type: Any) -> bool:
    """CloudEvents: data without a type is JSON."""
    return not content_type or _JSON.fullmatch(str(content_type).partition(";")[0].strip()) is not None


def _event(context: dict[str, Any], body: bytes | None, place: Callable[[str], str], now_s: float) -> Event:
    for name in ("specversion", "id", "source", "type"):
        if not isinstance(context.get(name), str) or not context[name]:
            raise Problem(
                400, f"{name} is missing" if name not in context else f"{name} is no text or empty", place(name)
            )
    if context["specversion"] != "1.0":
        raise Problem(400, f"version {context['specversion']!r:.20}", place("specversion"), "1.0", kind="cloudevent")
    attributes = context_attributes(context, place)
    expiry = attributes.get("$expirytime")
    timeout_s = math.inf if expiry is None else expiry.timestamp() - now_s
    if timeout_s <= 0:
        raise Problem(
            400, f"{context['expirytime']} has passed", place("expirytime"), "a time to come", kind="cloudevent"
        )
    content_type, data = context.get("datacontenttype", ""), b""
    if body is not None:
        exact = False
        if _is_json(content_type):
            exact, found = members(decoded(body, Any, place("data")))
            attributes.update(found)
        data = b"" if exact else body
    id, source = context["id"], context["source"]
    try:
        return checked_event(
            event_id(source, id),
            attributes,
            context["type"],
            timeout_s=timeout_s,
            data=data,
            content_type=content_type or ("application/json" if data else ""),
        )
    except InvalidInput as error:
        raise from_error(error) from None


def event_id(source: str, id: str) -> str:
    """The same text only for the same pair: a source has no blank."""
    both = f"{source} {id}"
    return both if len(both) <= MAX_ID_LENGTH else f"sha256 {hashlib.sha256(both.encode()).hexdigest()}"


def context_attributes(context: Mapping[str, Any], place: Callable[[str], str]) -> dict[str, Any]:
    """What filters see of the context: `$source`, `$subject`, ... The type has its own place in an event."""
    attributes: dict[str, Any] = {}
    for name, value in context.items():
        if not NAME.fullmatch(name):
            raise Problem(
                400, f"attribute name {name!r:.80}", place(name), "lower-case letters and digits", kind="cloudevent"
            )
        if name in ("specversion", "type") or name.startswith(_OURS):
            continue
        if name in _DATES:
            value = _date(value, place(name))
        elif name in ("id", "source", "subject", "dataschema", "datacontenttype"):
            if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT:
                raise Problem(400, f"{name} {value!r:.80}", place(name), f"text of 1 to {MAX_TEXT} characters")
            if name == "source" and not SOURCE.fullmatch(value):
                raise Problem(400, f"source {value!r:.80}", place(name), "a URI-reference, without blanks")
        elif not isinstance(value, str | bool | int) or (isinstance(value, int) and not INT_MIN <= value <= INT_MAX):
            raise Problem(400, f"{name} {value!r:.80}", place(name), "a string, a boolean or an integer of 64 bits")
        attributes[f"${name}"] = value
    return attributes


def _date(value: Any, where: str) -> datetime.datetime:
    try:
        date = msgspec.convert(value, datetime.datetime)
        if date.tzinfo is not None:
            return date.astimezone(datetime.UTC)
    except (msgspec.ValidationError, OverflowError):
        pass
    raise Problem(400, f"{value!r:.60}", where, "a timestamp such as 2026-11-16T10:00:00Z", kind="cloudevent")


def members(data: Any) -> tuple[bool, dict[str, Any]]:
    """What filters see of JSON data, and whether that alone gives the data back."""
    found: dict[str, Any] = {}
    if not isinstance(data, dict):
        return False, found
    exact = _members(data, "", found, 1)
    return exact and bool(found), found


def _members(data: dict[str, Any], prefix: str, found: dict[str, Any], depth: int) -> bool:
    exact = depth == 1
    for key, value in data.items():
        name = prefix + key
        scalar = isinstance(value, str | bool | float) or (isinstance(value, int) and INT_MIN <= value <= INT_MAX)
        if not 0 < len(name) <= MAX_NAME_LENGTH or name.startswith("$") or name in found:
            exact = False
        elif scalar:
            found[name] = value
        else:
            exact = False
            if isinstance(value, list) and _is_set(value):
                found[name] = frozenset(value)
            elif isinstance(value, dict) and value.keys() == {"$date"}:
                if isinstance(date := value["$date"], str) and (instant := _instant(date)) is not None:
                    found[name] = instant
            elif isinstance(value, dict) and depth < _DEPTH:
                _members(value, f"{name}.", found, depth + 1)
    return exact


def _is_set(value: list[Any]) -> bool:
    if all(isinstance(element, str) for element in value):
        return True
    numbers = (type(element) is float or (type(element) is int and INT_MIN <= element <= INT_MAX) for element in value)
    return all(numbers)


def _instant(text: str) -> datetime.datetime | None:
    try:
        return _date(text, "")
    except Problem:
        return None


# And back.


def to_cloudevent(event: Event, **extensions: Any) -> bytes:
    """Structured JSON. `extensions` are what the delivery adds; None is left out."""
    context: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in event.attributes.items():
        if name.startswith("$") and NAME.fullmatch(name[1:]):
            context[name[1:]] = value
        else:
            rest[name] = sorted(value) if isinstance(value, frozenset | list) else value  # a set, either way
    published_as_one = "source" in context and "id" in context
    shown: dict[str, Any] = {
        "specversion": "1.0",
        "id": context.pop("id", event.id),
        "source": context.pop("source", NO_SOURCE),
        "type": event.type or NO_TYPE,
        "time": context.pop("time", None) or _wall(event.timestamp_s),
    }
    if event.timeout_s < math.inf and "expirytime" not in context:
        shown["expirytime"] = _wall(event.timestamp_s + event.timeout_s)
    shown.update(context)
    if event.data:
        shown["datacontenttype"] = event.content_type or "application/octet-stream"
        shown.update(_data(event))
        if rest and not published_as_one:  # its attributes say more than its body
            shown["tidingsattributes"] = msgspec.json.encode(rest).decode()
    elif rest:
        shown.setdefault("datacontenttype", "application/json")
        shown["data"] = rest
    shown.update((_OURS + name, value) for name, value in extensions.items())
    return msgspec.json.encode({name: value for name, value in shown.items() if value is not None})


def _data(event: Event) -> dict[str, Any]:
    if event.content_type and _is_json(event.content_type):
        try:
            msgspec.json.decode(event.data)
            return {"data": msgspec.Raw(event.data)}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    elif event.content_type.lower().startswith("text/"):
        try:
            return {"data": event.data.decode()}
        except UnicodeDecodeError:
            pass
    return {"data_base64": base64.b64encode(event.data).decode()}


def _wall(seconds: float) -> datetime.datetime | None:
    try:
        return from_microseconds(round(seconds * 1e6))
    except OverflowError:
        return None
