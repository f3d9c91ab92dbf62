"""The contract of the store, on every database."""

import datetime
import itertools
import json
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store_rig import PATIENCE_S, Oracle, Rig, account, event, subscription
from tidings.errors import InvalidInput, StoreError, StoreFull, StoreLocked
from tidings.model import step as s
from tidings.model.event import checked_event
from tidings.model.filter import Op, Predicate
from tidings.model.message import Hop, Route
from tidings.model.subscription import Advertisement, Subscription
from tidings.store import open_reader, writer


def test_what_was_stored_is_there_after_a_restart(where):
    odd = checked_event(
        "a\0b'é日",
        {
            "set": {"x", "y"},
            "at": datetime.datetime(2026, 11, 15, tzinfo=datetime.UTC),
            "big": 2**63 - 1,
            "half": 0.5,
            "ok": True,
        },
        "type\0",
        timestamp_s=1.5,
        data=b"\0\xff",
        content_type="text/plain",
    )
    wants = Subscription("s\0", "alice", Predicate("symbol", Op.IN, frozenset({"a", "b"})), ("t",), 40, 1.5, 0.15)
    offers = Advertisement("ad", "bob", ("t",))
    with Rig(where) as rig:
        rig.write(s.EventRecord(odd), s.MatchRecord(odd.id, (wants.id,), odd.type, 7.25))
        rig.write(
            s.SubscriptionRecord(wants), s.AdvertisementRecord(offers), s.AdvertisementRecord(Advertisement("x", "bob"))
        )
        rig.write(s.EventRecord(event("e2")), s.UnadvertisementRecord("x"))
    with Rig(where) as rig:
        state = rig.store.restore()
        assert [(entry.offset, entry.event) for entry in rig.store.read()] == [(1, odd), (2, event("e2"))]
        assert isinstance(rig.store.read()[0].event.attributes["set"], frozenset)
        assert state.subscriptions == ((wants, 2),)
        assert state.advertisements == (offers,)
        assert state.open == ((odd.id, odd, 1, 7.25, (wants.id,)),)
        assert [entry.event.id for entry in rig.store.unmatched()] == ["e2"]
        assert state.recent_ids == (odd.id, "e2")


def test_copies_for_other_brokers_and_what_came_from_them_are_there_after_a_restart(where, monkeypatch):
    odd = checked_event("e", {"set": {"x", "y"}}, "t", timestamp_s=1.5)
    copies = [
        s.CopyRecord(n, odd, ("a",), (Route(("b", "c"), ("s",)),), 1.5, 0.25, (Hop("a", 0, 1),)) for n in range(3)
    ]
    wants = subscription("far")
    gone, known = s.RemoteRecord("c", 7, "gone", wants), s.RemoteRecord("c", 7, "far", wants)
    for fold in (100_000, 1):  # all in the journal, and all in the tables
        monkeypatch.setattr(writer, "_FOLD_RECORDS", fold)
        with Rig(where) as rig:
            rig.write(*copies, s.NeighbourRecord("b"), s.PathRecord("c", ("a", "b", "c")), gone, known)
            rig.write(
                s.TakenRecord("z", 5, "e1", ("s", "t")), s.TakenRecord("z", 6, "e2", ("s",)), s.TakenRecord("z", 6)
            )
            rig.write(s.HandedRecord((0, 2)), s.RemoteRecord("c", 8, "gone"), s.RemoteRecord("c", 8))
        with Rig(where) as rig:
            state = rig.store.restore()
        assert state.copies == (copies[1],)
        assert isinstance(state.copies[0].event.attributes["set"], frozenset)
        assert state.taken == {"z": 6}
        assert {(record.event, record.subscriptions) for record in state.arrivals} == {
            ("e1", ("s", "t")),
            ("e2", ("s",)),
        }
        assert state.neighbours == ("b",)
        assert state.learned == (s.RemoteRecord("c", 8), known, s.PathRecord("c", ("a", "b", "c")))


