"""TLS and mutual TLS, with certificates that the test makes."""

import asyncio
import shutil
import subprocess

import pytest

from net_rig import ANYWHERE, broker, eventually, run
from tidings.errors import ConfigError, NetworkError
from tidings.net.address import Tls
from tidings.net.client import Client
from tidings.net.config import BrokerConfig, Neighbour
from tidings.net.runtime import Runtime

pytestmark = pytest.mark.usefixtures("openssl")


@pytest.fixture(scope="module")
def openssl():
    assert shutil.which("openssl"), "these tests need the openssl command"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """An authority, and a certificate of it for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("keys")

    def call(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split()
    call(*new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split()
    call(*new, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=broker")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    sign = "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names".split()
    call(*sign, "-out", "cert.pem")
    return Tls(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")


async def works(address, tls):
    async with Client(address, tls=tls, patience_s=0) as bus:
        stream = await bus.subscribe()
        await bus.publish({"n": 1})
        assert (await anext(stream)).event.attributes == {"n": 1}


def test_tls(keys):
    async def scenario():
        async with broker(listen=ANYWHERE._replace(tls=True), tls=Tls(keys.cert, keys.key)) as b:
            assert str(b.address).startswith("tidings+tls://127.0.0.1:")
            await works(str(b.address), Tls(ca=keys.ca))
            with pytest.raises(NetworkError, match="TLS"):
                await works(str(b.address), Tls())

    run(scenario)


def test_mutual_tls(keys):
    async def scenario():
        async with broker(listen=ANYWHERE._replace(tls=True), tls=keys) as b:
            await works(str(b.address), keys)
            with pytest.raises(NetworkError):
                await works(str(b.address), Tls(ca=keys.ca))
            await works(str(b.address), keys)

    run(scenario)


def test_brokers_link_by_mutual_tls(keys):
    async def scenario():
        listen = ANYWHERE._replace(tls=True)
        async with broker(id="a", listen=listen, tls=keys, overlay="mesh") as a:
            b = Runtime(
                BrokerConfig("b", listen, engine="naive", overlay="mesh", tls=keys, neighbours=(Neighbour(a.address),))
            )
            await b.start()
            await eventually(lambda: "a" in b.peers and "b" in a.peers)
            await b.stop()

    run(scenario)


def test_plain_text_on_a_tls_port_is_closed(keys):
    async def scenario():
        async with broker(listen=ANYWHERE._replace(tls=True), tls=keys) as b:
            reader, writer = await asyncio.open_connection(b.address.host, b.address.port)
            writer.write(b"hello?\r\n\r\n" * 100)
            assert len(await asyncio.wait_for(reader.read(), 30)) < 100
            writer.close()
            await works(str(b.address), keys)

    run(scenario)


def test_files_that_are_not_there_are_told(tmp_path):
    async def scenario():
        with pytest.raises(ConfigError, match=r"missing\.pem"):
            async with broker(tls=Tls(tmp_path / "missing.pem", tmp_path / "missing.pem")):
                pass

    run(scenario)
