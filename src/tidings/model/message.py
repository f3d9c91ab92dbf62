"""Every message that travels between clients and brokers, as one tagged union.

A message is a MessagePack map with its tag under "op", so that a client in any language can write one by hand. Requests carry a
number that the answer repeats. Messages between brokers carry the age of their event, added up from monotonic clocks:
the clocks of two machines are never compared.
"""

import msgspec

from tidings.model.event import Event
from tidings.model.subscription import Advertisement, Subscription

PROTOCOL_VERSION = 1
CLIENT, BROKER = "client", "broker"


class _Message(msgspec.Struct, frozen=True, tag_field="op", omit_defaults=True):
    pass


class Hello(_Message, frozen=True, tag="hello"):
    """The first message on a connection, from both sides."""

    peer: str
    role: str = CLIENT
    version: int = PROTOCOL_VERSION
    token: str = ""


class Publish(_Message, frozen=True, tag="publish"):
    request: int
    event: Event


class Subscribe(_Message, frozen=True, tag="subscribe"):
    request: int
    subscription: Subscription


class Unsubscribe(_Message, frozen=True, tag="unsubscribe"):
    request: int
    id: str


class Advertise(_Message, frozen=True, tag="advertise"):
    request: int
    advertisement: Advertisement


class Unadvertise(_Message, frozen=True, tag="unadvertise"):
    request: int
    id: str


class Done(_Message, frozen=True, tag="done"):
    """The request is carried out and safe: an acknowledged event is stored."""

    request: int
    id: str = ""
    repeated: bool = False


class Failed(_Message, frozen=True, tag="failed"):
    """The request changed nothing, and why."""

    request: int
    error: str
    reason: str


class Notify(_Message, frozen=True, tag="notify"):
    """An event for a client, with those of its subscriptions that want it."""

    event: Event
    subscriptions: tuple[str, ...]
    age_s: float
    redelivered: bool = False


class Acknowledge(_Message, frozen=True, tag="acknowledge"):
    """The client has the event; it will not be sent for this subscription again."""

    event: str
    subscription: str


class Ping(_Message, frozen=True, tag="ping"):
    number: int = 0


class Pong(_Message, frozen=True, tag="pong"):
    number: int = 0


Request = Publish | Subscribe | Unsubscribe | Advertise | Unadvertise
Message = Hello | Request | Done | Failed | Notify | Acknowledge | Ping | Pong
