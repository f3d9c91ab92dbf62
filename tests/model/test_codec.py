"""Messages survive the wire; bytes that are no message raise CodecError and nothing else."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import events, filters
from tidings.errors import CodecError
from tidings.model import message as m
from tidings.model.codec import decode, encode
from tidings.model.subscription import Advertisement, Subscription

numbers = st.integers(0, 2**62)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
subscriptions = st.builds(
    Subscription,
    names,
    names,
    filters(),
    st.lists(names, max_size=3).map(tuple),
    st.floats(0.001, allow_nan=False),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
)
messages = st.one_of(
    st.builds(m.Hello, names, st.sampled_from([m.CLIENT, m.BROKER])),
    st.builds(m.Publish, numbers, events()),
    st.builds(m.Subscribe, numbers, subscriptions),
    st.builds(m.Unsubscribe, numbers, names),
    st.builds(m.Advertise, numbers, st.builds(Advertisement, names, names, st.just(()), filters())),
    st.builds(m.Unadvertise, numbers, names),
    st.builds(m.Done, numbers, names, st.booleans()),
    st.builds(m.Failed, numbers, names, names),
    st.builds(m.Notify, events(), st.lists(names).map(tuple), st.floats(0, 1e9)),
    st.builds(m.Acknowledge, names, names),
    st.builds(m.Ping, numbers),
    st.builds(m.Pong, numbers),
)


@given(messages)
def test_a_message_comes_back_as_it_was(message):
    assert decode(encode(message)) == message


@given(messages, st.data())
def test_truncated_or_longer_bytes_are_a_codec_error(message, data):
    encoded = encode(message)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for wrong in (encoded[:cut], encoded + b"\0"):
        with pytest.raises(CodecError):
            decode(wrong)


@given(st.binary(max_size=200))
def test_random_bytes_never_crash(data):
    try:
        message = decode(data)
    except CodecError:
        return
    assert decode(encode(message)) == message


@given(messages, st.data())
def test_a_changed_byte_never_crashes(message, data):
    encoded = bytearray(encode(message))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CodecError):
        decode(encoded)


def subscribe(**fields):
    return encode({"op": "subscribe", "request": 1, "subscription": {"id": "s", "subscriber": "m", **fields}})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (encode({"op": "fly"}), "Invalid value 'fly'"),
        (encode({"op": "publish"}), "missing required field"),
        (encode({"op": "publish", "request": 1, "event": {"id": "e", "type": "", "attributes": {"a": {}}}}), "a dict"),
        (encode({"op": "publish", "request": 1, "event": {"id": "", "type": "", "attributes": {}}}), "id ''"),
        (subscribe(filter=["p", "a", "<", True]), "expected a constant"),
        (subscribe(price=-1.0), "price"),
        (b"\x81\xa2op" + b"\x91" * 100_000, "nested|no message"),
    ],
)
def test_the_reason_is_named(data, reason):
    with pytest.raises(CodecError, match=reason):
        decode(data)


def test_a_filter_nested_beyond_all_measure_is_a_codec_error():
    nested = ["p", "a", "=", 1]
    for _ in range(200):
        nested = ["!", nested]
    with pytest.raises(CodecError, match="at most 64 levels deep"):
        decode(subscribe(filter=nested))
