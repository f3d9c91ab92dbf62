"""The broker as a machine: inputs in, effects out, no clock and no I/O."""

import msgspec
import pytest

from tidings.broker import broker as module
from tidings.broker.broker import Broker
from tidings.language import parse
from tidings.matching.naive import Naive
from tidings.model import message as m
from tidings.model import step as s
from tidings.model.event import checked_event
from tidings.model.subscription import Subscription
from tidings.scheduling.fcfs import Fcfs

EVENT = checked_event("e", {"symbol": "LEGEND", "change": 1.5}, "quote", timeout_s=60)
SUBSCRIPTION = Subscription("s", "alice", parse("symbol = 'LEGEND' AND change > 1"), (), 40, 1.5, 0.15)


class Rig:
    """A broker with its effects sorted by kind; the store answers when told to."""

    def __init__(self) -> None:
        self.broker = Broker("b", Naive(), Fcfs, epoch_s=1_000)
        self.effects: list[s.Effect] = []
        for peer in ("alice", "bob"):
            self(s.Connected(peer), 0)

    def __call__(self, input: s.Input, now: float) -> list[s.Effect]:
        self.effects = self.broker.handle(input, now)
        return self.effects

    def receive(self, peer: str, message: m.Message, now: float = 0) -> list[s.Effect]:
        """A message whose records are safe at once."""
        effects = list(self(s.Received(peer, message), now))
        for effect in list(effects):
            if isinstance(effect, s.Store) and effect.ticket:
                effects += self(s.Stored(effect.ticket), now)
        return effects

    @property
    def tally(self):
        return self.broker.ledger.total


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.receive("alice", m.Subscribe(1, SUBSCRIPTION))
    return rig


def only(effects: list[s.Effect], kind: type) -> list:
    return [effect for effect in effects if isinstance(effect, kind)]


def test_the_papers_example_from_end_to_end(rig):
    stored = rig(s.Received("bob", m.Publish(7, EVENT)), 10)
    assert [type(effect) for effect in stored] == [s.Store], "nothing is acknowledged or matched before it is safe"
    assert stored[0].records[0].event.timestamp_s == 1_010, "the system sets the timestamp"
    acknowledged = rig(s.Stored(stored[0].ticket), 11)
    assert only(acknowledged, s.Send) == [s.Send("bob", m.Done(7, "e"))]
    assert rig.tally.pending == 1
    assert not only(acknowledged, s.Deliver), "the link is not ready yet"
    delivered = only(rig(s.LinkReady("alice"), 20), s.Deliver)
    assert [(d.client, d.event.id, d.subscriptions, d.age_s) for d in delivered] == [("alice", "e", ("s",), 10)]
    rig(s.Received("alice", m.Acknowledge("e", "s")), 50)
    assert (rig.tally.on_time, rig.tally.earning, rig.tally.pending) == (1, 1.5, 0)


def test_received_after_the_deadline_is_late(rig):
    rig.receive("bob", m.Publish(1, EVENT))
    assert only(rig(s.LinkReady("alice"), 40), s.Deliver)
    rig(s.Received("alice", m.Acknowledge("e", "s")), 40.5)
    assert (rig.tally.late, rig.tally.earning) == (1, -0.15)


def test_after_the_deadline_the_broker_does_not_deliver(rig):
    rig.receive("bob", m.Publish(1, EVENT))
    assert not only(rig(s.LinkReady("alice"), 40.5), s.Deliver)
    assert rig.tally.expired == 1
    assert rig.broker.ledger.reasons == {"deadline passed": 1}


def test_without_traffic_the_alarm_accounts_for_what_expired(rig):
    effects = rig.receive("bob", m.Publish(1, EVENT))
    assert only(effects, s.Wake) == [s.Wake("alice", 40)]
    rig(s.Woke("alice"), 40.001)
    assert rig.tally.expired == 1
    assert rig.tally.balanced


def test_the_timeout_of_the_event_binds_like_a_deadline(rig):
    brief = checked_event("brief", EVENT.attributes, timeout_s=5)
    rig.receive("bob", m.Publish(1, brief))
    rig(s.LinkReady("alice"), 6)
    assert rig.broker.ledger.reasons == {"timed out": 1}


def test_one_link_ready_is_one_event(rig):
    for number in range(3):
        rig.receive("bob", m.Publish(number, checked_event(f"e{number}", EVENT.attributes)))
    assert len(only(rig(s.LinkReady("alice"), 1), s.Deliver)) == 1
    assert len(only(rig(s.LinkReady("alice"), 2), s.Deliver)) == 1
    assert rig.tally.pending == 3


