"""What one broker needs to know to run, and the network file (TOML) that says it for all brokers of a network.

Every error names the file, the key, what was found and what was expected.
"""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tidings.broker import catalog
from tidings.errors import ConfigError, InvalidInput, TidingsError
from tidings.net.address import Address, Tls, parse_address
from tidings.net.shape import Shape
from tidings.net.transport import Limits

SPARK = "spark"  # where matching may run, and the name under which the pipeline comes to brokers
WINDOW_KB = 256.0
SHAPED_WINDOW_KB = 1.0  # one event at a time: what waits, waits where the scheduler decides


class Neighbour(msgspec.Struct, frozen=True):
    """Another broker that this one is linked with; one of the two dials."""

    address: Address
    name: str = ""  # empty: whoever answers there
    dial: bool = True
    shape: Shape = Shape()
    window_kb: float = WINDOW_KB


class BrokerConfig(msgspec.Struct, frozen=True):
    """One broker. `store` is a folder or `postgresql://...`; without one it promises memory only."""

    id: str
    listen: Address
    store: str = ""
    engine: str = catalog.DEFAULT_MATCHER
    scheduler: str = catalog.DEFAULT_SCHEDULER
    overlay: str = "lone"
    options: dict[str, Any] = {}  # of the overlay
    neighbours: tuple[Neighbour, ...] = ()
    token: str = ""  # that clients must say
    broker_token: str = ""  # that brokers must say
    tls: Tls | None = None
    window_kb: float = WINDOW_KB  # of clients
    retention_s: float = 7 * 86_400.0
    max_connections: int = 10_000
    in_flight: int = 2_000  # requests of one client without an answer: beyond, it is not read from
    limits: Limits = Limits()
    http: Address | None = None  # where the gateway listens, if it shall


class _Broker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    address: str
    store: str | None = None
    http: str = ""  # where the gateway listens, if it shall


class _Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    between: tuple[str, str]
    rate_kb_s: float = 0.0
    s_per_kb: float = 0.0
    sigma_s_per_kb: float = 0.0
    delay_s: float = 0.0
    loss: float = 0.0
    window_kb: float | None = None


class _Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cert: str
    key: str
    ca: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    brokers: dict[str, _Broker]
    links: tuple[_Link, ...] = ()
    name: str = "tidings"
    matching: str = "brokers"
    engine: str = catalog.DEFAULT_MATCHER
    scheduler: str = catalog.DEFAULT_SCHEDULER
    overlay: str = "mesh"
    options: dict[str, Any] = {}
    clusters: dict[str, tuple[str, ...]] = {}
    token: str = ""
    broker_token: str = ""
    data: str = ""  # folder for the stores, seen from the file; empty: nothing is kept
    window_kb: float = WINDOW_KB
    retention_s: float = 7 * 86_400.0
    tls: _Tls | None = None


class NetworkConfig(msgspec.Struct, frozen=True):
    """All brokers of a network, by name."""

    file: str
    name: str
    matching: str
    brokers: dict[str, BrokerConfig]
    clusters: dict[str, tuple[str, ...]]
    http: dict[str, str]  # broker -> where its gateway listens


def http_address(text: str) -> Address:
    """`host:port`, or `http://host:port`; port 0 is any."""
    expected = "expected host:port, such as 127.0.0.1:8080"
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"http {text!r}: {error}; {expected}") from None
    if parts.scheme != "http" or not parts.hostname or port is None or parts.path not in ("", "/") or parts.query:
        raise ConfigError(f"http {text!r}: {expected}")
    return Address(parts.hostname, port)


def read_network(path: str | Path) -> NetworkConfig:
    path = Path(path)
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    try:
        file = msgspec.convert(raw, _File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_readable(str(error))}") from None
    return _Reading(path, file).network()


def _readable(error: str) -> str:
    """`Expected `float`, got `str` - at `$.links[0].loss`` -> `links[0].loss: expected float, got str`."""
    what, _, where = error.partition(" - at ")
    key = where.strip("`").removeprefix("$").lstrip(".") or "top level"
    unknown = re.search(r"unknown field `(.+)`", what)
    if unknown:
        return f"{key}: {unknown[1]!r} is no key here"
    return f"{key}: {what[:1].lower()}{what[1:]}".replace("`", "")


