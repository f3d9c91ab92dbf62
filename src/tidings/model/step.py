"""What enters the broker machine (Inputs) and what leaves it (Effects).

A driver (the simulator, the sockets, the embedded bus) feeds Inputs one at a time with the time now, and carries out the
Effects in order. The machine does no I/O and reads no clock.
"""

import msgspec

from tidings.model.event import Event
from tidings.model.message import CLIENT, Hop, Message, Route
from tidings.model.subscription import Advertisement, Subscription


class _Step(msgspec.Struct, frozen=True, gc=False):
    pass


class Connected(_Step, frozen=True):
    """A client or a neighbouring broker is there; nothing is sent to it before its first LinkReady."""

    peer: str
    role: str = CLIENT


class Disconnected(_Step, frozen=True):
    peer: str


class Received(_Step, frozen=True):
    """`transit_s` is how long the message was under way, as far as the driver knows: clocks are never compared."""

    peer: str
    message: Message
    transit_s: float = 0.0


class LinkReady(_Step, frozen=True):
    """The link takes one more event, or so many. Without this input outboxes would never fill and every scheduler would look
    alike.

    `took` is what the driver has measured, if it can: sizes in KB and the seconds that the link took for each. Else the link
    took from the last event until now.
    """

    peer: str
    took: tuple[tuple[float, float], ...] | None = None
    events: int = 1


class Stored(_Step, frozen=True):
    """The records of this ticket are safe (synced to disk, and replicated where the overlay asks for it)."""

    ticket: int


class StoreFailed(_Step, frozen=True):
    """The records of this ticket could not be stored; nothing of them may be acknowledged."""

    ticket: int
    reason: str


class Woke(_Step, frozen=True):
    """A time that was asked for by Wake has come."""

    timer: str


Input = Connected | Disconnected | Received | LinkReady | Stored | StoreFailed | Woke


class Send(_Step, frozen=True):
    """Put a message on the link to a peer; events go only after its LinkReady."""

    peer: str
    message: Message


class Deliver(_Step, frozen=True):
    """Hand an event to a local client, after its LinkReady."""

    client: str
    event: Event
    subscriptions: tuple[str, ...]
    age_s: float
    redelivered: bool = False


class Store(_Step, frozen=True):
    """Make records safe, then answer with Stored or StoreFailed for the ticket. Ticket 0 wants no answer."""

    ticket: int
    records: tuple["Record", ...]


class Wake(_Step, frozen=True):
    """Answer with Woke(timer) at this time; a later Wake of the same timer replaces it."""

    timer: str
    at_s: float


Effect = Send | Deliver | Store | Wake


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """Written by the million, so without the names of its fields: new fields go last and have a default."""


class EventRecord(_Record, frozen=True, tag="event"):
    """An event that was published here, or a copy of one that was published elsewhere."""

    event: Event
    copied: bool = False


class SubscriptionRecord(_Record, frozen=True, tag="subscription"):
    subscription: Subscription


class UnsubscriptionRecord(_Record, frozen=True, tag="unsubscription"):
    id: str


class AdvertisementRecord(_Record, frozen=True, tag="advertisement"):
    advertisement: Advertisement


class UnadvertisementRecord(_Record, frozen=True, tag="unadvertisement"):
    id: str


class MatchRecord(_Record, frozen=True, tag="match", gc=False):
    """The event was matched: a pair is open for each of these subscriptions until an AccountRecord closes it.

    It is written for every event, also when nobody wants it: an event without one was cut short and is matched again at
    start-up. `born_s` is when the event was published, on this machine's wall clock.
    """

    event: str
    subscriptions: tuple[str, ...]
    event_type: str = ""
    born_s: float = 0.0


class AccountRecord(_Record, frozen=True, tag="account", gc=False):
    """The end of one matched (event, subscription) pair: see broker/ledger.py."""

    event: str
    subscription: str
    account: str
    reason: str
    broker: str
    age_s: float
    earning: float
    event_type: str = ""
    hops: tuple[Hop, ...] = ()


class CopyRecord(_Record, frozen=True, tag="copy"):
    """This broker carries a copy for other brokers, until a HandedRecord ends it. A later one of the same number replaces it.

    `routes` are those from the next broker on, `born_s` is the event's publication on this machine's wall clock.
    """

    number: int
    event: Event
    via: tuple[str, ...]
    routes: tuple[Route, ...]
    born_s: float
    received_s: float = 0.0
    hops: tuple[Hop, ...] = ()


class HandedRecord(_Record, frozen=True, tag="handed", gc=False):
    """These copies are no longer carried: another broker has them, or their pairs were closed here."""

    copies: tuple[int, ...]


class TakenRecord(_Record, frozen=True, tag="taken", gc=False):
    """A copy came from a peer, for these subscriptions: what comes again is recognised. Up to `number` its copies are safe here;
    without an event, that is all it says."""

    peer: str
    number: int
    event: str = ""
    subscriptions: tuple[str, ...] = ()


class NeighbourRecord(_Record, frozen=True, tag="neighbour", gc=False):
    """This broker has a link to that one: after a crash, what goes there waits for the link to come up."""

    peer: str


class RemoteRecord(_Record, frozen=True, tag="remote"):
    """A subscription that lives at another broker is new or different, or (None) gone; without an id only the version is new.

    Kept so that a source knows whom its events are for as soon as it is back, whoever of the others is there.
    """

    home: str
    version: int
    id: str = ""
    subscription: Subscription | None = None


class PathRecord(_Record, frozen=True, tag="path", gc=False):
    """The path that this broker's own events take to that one."""

    home: str
    path: tuple[str, ...]


Record = (
    EventRecord
    | SubscriptionRecord
    | UnsubscriptionRecord
    | AdvertisementRecord
    | UnadvertisementRecord
    | MatchRecord
    | AccountRecord
    | CopyRecord
    | HandedRecord
    | TakenRecord
    | NeighbourRecord
    | RemoteRecord
    | PathRecord
)
OverlayRecord = RemoteRecord | PathRecord
