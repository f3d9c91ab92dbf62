"""Frames: any cut of the bytes gives the same bodies, and nothing but CodecError comes out of garbage."""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import CodecError
from tidings.model import message as m
from tidings.model.codec import decode, encode
from tidings.net.frames import HEAD, FrameDecoder, frame


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(0, 400), max_size=10))
def test_however_the_bytes_are_cut_the_bodies_are_the_same(bodies, cuts):
    decoder = FrameDecoder()
    found = [bytes(body) for piece in pieces(b"".join(map(frame, bodies)), cuts) for body in decoder.feed(piece)]
    assert found == bodies
    assert len(decoder) == 0


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_garbage_gives_frames_or_an_error_of_ours(data, cuts):
    decoder = FrameDecoder(limit_kb=1)
    try:
        for piece in pieces(data, cuts):
            for body in decoder.feed(piece):
                decode(body)
    except CodecError:
        pass
    assert len(decoder) <= 1024 + HEAD.size


@given(st.data())
def test_a_damaged_message_is_a_message_or_an_error_of_ours(data):
    body = bytearray(encode(m.Failed(3, "UnknownName", "nobody is called so")))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CodecError):
        assert isinstance(decode(body), m.Message)


def test_a_huge_length_is_refused_before_anything_is_kept_for_it():
    decoder = FrameDecoder(limit_kb=1)
    with pytest.raises(CodecError, match="4294967295 bytes: expected at most 1 KB"):
        list(decoder.feed(b"\xff\xff\xff\xff"))
    assert len(decoder) == 0


def test_the_limit_itself_is_allowed():
    body = bytes(1024)
    assert [bytes(found) for found in FrameDecoder(limit_kb=1).feed(frame(body))] == [body]
