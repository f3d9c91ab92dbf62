"""A webhook: the events of a subscription, posted to its sink one after the other, and acknowledged only after a 2xx.

A sink that fails (no answer, 5xx, 408, 425, 429, or a redirection) is asked again with back-off, `attempts` times; then the
webhook rests for `REST_S` and gives what it holds back to the broker, where it waits or expires like any other event. An event
that the sink refuses (any other 4xx) is set aside, the next ones go on; it, too, goes back at the next rest. So every event ends
in one account, and a sink may see an event again: at least once.
"""

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from tidings.errors import TidingsError
from tidings.net.dialer import back_off_s
from tidings.net.gateway.cloudevents import STRUCTURED, to_cloudevent
from tidings.net.gateway.line import Arrived, Line
from tidings.net.gateway.poster import Poster, PostFailed
from tidings.net.gateway.resources import Resource

if TYPE_CHECKING:
    from tidings.net.gateway.sessions import Session

log = logging.getLogger(__name__)

REST_S, LONGEST_WAIT_S = 30.0, 30.0
_TRY_AGAIN = {408, 425, 429}


class Tally:
    """What became of the attempts of all webhooks of a gateway."""

    def __init__(self) -> None:
        self.posted = self.refused = self.failed = 0


class Webhook:
    """`start`, then it posts until `stop`."""

    def __init__(self, session: "Session", resource: Resource, tally: Tally) -> None:
        assert isinstance(resource.sink, str)
        self._session, self._attempts, self._tally = session, resource.config.attempts, tally
        self._poster = Poster(resource.sink, {**resource.protocolsettings.headers, "content-type": STRUCTURED})
        self._chance = random.Random()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._poster.close()
        self._session.detach("the webhook ends")

    async def _run(self) -> None:
        while True:
            try:
                line = await self._session.attach()
            except TidingsError as error:
                log.warning("webhook of %s: %s", self._session.id, error)
            else:
                try:
                    await self._post_all(line)
                finally:
                    self._session.detach("the webhook rests", line)
            await asyncio.sleep(REST_S * self._chance.uniform(0.5, 1.0))

    async def _post_all(self, line: Line) -> None:
        """Until it has to rest."""
        loop = asyncio.get_running_loop()
        rest_at_s: float | None = None
        while not line.closed:
            arrived = await line.next(None if rest_at_s is None else max(0.0, rest_at_s - loop.time()))
            if arrived is None:
                return
            taken = await self._post(arrived)
            if taken is None:
                return
            if taken:
                line.acknowledge(arrived.event.id)
            elif rest_at_s is None:
                rest_at_s = loop.time() + REST_S

    async def _post(self, arrived: Arrived) -> bool | None:
        """Whether the sink took it, or refused it; None if it is not there."""
        body = to_cloudevent(arrived.event, redelivered=arrived.redelivered or None)
        for failures in range(self._attempts):
            wait_s = back_off_s(failures, self._chance)
            try:
                answer = await self._poster.post(body)
            except PostFailed as error:
                log.info("webhook of %s: %s", self._session.id, error)
            else:
                if 200 <= answer.status < 300:
                    self._tally.posted += 1
                    return True
                if 400 <= answer.status < 500 and answer.status not in _TRY_AGAIN:
                    self._tally.refused += 1
                    log.warning("webhook of %s: %s for %s", self._session.id, answer.status, arrived.event.id)
                    return False
                wait_s = max(wait_s, min(answer.retry_after_s, LONGEST_WAIT_S))
            self._tally.failed += 1
            if failures + 1 < self._attempts:
                await asyncio.sleep(wait_s)
        return None
