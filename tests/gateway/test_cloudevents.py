"""CloudEvents to events and back, and the filter dialects, without a server."""

import base64
import datetime
import json
import math
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from tidings.model.event import Event
from tidings.model.filter import matches
from tidings.net.gateway.cloudevents import BATCHED, MAX_BATCH, STRUCTURED, event_id, from_request, to_cloudevent
from tidings.net.gateway.filters import Dialect, wanted
from tidings.net.gateway.problems import Problem, decoded

NOW_S = 1_794_000_000.0
CONTEXT = {"specversion": "1.0", "id": "1", "source": "/feed", "type": "quote"}


def structured(**event) -> Event:
    (found,) = from_request([(b"Content-Type", STRUCTURED.encode())], json.dumps(CONTEXT | event).encode(), NOW_S)
    return found


def binary(body: bytes, **headers: str) -> Event:
    given = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/feed", "ce-type": "quote"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    (found,) = from_request([(name.encode(), value.encode()) for name, value in given.items()], body, NOW_S)
    return found


def shown(event: Event) -> dict:
    return json.loads(to_cloudevent(event))


def test_what_filters_see():
    event = structured(
        subject="LEGEND",
        priority=3,
        time="2026-11-16T10:00:00+02:00",
        data={
            "change": 1.5,
            "deep": {"er": True, "when": {"$date": "2026-01-31T00:00:00Z"}},
            "tags": ["a", "b"],
            "no": None,
        },
    )
    assert event.type == "quote"
    assert event.attributes == {
        "$id": "1",
        "$source": "/feed",
        "$subject": "LEGEND",
        "$priority": 3,
        "$time": datetime.datetime(2026, 11, 16, 8, tzinfo=datetime.UTC),
        "change": 1.5,
        "deep.er": True,
        "deep.when": datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC),
        "tags": frozenset({"a", "b"}),
    }


def test_the_same_id_of_two_sources_is_two_events():
    assert structured(source="/a").id != structured(source="/b").id
    assert event_id("/a", "b c") != event_id("/a", "b  c")
    long = structured(source="/" + "x" * 1_000, id="y" * 1_000)
    assert len(long.id) <= 255
    assert (shown(long)["source"], shown(long)["id"]) == ("/" + "x" * 1_000, "y" * 1_000)


def test_the_expirytime_is_the_timeout():
    later = datetime.datetime.fromtimestamp(NOW_S + 60, datetime.UTC).isoformat()
    assert structured(expirytime=later).timeout_s == 60
    assert structured().timeout_s == math.inf
    with pytest.raises(Problem, match="has passed"):
        structured(expirytime="2020-01-01T00:00:00Z")


def test_flat_data_travels_once_and_other_data_as_it_is():
    assert structured(data={"a": 1, "b": "x", "c": True, "d": 0.5}).data == b""
    for data in (
        {},
        {"a": None},
        {"a": [1]},
        {"a": {"b": 1}},
        {"$a": 1},
        {"": 1},
        {"a": 2**70},
        [1, 2],
        "text",
        5,
        None,
    ):
        event = structured(data=data)
        assert json.loads(event.data) == data
        assert shown(event)["data"] == data
    assert "data" not in shown(structured())


def test_binary_mode():
    event = binary(b'{"change": 1.5}', content_type="application/json; charset=utf-8", ce_subject="a%20b%C3%A4")
    assert (event.attributes["change"], event.attributes["$subject"]) == (1.5, "a bä")
    text = binary(b"hello", content_type="text/plain")
    assert (text.data, text.content_type, shown(text)["data"]) == (b"hello", "text/plain", "hello")
    image = binary(b"\xff\0", content_type="image/png")
    assert base64.b64decode(shown(image)["data_base64"]) == b"\xff\0"
    assert binary(b"").data == b""


def test_text_and_base64_in_structured_mode():
    assert structured(data="<a/>", datacontenttype="text/xml").data == b"<a/>"
    assert structured(data_base64="AP8=", datacontenttype="image/png").data == b"\0\xff"
    assert structured(data_base64=base64.b64encode(b'{"a": 1}').decode()).attributes["a"] == 1


def test_events_of_other_clients_are_cloudevents_too():
    plain = Event("e 1", "", {"a": 1, "set": frozenset({"y", "x"})}, timestamp_s=NOW_S, timeout_s=60.0)
    assert shown(plain) == {
        "specversion": "1.0",
        "id": "e 1",
        "source": "urn:tidings",
        "type": "tidings.event",
        "time": "2026-11-06T21:20:00Z",
        "expirytime": "2026-11-06T21:21:00Z",
        "datacontenttype": "application/json",
        "data": {"a": 1, "set": ["x", "y"]},
    }
    with_body = shown(Event("e", "t", {"a": 1}, data=b"not json", content_type="application/json"))
    assert base64.b64decode(with_body["data_base64"]) == b"not json"
    assert json.loads(with_body["tidingsattributes"]) == {"a": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
EXTENSIONS = st.dictionaries(
    st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=20).map("x".__add__),
    st.text(min_size=1) | st.booleans() | st.integers(-(2**63), 2**63 - 1),
    max_size=3,
)


@given(
    data=JSON, extensions=EXTENSIONS, id=st.text(min_size=1, max_size=300), subject=st.text(min_size=1, max_size=300)
)
def test_what_comes_in_goes_out_again(data, extensions, id, subject):
    event = {**CONTEXT, "id": id, "subject": subject, "time": "2026-11-16T10:00:00Z", **extensions, "data": data}
    out = shown(structured(**event))
    out.pop("datacontenttype", None)
    assert out == event


