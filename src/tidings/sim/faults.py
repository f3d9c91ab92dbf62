"""Faults, all drawn from one seed: crash and restart, link cut, partition, loss, delay and duplicates, and their end.

Each fault strikes at a random time, lasts a random while, and is repaired. After `end_s` everything works again, so that a test
may wait for rest and count.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidings.sim.network import Network, Wire, generator

CRASH, CUT, PARTITION, LOSS, DELAY, DUPLICATE = "crash", "cut", "partition", "loss", "delay", "duplicate"
KINDS = (CRASH, CUT, PARTITION, LOSS, DELAY, DUPLICATE)


class Fault(NamedTuple):
    at_s: float
    until_s: float
    kind: str
    brokers: tuple[str, ...]  # the broker, the two ends of the link, or one side of the partition

    def __str__(self) -> str:
        return f"{self.at_s:.1f} to {self.until_s:.1f} s: {self.kind} {' '.join(self.brokers)}"


def plan(
    network: Network,
    *,
    start_s: float,
    end_s: float,
    gap_s: float,
    duration_s: float,
    kinds: Sequence[str] = KINDS,
    spare: Sequence[str] = (),
) -> list[Fault]:
    """One fault after the other, `gap_s` apart on average and `duration_s` long; the spared brokers do not crash."""
    random = generator(network.seed, "plan of faults")
    brokers = sorted(network.nodes)
    links = sorted((a, b) for a, node in network.nodes.items() for b in node.wires if a < b)
    faults: list[Fault] = []
    at_s = start_s + random.exponential(gap_s)
    while at_s < end_s:
        until_s = min(end_s, at_s + random.exponential(duration_s))
        kind = kinds[int(random.integers(len(kinds)))]
        struck: tuple[str, ...]
        if kind == CRASH:
            mortal = [broker for broker in brokers if broker not in spare]
            struck = (mortal[int(random.integers(len(mortal)))],)
        elif kind == PARTITION:
            side = random.random(len(brokers)) < 0.5
            struck = tuple(broker for broker, inside in zip(brokers, side, strict=True) if inside)
        else:
            struck = links[int(random.integers(len(links)))]
        faults.append(Fault(float(at_s), float(until_s), kind, struck))
        at_s += random.exponential(gap_s)
    return faults


def inject(network: Network, faults: Sequence[Fault]) -> None:
    """Let them happen. A link or broker that two faults hold down comes back with the last of them."""
    held: dict[tuple[str, ...], int] = {}

    def strike(key: tuple[str, ...], down: Callable[[], None]) -> None:
        held[key] = held.get(key, 0) + 1
        if held[key] == 1:
            down()

    def repair(key: tuple[str, ...], up: Callable[[], None]) -> None:
        held[key] -= 1
        if held[key] == 0:
            up()

    for fault in faults:
        for key, down, up in _deeds(network, fault):
            network.loop.at(fault.at_s, strike, key, down)
            network.loop.at(fault.until_s, repair, key, up)


def _deeds(network: Network, fault: Fault) -> list[tuple[tuple[str, ...], Callable[[], None], Callable[[], None]]]:
    """What goes down, how, and how it comes back."""
    if fault.kind == CRASH:
        (id,) = fault.brokers
        return [((CRASH, id), lambda: network.crash(id), lambda: network.restart(id))]
    if fault.kind in (CUT, PARTITION):
        side = set(fault.brokers)
        pairs = (
            [fault.brokers]
            if fault.kind == CUT
            else sorted(
                (a, b) for a in network.nodes for b in network.nodes[a].wires if a < b and (a in side) != (b in side)
            )
        )
        return [
            ((CUT, a, b), lambda a=a, b=b: network.cut(a, b), lambda a=a, b=b: network.mend(a, b))  # type: ignore[misc]
            for a, b in pairs
        ]
    a, b = fault.brokers
    wires = (network.nodes[a].wires[b], network.nodes[b].wires[a])
    return [((fault.kind, a, b), lambda: _disturb(wires, fault.kind), lambda: _disturb(wires, fault.kind, 0.0))]


def _disturb(wires: tuple[Wire, Wire], kind: str, amount: float = 0.5) -> None:
    """Half of the messages, or up to half a second."""
    for wire in wires:
        if kind == LOSS:
            wire.loss = amount
        elif kind == DELAY:
            wire.delay_s = amount
        else:
            wire.repeat = amount
