"""A dialer keeps one connection up: it dials, and after a loss dials again, with back-off and jitter."""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable

from tidings.errors import NetworkError, TidingsError
from tidings.model import message as m
from tidings.net.address import Address
from tidings.net.transport import Connection, Limits, Owner, dial

log = logging.getLogger(__name__)

FIRST_S, LONGEST_S = 0.05, 2.0


def back_off_s(failures: int, chance: random.Random) -> float:
    """Twice as long after each failure, up to a bound; half of it by chance, so that not all come back at once."""
    return min(LONGEST_S, FIRST_S * 2.0 ** min(failures, 20)) * chance.uniform(0.5, 1.0)


class Dialer:
    """`failed(error)` is told of every attempt that came to nothing, and may end the dialling by returning False."""

    def __init__(
        self,
        owner: Owner,
        address: Address,
        limits: Limits,
        hello: m.Hello,
        tls: ssl.SSLContext | None = None,
        failed: Callable[[TidingsError], bool] = lambda error: True,
    ) -> None:
        self.address = address
        self.connection: Connection | None = None
        self.failures = 0
        self._owner, self._limits, self._hello, self._tls, self._failed = owner, limits, hello, tls, failed
        self._chance = random.Random()

    async def run(self) -> None:
        """Until cancelled, or told to stop."""
        try:
            while True:
                error = await self._once()
                if error is None:
                    self.failures = 0
                elif not self._failed(error):
                    return
                await asyncio.sleep(back_off_s(self.failures, self._chance))
                self.failures += 1
        finally:
            if self.connection is not None:
                self.connection.close("shutting down")

    async def _once(self) -> TidingsError | None:
        """One connection from its beginning to its end; the error if it never opened."""
        try:
            self.connection = await dial(
                self._owner, self.address.host, self.address.port, self._limits, self._hello, self._tls
            )
        except (OSError, TimeoutError) as error:
            return NetworkError(f"{self.address}: {_reason(error)}")
        reason = await self.connection.gone
        connection, self.connection = self.connection, None
        if connection.was_open:
            return None
        return connection.refusal or NetworkError(f"{self.address}: {reason}")


def _reason(error: OSError | TimeoutError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    return error.strerror or str(error) or "no answer"
