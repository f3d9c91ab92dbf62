"""Content-based publish/subscribe with deadlines."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidings.kernels import prepare_cache

if TYPE_CHECKING:
    from tidings.broker.calls import LedgerReport, Notification
    from tidings.bus import Bus
    from tidings.connection import connect
    from tidings.errors import TidingsError
    from tidings.stream import Stream
    from tidings.sync import SyncBus, SyncStream, connect_sync

__version__ = "0.1.0"

# The public names and their homes. They are imported when first used, so that `import tidings` costs nothing.
_HOMES = {
    "Bus": "tidings.bus",
    "LedgerReport": "tidings.broker.calls",
    "Notification": "tidings.broker.calls",
    "Stream": "tidings.stream",
    "SyncBus": "tidings.sync",
    "SyncStream": "tidings.sync",
    "TidingsError": "tidings.errors",
    "connect": "tidings.connection",
    "connect_sync": "tidings.sync",
}

__all__ = [
    "Bus",
    "LedgerReport",
    "Notification",
    "Stream",
    "SyncBus",
    "SyncStream",
    "TidingsError",
    "connect",
    "connect_sync",
]

prepare_cache()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tidings' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
