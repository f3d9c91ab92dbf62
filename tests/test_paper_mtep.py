"""mtep (An Earning-Based Time-Constraint Assurance Technique, 2008), sentence by sentence: the delay model and the scheduler.

The hand-computed cases use an event of 50 KB and a path of mean 0.06 and deviation 0.02 seconds per KB: it takes 3 s on average
with a deviation of 1 s, so that seconds are deviations.
"""

import math

import pytest

from scheduling_worlds import item
from tidings.scheduling.base import DEADLINE_PASSED, HOPELESS, TIMED_OUT, Item, Scheduler, Target
from tidings.scheduling.delay import Link
from tidings.scheduling.fcfs import Fcfs
from tidings.scheduling.fix import Fix
from tidings.scheduling.lrt import Lrt
from tidings.scheduling.mtep import Mtep
from tidings.scheduling.rate import Known

# Phi at 0, 1, 2 and 3 deviations.
HALF, ONE, TWO, THREE = 0.5, 0.8413447460685429, 0.9772498680518208, 0.9986501019683699
PD, SBD = 0.002, 0.020
AHEAD_S = PD + SBD  # one broker and the client


def link(lmt_s: float = 0.0) -> Link:
    """A link whose mean transmission takes this long."""
    return Link(rate=Known(0.06, 0.02), mean_size_kb=lmt_s / 0.06, processing_s=PD, client_s=SBD)


def target(deadline_s: float, price: float = 1.0, penalty: float = 0.0, id: str = "s") -> Target:
    """A subscriber one broker away that has this long beyond the fixed delays."""
    return Target(id, deadline_s + AHEAD_S, price, penalty, 1, 0.06, 0.0004, ("B",))


def event(id: str, *targets: Target, born_s: float = 0.0, timeout_s: float = math.inf) -> Item:
    return item(id, *targets, born_s=born_s, size_kb=50.0, timeout_s=timeout_s)


def order(queue: Scheduler, now: float = 0.0) -> list[str]:
    return [found.event.id for found in iter(lambda: queue.pop(now), None) if found]


# 2.1.2: "the rate of a path of several links is normal as well: means and variances add up"


def test_a_path_is_the_sum_of_its_links() -> None:
    one, two = (0.04, 0.0004), (0.08, 0.0004)
    mu, variance = one[0] + two[0], one[1] + two[1]
    plain = Link(processing_s=0.0, client_s=0.0)
    # 50 KB: mean 6 s, deviation 50 * sqrt(0.0008) = sqrt(2) s
    assert plain.success(6.0, 0.0, 50.0, mu=mu, variance=variance) == HALF
    assert plain.success(6.0 + math.sqrt(2), 0.0, 50.0, mu=mu, variance=variance) == pytest.approx(ONE)


# 2.3.1, eq. 4: ft = nodenum*PD + size*TR + SBD


def test_eq_4_each_broker_ahead_and_the_client_take_their_time() -> None:
    three_ahead = Link(processing_s=2.0, client_s=5.0)
    # 3 brokers of 2 s, 5 s to the client, 10 KB at 0.1: 12 s
    assert three_ahead.success(12.0, 0.0, 10.0, hops=3, mu=0.1) == 1.0
    assert three_ahead.success(11.9, 0.0, 10.0, hops=3, mu=0.1) == 0.0


# eq. 5: dl = min{timeout, deadline}; the broker puts it into each target (tests of the broker and the mesh)


def test_eq_5_the_paper_s_example() -> None:
    """Timeout 60 s and Deadline 40 s: dl is 40 s."""
    waiting = event("quote", Target("s", min(60.0, 40.0), 1.5, 0.15), timeout_s=60.0)
    assert waiting.last_deadline_s == 40.0
    assert waiting.why_worthless(40.0) is None
    assert waiting.why_worthless(41.0) == DEADLINE_PASSED
    assert waiting.why_worthless(61.0) == TIMED_OUT


# eq. 6 and 7


@pytest.mark.parametrize(
    ("deadline_s", "used_s", "chance"),
    [
        (3.0, 0.0, HALF),
        (4.0, 0.0, ONE),
        (5.0, 0.0, TWO),
        (5.0, 1.0, ONE),  # the time used so far counts
        (5.0, 2.0, HALF),
        (5.0, 3.0, 1 - ONE),
        (20.0, 0.0, 1.0),
    ],
)
def test_eq_7_success(deadline_s: float, used_s: float, chance: float) -> None:
    found = link().success(deadline_s + AHEAD_S, used_s, 50.0, hops=1, mu=0.06, variance=0.0004)
    assert found == pytest.approx(chance)


