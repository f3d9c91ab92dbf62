"""Who is there: clients and neighbouring brokers come and go, and their subscriptions with them."""

import msgspec

from tidings.broker.ledger import Account
from tidings.broker.outbox import Outbox
from tidings.broker.outflow import SUBSCRIBER_GONE, Outflow
from tidings.broker.registry import DURABLE
from tidings.broker.transit import Copy
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.subscription import Subscription
from tidings.overlay.base import UNSUBSCRIBED
from tidings.scheduling.base import Item, Target


class Peers(Outflow):
    """A neighbour keeps its outbox when it goes; a client's ends with it, but for what is durable."""

    def _connected(self, input: s.Connected, now: float) -> None:
        new = input.peer not in self.outboxes
        outbox = self._outbox(input.peer, input.role)
        if input.role == m.BROKER:
            if new and self.transit is not None:
                self._effects.append(s.Store(0, (s.NeighbourRecord(input.peer),)))
            taken = outbox.taken if self.transit is None else self.transit.link(input.peer).connected()
            self._send(input.peer, m.Taken(taken, resumed=True))
            self._effects += self.overlay.connected(input.peer, now)
            self._keep_learned()

    def _disconnected(self, input: s.Disconnected, now: float) -> None:
        outbox = self.outboxes.get(input.peer)
        if outbox is None:
            return
        if outbox.role == m.CLIENT:
            self._client_left(outbox, now)
            return
        outbox.link_lost()
        if self.transit is not None:
            self._effects.append(s.Store(0, (s.TakenRecord(input.peer, self.transit.link(input.peer).taken),)))
        self._effects += self.overlay.disconnected(input.peer, now)
        for item in outbox.emptied():
            if not self._doubt(outbox, item, now):
                self._send_again(item, now)

    def _client_left(self, outbox: Outbox, now: float) -> None:
        """What is durable waits for the client to come back; the rest ends."""
        gone = sorted(outbox.subscriptions - outbox.durable)
        for id in gone:
            self._forget(id, SUBSCRIBER_GONE, now)
        if gone:
            self._effects.append(s.Store(0, tuple(map(s.UnsubscriptionRecord, gone))))
        del self.outboxes[outbox.peer]
        for id in sorted(outbox.durable):
            self._outbox(DURABLE + id, m.CLIENT)
        for item in (*outbox.taken_back(), *outbox.emptied()):
            for target in item.targets:
                self._schedule(DURABLE + target.subscription, msgspec.structs.replace(item, targets=(target,)), now)

    def _resume(self, subscription: Subscription, now: float) -> None:
        """The subscriber is back: what waited for it goes to its own outbox."""
        asleep = self.outboxes.get(DURABLE + subscription.id)
        if asleep is not None and subscription.subscriber in self.outboxes:
            del self.outboxes[asleep.peer]
            self._attach(subscription)
            for item in asleep.emptied():
                self._schedule(subscription.subscriber, item, now)

    def _attach(self, subscription: Subscription) -> None:
        """To its subscriber's outbox, or to one of its own while the subscriber is away."""
        outbox = self.outboxes.get(subscription.subscriber)
        if outbox is not None:
            outbox.subscriptions.add(subscription.id)
            if subscription.durable:
                outbox.durable.add(subscription.id)
        elif subscription.durable:
            self._outbox(DURABLE + subscription.id, m.CLIENT)

    def _forget(self, id: str, reason: str, now: float) -> None:
        subscription = self.registry.remove(id)
        self.outboxes.pop(DURABLE + id, None)
        outbox = self.outboxes.get(subscription.subscriber)
        if outbox is not None:
            outbox.forget(id)
        self._record(self.ledger.abandon(id, reason, now))
        self._effects += self.overlay.unsubscribed(id, now)

    def _remote_subscriptions_changed(self, now: float) -> None:
        self._keep_learned()
        for id, subscription in self.overlay.changes():
            self.registry.remote(id, subscription)
            if subscription is None:
                for outbox in self.outboxes.values():
                    for item, target in outbox.withdraw(id):
                        self._withdrawn(outbox, item, target, now)

    def _withdrawn(self, outbox: Outbox, item: Item, target: Target, now: float) -> None:
        rest: tuple[s.Record, ...] = ()
        if self.transit is not None and isinstance(item, Copy):
            alone, rest = self.transit.apart(item, target)
            if item.redelivered:
                self._effects.append(s.Store(0, (*rest, self.transit.record(alone))))
                self._doubt(outbox, alone, now)
                return
        age_s = now - item.born_s
        ended = self._closed(item.event.id, (target,), Account.UNDELIVERABLE, UNSUBSCRIBED, age_s, now)
        self._effects.append(s.Store(0, (*ended, *rest)))