class _Reading:
    """Checks what the types alone cannot say."""

    def __init__(self, path: Path, file: _File) -> None:
        self.path, self.file = path, file

    def network(self) -> NetworkConfig:
        file = self.file
        self._expect(bool(file.brokers), "brokers", "at least one broker")
        self._expect(file.matching in ("brokers", SPARK), "matching", "'brokers' or 'spark'", file.matching)
        for key, look_up in (
            ("engine", catalog.matcher),
            ("scheduler", catalog.scheduler),
            ("overlay", catalog.overlay),
        ):
            self._checked(key, lambda look_up=look_up, key=key: look_up(getattr(file, key)))  # type: ignore[misc]
        addresses = {
            name: self._checked(f"brokers.{name}.address", lambda b=broker: parse_address(b.address))  # type: ignore[misc]
            for name, broker in file.brokers.items()
        }
        for name in file.brokers:
            self._expect(
                bool(re.fullmatch(r"[\w.-]{1,100}", name)), f"brokers.{name}", "a name of letters, digits, - _ ."
            )
        for cluster, members in file.clusters.items():
            for member in members:
                self._known(f"clusters.{cluster}", member)
        neighbours = self._neighbours(addresses)
        brokers = {name: self._broker(name, addresses[name], tuple(neighbours[name])) for name in file.brokers}
        http = {name: broker.http for name, broker in file.brokers.items() if broker.http}
        return NetworkConfig(str(self.path), file.name, file.matching, brokers, file.clusters, http)

    def _broker(self, name: str, address: Address, neighbours: tuple[Neighbour, ...]) -> BrokerConfig:
        file, here = self.file, self.path.parent
        store = file.brokers[name].store
        if store is None and file.data:
            store = str(here / file.data / name)
        elif store and "://" not in store:
            store = str(here / store)
        tls = None
        if file.tls is not None:
            tls = Tls(*(here / part if part else None for part in (file.tls.cert, file.tls.key, file.tls.ca)))
            address = address._replace(tls=True)
        # Then everything that a broker hands on comes back from Spark: it talks to no other broker.
        on_spark = file.matching == SPARK
        if on_spark:
            self._expect(bool(store), f"brokers.{name}.store", "a store (or `data`): Spark reads what is in it")
            self._expect(name != SPARK, f"brokers.{name}", f"another name than {SPARK!r}: the pipeline has it")
        return BrokerConfig(
            name,
            address,
            store or "",
            catalog.ELSEWHERE if on_spark else file.engine,
            file.scheduler,
            "lone" if on_spark else file.overlay,
            {} if on_spark else file.options,
            () if on_spark else neighbours,
            file.token,
            file.broker_token or file.token,
            tls,
            file.window_kb,
            file.retention_s,
            http=self._http(name),
        )

    def _http(self, broker: str) -> Address | None:
        http = self.file.brokers[broker].http
        return self._checked(f"brokers.{broker}.http", lambda: http_address(http)) if http else None

    def _neighbours(self, addresses: dict[str, Address]) -> dict[str, list[Neighbour]]:
        """The broker that is named first in a link dials."""
        found: dict[str, list[Neighbour]] = {name: [] for name in addresses}
        pairs = set()
        for number, link in enumerate(self.file.links):
            key = f"links[{number}]"
            for end in link.between:
                self._known(f"{key}.between", end)
            pair = frozenset(link.between)
            self._expect(
                len(pair) == 2 and pair not in pairs, f"{key}.between", "two brokers, each pair once", link.between
            )
            pairs.add(pair)
            shape = self._shape(key, link)
            window_kb = link.window_kb
            if window_kb is None:
                window_kb = SHAPED_WINDOW_KB if shape.s_per_kb else WINDOW_KB
            self._expect(window_kb > 0, f"{key}.window_kb", "a positive number of KB", window_kb)
            first, second = link.between
            tls = self.file.tls is not None
            found[first].append(Neighbour(addresses[second]._replace(tls=tls), second, True, shape, window_kb))
            found[second].append(Neighbour(addresses[first]._replace(tls=tls), first, False, shape, window_kb))
        return found

    def _shape(self, key: str, link: _Link) -> Shape:
        self._expect(not (link.rate_kb_s and link.s_per_kb), f"{key}.rate_kb_s", "either rate_kb_s or s_per_kb")
        for name in ("rate_kb_s", "s_per_kb", "sigma_s_per_kb", "delay_s"):
            self._expect(getattr(link, name) >= 0, f"{key}.{name}", "no negative number", getattr(link, name))
        self._expect(0 <= link.loss < 1, f"{key}.loss", "a share from 0 to below 1", link.loss)
        s_per_kb = 1 / link.rate_kb_s if link.rate_kb_s else link.s_per_kb
        return Shape(s_per_kb, link.sigma_s_per_kb, link.delay_s, link.loss)

    def _known(self, key: str, broker: str) -> None:
        self._expect(broker in self.file.brokers, key, f"one of {', '.join(self.file.brokers)}", broker)

    def _expect(self, fine: bool, key: str, expected: str, found: Any = None) -> None:
        if not fine:
            shown = "" if found is None else f", found {found!r}"
            raise ConfigError(f"{self.path}: {key}: expected {expected}{shown}")

    def _checked(self, key: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except InvalidInput as error:
            raise ConfigError(f"{self.path}: {key}: {error}") from None


def check(config: BrokerConfig) -> None:
    """What a broker given by flags must fulfil."""
    try:
        catalog.matcher(config.engine)
        catalog.scheduler(config.scheduler)
        catalog.overlay(config.overlay)
    except TidingsError as error:
        raise ConfigError(str(error)) from None
