"""mesh: brokers linked at will; one path from each source to each subscriber, one copy for each neighbour (mtep, section 1.3).

Subscriptions travel hop by hop upstream, and each broker keeps a row for every one of them: filter, deadline, price, penalty,
the neighbour and the number of brokers ahead (mtep, 2.4), and the path's mean and variance.

How we differ:
a) Rows name the subscriber's own broker (its home). Neighbour, number of brokers, mean and variance are the same for all rows
   of one home, so they are kept once for each path and follow the states of the links, which brokers flood when they change.
b) An event is matched once, at its source. Each copy carries the paths of its own disjoint set of subscriptions, so paths can
   change at any time without losing or repeating anything, and a broker that finds its next link gone makes a detour around
   all brokers that the copy has already seen.
c) `routing="balanced"` takes the tree of `balance.py` instead of the least mean rate alone.

Control messages may get lost, repeated or reordered: states and tables have versions, and a gap is filled by asking.
Cost per copy: O(subscriptions it names). Memory: a row for each subscription, a State for each broker.
"""

import math
from collections.abc import Iterable, Mapping
from zlib import crc32

import msgspec

from tidings.errors import InvalidInput
from tidings.model.event import Event
from tidings.model.message import Ask, LinkState, Message, Overlaid, Route, Row, State, States, Table
from tidings.model.step import Effect, OverlayRecord, PathRecord, RemoteRecord, Send, Wake
from tidings.model.subscription import Subscription
from tidings.overlay.atlas import Atlas, Path
from tidings.overlay.balance import Balance
from tidings.overlay.base import TIMER, Changed, Neighbour, Overlay, Relayed
from tidings.scheduling.base import Target

PAPER, BALANCED = "paper", "balanced"
FLOOD, BALANCE = TIMER + "flood", TIMER + "balance"
SETTLE_S = 0.1  # changes of the neighbourhood are told together after this time
BALANCE_S, MAX_BALANCE_S = 60.0, 240.0  # how often the tree is looked at: while it changes, and while it does not
MAX_PATHS = 65_536  # that are remembered with their targets; beyond that they are looked up anew
INCARNATION = 1 << 32  # the versions of a broker that has restarted are greater than all before


class _Ahead:
    """What one path means here: its first neighbour, and the targets of subscriptions at its end."""

    __slots__ = ("hops", "mu", "path", "peer", "targets", "variance")

    def __init__(self, path: Path, mu: float, variance: float) -> None:
        self.peer, self.path, self.hops, self.mu, self.variance = path[1], path[1:], len(path) - 1, mu, variance
        self.targets: dict[str, Target] = {}


