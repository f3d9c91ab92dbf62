"""Messages to bytes and back (MessagePack). What cannot be decoded raises CodecError, never anything else.

The door stands here too: a message from outside is as careful with its event's values as the local API is.
"""

import msgspec

from tidings.errors import CodecError, InvalidInput
from tidings.model.event import Event, checked_event
from tidings.model.message import Forward, Message, Notify, Publish

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)

encode = _encoder.encode


def decode(data: bytes | bytearray | memoryview) -> Message:
    """The one message that the bytes hold."""
    try:
        message = _decoder.decode(data)
        if isinstance(message, Publish | Notify | Forward):
            return msgspec.structs.replace(message, event=_through_the_door(message.event))
        return message
    except RecursionError:
        raise CodecError("a message is nested too deeply") from None
    except (msgspec.MsgspecError, InvalidInput, UnicodeDecodeError, OverflowError) as error:
        raise CodecError(f"no message of ours: {error}") from None


def _through_the_door(event: Event) -> Event:
    """MessagePack has no sets: an array is one."""
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
