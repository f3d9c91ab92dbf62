"""What a broker shows of itself: links, queues, faults, the latest events, and its accounts.

The schema is fixed: the gateway's `/status`, the command line, the Spark `account` step and the monitor read it. Times that end
in `at_s` are seconds since 1970 on the broker's own wall clock, all others are durations.
"""

import msgspec


class LinkReport(msgspec.Struct, frozen=True):
    """The link to a neighbouring broker, or to a client."""

    peer: str
    role: str
    connected: bool
    address: str = ""
    queued: int = 0  # events that wait in the outbox
    unacknowledged: int = 0  # events that were sent, and not yet taken
    unacknowledged_kb: float = 0.0
    backlog_kb: float = 0.0  # bytes that the socket has not taken
    sent: int = 0  # events, since the broker started
    received: int = 0  # messages
    rtt_s: float = 0.0
    hop_s: float = 0.0  # mean time from sending an event until it was taken
    mu: float = 0.0  # seconds per KB: mean
    sigma: float = 0.0  # and deviation
    capacity: int = 0  # events that the outbox holds at most
    price: float = 0.0  # what the time of one transmission is worth (scheduler `priced`)


class EdgeReport(msgspec.Struct, frozen=True):
    """A link between two brokers of the network, as this broker has heard of it."""

    sender: str
    receiver: str
    mu: float = 0.0
    sigma: float = 0.0
    price: float = 0.0


class FaultRecord(msgspec.Struct, frozen=True):
    """Something broke, or was mended: a link, a peer, the store."""

    at_s: float
    kind: str  # started; link up, link down, refused; client lost, slow consumer; store failed, store mended
    peer: str = ""
    detail: str = ""


class TraceRecord(msgspec.Struct, frozen=True):
    """One step of one event at this broker."""

    at_s: float
    event: str
    type: str
    step: str  # published, received, forwarded, delivered
    peer: str
    age_s: float
    subscriptions: int = 0


class StatusReport(msgspec.Struct, frozen=True):
    broker: str
    version: str
    started_at_s: float
    uptime_s: float
    engine: str
    scheduler: str
    overlay: str
    subscriptions: int  # of its own clients
    matched_here: int  # subscriptions that it knows, those that live at other brokers included
    advertisements: int
    clients: int
    connections: int
    published: int
    delivered: int
    healthy: bool
    reason: str  # why it is not healthy
    waiting: int  # requests that wait for the store
    accounts: dict[str, float]  # the fields of the ledger's tally
    reasons: dict[str, int]  # why pairs expired or could not be delivered
    links: tuple[LinkReport, ...]  # to brokers, and the fullest links to clients
    topology: tuple[EdgeReport, ...]
    faults: tuple[FaultRecord, ...]
    trace: tuple[TraceRecord, ...]
    durable: bool = False  # whether it has a store; `healthy` and `reason` tell how that is


class AccountRow(msgspec.Struct, frozen=True):
    """The accounts of one subscription, event type, broker or reason, or of all (`by` = total)."""

    by: str
    name: str
    matched: int
    on_time: int
    late: int
    expired: int
    undeliverable: int
    pending: int
    earning: float
    success_rate: float
    p50_s: float | None = None  # ages of received events
    p90_s: float | None = None
    p99_s: float | None = None


class AccountsReport(msgspec.Struct, frozen=True):
    broker: str
    rows: tuple[AccountRow, ...]
    balanced: bool
    left_out: int = 0  # rows beyond the limit that was asked for
