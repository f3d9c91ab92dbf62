"""lone: no other broker; every subscription lives here."""

from tidings.model.event import Event
from tidings.model.message import Overlaid, Route
from tidings.model.step import Effect
from tidings.model.subscription import Subscription
from tidings.overlay.base import Overlay, Relayed


class Lone(Overlay):
    name = "lone"

    def connected(self, peer: str, now: float) -> list[Effect]:
        return []

    def disconnected(self, peer: str, now: float) -> list[Effect]:
        return []

    def received(self, peer: str, message: Overlaid, now: float) -> list[Effect]:
        return []

    def woke(self, timer: str, now: float) -> list[Effect]:
        return []

    def subscribed(self, subscription: Subscription, now: float) -> list[Effect]:
        return []

    def unsubscribed(self, id: str, now: float) -> list[Effect]:
        return []

    def spread(self, event: Event, ids: list[str], now: float) -> Relayed:
        return Relayed(ids, [], [])

    def relay(self, event: Event, routes: tuple[Route, ...], via: tuple[str, ...], now: float) -> Relayed:
        return Relayed([id for route in routes for id in route.subscriptions], [], [])
