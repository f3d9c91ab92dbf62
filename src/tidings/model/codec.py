"""Messages to bytes and back (MessagePack). What cannot be decoded raises CodecError, never anything else.

The door stands here too: a message from outside is as careful with its event's values as the local API is.
"""

import math

import msgspec

from tidings.errors import CodecError, InvalidInput
from tidings.model.event import MAX_ID_LENGTH, Event, checked_event
from tidings.model.message import Forward, Message, Notify, Publish
from tidings.model.value import INT_MAX, INT_MIN, MAX_NAME_LENGTH, TYPE

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)

_WITH_EVENT = (Publish, Notify, Forward)

encode = _encoder.encode


def decode(data: bytes | bytearray | memoryview) -> Message:
    """The one message that the bytes hold."""
    try:
        message = _decoder.decode(data)
        if isinstance(message, _WITH_EVENT) and not _is_plain(message.event):
            return msgspec.structs.replace(message, event=through_the_door(message.event))
        return message
    except RecursionError:
        raise CodecError("a message is nested too deeply") from None
    except (msgspec.MsgspecError, InvalidInput, UnicodeDecodeError, OverflowError) as error:
        raise CodecError(f"no message of ours: {error}") from None


def _is_plain(event: Event) -> bool:
    """Whether the event would come through the door as it is: nearly all do, and this is quicker than the door itself."""
    for name, value in event.attributes.items():
        kind = type(value)
        if kind is int:
            if not INT_MIN <= value <= INT_MAX:
                return False
        elif kind is float:
            if value != value:
                return False
        elif kind is not str and kind is not bool:
            return False
        if not 0 < len(name) <= MAX_NAME_LENGTH or name == TYPE:
            return False
    return (
        0 < len(event.id) <= MAX_ID_LENGTH >= len(event.type)
        and len(event.content_type) <= MAX_ID_LENGTH
        and event.timeout_s > 0
        and 0 <= event.size_kb < math.inf
    )


def through_the_door(event: Event) -> Event:
    """An event that was decoded, checked. MessagePack has no sets: an array is one."""
    return checked_event(
        event.id,
        event.attributes,
        event.type,
        timestamp_s=event.timestamp_s,
        timeout_s=event.timeout_s,
        data=event.data,
        content_type=event.content_type,
        size_kb=event.size_kb,
    )
