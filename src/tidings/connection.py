"""`connect`: a bus inside this process, durable or not, or a broker over the network; the calls are the same."""

from pathlib import Path
from typing import Any, overload

from tidings.bus import Bus
from tidings.errors import InvalidInput
from tidings.net.client import Client


@overload
def connect(*, engine: str | None = None, scheduler: str | None = None, path: str | Path | None = None) -> Bus: ...
@overload
def connect(address: str, *, token: str = "", name: str = "", **options: Any) -> Client: ...


def connect(address: str | None = None, **options: Any) -> Bus | Client:
    """Use it as `async with tidings.connect() as bus`.

    Without an address the bus lives in this process; `path` names a folder (or `postgresql://...`) where it keeps what it must
    not lose. With an address, `tidings://host:port`, it is a broker over the network: see Client for the options.
    """
    try:
        return Bus(**options) if address is None else Client(address, **options)
    except TypeError as error:
        raise InvalidInput(f"connect: {error}") from None
