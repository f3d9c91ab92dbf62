"""The runtime: one broker over real sockets. It feeds the pure machine with inputs and carries out its effects.

It contains no decision of its own: what to match, where to send, what goes first and what is dropped is the broker's business.
All that happens in one turn of the event loop leaves in one write for each peer, and goes to the store as one group.

Bounds: connections, frames, backlogs (transport.py); unacknowledged events (peers.py); requests of one client without an answer,
then it is not read from; stored tickets handled in one turn; faults and trace that are remembered.
"""

import asyncio
import hmac
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, get_args

import msgspec

from tidings.broker import catalog
from tidings.broker.broker import Broker
from tidings.broker.links import Belief, measured
from tidings.broker.restore import restore
from tidings.errors import CodecError, Refused, TidingsError
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import Event
from tidings.model.status import FaultRecord
from tidings.net.address import Address, client_context, server_context
from tidings.net.config import BrokerConfig, Neighbour
from tidings.net.dialer import Dialer
from tidings.net.peers import BrokerPeer, ClientPeer, Peer
from tidings.net.report import accounts_report
from tidings.net.status import Status, status_of
from tidings.net.transport import Connection
from tidings.store import Store, open_store

log = logging.getLogger(__name__)

MAX_FAULTS, MAX_TRACE = 200, 1_000
_FIRST_S = 1_577_836_800.0  # 2020: starts are counted in quarters of a second since then, so that the count stays small
_TURN = 256  # stored tickets handled before others get their turn
_encode = msgspec.msgpack.Encoder().encode
_FROM = {
    m.CLIENT: {*get_args(m.Asking), m.Acknowledge, m.Acknowledgements},
    m.BROKER: {*get_args(m.Overlaid), m.Forward, m.Taken, m.Probe},
}