def test_offsets_grow_by_one_and_reading_goes_on_where_it_ended(where):
    with Rig(where) as rig:
        assert (rig.store.read(), rig.store.next_offset) == ([], 1)
        tickets = [rig.append(s.EventRecord(event(f"e{n}"))) for n in range(250)]
        rig.wait(lambda: len(rig.stored) == 250)
        assert rig.stored == tickets, "answers come in the order of the calls"
        seen = []
        while page := rig.store.read(seen[-1].offset + 1 if seen else 0, 100):
            seen += page
        assert [(entry.offset, entry.event.id) for entry in seen] == [(n + 1, f"e{n}") for n in range(250)]
        assert rig.store.next_offset == 251


def test_whatever_waits_is_committed_as_one_group(where):
    with Rig(where) as rig:
        rig.hold()
        rig.append(s.EventRecord(event("first")))
        rig.wait(lambda: rig.groups == [[1]])
        later = [rig.append(s.EventRecord(event(f"e{n}"))) for n in range(100)]
        rig.release()
        rig.wait(lambda: len(rig.stored) == 101)
        assert rig.groups == [[1], later]


def test_a_pair_is_open_until_its_account_is_closed(where):
    with Rig(where) as rig:
        rig.write(s.SubscriptionRecord(subscription("s1")), s.SubscriptionRecord(subscription("s2")))
        rig.write(s.EventRecord(event("e1")), s.MatchRecord("e1", ("s1", "s2"), "quote", 3.0))
        rig.store.append(0, [account("e1", "s1")])
        rig.write(s.EventRecord(event("e2")), s.MatchRecord("e2", (), "quote"))
    with Rig(where) as rig:
        assert [(open.id, open.subscriptions, open.born_s) for open in rig.store.restore().open] == [
            ("e1", ("s2",), 3.0)
        ]
        rig.write(account("e1", "s2", "expired", "deadline passed"))
        total = rig.store.ledger().total
        assert (total.matched, total.on_time, total.expired, total.pending) == (2, 1, 1, 0)
        assert total.earning == pytest.approx(1.35)
        assert rig.store.restore().open == ()
        assert list(rig.store.unmatched()) == []


def test_the_ledger_by_kind_and_its_ages(where):
    with Rig(where) as rig:
        rig.write(s.MatchRecord("e", tuple(f"s{n}" for n in range(100)), "quote"))
        rig.write(
            *(account("e", f"s{n}", age_s=(n + 1) / 100) for n in range(99)), account("e", "s99", "expired", "why")
        )
        ledger = rig.store.ledger()
        assert ledger.total.percentile_s(0.5) == pytest.approx(0.5, rel=0.07)
        assert ledger.by_broker["b1"].percentile_s(0.99) == pytest.approx(0.98, rel=0.07)
        assert ledger.by_type["quote"].success_rate == 0.99
        assert ledger.by_reason["why"].expired == 1
        assert ledger.by_subscription["s9"].mean_age_s == pytest.approx(0.1)
        assert ledger.by_subscription["s99"].percentile_s(0.5) is None


def test_the_journal_can_be_followed(where):
    with Rig(where) as rig:
        rig.write(s.MatchRecord("e", ("s1", "s2")))
        rig.write(account("e", "s1"), account("e", "s2"))
        assert rig.store.read_journal() == [
            (1, s.MatchRecord("e", ("s1", "s2"))),
            (2, account("e", "s1")),
            (3, account("e", "s2")),
        ]
        assert rig.store.read_journal(3) == [(3, account("e", "s2"))]
        assert rig.store.read_journal(2, 1) == [(2, account("e", "s1"))]
        assert rig.store.read_journal(4) == []


def test_a_store_has_one_writer_and_many_readers(where):
    with Rig(where) as rig, open_reader(where) as reader:
        with pytest.raises(StoreLocked, match="another broker"):
            Rig(where)
        rig.write(s.EventRecord(event("e")))
        assert [entry.event.id for entry in reader.read()] == ["e"]
    with Rig(where):
        pass