def test_the_same_id_twice_delivers_once_and_both_hear_when_it_is_safe(rig):
    (store,) = rig(s.Received("bob", m.Publish(1, EVENT)), 0)
    assert rig(s.Received("alice", m.Publish(2, EVENT)), 0) == []
    answers = only(rig(s.Stored(store.ticket), 1), s.Send)
    assert answers == [s.Send("bob", m.Done(1, "e")), s.Send("alice", m.Done(2, "e", repeated=True))]
    assert rig(s.Received("bob", m.Publish(3, EVENT)), 2) == [s.Send("bob", m.Done(3, "e", repeated=True))]
    assert rig.tally.matched == 1


def test_a_store_that_fails_leaves_nothing_behind(rig):
    (store,) = rig(s.Received("bob", m.Publish(1, EVENT)), 0)
    assert rig(s.StoreFailed(store.ticket, "disk full"), 1) == [s.Send("bob", m.Failed(1, "StoreError", "disk full"))]
    assert rig.tally.matched == 0
    assert len(rig.receive("bob", m.Publish(2, EVENT))) > 1, "the same event may be tried again"


def test_unsubscribing_makes_what_waits_undeliverable(rig):
    rig.receive("bob", m.Publish(1, EVENT))
    rig.receive("alice", m.Unsubscribe(2, "s"), 1)
    assert rig.broker.ledger.reasons == {"unsubscribed": 1}
    assert not only(rig(s.LinkReady("alice"), 2), s.Deliver)
    rig.receive("bob", m.Publish(3, checked_event("later", EVENT.attributes)))
    assert rig.tally.matched == 1


def test_a_client_that_goes_takes_its_subscriptions_along(rig):
    rig.receive("bob", m.Publish(1, EVENT))
    rig(s.Disconnected("alice"), 1)
    assert rig.broker.ledger.reasons == {"subscriber gone": 1}
    assert rig.tally.balanced
    assert not rig.broker.subscriptions


def test_subscribing_again_under_the_same_id_replaces(rig):
    rig.receive("alice", m.Subscribe(2, Subscription("s", "alice", parse("symbol = 'OTHER'"))))
    rig.receive("bob", m.Publish(3, EVENT))
    assert rig.tally.matched == 0


def test_another_note_is_kept_and_what_waits_goes_on_waiting(rig, monkeypatch):
    told = []
    monkeypatch.setattr(rig.broker.overlay, "subscribed", lambda subscription, now: told.append(subscription) or [])
    rig.receive("bob", m.Publish(1, EVENT))
    noted = msgspec.structs.replace(SUBSCRIPTION, note="call me")
    (kept,) = only(rig.receive("alice", m.Subscribe(2, noted), 1), s.Store)
    assert kept.records == (s.SubscriptionRecord(noted),)
    assert rig.broker.subscriptions["s"].note == "call me"
    assert only(rig(s.LinkReady("alice"), 2), s.Deliver)
    assert not told
    rig.receive("bob", m.Subscribe(3, msgspec.structs.replace(noted, id="t", subscriber="bob")), 3)
    assert [subscription.note for subscription in told] == [""], "notes stay with the broker"


@pytest.mark.parametrize(
    ("peer", "message", "error"),
    [
        ("bob", m.Subscribe(9, SUBSCRIPTION), "InvalidSubscription"),
        ("bob", m.Unsubscribe(9, "s"), "UnknownName"),
        ("alice", m.Unsubscribe(9, "nothing"), "UnknownName"),
        ("alice", m.Unadvertise(9, "nothing"), "UnknownName"),
    ],
)
def test_a_request_that_cannot_be_served_changes_nothing(rig, peer, message, error):
    (answer,) = rig(s.Received(peer, message), 0)
    assert isinstance(answer.message, m.Failed)
    assert (answer.message.request, answer.message.error) == (9, error)
    assert list(rig.broker.subscriptions) == ["s"]


def test_requests_that_wait_for_the_store_are_bounded(rig, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    for number in range(3):
        effects = rig(s.Received("bob", m.Publish(number, checked_event(f"e{number}", {}))), 0)
    assert effects[0].message.error == "LimitExceeded"


def test_the_memory_of_ids_is_bounded(rig, monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED_IDS", 2)
    for number in range(4):
        rig.receive("bob", m.Publish(number, checked_event(f"e{number}", {})))
    assert only(rig(s.Received("bob", m.Publish(9, checked_event("e3", {}))), 0), s.Send)[0].message.repeated
    assert only(rig(s.Received("bob", m.Publish(9, checked_event("e0", {}))), 0), s.Store), "forgotten, so it is new"
