"""What is refused at the door, by name, and how values compare."""

import datetime
import math

import pytest

from tidings.errors import InvalidEvent
from tidings.model.event import checked_event
from tidings.model.filter import Op, compare
from tidings.model.value import INT_MAX, INT_MIN, from_microseconds, microseconds

NOON = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))

REFUSED = {
    "NaN": ({"a": math.nan}, "attribute 'a': NaN"),
    "nested": ({"a": {"b": 1}}, "attribute 'a': a dict is not allowed"),
    "none": ({"a": None}, "attribute 'a': a NoneType is not allowed"),
    "too large": ({"a": INT_MAX + 1}, "attribute 'a': the integer 9223372036854775808 is beyond 64 bits"),
    "too small": ({"a": INT_MIN - 1}, "beyond 64 bits"),
    "astronomical": ({"a": 10**9999}, "the integer of 33216 bits is beyond 64 bits"),
    "naive date": ({"a": datetime.datetime(2026, 1, 1)}, "has no time zone"),
    "date before year 1": (
        {"a": datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1)))},
        "outside of the years",
    ),
    "mixed set": ({"a": {1, "x"}}, "strings or numbers, not both"),
    "set of bools": ({"a": [True]}, "strings or numbers, found bool"),
    "set of sets": ({"a": [[1]]}, "strings or numbers, found set"),
    "no name": ({"": 1}, "attribute name '': expected 1 to 255 characters"),
    "long name": ({"a" * 256: 1}, "found 256"),
    "no text": ({"a": "\ud800"}, "lone surrogate"),
    "name is no text": ({"\ud800": 1}, "cannot be addressed"),
    "name is a number": ({1: 1}, "attribute name 1: expected a string"),
    "reserved": ({"$type": "x"}, "reserved"),
    "no mapping": ([1], "expected a mapping"),
}


@pytest.mark.parametrize(("attributes", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_carried_is_refused_by_name(attributes, reason):
    with pytest.raises(InvalidEvent, match=reason.replace("(", r"\(")):
        checked_event("e", attributes)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"timeout_s": 0}, "timeout_s 0"),
        ({"timeout_s": math.nan}, "timeout_s nan"),
        ({"timeout_s": True}, "timeout_s True"),
        ({"data": "text"}, "data: expected bytes, found str"),
        ({"size_kb": -1}, "size_kb -1"),
        ({"type": "x" * 256}, "type"),
        ({"content_type": 7}, "content_type 7"),
    ],
)
def test_the_rest_of_an_event_is_checked_too(options, reason):
    with pytest.raises(InvalidEvent, match=reason):
        checked_event("e", {}, **options)


def test_values_are_carried_as_they_are_meant():
    event = checked_event("e", {"set": [1, 2], "date": NOON, "day": datetime.date(2026, 11, 15), "flag": True})
    assert event.attributes["set"] == frozenset({1, 2})
    assert event.attributes["date"] == NOON
    assert event.attributes["date"].tzinfo is datetime.UTC
    assert event.attributes["day"] == datetime.datetime(2026, 11, 15, tzinfo=datetime.UTC)
    assert event.attributes["flag"] is True
    assert event.size_kb > 0


@pytest.mark.parametrize(
    "instant",
    [
        datetime.datetime.min.replace(tzinfo=datetime.UTC),
        datetime.datetime.max.replace(tzinfo=datetime.UTC),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC),
    ],
)
def test_dates_are_exact_to_the_microsecond(instant):
    assert from_microseconds(microseconds(instant)) == instant


@pytest.mark.parametrize(
    ("left", "op", "right", "expected"),
    [
        (2**53, Op.EQ, float(2**53), True),
        (2**53 + 1, Op.EQ, float(2**53), False),
        (2**53 + 1, Op.GT, float(2**53), True),
        (INT_MAX, Op.LT, float(2**63), True),
        (INT_MIN, Op.EQ, float(-(2**63)), True),
        (INT_MAX, Op.GT, INT_MAX - 1, True),
        (-0.0, Op.EQ, 0, True),
        (math.inf, Op.GT, INT_MAX, True),
        (1, Op.EQ, True, None),
        ("1", Op.EQ, 1, None),
        (True, Op.LT, False, None),
        ("Z", Op.LT, "a", True),
        ("a", Op.LT, "\U0001f600", True),
    ],
)
def test_numbers_compare_by_exact_value_and_kinds_never_mix(left, op, right, expected):
    assert compare(op, left, right) is expected
