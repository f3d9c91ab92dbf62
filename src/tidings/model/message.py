"""Every message that travels between clients and brokers, as one tagged union.

A message is a MessagePack map with its tag under "op", so that a client in any language can write one by hand. Requests carry a
number that the answer repeats. Messages between brokers carry the age of their event, added up from monotonic clocks:
the clocks of two machines are never compared.
"""

import msgspec

from tidings.model.event import Event
from tidings.model.status import AccountsReport, StatusReport
from tidings.model.subscription import Advertisement, Subscription

PROTOCOL_VERSION = 1
CLIENT, BROKER = "client", "broker"


class _Message(msgspec.Struct, frozen=True, gc=False, tag_field="op", omit_defaults=True):
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
    age_s: float = 0.0  # since the publisher let go of it: more than nothing when it is sent again


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


class Acknowledgements(_Message, frozen=True, tag="acknowledgements"):
    """Many at once, as pairs of event and subscription. With a request number it is answered when they are stored, and with
    them all that this client has acknowledged before."""

    pairs: tuple[tuple[str, str], ...]
    request: int = 0


class Ping(_Message, frozen=True, tag="ping"):
    number: int = 0


class Pong(_Message, frozen=True, tag="pong"):
    number: int = 0


class Route(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Subscriptions that live at the last broker of this path; its first broker is the one that receives the copy."""

    path: tuple[str, ...]
    subscriptions: tuple[str, ...]


class Hop(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How old an event was when a broker received it (0 where it was published) and when it sent it on, or delivered it; below 0
    if it never did."""

    broker: str
    received_s: float
    sent_s: float


class Forward(_Message, frozen=True, tag="forward"):
    """A copy of an event on its way between brokers.

    It names exactly the subscriptions it is for, and no other copy names them: that is why paths may change while events
    travel, and still nothing is lost or repeated.
    """

    event: Event
    via: tuple[str, ...]  # the brokers behind it, from the one that matched it to the one that sends it
    routes: tuple[Route, ...]
    age_s: float
    number: int = 0  # counted on this link by its sender
    hops: tuple[Hop, ...] = ()  # so far, if its brokers keep them


class Taken(_Message, frozen=True, tag="taken"):
    """All copies on this link up to this number are in the hands of the receiver, and on its disk if it has a store.

    Each side says so when the link comes up (`resumed`); before it has heard so, a side sends no copies.
    """

    number: int
    resumed: bool = False


class Probe(_Message, frozen=True, tag="probe"):
    """Nothing but weight: how long does the link take for it?"""

    size_kb: float


class LinkState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a broker knows of its link to a neighbour."""

    peer: str
    mu: float  # seconds per KB: mean
    variance: float  # and variance
    price: float = 0.0  # what the time of one transmission is worth (scheduler `priced`)
    loads: tuple[tuple[str, float], ...] = ()  # by source: seconds of transmission offered per second


class State(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A broker's links to its neighbours, and how often its own subscriptions have changed; a greater version is newer."""

    broker: str
    version: int
    links: tuple[LinkState, ...]
    rows: int = 0


class States(_Message, frozen=True, tag="states"):
    """News about brokers, flooded."""

    states: tuple[State, ...]


class Row(_Message, frozen=True, tag="row"):
    """One change of the subscriptions that live at `home`: a new one, or (None) the end of the one called `id`."""

    home: str
    version: int
    id: str
    subscription: Subscription | None = None


class Table(_Message, frozen=True, tag="table"):
    """All subscriptions that live at `home`, for a broker that has missed changes."""

    home: str
    version: int
    subscriptions: tuple[Subscription, ...]


class Ask(_Message, frozen=True, tag="ask"):
    """Send me the table of this home."""

    home: str


class AskStatus(_Message, frozen=True, tag="ask_status"):
    request: int


class Status(_Message, frozen=True, tag="status"):
    request: int
    report: StatusReport


class AskAccounts(_Message, frozen=True, tag="ask_accounts"):
    """`by`: total, subscription, type, broker or reason; empty for all of them. At most `limit` rows of each."""

    request: int
    by: str = ""
    limit: int = 1_000


class Accounts(_Message, frozen=True, tag="accounts"):
    request: int
    report: AccountsReport


Request = Publish | Subscribe | Unsubscribe | Advertise | Unadvertise
Overlaid = States | Row | Table | Ask
Asking = Request | AskStatus | AskAccounts
Shown = Status | Accounts
Message = (
    Hello
    | Asking
    | Shown
    | Done
    | Failed
    | Notify
    | Acknowledge
    | Acknowledgements
    | Ping
    | Pong
    | Forward
    | Taken
    | Probe
    | Overlaid
)
