"""Lines come whole and numbered whatever the reads are; what is no event or no filter is refused by name."""

import codecs
import contextlib
import datetime
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.cli import lines
from tidings.cli.lines import Complaints, EventReader, filter_of, subscriptions
from tidings.errors import FilterError, InvalidInput
from tidings.language import parse


class Trickle:
    """A pipe that gives as many bytes at a time as it likes."""

    def __init__(self, content: bytes, sizes: list[int]) -> None:
        self.content, self.sizes = io.BytesIO(content), iter(sizes)

    def read1(self, size: int) -> bytes:
        return self.content.read(min(size, next(self.sizes, size)))


@given(
    st.lists(st.binary(max_size=6).map(lambda text: text.replace(b"\n", b" "))),
    st.lists(st.integers(1, 9)),
    st.booleans(),
)
def test_lines_do_not_depend_on_reads(texts: list[bytes], sizes: list[int], ends_in_newline: bool) -> None:
    content = codecs.BOM_UTF8 + b"\n".join(texts) + b"\n" * ends_in_newline
    found = [line for batch in lines._batches("f", Trickle(content, sizes)) for line in batch]
    assert [(line.number, line.text) for line in found] == [
        (number, text) for number, text in enumerate(texts, 1) if text.strip()
    ]


def test_a_batch_is_there_as_soon_as_its_lines_are() -> None:
    reads = lines._batches("f", Trickle(b"a\nb\nc", [2, 3]))
    assert [line.text for line in next(reads)] == [b"a"]
    assert [line.text for line in next(reads)] == [b"b"]
    assert [line.text for batch in reads for line in batch] == [b"c"]


def test_an_endless_line_is_refused_and_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 8)
    first, second = (
        line
        for batch in lines._batches("f", Trickle(b'{"a": "' + b"x" * 1000 + b'"}\n{"a":1}\n', [5] * 300))
        for line in batch
    )
    assert len(first.text) < 20
    with pytest.raises(InvalidInput, match="longer than 8 bytes"):
        EventReader().event(first.text, "1")
    assert EventReader().event(second.text, "2").attributes == {"a": 1}


def test_a_byte_order_mark_and_carriage_returns_do_no_harm() -> None:
    found = [
        line
        for batch in lines._batches("f", io.BytesIO(codecs.BOM_UTF8 + b'{"a": 1}\r\n{"a": 2}\r\n'))
        for line in batch
    ]
    assert [EventReader().event(line.text, "e").attributes["a"] for line in found] == [1, 2]


def attributes(text: str, **options: Any) -> dict[str, Any]:
    return EventReader(**options).event(text.encode(), "e").attributes


def test_an_object_is_its_attributes() -> None:
    assert attributes('{"i": 1, "f": 1.5, "s": "x", "b": true, "set": ["p", "q"], "none": null}') == {
        "i": 1,
        "f": 1.5,
        "s": "x",
        "b": True,
        "set": frozenset({"p", "q"}),
    }


def test_integers_keep_all_their_digits() -> None:
    assert attributes('{"a": 9223372036854775807, "b": -9223372036854775808}') == {"a": 2**63 - 1, "b": -(2**63)}


def test_an_envelope_has_more() -> None:
    text = b'{"id": "q1", "type": "quote", "timeout_s": 60, "data": "aGk=", "content_type": "text/plain", "attributes": {"a": 1}}'
    event = EventReader().event(text, "e")
    assert (event.id, event.type, event.timeout_s, event.data, event.content_type, event.attributes) == (
        "q1",
        "quote",
        60.0,
        b"hi",
        "text/plain",
        {"a": 1},
    )


def test_an_attribute_may_be_called_attributes() -> None:
    assert attributes('{"attributes": 3, "id": "x"}') == {"attributes": 3, "id": "x"}


def test_nested_objects_become_dotted_names_on_demand() -> None:
    assert attributes('{"a": {"b": {"c": 1}, "d": 2}, "e": 3}', flatten=True) == {"a.b.c": 1, "a.d": 2, "e": 3}


def test_dates() -> None:
    noon = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    assert attributes('{"at": {"$date": "2026-01-31T12:00:00Z"}}') == {"at": noon}
    assert attributes('{"at": {"$date": "2026-01-31T20:00:00+08:00"}}', flatten=True) == {"at": noon}
    assert attributes('{"at": "2026-01-31 12:00", "x": "2026"}', dates=frozenset({"at"})) == {"at": noon, "x": "2026"}


