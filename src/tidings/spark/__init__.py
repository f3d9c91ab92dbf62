"""Spark as the driver of the same matching engines: any DataFrame of events against any number of subscriptions."""

from tidings.spark.match import match
from tidings.spark.session import session

__all__ = ["match", "session"]
