"""Spark as the driver of the same matching engines: any DataFrame of events against any number of subscriptions."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidings.spark.match import match
    from tidings.spark.session import session

__all__ = ["match", "session"]


def __getattr__(name: str) -> Any:
    """Imported when first used: workers need neither."""
    if name not in __all__:
        raise AttributeError(f"module 'tidings.spark' has no attribute {name!r}")
    return getattr(import_module(f"tidings.spark.{name}"), name)
