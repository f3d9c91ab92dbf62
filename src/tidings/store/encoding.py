"""Events and records to bytes and back (MessagePack, like the messages). What cannot be read raises StoreError."""

import math
from typing import Any

import msgspec

from tidings.errors import InvalidInput, StoreError
from tidings.model.codec import through_the_door
from tidings.model.event import Event
from tidings.model.step import AccountRecord, CopyRecord, EventRecord, Record
from tidings.store.accounts import ACCOUNTS

encode = msgspec.msgpack.Encoder().encode

_event = msgspec.msgpack.Decoder(Event)
_copy = msgspec.msgpack.Decoder(CopyRecord)
_journal: msgspec.msgpack.Decoder[list[tuple[int, Record]]] = msgspec.msgpack.Decoder(list[tuple[int, Record]])


class _Copied(Event, frozen=True):
    """An event that was published elsewhere."""

    copied: bool = True


class _Mark(msgspec.Struct):
    copied: bool = False


_mark = msgspec.msgpack.Decoder(_Mark)


def encode_record(record: Record) -> bytes:
    """Of an event record only the event, marked if it is a copy: it has a table of its own."""
    try:
        if not isinstance(record, EventRecord):
            return encode(record)
        return encode(_Copied(**msgspec.structs.asdict(record.event)) if record.copied else record.event)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"a record that cannot be stored: {error}") from None


def check_account(record: AccountRecord) -> None:
    if record.account not in ACCOUNTS:
        raise InvalidInput(f"account {record.account!r}: expected one of {', '.join(ACCOUNTS)}")


def decode_event(body: bytes) -> Event:
    """MessagePack has no sets, so an event comes in through the door again."""
    try:
        return through_the_door(_event.decode(body))
    except (msgspec.MsgspecError, InvalidInput, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"the store holds an event that cannot be read: {error}") from None


def is_copied(body: bytes) -> bool:
    """Whether an event was published elsewhere."""
    return _mark.decode(body).copied


def decode_copy(body: bytes) -> CopyRecord:
    try:
        copy = _copy.decode(body)
        return msgspec.structs.replace(copy, event=through_the_door(copy.event))
    except (msgspec.MsgspecError, InvalidInput, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"the store holds a copy that cannot be read: {error}") from None


def decode_journal(body: bytes) -> list[tuple[int, Record]]:
    try:
        return _journal.decode(body)
    except (msgspec.MsgspecError, InvalidInput, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"the store's journal cannot be read: {error}") from None


def decode_as(kind: Any, body: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, InvalidInput, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"the store holds a record that cannot be read: {error}") from None


def due_s(event: Event) -> float:
    """From when its retention counts: the end of its timeout, or its publication if it has none."""
    return event.timestamp_s + (event.timeout_s if event.timeout_s < math.inf else 0.0)