# eq. 2 and 3


def test_eq_2_expected_earning_sums_price_times_success() -> None:
    waiting = event("e", target(3.0, price=2.0), target(4.0, price=3.0), target(99.0, price=1.0))
    assert Mtep(link()).figures(waiting, 0.0).expected_earning == pytest.approx(2.0 * HALF + 3.0 * ONE + 1.0)


def test_eq_3_expected_penalty_sums_penalty_times_failure() -> None:
    waiting = event("e", target(3.0, penalty=0.2), target(4.0, penalty=0.3), target(99.0, penalty=0.1))
    assert Mtep(link()).figures(waiting, 0.0).expected_penalty == pytest.approx(0.2 * HALF + 0.3 * (1 - ONE))


# 2.3.2: "LMT is the product of the mean size of events and the mean rate of the link"; eq. 8 to 12


def test_lmt_is_mean_size_times_mean_rate() -> None:
    assert Link(rate=Known(0.06, 0.02), mean_size_kb=50.0).lmt_s == pytest.approx(3.0)


def test_eq_8_to_11_postponed_by_one_transmission() -> None:
    waiting = event("e", target(5.0, price=2.0, penalty=0.2))
    figures = Mtep(link(lmt_s=1.0)).figures(waiting, 0.0)
    assert figures.expected_earning == pytest.approx(2.0 * TWO)
    assert figures.later_earning == pytest.approx(2.0 * ONE)
    assert figures.later_penalty == pytest.approx(0.2 * (1 - ONE))


def test_eq_12_the_cost_of_postponement() -> None:
    waiting = event("e", target(5.0, price=2.0, penalty=0.2))
    now, later = 2.0 * TWO - 0.2 * (1 - TWO), 2.0 * ONE - 0.2 * (1 - ONE)
    assert Mtep(link(lmt_s=1.0)).figures(waiting, 0.0).postponement_cost == pytest.approx(now - later)


def test_what_is_far_from_its_deadline_can_be_postponed_without_harm() -> None:
    assert Mtep(link(lmt_s=3.0)).figures(event("e", target(60.0)), 0.0).postponement_cost == 0.0


# eq. 13


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_eq_13_priority(weight: float) -> None:
    waiting = event("e", target(5.0, price=2.0, penalty=0.2), target(4.0, price=1.0, penalty=0.1))
    figures = Mtep(link(lmt_s=1.0), weight=weight).figures(waiting, 0.0)
    ee = 2.0 * TWO + 1.0 * ONE
    ep = 0.2 * (1 - TWO) + 0.1 * (1 - ONE)
    pc = ee - ep - (2.0 * ONE + 1.0 * HALF - 0.2 * (1 - ONE) - 0.1 * HALF)
    assert figures.priority == pytest.approx(weight * ee + (1 - weight) * (pc + ep))


def test_more_subscriptions_and_a_higher_price_give_a_higher_priority() -> None:
    queue = Mtep(link(lmt_s=3.0))
    queue.push(event("one", target(20.0)), 0.0)
    queue.push(event("two", target(20.0, id="s"), target(20.0, id="t")), 0.0)
    queue.push(event("dear", target(20.0, price=3.0)), 0.0)
    assert order(queue) == ["dear", "two", "one"]


def test_urgent_events_go_first_where_waiting_harms() -> None:
    queue = Mtep(link(lmt_s=3.0))
    queue.push(event("can wait", target(60.0, price=1.2)), 0.0)
    queue.push(event("urgent", target(5.0, price=1.0)), 0.0)
    assert order(queue) == ["urgent", "can wait"]


def test_weight_1_looks_at_earning_alone() -> None:
    queue = Mtep(link(lmt_s=3.0), weight=1.0)
    queue.push(event("urgent", target(5.0, price=1.0)), 0.0)
    queue.push(event("can wait", target(60.0, price=1.2)), 0.0)
    assert order(queue) == ["can wait", "urgent"]


# 2.3.4, eq. 14


def test_eq_14_expired_if_success_is_at_most_epsilon_for_all() -> None:
    queue = Mtep(link())  # epsilon 0.04 is 1.75 deviations below the mean
    queue.push(event("all", target(1.2), target(1.0)), 0.0)
    queue.push(event("but one", target(1.3), target(1.0)), 0.0)
    assert order(queue) == ["but one"]
    assert [(each.item.event.id, each.reason) for each in queue.dropped()] == [("all", HOPELESS)]


