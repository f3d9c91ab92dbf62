"""What the schedulers of a live broker know of its links: they are measured while they run."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidings.model.message import BROKER
from tidings.overlay.base import Overlay
from tidings.scheduling.delay import Link, unhindered
from tidings.scheduling.rate import PER_KB, Estimate

PROCESSING_S, CLIENT_S = 0.001, 0.001


class Belief(NamedTuple):
    """What to believe of a link before the first event has crossed it: seconds per KB, mean and deviation."""

    mu: float = 0.0
    sigma: float = 0.0


def measured(source: str, overlay: Overlay, beliefs: Mapping[str, Belief]) -> Callable[[str, str], Link]:
    def link(peer: str, role: str) -> Link:
        if role != BROKER:
            return unhindered()
        mu, sigma = beliefs.get(peer, Belief())
        return Link(
            source=source,
            peer=peer,
            rate=Estimate(mu, sigma, sampling=PER_KB),
            processing_s=PROCESSING_S,
            client_s=CLIENT_S,
            sampling=PER_KB,
            prices=overlay.prices,
        )

    return link