def test_reading_what_is_not_there(where):
    with pytest.raises(StoreError, match="no store here"):
        open_reader(where)


FOLLOWER = """
import json, sys
from tidings.store import open_reader
with open_reader(sys.argv[1]) as reader:
    offset, ids = 0, []
    while len(ids) < int(sys.argv[2]):
        for entry in reader.read(offset, 100):
            assert entry.offset >= offset
            offset = entry.offset + 1
            ids.append(entry.event.id)
    print(json.dumps(ids))
"""


def test_another_process_follows_while_the_broker_writes(where):
    with Rig(where) as rig:
        follower = subprocess.Popen([sys.executable, "-c", FOLLOWER, where, "400"], stdout=subprocess.PIPE, text=True)
        ids = [f"e{n}" for n in range(400)]
        for number, id in enumerate(ids):
            rig.append(s.EventRecord(event(id)))
            if number % 20 == 0:
                rig.wait(lambda: len(rig.stored) > number)  # noqa: B023
        out, _ = follower.communicate(timeout=PATIENCE_S)
        assert follower.returncode == 0
        assert json.loads(out) == ids


def test_at_its_bound_the_queue_refuses_and_later_takes_again(where):
    with Rig(where, max_waiting=10) as rig:
        rig.hold()
        rig.append(s.EventRecord(event("first")))
        rig.wait(lambda: rig.stored == [1])
        for n in range(10):
            assert not rig.store.full
            rig.append(s.EventRecord(event(f"e{n}")))
        assert rig.store.full
        with pytest.raises(StoreFull, match="10 writes wait"):
            rig.append(s.EventRecord(event("too much")))
        rig.store.append(0, [account("e", "s")])  # the end of a pair is never refused
        rig.release()
        rig.wait(lambda: len(rig.stored) == 11)
        rig.write(s.EventRecord(event("last")))
        assert [entry.event.id for entry in rig.store.read()][-1] == "last"
        assert len(rig.store.read()) == 12


def test_bytes_count_too(where):
    with Rig(where, max_waiting_kb=1) as rig:
        rig.hold()
        rig.append(s.EventRecord(event("first")))
        rig.wait(lambda: rig.stored == [1])
        rig.append(s.EventRecord(checked_event("big", {}, data=bytes(2_000))))
        with pytest.raises(StoreFull):
            rig.append(s.EventRecord(event("more")))


def test_closing_writes_what_waits_and_then_refuses(where):
    rig = Rig(where)
    for n in range(50):
        rig.append(s.EventRecord(event(f"e{n}")))
    rig.store.append(0, [s.MatchRecord("e0", ("s",))])
    rig.store.close()
    assert len(rig.stored) == 50
    for use in (lambda: rig.append(s.EventRecord(event("x"))), rig.store.read, lambda: rig.store.sweep(0)):
        with pytest.raises(StoreError, match="closed"):
            use()
    rig.store.close()
    with open_reader(where) as reader:
        assert len(reader.read()) == 50
        assert reader.ledger().total.pending == 1


def test_an_answer_that_nobody_takes_does_not_stop_the_store(where, caplog):
    with Rig(where) as rig:
        done = threading.Event()

        def broken(tickets: list[int]) -> None:
            done.set()
            raise RuntimeError("the loop is closed")

        rig.store._on_stored, working = broken, rig.store._on_stored
        rig.append(s.EventRecord(event("e")))
        assert done.wait(PATIENCE_S)
        rig.store._on_stored = working
        rig.write(s.EventRecord(event("e2")))
        assert len(rig.store.read()) == 2


def test_a_record_that_cannot_be_kept_is_refused_at_once(where):
    with Rig(where) as rig:
        for record in (account("e", "s", "lost"), s.UnsubscriptionRecord("\ud800")):
            with pytest.raises(InvalidInput):
                rig.append(record)
        rig.write(s.EventRecord(event("e")))