class Mesh(Overlay):
    """`upstream` names the neighbours that hear of subscriptions; without it all do, and events may go to all of them."""

    name = "mesh"

    def __init__(self, upstream: Iterable[str] | None = None, routing: str = PAPER, flood_s: float = 10.0) -> None:
        super().__init__()
        if routing not in (PAPER, BALANCED):
            raise InvalidInput(f"routing {routing!r}: expected {PAPER!r} or {BALANCED!r}")
        self.atlas = Atlas()
        self.homes: dict[str, str] = {}  # remote subscription -> its home
        self.tables: dict[str, dict[str, Subscription]] = {}  # home -> its subscriptions, our own included
        self.tree: dict[str, Path] = {}  # home -> the path of our own events
        self.balance = Balance() if routing == BALANCED else None
        self.weighing = routing == BALANCED
        self._upstream = None if upstream is None else frozenset(upstream)
        self._flood_s = flood_s
        self._peers: dict[str, None] = {}  # connected neighbours, in the order they came
        self._served: dict[str, None] = {}  # those of them that events may go to
        self._versions: dict[str, int] = {}  # home -> changes of its table that we have seen
        self._news: dict[str, None] = {}  # brokers whose State has to be passed on
        self._flood_at_s = math.inf  # when that will be
        self._ahead: dict[Path, _Ahead] = {}
        self._ahead_edition = self._tree_edition = -1  # of the atlas that they are made from
        self._balance_s = BALANCE_S
        self.switches = 0

    def join(self, id: str, neighbours: Mapping[str, Neighbour], incarnation: int) -> None:
        super().join(id, neighbours, incarnation)
        first = incarnation * INCARNATION
        self.tables[id] = {}
        self._versions[id] = first
        self.atlas.learn(State(id, first, (), first))

    def restore(self, records: Iterable[OverlayRecord]) -> None:
        for record in records:
            if isinstance(record, PathRecord):
                self.tree[record.home] = record.path
            else:
                self._versions[record.home] = max(record.version, self._versions.get(record.home, 0))
                if record.id:
                    self._put(record.home, record.id, record.subscription)

    # The neighbourhood.

    def connected(self, peer: str, now: float) -> list[Effect]:
        self._peers[peer] = None
        if self._serves(peer):
            self._served[peer] = None
        greeting: list[Effect] = [Send(peer, States(tuple(self.atlas.states.values())))] if self._hears(peer) else []
        return [*greeting, *self._neighbourhood_changed(peer, now)]

    def disconnected(self, peer: str, now: float) -> list[Effect]:
        self._peers.pop(peer, None)
        self._served.pop(peer, None)
        return self._neighbourhood_changed(peer, now)

    def _neighbourhood_changed(self, peer: str, now: float) -> list[Effect]:
        """Our own paths change at once; the others hear of it when things have settled."""
        if not self._serves(peer):
            return []
        self._renew_own_state(now)
        effects = self._flood_by(now + SETTLE_S)
        if self.balance is not None:
            # Not all at the same time: what one source does, the next should see.
            effects.append(Wake(BALANCE, now + BALANCE_S * (1 + crc32(self.id.encode()) / (1 << 32))))
        return effects

    def _hears(self, peer: str) -> bool:
        return self._upstream is None or peer in self._upstream

    def _serves(self, peer: str) -> bool:
        return self._upstream is None or peer not in self._upstream

    # Subscriptions, hop by hop upstream.

    def subscribed(self, subscription: Subscription, now: float) -> list[Effect]:
        self.tables[self.id][subscription.id] = subscription
        return self._own_table_changed(subscription.id, subscription, now)

    def unsubscribed(self, id: str, now: float) -> list[Effect]:
        del self.tables[self.id][id]
        return self._own_table_changed(id, None, now)

    def _own_table_changed(self, id: str, subscription: Subscription | None, now: float) -> list[Effect]:
        self._versions[self.id] += 1
        row = Row(self.id, self._versions[self.id], id, subscription)
        return [*self._pass_on(row), *self._flood_by(now + SETTLE_S)]

    def _pass_on(self, message: Message, source: str = "") -> list[Effect]:
        return [Send(peer, message) for peer in self._peers if peer != source and self._hears(peer)]

    def received(self, peer: str, message: Overlaid, now: float) -> list[Effect]:
        match message:
            case Row(home, version):
                return self._row(peer, message) if version > self._versions.get(home, 0) else []
            case Table(home, version):
                return self._table(peer, message) if version > self._versions.get(home, 0) else []
            case Ask(home):
                known = self.tables.get(home)
                return [] if known is None else [Send(peer, Table(home, self._versions[home], tuple(known.values())))]
            case States(states):
                return self._heard(peer, states, now)

    def _row(self, peer: str, row: Row) -> list[Effect]:
        if row.version != self._versions.get(row.home, 0) + 1:
            return [Send(peer, Ask(row.home))]
        self._versions[row.home] = row.version
        self._put(row.home, row.id, row.subscription)
        if self.keeping:
            self.learned.append(RemoteRecord(row.home, row.version, row.id, row.subscription))
        return self._pass_on(row, peer)

    def _table(self, peer: str, table: Table) -> list[Effect]:
        self._versions[table.home] = table.version
        there = {subscription.id: subscription for subscription in table.subscriptions}
        known = self.tables.get(table.home, {})
        changes: dict[str, Subscription | None] = {id: None for id in known if id not in there}
        changes |= {id: subscription for id, subscription in there.items() if known.get(id) != subscription}
        for id, subscription in changes.items():
            self._put(table.home, id, subscription)
        if self.keeping:
            self.learned.append(RemoteRecord(table.home, table.version))
            self.learned += (RemoteRecord(table.home, table.version, id, wish) for id, wish in changes.items())
        return self._pass_on(table, peer)

    def _put(self, home: str, id: str, subscription: Subscription | None) -> None:
        table = self.tables.setdefault(home, {})
        if subscription is not None:
            table[id] = subscription
            self.homes[id] = home
        elif table.pop(id, None) is not None and self.homes.get(id) == home:
            del self.homes[id]
        else:
            return
        for ahead in self._ahead.values():
            ahead.targets.pop(id, None)
        self._changes.append(Changed(id, subscription))

    # Link states, flooded: soon when a link comes or goes, else every `flood_s` if they have changed enough to matter.

    def _heard(self, peer: str, states: tuple[State, ...], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for state in states:
            if state.broker == self.id:
                continue
            if state.rows > self._versions.get(state.broker, 0):
                effects.append(Send(peer, Ask(state.broker)))
            known = self.atlas.links.get(state.broker, {}).keys()
            if self.atlas.learn(state):
                self._news[state.broker] = None
                for link in state.links:
                    self.prices[state.broker, link.peer] = link.price
                if known != self.atlas.links[state.broker].keys():
                    effects += self._flood_by(now + SETTLE_S)
        if self.keeping and self._tree_edition != self.atlas.edition:
            self._grow_tree()  # to be kept before an event needs it
        return effects

    def _flood_by(self, at_s: float) -> list[Effect]:
        """At this time at the latest."""
        if at_s >= self._flood_at_s:
            return []
        self._flood_at_s = at_s
        return [Wake(FLOOD, at_s)]

    def woke(self, timer: str, now: float) -> list[Effect]:
        if timer == BALANCE:
            return self._rebalance(now)
        self._renew_own_state(now)
        news = tuple(self.atlas.states[broker] for broker in self._news)
        self._news.clear()
        effects = self._pass_on(States(news)) if news else []
        self._flood_at_s = math.inf
        if self._served:  # else there is nothing that could change by itself
            effects += self._flood_by(now + self._flood_s)
        return effects

    def _renew_own_state(self, now: float) -> None:
        known = self.atlas.states[self.id]
        links = tuple([self.neighbours[peer].state(now) for peer in self._served])
        if known.rows != self._versions[self.id] or _differ(known.links, links):
            self.atlas.learn(State(self.id, known.version + 1, links, self._versions[self.id]))
            self._news[self.id] = None

    # Events.

    def spread(self, event: Event, ids: list[str], now: float) -> Relayed:
        here: list[str] = []
        by_home: dict[str, list[str]] = {}
        for id in ids:
            home = self.homes.get(id)
            if home is None:
                here.append(id)
            else:
                by_home.setdefault(home, []).append(id)
        if self._tree_edition != self.atlas.edition:
            self._grow_tree()
        if self.balance is not None:
            self.balance.saw(by_home, event.size_kb, now)
        away = [Route(self.tree.get(home, ()), tuple(ids)) for home, ids in by_home.items()]
        onward, lost = self._onward(event, away, (self.id,))
        return Relayed(here, onward, lost)

    def relay(self, event: Event, routes: tuple[Route, ...], via: tuple[str, ...], now: float) -> Relayed:
        here: list[str] = []
        further: list[Route] = []
        for route in routes:
            if len(route.path) == 1:
                here += route.subscriptions
            else:
                further.append(route)
        onward, lost = self._onward(event, further, via) if further else ([], [])
        return Relayed(here, onward, lost)

    def _onward(
        self, event: Event, routes: Iterable[Route], via: tuple[str, ...]
    ) -> tuple[list[tuple[str, tuple[Target, ...]]], list[Target]]:
        """One copy for each neighbour, and what has nowhere to go."""
        if self._ahead_edition != self.atlas.edition or len(self._ahead) > MAX_PATHS:
            self._ahead_edition = self.atlas.edition
            self._ahead.clear()
        by_peer: dict[str, list[Target]] = {}
        lost: list[Target] = []
        for route in routes:
            path, ids = route.path, route.subscriptions
            ahead = self._ahead.get(path) or self._look_ahead(path, via)
            if ahead is None:
                lost += [self._unreachable(id) for id in ids]
                continue
            targets = by_peer.get(ahead.peer)
            if targets is None:
                targets = by_peer[ahead.peer] = []
            known = ahead.targets
            for id in ids:
                targets.append(known.get(id) or self._target(ahead, id))
        if event.timeout_s < math.inf:
            by_peer = {peer: _within(event.timeout_s, targets) for peer, targets in by_peer.items()}
        return [(peer, tuple(targets)) for peer, targets in by_peer.items()], lost

    def _look_ahead(self, path: Path, via: tuple[str, ...]) -> _Ahead | None:
        """The path as it is; if its next link is gone, a detour around all brokers that have seen the copy; if there is none,
        the path again: the copy waits for the link to come back.
        """
        if len(path) > 1 and path[1] in self._peers:
            ahead = self._ahead[path] = _Ahead(path, *self.atlas.rate(path))
            return ahead
        if not path:
            return None
        way = self.atlas.least_mu(self.id, avoid=via).get(path[-1], path)
        return _Ahead(way, *self.atlas.rate(way)) if way[1] in self.neighbours else None

    def _target(self, ahead: _Ahead, id: str) -> Target:
        home = self.homes.get(id)
        if home is None:
            # The copy has overtaken the news of its subscription: whoever sent it knows better.
            return Target(id, math.inf, 1.0, 0.0, ahead.hops, ahead.mu, ahead.variance, ahead.path)
        row = self.tables[home][id]
        target = ahead.targets[id] = Target(
            id, row.deadline_s, row.price, row.penalty, ahead.hops, ahead.mu, ahead.variance, ahead.path
        )
        return target

    def _unreachable(self, id: str) -> Target:
        home = self.homes.get(id)
        if home is None:
            return Target(id, math.inf, 1.0, 0.0)
        row = self.tables[home][id]
        return Target(id, row.deadline_s, row.price, row.penalty)

    # The paths of our own events; made when the first event needs them, since few brokers are sources.

    def _grow_tree(self) -> None:
        self._tree_edition = self.atlas.edition
        least = self.atlas.least_mu(self.id)
        if self.balance is not None:
            least |= {home: path for home, path in self.tree.items() if home in least and self.atlas.has(path)}
        self._replant(least)  # a home that cannot be reached now keeps its path: it may come back

    def _replant(self, paths: dict[str, Path]) -> None:
        if self.keeping:
            changed = ((home, path) for home, path in paths.items() if path != self.tree.get(home))
            self.learned += (PathRecord(home, path) for home, path in changed)
        self.tree |= paths

    def _rebalance(self, now: float) -> list[Effect]:
        assert self.balance is not None
        if self._tree_edition != self.atlas.edition:
            self._grow_tree()
        moved = self.balance.improved(self.id, self.tree, self.atlas, now)
        self._replant(moved)
        self.switches += len(moved)
        self._balance_s = BALANCE_S if moved else min(2 * self._balance_s, MAX_BALANCE_S)
        return [Wake(BALANCE, now + self._balance_s)]


def _differ(old: tuple[LinkState, ...], new: tuple[LinkState, ...]) -> bool:
    """Whether the others should hear of it: small changes do not matter to them."""
    if old == new:
        return False
    if [link.peer for link in old] != [link.peer for link in new]:
        return True
    return any(
        abs(a.mu - b.mu) > 0.02 * a.mu
        or abs(a.variance - b.variance) > 0.5 * a.variance
        or abs(a.price - b.price) > 0.1 + 0.1 * a.price
        or abs(sum(load for _, load in a.loads) - sum(load for _, load in b.loads)) > 0.03
        for a, b in zip(old, new, strict=True)
    )


def _within(timeout_s: float, targets: list[Target]) -> list[Target]:
    """dl(S) = min(timeout, deadline): eq. 5."""
    return [
        target if target.deadline_s <= timeout_s else msgspec.structs.replace(target, deadline_s=timeout_s)
        for target in targets
    ]
