"""Subscriptions as resources, with the names of the CloudEvents Subscriptions API."""

import math
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidings.errors import InvalidInput
from tidings.model.subscription import Subscription
from tidings.net.gateway.cloudevents import MAX_TEXT, SOURCE
from tidings.net.gateway.filters import Dialect, wanted
from tidings.net.gateway.problems import Problem, from_error

LINE = "http:"  # and the id of a subscription: the name of its subscriber
ID = r"^[A-Za-z0-9._~-]{1,200}$"
HTTP, SSE, WEBSOCKET = "HTTP", "SSE", "WEBSOCKET"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,4000}")
_NOT_OURS_TO_SET = {"host", "content-length", "content-type", "transfer-encoding", "connection"}


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an event in time is worth (`price`), until when (`deadline_s`, else the event's own timeout), and what a late one
    costs (`penalty`); a filter in the language of Tidings; how often a webhook is tried before it rests."""

    deadline_s: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    price: Annotated[float, Meta(ge=0)] = 1.0
    penalty: Annotated[float, Meta(ge=0)] = 0.0
    filter: str = ""
    attempts: Annotated[int, Meta(ge=1, le=20)] = 8


class ProtocolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Headers that go with every request to the sink."""

    headers: Annotated[dict[str, str], Meta(max_length=20)] = {}


class Resource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A subscription. With a `sink` events are posted there, else they wait for whoever reads them."""

    id: Annotated[str, Meta(pattern=ID)] | UnsetType = UNSET
    source: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)] | UnsetType = UNSET
    types: (
        Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...], Meta(min_length=1, max_length=1_000)]
        | UnsetType
    ) = UNSET
    filters: Annotated[tuple[Dialect, ...], Meta(max_length=100)] = ()
    config: Config = Config()
    sink: Annotated[str, Meta(max_length=2_000)] | UnsetType = UNSET
    protocol: Literal["HTTP", "SSE", "WEBSOCKET"] | UnsetType = UNSET
    protocolsettings: ProtocolSettings = ProtocolSettings()


def subscription_of(resource: Resource) -> Subscription:
    """What the broker is asked for; a Problem if the resource cannot be served."""
    id = resource.id
    if not isinstance(id, str) or not re.fullmatch(ID, id) or id.endswith("\n"):
        raise Problem(400, f"id {id!r:.80}", "id", "1 to 200 letters, digits or . _ ~ -", kind="invalid")
    if isinstance(resource.source, str) and not SOURCE.fullmatch(resource.source):
        raise Problem(
            400, f"source {resource.source!r:.80}", "source", "a URI-reference, without blanks", kind="invalid"
        )
    _check_sink(resource)
    config = resource.config
    try:
        return Subscription(
            id,
            LINE + id,
            wanted(resource.source, resource.filters, config.filter),
            resource.types if isinstance(resource.types, tuple) else (),
            config.deadline_s if isinstance(config.deadline_s, float) else math.inf,
            config.price,
            config.penalty,
            durable=True,
            note=msgspec.json.encode(resource).decode(),
        )
    except InvalidInput as error:
        raise from_error(error) from None


def _check_sink(resource: Resource) -> None:
    has_sink = isinstance(resource.sink, str)
    if resource.protocol is not UNSET and (resource.protocol == HTTP) != has_sink:
        expected = "HTTP, since there is a sink" if has_sink else "a sink, or protocol SSE or WEBSOCKET"
        raise Problem(400, f"protocol {resource.protocol}", "protocol", expected, kind="invalid")
    if isinstance(resource.sink, str):
        expected = "a URL such as https://example.org/events"
        try:
            parts = urlsplit(resource.sink)
            port = parts.port
        except ValueError as error:
            raise Problem(400, f"sink: {error}", "sink", expected, kind="invalid") from None
        plain = resource.sink.isascii() and resource.sink.isprintable() and " " not in resource.sink
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not plain:
            raise Problem(400, f"sink {resource.sink!r:.80}", "sink", expected, kind="invalid")
        if parts.username is not None:
            raise Problem(400, "a sink with a user name", "sink", "protocolsettings.headers instead", kind="invalid")
    for name, value in resource.protocolsettings.headers.items():
        fine = _HEADER.fullmatch(name) and name.lower() not in _NOT_OURS_TO_SET and _HEADER_VALUE.fullmatch(value)
        if not fine or value != value.strip():
            raise Problem(400, f"header {name!r:.80}", "protocolsettings.headers", "a header that may be set, in ASCII")


def resource_of(subscription: Subscription) -> Resource:
    """What `subscription_of` was given."""
    return msgspec.json.decode(subscription.note, type=Resource)
