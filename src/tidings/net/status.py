"""What a running broker shows of itself (`Status`), in the schema of model/status.py, which travels over the wire too.

`runtime.status()` takes it at one moment. It costs about as much as there are links, remembered faults and traced steps: all
bounded; of the links to clients the fullest are shown.
"""

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

from tidings.model.message import BROKER
from tidings.model.status import EdgeReport, FaultRecord, LinkReport, TraceRecord
from tidings.model.status import StatusReport as Status

if TYPE_CHECKING:
    from tidings.net.runtime import Runtime

__all__ = ["EdgeReport", "FaultRecord", "LinkReport", "Status", "TraceRecord", "status_of"]

VERSION = "0.1.0"
MAX_CLIENTS = 50  # links to clients that are shown: those with the most to do


def status_of(runtime: "Runtime") -> Status:
    broker, config = runtime.broker, runtime.config
    store, total = runtime.store, broker.ledger.total
    now, wall_s = asyncio.get_running_loop().time(), time.time()
    links = sorted(
        _links(runtime, now), key=lambda link: (link.role != BROKER, -link.queued - link.unacknowledged, link.peer)
    )
    brokers = sum(link.role == BROKER for link in links)
    return Status(
        config.id,
        VERSION,
        runtime.started_at_s,
        wall_s - runtime.started_at_s,
        config.engine,
        config.scheduler,
        config.overlay,
        len(broker.subscriptions),
        len(broker.subscriptions) + len(getattr(broker.overlay, "homes", ())),
        len(broker.advertisements),
        sum(peer.role != BROKER for peer in runtime.peers.values()),
        len(runtime.peers),
        runtime.published,
        runtime.delivered,
        store.healthy if store is not None else True,
        store.reason if store is not None else "",
        broker.waiting,
        {name: getattr(total, name) for name in total.__struct_fields__},
        dict(broker.ledger.reasons),
        tuple(links[: brokers + MAX_CLIENTS]),
        tuple(_edges(broker.overlay)),
        tuple(runtime.faults),
        tuple(
            TraceRecord(wall_s - (now - at_s), event.id, event.type, step, peer, age_s, subscriptions)
            for at_s, event, step, peer, age_s, subscriptions in runtime.trace
        ),
        store is not None,
    )


def _links(runtime: "Runtime", now: float) -> list[LinkReport]:
    found = []
    for name, outbox in runtime.broker.outboxes.items():
        peer = runtime.peers.get(name)
        link = outbox.scheduler.link
        found.append(
            LinkReport(
                name,
                outbox.role,
                peer is not None,
                queued=len(outbox),
                mu=link.mu,
                sigma=math.sqrt(link.variance),
                capacity=outbox.scheduler.capacity,
                price=outbox.scheduler.price(now),
                **({} if peer is None else _line(peer)),
            )
        )
    return found


def _line(peer: Any) -> dict[str, Any]:
    return {
        "address": peer.connection.address,
        "unacknowledged": len(peer),
        "unacknowledged_kb": peer.unacknowledged_kb,
        "backlog_kb": peer.connection.backlog_kb,
        "sent": peer.sent,
        "received": peer.received,
        "rtt_s": peer.connection.rtt_s,
        "hop_s": peer.hop_s,
    }


def _edges(overlay: Any) -> list[EdgeReport]:
    """The links of the whole network, where the overlay knows them."""
    atlas = getattr(overlay, "atlas", None)
    if atlas is None:
        return []
    return [
        EdgeReport(sender, link.peer, link.mu, math.sqrt(link.variance), link.price)
        for sender, links in sorted(atlas.links.items())
        for link in links.values()
    ]
