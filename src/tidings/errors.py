"""Every exception that Tidings raises on purpose, as one tree.

TidingsError
├── InvalidInput            the caller's fault; nothing was changed
│   ├── FilterError         a filter that does not parse or is not allowed (with the column where it is text)
│   ├── InvalidEvent        an event that the system refuses at the door
│   ├── InvalidSubscription a subscription, advertisement or region that the system refuses at the door
│   ├── UnknownName         a name that is not in a catalog, or an id that is not registered
│   ├── LimitExceeded       a stated bound (length, depth, queue) would be passed
│   └── ConfigError         a setting that cannot be used: which file, which key, what was expected
├── CodecError              the other side's fault: bytes that are no message of ours
├── SnapshotError           a matcher snapshot that is damaged, foreign or of another version
├── StoreError              the store cannot be opened, read or written: a full disk, a read-only folder, a lost server
│   ├── ForeignStore        what lies there is not a store of ours, or one of a newer version
│   ├── StoreLocked         another broker has the store open
│   └── StoreFull           too much waits to be written; try again later
├── NetworkError            the other side cannot be reached, or has gone away
│   └── Refused             it is there and does not want us: a wrong token or protocol version
└── BusClosed               the bus or the subscription has ended
"""


class TidingsError(Exception):
    """Base of all errors of this package."""


class InvalidInput(TidingsError, ValueError):
    """What the caller passed cannot be used; nothing was changed."""


class FilterError(InvalidInput):
    """A filter is malformed: where (column, counted from 1), what was found, what was expected."""

    def __init__(self, reason: str, text: str = "", column: int = 0) -> None:
        self.reason, self.text, self.column = reason, text, column
        super().__init__(self._render())

    def _render(self) -> str:
        if not self.column:
            return self.reason
        # Long filters are shown through a window around the column, so that the caret stays visible.
        start = max(0, self.column - 41)
        shown = self.text[start : start + 80].translate({9: " ", 10: " ", 13: " "})
        return f"column {self.column}: {self.reason}\n  {shown}\n  {' ' * (self.column - 1 - start)}^"


class InvalidEvent(InvalidInput):
    """An event with a value, name or time that the system does not carry."""


class InvalidSubscription(InvalidInput):
    """A subscription, advertisement or region that can never be served."""


class UnknownName(InvalidInput):
    """A name outside of its catalog, or an id that is not registered."""


class LimitExceeded(InvalidInput):
    """A stated bound would be passed."""


class ConfigError(InvalidInput):
    """A setting that cannot be used: the file, the key, what was expected."""


class CodecError(TidingsError):
    """Bytes that are no message of ours: unknown tag, wrong shape, truncated, or trailing bytes."""


class SnapshotError(TidingsError):
    """A snapshot that cannot be loaded: damaged, foreign, or of another version."""


class StoreError(TidingsError):
    """The store cannot be opened, read or written; what was not acknowledged is not safe."""


class ForeignStore(StoreError):
    """A file or database that is not a store of ours, or one that a newer version wrote; it was left untouched."""


class StoreLocked(StoreError):
    """Another broker has the store open: a store has one writer."""


class StoreFull(StoreError):
    """The queue to the disk is at its bound; nothing of this call was taken."""


class NetworkError(TidingsError):
    """The other side cannot be reached, or has gone away."""


class Refused(NetworkError):
    """The other side is there and does not want us: a wrong token or protocol version."""


class BusClosed(TidingsError):
    """The bus, or this subscription, has ended."""
