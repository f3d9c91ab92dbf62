"""The metrics of a broker and its gateway as Prometheus reads them: text, base units, `_total` for what only grows."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tidings.model.message import BROKER
from tidings.model.status import StatusReport
from tidings.net.gateway.webhook import Tally

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CLOSED = ("on_time", "late", "expired", "undeliverable")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = dict[str, str]


class Family(NamedTuple):
    """One metric with all its samples; `suffix` for the parts of a summary."""

    name: str
    kind: str
    help: str
    samples: list[tuple[str, Labels, float]]


class Requests:
    """How many requests there were, and how long they took."""

    def __init__(self) -> None:
        self.count: Counter[tuple[str, str, int]] = Counter()
        self.seconds: Counter[tuple[str, str]] = Counter()

    def add(self, route: str, method: str, status: int, seconds: float) -> None:
        self.count[route, method, status] += 1
        self.seconds[route, method] += seconds  # type: ignore[assignment]  # a Counter adds floats as well


def render(report: StatusReport, requests: Requests, subscriptions: int, readers: int, webhooks: Tally) -> str:
    lines: list[str] = []
    for family in (*_broker(report), *_links(report), *_gateway(requests, subscriptions, readers, webhooks)):
        lines += (f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}")
        lines += (f"{family.name}{suffix}{_labels(labels)} {value!r}" for suffix, labels, value in family.samples)
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _one(name: str, kind: str, help: str, value: float, **labels: str) -> Family:
    return Family(name, kind, help, [("", labels, value)])


def _broker(report: StatusReport) -> Iterator[Family]:
    accounts = report.accounts
    about = {"broker": report.broker, "version": report.version, "engine": report.engine}
    yield _one(
        "tidings_info", "gauge", "What runs here.", 1, **about, scheduler=report.scheduler, overlay=report.overlay
    )
    yield _one("tidings_start_time_seconds", "gauge", "When the broker started, since 1970.", report.started_at_s)
    yield _one("tidings_healthy", "gauge", "Whether the store takes what it is given.", int(report.healthy))
    yield _one("tidings_subscriptions", "gauge", "Subscriptions of this broker's clients.", report.subscriptions)
    yield _one("tidings_clients", "gauge", "Clients that are connected.", report.clients)
    yield _one("tidings_requests_waiting", "gauge", "Requests that wait for the store.", report.waiting)
    yield _one("tidings_events_published_total", "counter", "Events taken from publishers.", report.published)
    yield _one("tidings_events_delivered_total", "counter", "Deliveries to clients.", report.delivered)
    yield _one("tidings_pairs_matched_total", "counter", "Pairs of event and subscription.", accounts["matched"])
    for name, help in (
        ("received", "Pairs taken from other brokers."),
        ("forwarded", "Pairs handed to other brokers."),
    ):
        yield _one(f"tidings_pairs_{name}_total", "counter", help, accounts.get(name, 0))
    yield Family(
        "tidings_pairs_closed_total",
        "counter",
        "Pairs by the account they ended in.",
        [("", {"account": account}, accounts[account]) for account in _CLOSED],
    )
    yield Family(
        "tidings_pairs_lost_total",
        "counter",
        "Pairs that expired or could not be delivered, by reason.",
        [("", {"reason": reason}, count) for reason, count in sorted(report.reasons.items())],
    )
    yield _one("tidings_pairs_pending", "gauge", "Pairs that have not ended.", accounts["pending"])
    yield _one("tidings_earning", "gauge", "Prices of what was in time, less penalties.", accounts["earning"])


def _links(report: StatusReport) -> Iterator[Family]:
    """Of links to brokers one by one; clients come and go, so they are added up."""
    brokers = [link for link in report.links if link.role == BROKER]
    clients = [link for link in report.links if link.role != BROKER]
    for name, kind, help, field, scale in (
        ("tidings_link_up", "gauge", "Whether the link to a broker is there.", "connected", 1),
        ("tidings_link_events_sent_total", "counter", "Events sent on the link.", "sent", 1),
        ("tidings_link_queued_events", "gauge", "Events that wait for the link.", "queued", 1),
        ("tidings_link_unacknowledged_bytes", "gauge", "Bytes sent and not taken.", "unacknowledged_kb", 1024),
        ("tidings_link_round_trip_seconds", "gauge", "Round trip of the link.", "rtt_s", 1),
        ("tidings_link_hop_seconds", "gauge", "Mean time until an event was taken.", "hop_s", 1),
    ):
        samples = [("", {"peer": link.peer}, float(getattr(link, field)) * scale) for link in brokers]
        yield Family(name, kind, help, samples)
    queued = sum(link.queued for link in clients)
    yield _one("tidings_clients_queued_events", "gauge", "Events that wait for the busiest clients.", queued)


def _gateway(requests: Requests, subscriptions: int, readers: int, webhooks: Tally) -> Iterator[Family]:
    def labels(route: str, method: str) -> Labels:
        return {"route": route, "method": method}

    yield _one("tidings_http_subscriptions", "gauge", "Subscriptions of the gateway.", subscriptions)
    yield _one("tidings_http_streams", "gauge", "Event streams and WebSockets that are open.", readers)
    yield Family(
        "tidings_http_requests_total",
        "counter",
        "Requests to the gateway.",
        [("", {**labels(r, m), "status": str(status)}, n) for (r, m, status), n in sorted(requests.count.items())],
    )
    counts: Counter[tuple[str, str]] = Counter()
    for (route, method, _), count in requests.count.items():
        counts[route, method] += count
    yield Family(
        "tidings_http_request_duration_seconds",
        "summary",
        "How long requests took.",
        [
            sample
            for (route, method), count in sorted(counts.items())
            for sample in (
                ("_sum", labels(route, method), float(requests.seconds[route, method])),
                ("_count", labels(route, method), count),
            )
        ],
    )
    outcomes = {"posted": webhooks.posted, "refused": webhooks.refused, "failed": webhooks.failed}
    yield Family(
        "tidings_webhook_attempts_total",
        "counter",
        "Requests to sinks, by what became of them.",
        [("", {"outcome": outcome}, count) for outcome, count in outcomes.items()],
    )
