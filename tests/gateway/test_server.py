"""How the gateway is started: by flag, by network file, with TLS; what it leans on; who may stay connected."""

import ast
import contextlib
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from gateway_rig import Stream, eventually, served
from net_rig import ANYWHERE, PATIENCE_S, free_port, process
from tidings.errors import ConfigError, NetworkError
from tidings.net.address import Address, Tls
from tidings.net.config import BrokerConfig, Neighbour, http_address, read_network
from tidings.net.gateway import server as gateway_server
from tidings.net.serve import serve

SOURCES = Path(gateway_server.__file__).parent


def test_the_gateway_decides_nothing():
    """It is a client: no matcher, no scheduler, no overlay."""
    imported = {
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for file in SOURCES.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert "tidings.net.runtime.Runtime" in imported
    assert not [
        name for name in imported if name.startswith(("tidings.matching", "tidings.scheduling", "tidings.overlay"))
    ]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("http://localhost:0/", Address("localhost", 0)),
        ("[::1]:80", Address("::1", 80)),
    ],
)
def test_where_it_listens(text: str, address: Address):
    assert http_address(text) == address


@pytest.mark.parametrize(
    "text", ["8080", "host", "host:port", "https://x:1", "tidings://x:1", "x:1/path", ":8080", "x:99999"]
)
def test_where_it_cannot_listen(text: str, tmp_path: Path):
    with pytest.raises(ConfigError, match="expected host:port"):
        http_address(text)
    file = tmp_path / "network.toml"
    file.write_text(f'[brokers.a]\naddress = "tidings://127.0.0.1:7740"\nhttp = "{text}"\n')
    with pytest.raises(ConfigError, match=r"network.toml: brokers.a.http: .*expected host:port"):
        read_network(file)


def test_from_a_network_file(tmp_path: Path):
    port, http = free_port(), f"127.0.0.1:{free_port()}"
    file = tmp_path / "network.toml"
    file.write_text(f'engine = "naive"\n[brokers.a]\naddress = "tidings://127.0.0.1:{port}"\nhttp = "{http}"\n')
    assert str(read_network(file).brokers["a"].http) == f"tidings://{http}"
    with process(file, "--broker", "a"):
        assert requests.get(f"http://{http}/readyz", timeout=PATIENCE_S).json() == {"status": "ready"}
        again = subprocess.run(
            [sys.executable, "-m", "tidings", "serve", "--listen", "tidings://127.0.0.1:0", "--http", http],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    assert again.returncode == 2
    assert f"http {http}: cannot listen there" in again.stderr


def test_without_its_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "tidings.net.gateway.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ConfigError, match=r"pip install 'tidings\[http\]'"):
        serve(BrokerConfig("b", ANYWHERE, engine="naive", http=ANYWHERE), lambda runtime: None)


def test_a_host_that_is_not_ours():
    with pytest.raises(NetworkError, match="cannot listen there"), served(http=Address("192.0.2.1", 80)):
        pass


def test_whoever_asks_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gateway_server, "GREETING_S", 0.05)
    with served() as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), PATIENCE_S) as silent:
            silent.sendall(b"GET /healthz HTTP/1.1\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert silent.recv(100) == b""
        id = server.subscribe()
        stream = Stream(server, id)  # lasts longer than that
        server.publish({}, id="1")
        assert stream.next()["id"] == "1"
        stream.close()


def test_connections_have_a_bound():
    with served(max_connections=20) as server:
        streams = [Stream(server, server.subscribe()) for _ in range(8)]
        host, port = server.url.removeprefix("http://").split(":")
        others = [socket.create_connection((host, int(port)), PATIENCE_S) for _ in range(12)]
        eventually(lambda: requests.get(server.url + "/healthz", timeout=PATIENCE_S).status_code == 503)
        for each in (*others, *streams):
            each.close()
        eventually(lambda: requests.get(server.url + "/healthz", timeout=PATIENCE_S).status_code == 200)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A certificate for 127.0.0.1 that vouches for itself."""
    assert shutil.which("openssl"), "this test needs the openssl command"
    folder = tmp_path_factory.mktemp("keys")
    new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout key.pem -out cert.pem"
    names = ["-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *new.split(), *names], cwd=folder, check=True, capture_output=True)
    return Tls(folder / "cert.pem", folder / "key.pem")


def test_https(keys: Tls):
    with served(tls=keys, listen=ANYWHERE._replace(tls=True)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        options = {"verify": str(keys.cert)}
        server.ask("GET", "/readyz", code=200, **options)
        server.ask("PUT", "/subscriptions/x", json={}, code=201, **options)
        with pytest.raises(requests.exceptions.SSLError):
            server.ask("GET", "/readyz")


def test_the_gateway_of_a_mesh():
    """An event that is published at one broker reaches an HTTP subscription at another, and the metrics show the link."""
    with contextlib.ExitStack() as both:
        a = both.enter_context(served(id="a", overlay="mesh"))
        b = both.enter_context(served(id="b", overlay="mesh", neighbours=(Neighbour(a.runtime.address, "a"),)))
        eventually(lambda: 'tidings_link_up{peer="a"} 1.0' in b.ask("GET", "/metrics").text)
        id = b.subscribe(types=["quote"])
        eventually(lambda: a.ask("GET", "/status").json()["matched_here"] == 1)
        a.publish({"n": 1}, id="1")
        assert Stream(b, id, "?count=1").next()["data"] == {"n": 1}
