"""Simulated time."""

from tidings.sim.loop import Loop


def test_in_the_order_of_time_then_priority_then_asking():
    loop, seen = Loop(), []
    loop.at(2.0, seen.append, "later")
    loop.at(1.0, seen.append, "low", priority=1)
    loop.at(1.0, seen.append, "first")
    loop.at(1.0, seen.append, "second")
    loop.run(until_s=2.0)
    assert seen == ["first", "second", "low", "later"]
    assert loop.now == 2.0


def test_what_happens_may_cause_more_and_the_end_is_kept():
    loop, seen = Loop(), []

    def again() -> None:
        seen.append(loop.now)
        loop.at(loop.now + 1, again)

    loop.at(0.5, again)
    loop.run(until_s=3.0)
    assert seen == [0.5, 1.5, 2.5]
    assert (loop.now, len(loop)) == (3.0, 1)
