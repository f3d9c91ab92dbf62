"""A readable trace: one line for each input, and below it one for each effect. The same seed gives the same bytes.

12.022000 b1.00 received publish p1.00.0:1 from p1.00.0
12.022000 b1.00   send forward p1.00.0:1 for s6.00.3 s6.07.1 to b2.01
"""

from collections import deque
from typing import TextIO

from tidings.model import message as m
from tidings.model import step as s
from tidings.sim.network import Node


class Trace:
    """A watcher that writes to a stream, or only keeps the latest steps for whoever has to tell what went wrong."""

    def __init__(self, sink: TextIO | None = None, keep: int = 100) -> None:
        self._latest: deque[tuple[str, s.Input, list[s.Effect], float]] = deque(maxlen=keep)
        self._sink = sink

    def __call__(self, node: Node, input: s.Input, effects: list[s.Effect], now: float) -> None:
        self._latest.append((node.id, input, effects, now))
        if self._sink is not None:
            self._sink.writelines(line + "\n" for line in _lines(node.id, input, effects, now))

    def latest(self) -> list[str]:
        return [line for step in self._latest for line in _lines(*step)]


def _lines(id: str, input: s.Input, effects: list[s.Effect], now: float) -> list[str]:
    return [
        f"{now:.6f} {id} {describe(input)}",
        *(f"{now:.6f} {id}   {describe(effect)}" for effect in effects),
    ]


def describe(step: s.Input | s.Effect) -> str:
    """One line for an input or an effect."""
    match step:
        case s.Received(peer, message):
            return f"received {_message(message)} from {peer}"
        case s.Send(peer, message):
            return f"send {_message(message)} to {peer}"
        case s.Deliver(client, event, subscriptions, age_s):
            return f"deliver {event.id} for {' '.join(subscriptions)} to {client} after {age_s:.6f}"
        case s.Store(ticket, records):
            return f"store {ticket}: {', '.join(_record(record) for record in records)}"
        case s.Wake(timer, at_s):
            return f"wake {timer} at {at_s:.6f}"
        case s.Woke(timer):
            return f"woke {timer}"
        case s.Connected(peer, role):
            return f"connected {role} {peer}"
        case s.Disconnected(peer):
            return f"disconnected {peer}"
        case s.LinkReady(peer):
            return f"link ready {peer}"
        case s.Stored(ticket):
            return f"stored {ticket}"
        case s.StoreFailed(ticket, reason):
            return f"store failed {ticket}: {reason}"


def _message(message: m.Message) -> str:
    match message:
        case m.Publish(_, event):
            return f"publish {event.id}"
        case m.Forward(event, _, routes, age_s, number):
            ids = " ".join(id for route in routes for id in route.subscriptions)
            return f"forward {number} {event.id} for {ids} after {age_s:.6f}"
        case m.Subscribe(_, subscription):
            return f"subscribe {subscription.id}"
        case m.Row(home, version, id, subscription):
            return f"row {home} {version} {'-' if subscription is None else '+'}{id}"
        case m.Table(home, version, subscriptions):
            return f"table {home} {version} ({len(subscriptions)})"
        case m.States(states):
            return f"states {' '.join(f'{state.broker}:{state.version}' for state in states)}"
        case _:
            return repr(message)


def _record(record: s.Record) -> str:
    if isinstance(record, s.AccountRecord):
        return f"{record.event} for {record.subscription} {record.account} {record.reason}".rstrip()
    return type(record).__name__