BAD = {
    "no id": ({"id": None}, "id"),
    "an empty source": ({"source": ""}, "source"),
    "a source with a blank": ({"source": "a b"}, "source"),
    "a source that is a number": ({"source": 5}, "source"),
    "no type": ({"type": None}, "type"),
    "a long type": ({"type": "x" * 300}, "type"),
    "another version": ({"specversion": "0.3"}, "specversion"),
    "an upper-case attribute": ({"Subject": "x"}, "Subject"),
    "an attribute that is an object": ({"ext": {}}, "ext"),
    "an attribute that is a float": ({"ext": 1.5}, "ext"),
    "an attribute beyond 64 bits": ({"ext": 2**64}, "ext"),
    "no time": ({"time": "yesterday"}, "time"),
    "a time without an offset": ({"time": "2026-11-16T10:00:00"}, "time"),
    "an expirytime that is a number": ({"expirytime": 5}, "expirytime"),
    "data twice": ({"data": 1, "data_base64": "AA=="}, "data"),
    "no base64": ({"data_base64": "!"}, "data_base64"),
    "data that does not fit its type": ({"data": {}, "datacontenttype": "text/xml"}, "data"),
}


@pytest.mark.parametrize(("change", "where"), BAD.values(), ids=BAD)
def test_bad_events_are_told_where(change, where):
    with pytest.raises(Problem) as caught:
        structured(**change)
    problem = caught.value
    assert problem.status == 400
    assert problem.where.split()[0] == where
    with pytest.raises(Problem) as caught:
        from_request([(b"content-type", BATCHED.encode())], json.dumps([CONTEXT, CONTEXT | change]).encode(), NOW_S)
    assert where in caught.value.where


def test_bad_requests():
    for headers, body, status, where in (
        ([(b"content-type", b"application/cloudevents+avro")], b"", 415, "Content-Type"),
        ([(b"content-type", b"application/json")], b"{}", 400, "headers"),
        ([], b"", 400, "headers"),
        ([(b"content-type", STRUCTURED.encode())], b"{", 400, "body"),
        ([(b"content-type", STRUCTURED.encode())], b"[]", 400, "body"),
        ([(b"content-type", STRUCTURED.encode())], b'{"id": "\xff"}', 400, "id"),
        ([(b"content-type", BATCHED.encode())], json.dumps([CONTEXT] * (MAX_BATCH + 1)).encode(), 400, "body"),
        ([(b"content-type", STRUCTURED.encode())], b'{"data": ' + b"[" * 100_000, 400, "body"),
        ([(b"ce-specversion", b"1.0"), (b"ce-id", b"%ff")], b"", 400, "ce-id"),
    ):
        with pytest.raises(Problem) as caught:
            from_request(headers, body, NOW_S)
        assert (caught.value.status, caught.value.where) == (status, where)
    with pytest.raises(Problem, match="no JSON"):
        binary(b"{", content_type="application/json")


def holds(dialect: dict, event: dict[str, str]) -> bool:
    """The dialects as the CloudEvents Subscriptions API defines them."""
    ((name, inside),) = dialect.items()
    match name:
        case "exact":
            return all(event.get(key) == value for key, value in inside.items())
        case "prefix":
            return all(key in event and event[key].startswith(value) for key, value in inside.items())
        case "suffix":
            return all(key in event and event[key].endswith(value) for key, value in inside.items())
        case "all":
            return all(holds(part, event) for part in inside)
        case "any":
            return any(holds(part, event) for part in inside)
    return not holds(inside, event)


NAMES = st.sampled_from(["type", "source", "subject"])
SOME = st.dictionaries(NAMES, st.sampled_from(["a", "ab", "b", ""]), min_size=1)
DIALECTS = st.recursive(
    st.sampled_from(["exact", "prefix", "suffix"]).flatmap(lambda word: SOME.map(lambda some: {word: some})),
    lambda inner: (
        inner.map(lambda part: {"not": part})
        | st.sampled_from(["all", "any"]).flatmap(
            lambda word: st.lists(inner, min_size=1, max_size=3).map(lambda parts: {word: parts})
        )
    ),
    max_leaves=8,
)


@given(dialect=DIALECTS, event=st.dictionaries(NAMES, st.sampled_from(["a", "ab", "b", "ba"])))
def test_the_dialects_mean_what_the_api_says(dialect, event):
    filter = wanted(UNSET, (decoded(json.dumps(dialect).encode(), Dialect),))
    assert matches(filter, {f"${name}": value for name, value in event.items()}) == holds(dialect, event)


def test_members_of_the_data_and_our_own_language():
    filters = decoded(b'[{"exact": {"data.symbol": "LEGEND"}}, {"sql": "change > 1"}]', tuple[Dialect, ...])
    assert (
        str(wanted("/feed", filters, "volume > 5"))
        == "$source = '/feed' AND symbol = 'LEGEND' AND change > 1 AND volume > 5"
    )


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('[{"exact": {"a": "b"}, "prefix": {"a": "b"}}]', "filters[0]"),
        ("[{}]", "filters[0]"),
        ('[{"all": [{"sql": "a = 1"}, {"sql": "a ="}]}]', "filters[0].all[1].sql"),
        ('[{"not": {"exact": {"Upper": "b"}}}]', "filters[0].not.exact"),
        ('[{"exact": {"data.": "b"}}]', "filters[0].exact"),
        ("[" + '{"not": ' * 40 + '{"sql": ""}' + "}" * 40 + "]", "filters[0]" + ".not" * 32),
    ],
)
def test_bad_filters_are_told_where(text, where):
    with pytest.raises(Problem) as caught:
        wanted(UNSET, decoded(text.encode(), tuple[Dialect, ...]))
    assert (caught.value.status, caught.value.where) == (400, where)