def test_eq_14_expired_if_it_timed_out() -> None:
    queue = Mtep(link())
    queue.push(event("e", target(3.0), timeout_s=3.0 + AHEAD_S), 0.0)
    assert order(queue, 3.1) == []
    assert [each.reason for each in queue.dropped()] == [TIMED_OUT]


def test_eq_14_success_of_exactly_epsilon_is_expired() -> None:
    queue = Mtep(link(), epsilon=link().success(2.0 + AHEAD_S, 0.0, 50.0, 1, 0.06, 0.0004))
    queue.push(event("e", target(2.0)), 0.0)
    assert order(queue) == []


# Fig. 5, literally


def test_fig_5_keeps_a_success_of_exactly_epsilon() -> None:
    queue = Mtep(link(), epsilon=link().success(2.0 + AHEAD_S, 0.0, 50.0, 1, 0.06, 0.0004), figure5=True)
    queue.push(event("e", target(2.0)), 0.0)
    assert order(queue) == ["e"]


def test_fig_5_a_success_below_epsilon_adds_nothing() -> None:
    waiting = event("e", target(5.0, price=2.0, penalty=0.2), target(1.0, price=9.0, penalty=0.9))
    equations = Mtep(link(lmt_s=1.0)).figures(waiting, 0.0)
    literally = Mtep(link(lmt_s=1.0), figure5=True).figures(waiting, 0.0)
    assert equations.expected_earning == pytest.approx(2.0 * TWO + 9.0 * (1 - TWO))
    assert literally.expected_earning == pytest.approx(2.0 * TWO)
    assert literally.expected_penalty == pytest.approx(0.2 * (1 - TWO))
    assert literally.later_earning == pytest.approx(2.0 * ONE)
    assert literally.later_penalty == pytest.approx(0.2 * (1 - ONE))


def test_fig_5_a_postponed_success_below_epsilon_adds_nothing_to_the_primed_sums() -> None:
    waiting = event("e", target(2.0, price=2.0, penalty=0.2))
    figures = Mtep(link(lmt_s=1.0), figure5=True).figures(waiting, 0.0)
    assert figures.expected_earning == pytest.approx(2.0 * (1 - ONE))
    assert figures.expected_penalty == pytest.approx(0.2 * ONE)
    assert (figures.later_earning, figures.later_penalty) == (0.0, 0.0)


def test_fig_5_line_15_removes_what_earns_nothing() -> None:
    queue = Mtep(link(), figure5=True)
    queue.push(event("e", target(1.0)), 0.0)
    assert order(queue) == []


# Fig. 6: "calculatePriority; send the maximum; remove it"


def test_fig_6_priorities_are_computed_anew_when_the_link_is_free() -> None:
    queue = Mtep(link(lmt_s=3.0))
    queue.push(event("dear", target(60.0, price=3.0)), 0.0)
    queue.push(event("cheap but due", target(9.0, price=2.5)), 0.0)
    assert queue.figures(next(iter(queue)), 0.0).priority == pytest.approx(0.4 * 3.0)
    first = queue.pop(0.0)
    assert first is not None
    assert first.event.id == "dear"
    queue.push(first, 0.0)
    urgent = queue.pop(4.0)
    assert urgent is not None
    assert urgent.event.id == "cheap but due"


# 3: the three strategies it is compared with


def test_fcfs_forwards_first_what_came_first() -> None:
    queue = Fcfs(link())
    for id in "cab":
        queue.push(event(id, target(20.0)), 0.0)
    assert order(queue) == list("cab")


def test_fix_gives_each_event_a_fixed_priority() -> None:
    queue = Fix(link())
    for number in range(20):
        queue.push(event(f"e{number}", target(20.0)), 0.0)
    ranks = [queue.rank(event(id)) for id in order(queue)]
    assert ranks == sorted(ranks, reverse=True)


def test_lrt_takes_the_mean_of_the_remaining_times() -> None:
    queue = Lrt(link())
    queue.push(event("30", target(20.0), target(40.0)), 0.0)
    queue.push(event("24", target(24.0)), 0.0)
    queue.push(event("22", target(42.0), born_s=-20.0), 0.0)
    assert order(queue) == ["22", "24", "30"]
