"""The conservation law, and what each account earns."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tidings.broker.ledger import Ledger
from tidings.scheduling.base import Target

PAPER = Target("s", deadline_s=40, price=1.5, penalty=0.15)


def opened(*events: str) -> Ledger:
    ledger = Ledger("b")
    for event in events:
        ledger.open(event, (PAPER,), born_s=100)
    return ledger


def test_in_time_earns_the_price_and_everything_else_costs_the_penalty():
    ledger = opened("on time", "late", "expired", "nobody", "pending")
    assert ledger.received("on time", "s", 140).earning == 1.5
    assert ledger.received("late", "s", 140.001).account == "late"
    assert ledger.expire("expired", (PAPER,), "deadline passed", 41)[0].earning == -0.15
    assert ledger.give_up("nobody", (PAPER,), "subscriber gone", 1)[0].account == "undeliverable"
    total = ledger.total
    assert (total.matched, total.on_time, total.late, total.expired, total.undeliverable, total.pending) == (
        5,
        1,
        1,
        1,
        1,
        1,
    )
    assert math.isclose(total.earning, 1.5 - 3 * 0.15)
    assert total.success_rate == 1 / 4
    assert ledger.reasons == {"deadline passed": 1, "subscriber gone": 1}


def test_a_pair_ends_once():
    ledger = opened("e")
    assert ledger.received("e", "s", 101)
    assert not ledger.received("e", "s", 102)
    assert not ledger.expire("e", (PAPER,), "deadline passed", 50)
    assert ledger.total.closed == 1


def test_a_subscription_that_goes_leaves_nothing_pending():
    ledger = opened("1", "2")
    ledger.received("1", "s", 101)
    assert [record.event for record in ledger.abandon("s", "unsubscribed", 102)] == ["2"]
    assert ledger.total.balanced
    assert ledger.total.pending == 0
    assert "s" not in ledger.by_subscription


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["open", "received", "expire", "give_up", "abandon"]), st.integers(0, 3), st.integers(0, 3)
        )
    )
)
def test_matched_is_always_the_sum_of_the_accounts(steps):
    ledger = Ledger("b")
    now = 0.0
    ever_opened = set()
    for action, event, subscription in steps:
        now += 1
        target = Target(f"s{subscription}", deadline_s=2, price=1, penalty=1)
        match action:
            case "open":
                if (event, subscription) not in ever_opened:  # a broker opens a pair once
                    ledger.open(f"e{event}", (target,), now)
                    ever_opened.add((event, subscription))
            case "received":
                ledger.received(f"e{event}", target.subscription, now)
            case "expire":
                ledger.expire(f"e{event}", (target,), "r", 1)
            case "give_up":
                ledger.give_up(f"e{event}", (target,), "r", 1)
            case "abandon":
                ledger.abandon(target.subscription, "r", now)
        assert ledger.total.balanced
        assert all(tally.balanced for tally in ledger.by_subscription.values())