class Runtime:
    """`start`, then it runs on the event loop until `stop`."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.peers: dict[str, Peer] = {}
        self.faults: deque[FaultRecord] = deque(maxlen=MAX_FAULTS)
        self.trace: deque[tuple[float, Event, str, str, float, int]] = deque(maxlen=MAX_TRACE)
        self.published = self.delivered = self.connections = 0
        self.started_at_s = time.time()
        self.store: Store | None = None
        self.http = ""  # where the gateway listens, if there is one
        self._named = {neighbour.name: neighbour for neighbour in config.neighbours if neighbour.name}
        self._server: asyncio.Server | None = None
        self._dialers: list[Dialer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._inputs: deque[s.Input] = deque()
        self._stored_tickets: deque[int] = deque()
        self._store_works = True
        self._records: list[s.Record] = []
        self._maintaining: asyncio.Future[None] | None = None
        self._untidy = False
        self._latest: tuple[Event | None, msgspec.Raw] = (None, msgspec.Raw())
        self._open: set[Connection] = set()
        self._stopping = False
        self._carry: dict[type, Callable[[Any], None]] = {
            s.Send: self._send,
            s.Deliver: self._deliver,
            s.Store: self._store,
            s.Wake: self._wake,
        }

    @property
    def address(self) -> Address:
        """Where it listens; the port that was chosen if the configuration says 0."""
        assert self._server is not None
        return self.config.listen._replace(port=self._server.sockets[0].getsockname()[1])

    # Start and stop.

    async def start(self) -> None:
        config = self.config
        self._loop = asyncio.get_running_loop()
        self._epoch_s = time.time() - self._loop.time()
        tls = server_context(config.tls) if config.tls is not None else None
        overlay = catalog.overlay(config.overlay)(**config.options)
        self.broker = Broker(
            config.id,
            catalog.running_matcher(config.engine)(),
            catalog.scheduler(config.scheduler),
            overlay,
            links=measured(config.id, overlay, {n.name: Belief(*n.shape.belief) for n in config.neighbours}),
            epoch_s=self._epoch_s,
            incarnation=int((self.started_at_s - _FIRST_S) * 4),
            durable=bool(config.store),
        )
        if config.store:
            await self._restore()
        self._server = await self._loop.create_server(
            lambda: Connection(self, config.limits), config.listen.host, config.listen.port, ssl=tls, backlog=1_024
        )
        self.fault("started", detail=str(self.address))
        self._maintain()
        hello = m.Hello(config.id, m.BROKER, token=config.broker_token)
        for neighbour in config.neighbours:
            if neighbour.dial:
                context = client_context(config.tls) if config.tls and neighbour.address.tls else None
                dialer = Dialer(self, neighbour.address, config.limits, hello, context, self._not_reached)
                self._dialers.append(dialer)
                self._spawn(dialer.run())

    async def _restore(self) -> None:
        """What the store kept comes before anybody connects."""
        where, config, loop = self.config.store, self.config, self._loop
        self.store = await loop.run_in_executor(
            None,
            lambda: open_store(
                where,
                lambda tickets: loop.call_soon_threadsafe(self._stored, tickets),
                lambda tickets, reason: loop.call_soon_threadsafe(self._store_failed, tickets, reason),
                retention_s=config.retention_s,
            ),
        )
        store = self.store
        state, unmatched = await loop.run_in_executor(None, lambda: (store.restore(), list(store.unmatched())))
        self._carry_out(restore(self.broker, state, [entry.event for entry in unmatched], loop.time()))

    async def stop(self) -> None:
        """Close all connections, write what waits, end."""
        self._stopping = True
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        closing = list(self._open)
        for connection in closing:
            connection.close("the broker is shutting down")
        if closing:
            await asyncio.wait([connection.gone for connection in closing])
        for timer in self._timers.values():
            timer.cancel()
        if self._maintaining is not None:
            await asyncio.wait([self._maintaining])
        if self.store is not None:
            self._write_records()
            await self._loop.run_in_executor(None, self.store.close)

    def sweep(self) -> None:
        """Delete what is past its retention. It waits for the disk: for a thread that may wait."""
        while self.store is not None and not self._stopping and self.store.sweep(time.time()):
            pass

    def status(self) -> Status:
        """What it shows of itself now. Call it on the event loop."""
        return status_of(self)

    # Connections: who comes in, who goes.

    def made(self, connection: Connection) -> None:
        self._open.add(connection)
        if connection.dialled and len(self._open) > self.config.max_connections:
            raise Refused("too many connections; try again later")

    def greeted(self, connection: Connection, hello: m.Hello) -> m.Hello | None:
        config = self.config
        if hello.role not in (m.CLIENT, m.BROKER):
            raise Refused(f"role {hello.role!r}: expected {m.CLIENT!r} or {m.BROKER!r}")
        expected = config.token if hello.role == m.CLIENT else config.broker_token
        if not hmac.compare_digest(expected.encode(), hello.token.encode("utf-8", "surrogatepass")):
            raise Refused("wrong token")
        if not 1 <= len(hello.peer) <= 255 or ":" in hello.peer or hello.peer == config.id:
            raise Refused(
                f"name {hello.peer!r:.80}: expected up to 255 characters without a colon, and not {config.id!r}"
            )
        outbox = self.broker.outboxes.get(hello.peer)
        if outbox is not None and outbox.role != hello.role:
            raise Refused(f"name {hello.peer!r}: a {outbox.role} has it")
        before = self.peers.get(hello.peer)
        if before is not None and not self._gives_way(before, connection, hello):
            raise Refused(f"broker {hello.peer!r} is connected already")
        return (
            m.Hello(config.id, m.BROKER, token=config.broker_token if hello.role == m.BROKER else "")
            if (connection.dialled)
            else None
        )

    def _gives_way(self, before: Peer, connection: Connection, hello: m.Hello) -> bool:
        """The same side dialled again: its old connection is dead. Both dialled: the one of the smaller name stays."""
        if hello.role == m.CLIENT or before.connection.dialled == connection.dialled:
            return True
        return connection.dialled == (hello.peer < self.config.id)

    def opened(self, connection: Connection) -> None:
        name = connection.peer
        if name in self.peers:
            self._lose(self.peers[name], "connected again")
        peer: Peer
        if connection.role == m.BROKER:
            neighbour = self._named.get(name) or Neighbour(self.config.listen)
            peer = BrokerPeer(connection, neighbour.window_kb, neighbour.shape, self._loop.time)
            self.fault("link up", name, connection.address)
        else:
            peer = ClientPeer(connection, self.config.window_kb)
        self.peers[name] = peer
        self._feed(s.Connected(name, connection.role))
        self._offer(peer)

    def closed(self, connection: Connection, reason: str) -> None:
        self._open.discard(connection)
        peer = self.peers.get(connection.peer)
        if peer is not None and peer.connection is connection:
            self._lose(peer, reason)
        elif not connection.was_open and connection.dialled:
            self.fault("refused", connection.address, reason)

    def _lose(self, peer: Peer, reason: str) -> None:
        del self.peers[peer.name]
        peer.lost()
        peer.connection.close(reason)
        if peer.role == m.BROKER:
            self.fault("link down", peer.name, reason)
        elif peer.connection.cut_off:
            self.fault("slow consumer" if peer.connection.backlogged else "client lost", peer.name, reason)
        self._feed(s.Disconnected(peer.name))

    def _not_reached(self, error: TidingsError) -> bool:
        if isinstance(error, Refused):
            self.fault("refused", detail=str(error))
        log.debug("%s", error)
        return True

    # What comes in: messages, room on a link, the store's answers, times.

    def received(self, connection: Connection, message: m.Message) -> None:
        peer = self.peers.get(connection.peer)
        if peer is None or peer.connection is not connection:
            return
        peer.received += 1
        kind = type(message)
        transit_s = peer.transit_s
        if kind not in _FROM[peer.role]:
            connection.close("misplaced message", CodecError(f"a {peer.role} does not send {kind.__name__}"))
            return
        if isinstance(peer, BrokerPeer):
            self._between_brokers(peer, message)
        elif isinstance(peer, ClientPeer):
            if isinstance(message, m.Acknowledgements):
                peer.acknowledged(message.pairs)
                if message.request:
                    self._requested(peer)
            elif isinstance(message, m.Acknowledge):
                peer.acknowledged(((message.event, message.subscription),))
            elif isinstance(message, m.AskStatus | m.AskAccounts):
                self._spawn(self._show(peer, message))
                return
            else:
                self._requested(peer)
                if isinstance(message, m.Publish):
                    transit_s += max(0.0, message.age_s)
        self._feed(s.Received(peer.name, message, transit_s))
        if peer.ready:
            self._offer(peer)

    def _between_brokers(self, peer: BrokerPeer, message: m.Message) -> None:
        if isinstance(message, m.Taken):
            peer.taken(message.number)
        elif isinstance(message, m.Forward):
            self._traced(message.event, "received", peer.name, message.age_s, len(message.routes))

    def drained(self, connection: Connection) -> None:
        peer = self.peers.get(connection.peer)
        if peer is not None:
            self._offer(peer)

    def _offer(self, peer: Peer) -> None:
        """Tell the broker that a link takes one more event, as often as it does."""
        while peer.ready and not self._stopping:
            self._feed(peer.grant())

    def _requested(self, peer: Peer) -> None:
        peer.requests += 1
        if peer.requests >= self.config.in_flight and not peer.paused:
            peer.paused = True
            peer.connection.pause_reading()

    def _stored(self, tickets: list[int]) -> None:
        if not self._store_works:
            self._store_works = True
            self.fault("store mended")
        idle = not self._stored_tickets
        self._stored_tickets.extend(tickets)
        if idle:
            self._go_on()

    def _go_on(self) -> None:
        """A bounded number at a time: others want to be heard, too."""
        tickets = self._stored_tickets
        for _ in range(min(_TURN, len(tickets))):
            self._feed(s.Stored(tickets.popleft()))
        if tickets:
            self._loop.call_soon(self._go_on)

    def _store_failed(self, tickets: list[int], reason: str) -> None:
        if self._store_works:
            self._store_works = False
            self.fault("store failed", detail=reason)
        for ticket in tickets:
            self._feed(s.StoreFailed(ticket, reason))

    # The machine.

    def _feed(self, input: s.Input) -> None:
        """Run the machine until it is at rest: effects may cause inputs."""
        inputs = self._inputs
        inputs.append(input)
        if len(inputs) > 1:
            return  # called from an effect: the loop below goes on
        while inputs:
            self._carry_out(self.broker.handle(inputs[0], self._loop.time()))
            inputs.popleft()

    def _carry_out(self, effects: list[s.Effect]) -> None:
        carry = self._carry
        for effect in effects:
            carry[type(effect)](effect)

    def _deliver(self, effect: s.Deliver) -> None:
        peer = self.peers.get(effect.client)
        if isinstance(peer, ClientPeer):
            self.delivered += 1
            peer.deliver(effect, self._encoded(effect.event))
            self._traced(effect.event, "delivered", peer.name, effect.age_s, len(effect.subscriptions))
            if peer.ready:
                self._inputs.append(peer.grant())

    def _send(self, effect: s.Send) -> None:
        peer = self.peers.get(effect.peer)
        if peer is None:
            return  # it left before its answer came
        message = effect.message
        if isinstance(message, m.Done | m.Failed):
            self._answered(peer, message)
        elif isinstance(message, m.Forward) and isinstance(peer, BrokerPeer):
            peer.forward(message, self._encoded(message.event))
            self._traced(message.event, "forwarded", peer.name, message.age_s, len(message.routes))
            if peer.ready:
                self._inputs.append(peer.grant())
        else:
            peer.send(message)

    def _answered(self, peer: Peer, answer: m.Done | m.Failed) -> None:
        peer.requests -= 1
        peer.send(answer)
        if peer.paused and peer.requests <= self.config.in_flight // 2:
            peer.paused = False
            peer.connection.resume_reading()

    def _store(self, effect: s.Store) -> None:
        if effect.ticket:
            record = effect.records[0] if effect.records else None
            if isinstance(record, s.EventRecord):
                self.published += 1
                self._traced(record.event, "published", "", 0.0, 0)
            elif not isinstance(record, s.TakenRecord):
                self._write_records()  # what was matched before a subscription, or acknowledged before, comes before it
                if record is not None:
                    self._maintain_soon()
        if self.store is None:
            if effect.ticket:
                self._inputs.append(s.Stored(effect.ticket))
            return
        if not effect.ticket:
            if not self._records:
                self._loop.call_soon(self._write_records)
            self._records += effect.records
            return
        try:
            self.store.append(effect.ticket, effect.records)
        except TidingsError as error:
            if effect.ticket:
                self._inputs.append(s.StoreFailed(effect.ticket, str(error)))

    def _write_records(self) -> None:
        """Those that nobody waits for, all of one turn of the loop together."""
        records, self._records = self._records, []
        if records and self.store is not None:
            self.store.append(0, records)

    def _wake(self, effect: s.Wake) -> None:
        timer = self._timers.get(effect.timer)
        if timer is not None:
            timer.cancel()
        self._timers[effect.timer] = self._loop.call_at(effect.at_s, self._woke, effect.timer)

    def _woke(self, timer: str) -> None:
        del self._timers[timer]
        self._feed(s.Woke(timer))

    # What the machine needs around it.

    def _encoded(self, event: Event) -> msgspec.Raw:
        """The deliveries of one event follow each other: it is encoded once for all of them."""
        latest, raw = self._latest
        if latest is not event:
            raw = msgspec.Raw(_encode(event))
            self._latest = (event, raw)
        return raw

    def _maintain_soon(self) -> None:
        """Once for all changes of one turn of the loop."""
        if not self._untidy:
            self._untidy = True
            self._loop.call_soon(self._maintain)

    def _maintain(self) -> None:
        """Let the engine tidy up on a thread, one job at a time."""
        self._untidy = False
        if self._maintaining is None and not self._stopping and (job := self.broker.matcher.maintenance()) is not None:
            self._maintaining = self._loop.run_in_executor(None, job)
            self._maintaining.add_done_callback(self._maintained)

    def _maintained(self, done: asyncio.Future[None]) -> None:
        self._maintaining = None
        done.result()
        self._maintain()

    async def _show(self, peer: Peer, question: m.AskStatus | m.AskAccounts) -> None:
        try:
            if isinstance(question, m.AskStatus):
                peer.send(m.Status(question.request, self.status()))
            else:
                peer.send(m.Accounts(question.request, await accounts_report(self, question.by, question.limit)))
        except TidingsError as error:
            peer.send(m.Failed(question.request, type(error).__name__, str(error)))

    def _traced(self, event: Event, step: str, peer: str, age_s: float, subscriptions: int) -> None:
        self.trace.append((self._loop.time(), event, step, peer, age_s, subscriptions))

    def fault(self, kind: str, peer: str = "", detail: str = "") -> None:
        self.faults.append(FaultRecord(time.time(), kind, peer, detail))
        log.info("%s: %s %s %s", self.config.id, kind, peer, detail)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