def test_a_record_without_a_ticket_that_cannot_be_kept_holds_up_no_other(where, caplog):
    with Rig(where) as rig:
        rig.hold()
        rig.append(s.EventRecord(event("e")))
        rig.wait(lambda: rig.stored == [1])
        rig.store.append(0, [s.MatchRecord("e", ("s",)), s.MatchRecord("e", ("\ud800",))])
        rig.release()
        rig.write(s.EventRecord(event("e2")))
        assert [open.subscriptions for open in rig.store.restore().open] == [("s",)]
        assert rig.store.healthy
    assert "cannot be stored" in caplog.text


def test_retention_deletes_in_bounded_steps_and_spares_what_is_open(where):
    with Rig(where, retention_s=100) as rig:
        for n in range(10):
            rig.append(s.EventRecord(event(f"e{n}", timestamp_s=n, timeout_s=50)), s.MatchRecord(f"e{n}", ()))
        rig.write(s.EventRecord(event("open", 0, 50)), s.MatchRecord("open", ("s",)))
        rig.write(s.EventRecord(event("endless", 0)), s.MatchRecord("endless", ()))
        assert rig.store.sweep(99) == 0
        assert rig.store.sweep(100) == 1, "an event without a timeout is kept for the retention after its publication"
        assert rig.store.sweep(154.5, limit=3) == 3
        assert rig.store.sweep(154.5, limit=3) == 2
        assert rig.store.sweep(154.5, limit=3) == 0
        assert [entry.event.id for entry in rig.store.read()] == ["e5", "e6", "e7", "e8", "e9", "open"]
        rig.write(account("open", "s"))
        while rig.store.sweep(1e9):
            pass
        assert rig.store.read() == []
        assert rig.store.next_offset == 13
    with Rig(where) as rig:
        rig.write(s.EventRecord(event("new")))
        assert [entry.offset for entry in rig.store.read()] == [13], "an offset is never used again"
        assert rig.store.ledger().total.on_time == 1, "accounts outlive their events"


def test_retention_of_the_journal_and_of_the_tallies_of_those_who_left(where, monkeypatch):
    monkeypatch.setattr(writer, "_FOLD_RECORDS", 1)
    clock = [0.0]
    with Rig(where, retention_s=100, clock=lambda: clock[0]) as rig:
        rig.write(s.SubscriptionRecord(subscription("stays")), s.MatchRecord("e", ("stays", "left")))
        rig.write(account("e", "stays"), account("e", "left"))
        rig.store.sweep(0)  # the writer gets to it after it has folded
        clock[0] = 50.0
        rig.write(s.MatchRecord("later", ("stays",)))
        rig.store.sweep(0)
        before = rig.store.read_journal()
        assert len(before) == 5
        assert rig.store.sweep(120) == 2
        assert rig.store.sweep(120) == 0
        ledger = rig.store.ledger()
        assert set(ledger.by_subscription) == {"stays"}
        assert (ledger.total.matched, ledger.total.on_time, ledger.total.pending) == (3, 2, 1)
        assert rig.store.read_journal() == before[-1:]


def test_valid_events_for_late_subscribers(where):
    with Rig(where) as rig:
        rig.write(
            s.EventRecord(event("short", 0, 10)), s.EventRecord(event("long", 0, 100)), s.EventRecord(event("endless"))
        )
        assert [entry.event.id for entry in rig.store.valid(50)] == ["long", "endless"]


def test_an_open_pair_whose_event_is_not_in_the_log(where):
    with Rig(where) as rig:
        rig.write(s.MatchRecord("elsewhere", ("s",), "quote", 2.0))
        assert rig.store.restore().open == (("elsewhere", None, 0, 2.0, ("s",)),)


