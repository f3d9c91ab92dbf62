"""Where a broker listens: `tidings://host:port`, or `tidings+tls://host:port`; and the keys and certificates of TLS."""

import ssl
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tidings.errors import ConfigError

DEFAULT_PORT = 7740
PLAIN, TLS = "tidings", "tidings+tls"


class Address(NamedTuple):
    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{TLS if self.tls else PLAIN}://{host}:{self.port}"


def parse_address(text: str) -> Address:
    expected = f"expected {PLAIN}://host:port or {TLS}://host:port"
    try:
        parts = urlsplit(text if "://" in text else f"{PLAIN}://{text}")
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"address {text!r}: {error}; {expected}") from None
    if parts.scheme not in (PLAIN, TLS) or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ConfigError(f"address {text!r}: {expected}")
    return Address(parts.hostname, DEFAULT_PORT if port is None else port, parts.scheme == TLS)


class Tls(NamedTuple):
    """Files in PEM. With `ca` on a broker, clients and brokers must show a certificate of it (mutual TLS)."""

    cert: str | Path | None = None
    key: str | Path | None = None
    ca: str | Path | None = None


def server_context(tls: Tls) -> ssl.SSLContext:
    if tls.cert is None:
        raise ConfigError("tls.cert: expected a file with the broker's certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, tls)
    if tls.ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(tls: Tls) -> ssl.SSLContext:
    """Without `ca` the system's own authorities count."""
    context = ssl.create_default_context() if tls.ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(context, tls)
    return context


def _load(context: ssl.SSLContext, tls: Tls) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
        if tls.ca is not None:
            context.load_verify_locations(tls.ca)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(file) for file in tls if file is not None)
        raise ConfigError(f"tls ({files}): expected PEM files that belong together: {error}") from None
