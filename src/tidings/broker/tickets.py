"""What waits for the store: each ticket, and what follows when its records are safe, or could not be stored."""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from tidings.model import step as s
from tidings.model.message import Publish

RETRY, RETRY_S = "store:retry", 1.0  # what has to be stored is tried again after this time


class _Waiting(NamedTuple):
    stored: Callable[[Any, float], None]
    failed: Callable[[Any, str, float], None] | None  # None: it is tried again
    what: Any
    records: tuple[s.Record, ...]


class Tickets:
    """The effects of the step at hand, and what waits."""

    def __init__(self) -> None:
        self._effects: list[s.Effect] = []
        self._ticket = 0
        self._waiting: dict[int, _Waiting] = {}
        self._unstored: list[_Waiting] = []  # refused, to be tried again
        self._changing = 0  # ticket of the last change of the subscriptions
        self._held: deque[tuple[int, str, Publish, float]] = deque()  # publications that wait for such a change
        self._seen: dict[str, int] = {}  # published event -> its ticket, 0 once stored; the oldest are forgotten

    @property
    def waiting(self) -> int:
        """How much waits for the store."""
        return len(self._waiting) + len(self._held) + len(self._unstored)

    def _store(
        self,
        records: tuple[s.Record, ...],
        stored: Callable[[Any, float], None],
        failed: Callable[[Any, str, float], None] | None,
        what: Any,
    ) -> int:
        self._ticket += 1
        self._waiting[self._ticket] = _Waiting(stored, failed, what, records)
        self._effects.append(s.Store(self._ticket, records))
        return self._ticket

    def _stored(self, input: s.Stored, now: float) -> None:
        waiting = self._waiting.pop(input.ticket)
        waiting.stored(waiting.what, now)

    def _store_failed(self, input: s.StoreFailed, now: float) -> None:
        waiting = self._waiting.pop(input.ticket)
        if waiting.failed is not None:
            waiting.failed(waiting.what, input.reason, now)
        else:
            self._unstored.append(waiting)
            self._effects.append(s.Wake(RETRY, now + RETRY_S))

    def _retry(self) -> None:
        unstored, self._unstored = self._unstored, []
        for stored, failed, what, records in unstored:
            self._store(records, stored, failed, what)