@st.composite
def scripts(draw: st.DrawFn) -> list[list[s.Record] | None]:
    """Groups of records such as a broker writes them: a pair opens once and closes once. None is a restart."""
    script: list[list[s.Record] | None] = []
    known: list[str] = []
    pairs: list[tuple[str, str]] = []
    names, numbers = ["s1", "s2", "s3"], itertools.count()
    for _ in range(draw(st.integers(1, 12))):
        group: list[s.Record] = []
        for _ in range(draw(st.integers(1, 4))):
            match draw(
                st.sampled_from(["event", "event", "match", "match", "account", "account", "subscribe", "unsubscribe"])
            ):
                case "event":
                    id = f"e{next(numbers)}"
                    known.append(id)
                    group.append(s.EventRecord(event(id)))
                case "match" if known:
                    id = known.pop(draw(st.integers(0, len(known) - 1)))
                    wanted = draw(st.lists(st.sampled_from(names), unique=True))
                    pairs += [(id, name) for name in wanted]
                    group.append(s.MatchRecord(id, tuple(wanted), "quote", 1.0))
                case "account" if pairs:
                    pair = pairs.pop(draw(st.integers(0, len(pairs) - 1)))
                    how = draw(
                        st.sampled_from([("on_time", ""), ("late", ""), ("expired", "r1"), ("undeliverable", "r2")])
                    )
                    group.append(account(*pair, *how, age_s=draw(st.floats(0, 100))))
                case "subscribe":
                    group.append(
                        s.SubscriptionRecord(subscription(draw(st.sampled_from(names)), draw(st.integers(0, 9))))
                    )
                case "unsubscribe":
                    group.append(s.UnsubscriptionRecord(draw(st.sampled_from(names))))
        script.append(group)
        if draw(st.integers(0, 3)) == 0:
            script.append(None)
    return script


@pytest.mark.parametrize("fold_records", [1, 7, 500_000])
def test_any_script_with_restarts_gives_what_the_oracle_knows(request, tmp_path_factory, monkeypatch, fold_records):
    """With folding after each group, now and then, and never; in steps that are cut short by the restarts."""
    monkeypatch.setattr(writer, "_FOLD_RECORDS", fold_records)
    monkeypatch.setattr(writer, "_FOLD_STEP", 2)

    @settings(max_examples=settings().max_examples // 7, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(script=scripts())
    def run(script: list[list[s.Record] | None]) -> None:
        where = tmp_path_factory.mktemp("store")
        oracle = Oracle()
        rig = Rig(where)
        try:
            for group in script:
                if group is None:
                    rig.store.close()
                    rig = Rig(where)
                else:
                    rig.write(*group)
                    for record in group:
                        oracle.add(record)
            oracle.check(rig.store)
            with open_reader(where) as reader:
                oracle.check(reader)
        finally:
            rig.store.close()

    run()


@pytest.mark.parametrize("fold_records", [1, 7])
def test_a_long_script_on_every_database(where, monkeypatch, fold_records):
    monkeypatch.setattr(writer, "_FOLD_RECORDS", fold_records)
    monkeypatch.setattr(writer, "_FOLD_STEP", 3)
    oracle = Oracle()
    for part in range(5):
        with Rig(where) as rig:
            for n in range(part * 40, part * 40 + 40):
                group: list[s.Record] = [s.EventRecord(event(f"e{n}"))]
                if n % 7:
                    group.append(s.MatchRecord(f"e{n}", ("s1", "s2", f"s{n % 5 + 3}"), "quote", float(n)))
                if n % 3 == 0 and (n - 9) % 7:
                    group.append(account(f"e{n - 9}", "s1")) if n >= 9 else None
                if n % 4 == 0:
                    group.append(s.SubscriptionRecord(subscription(f"s{n % 6}", n)))
                if n % 9 == 0:
                    group.append(s.UnsubscriptionRecord(f"s{n % 6}"))
                rig.write(*group)
                for record in group:
                    oracle.add(record)
            oracle.check(rig.store)