REFUSED = {
    "not a number": ('{"change": NaN}', "attribute 'change': NaN"),
    "nested": ('{"a": {"b": 1}}', "attribute 'a': a nested object is not allowed; --flatten"),
    "nested in a set": ('{"a": [{"b": 1}]}', "attribute 'a'"),
    "mixed set": ('{"a": [1, "x"]}', "attribute 'a': a set holds strings or numbers"),
    "beyond 64 bits": ('{"a": 9223372036854775808}', "attribute 'a': the integer 9223372036854775808 is beyond"),
    "far beyond 64 bits": (f'{{"a": 1{"0" * 5000}}}', "(digits|beyond)"),
    "empty name": ('{"": 1}', "attribute name ''"),
    "reserved name": ('{"$type": "quote"}', r"attribute '\$type'"),
    "long name": (f'{{"{"n" * 256}": 1}}', "attribute name"),
    "lone surrogate": (r'{"a": "\ud800"}', "attribute 'a': .*surrogate"),
    "no date": ('{"at": {"$date": "yesterday"}}', "attribute 'at': expected a date .* found 'yesterday'"),
    "date that is no text": ('{"at": {"$date": 5}}', "attribute 'at': expected a date"),
    "half an object": ('{"a": 1', "no JSON: .* at column 8"),
    "two objects": ('{"a": 1} {"a": 2}', "no JSON: extra data at column 10"),
    "an array": ("[1, 2]", r"expected a JSON object, found '\[1, 2\]'"),
    "a word": ("hello", "no JSON: expecting value at column 1"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "unknown key": ('{"attributes": {}, "kind": "x"}', "'kind'"),
    "id of another kind": ('{"attributes": {}, "id": 5}', r"\$.id"),
    "empty id": ('{"attributes": {}, "id": ""}', "id ''"),
    "no timeout": ('{"attributes": {}, "timeout_s": 0}', "timeout_s 0"),
    "no base64": ('{"attributes": {}, "data": "?"}', r"(?i)base64.*\$.data"),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_event_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        EventReader().event(text.encode(), "e")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no UTF-8: byte 0xff at column 8"):
        EventReader().event(b'{"a": "\xff"}', "e")


def test_two_ways_to_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"'a\.b': there twice"):
        attributes('{"a": {"b": 1}, "a.b": 2}', flatten=True)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_event_or_invalid(text: bytes) -> None:
    with contextlib.suppress(InvalidInput):
        EventReader(flatten=True).event(text, "e")


def test_filter_text_and_patterns() -> None:
    assert filter_of("a > 1") == parse("a > 1")
    assert filter_of(' {"a": [{"numeric": [">", 1]}]}') == parse("a > 1")
    with pytest.raises(FilterError):
        filter_of("{")


def test_a_text_file_of_filters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "filters.txt"
    file.write_text("# comment\na > 1\n\n  b = 'x'  \na >\n{\"c\": [3]}\n")
    complaints = Complaints()
    found = subscriptions(str(file), complaints)
    assert [(s.id, str(s.filter)) for s in found] == [("2", "a > 1"), ("4", "b = 'x'"), ("6", "c = 3")]
    assert complaints.count == 1
    assert capsys.readouterr().err.startswith(f"{file}:5: column 4: ")


def test_a_json_file_of_filters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "filters.jsonl"
    file.write_text(
        '{"id": "up", "filter": "a > 1", "types": ["quote"], "deadline_s": 40, "price": 1.5, "penalty": 0.15}\n'
        '{"filter": {"a": [2]}}\n'
        '{"id": "up", "filter": "a > 2"}\n'
        '{"filter": "a > 2", "dedline_s": 4}\n'
        '{"id": "x"}\n'
        '{"filter": "a > 2", "price": -1}\n'
        '{"filter": "a > 2", "deadline_s": 0}\n'
        '{"filter": "a > 2", "types": [""]}\n'
        "a > 1\n"
    )
    complaints = Complaints()
    first, second = subscriptions(str(file), complaints)
    assert (first.id, first.types, first.deadline_s, first.price, first.penalty) == ("up", ("quote",), 40, 1.5, 0.15)
    assert (second.id, str(second.filter)) == ("2", "a = 2")
    reasons = capsys.readouterr().err.splitlines()
    expected = [
        "'up' is taken by line 1",
        "dedline_s",
        "'filter'",
        "price -1",
        "deadline_s 0",
        "event type ''",
        "no JSON",
    ]
    assert complaints.count == len(reasons) == len(expected)
    for number, (reason, part) in enumerate(zip(reasons, expected, strict=True), 3):
        assert reason.startswith(f"{file}:{number}: ")
        assert part in reason
