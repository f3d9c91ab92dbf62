"""The commands of the live network, as their user runs them."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from net_rig import PATIENCE_S, free_port, process
from tidings.net import supervisor


@pytest.fixture
def call(tidings):
    """A command inside this process, and the exit code that is expected of it."""

    def run(*arguments, input="", code=0):
        done = tidings(*map(str, arguments), input=input)
        assert done.code == code, done.err
        return done

    return run


def test_serve_pub_sub_and_ledger(tmp_path, call):
    listen = f"tidings://127.0.0.1:{free_port()}"
    with process("--listen", listen, "--store", tmp_path / "data", "--token", "secret", "--engine", "naive") as served:
        token = ("--token", "secret")
        sub = (
            sys.executable,
            "-m",
            "tidings",
            "sub",
            served.address,
            "change > 1",
            "--count",
            "2",
            "--price",
            "1.5",
            *token,
        )
        with subprocess.Popen(sub, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
            assert reader.stderr.readline().startswith("subscribed s-")
            one = call("pub", served.address, '{"change": 2}', "--type", "quote", *token)
            lines = '{"change": 0}\n{"change": "NaN"\n{"attributes": {"change": 3}, "id": "e3"}\n'
            many = call("pub", served.address, *token, input=lines, code=1)
            out, _ = reader.communicate(timeout=PATIENCE_S)
        assert len(one.out.split()) == 1
        assert many.out.split()[1:] == ["e3"]
        assert many.err.startswith("-:2: no JSON")
        assert [(e["type"], e["attributes"]) for e in map(json.loads, out.splitlines())] == [
            ("quote", {"change": 2}),
            ("", {"change": 3}),
        ]
        assert "wrong token" in call("pub", served.address, "{}", code=2).err
        report = json.loads(call("ledger", served.address, "--by", "total", "--json", *token).out)
        assert [(row["matched"], row["earning"]) for row in report["rows"]] == [(2, 3.0)]
    table = call("ledger", tmp_path / "data").out
    assert [line.split()[:3] for line in table.splitlines() if line.startswith("type")] == [
        ["type", "1", "1"],
        ["type", "quote", "1"],
    ]


def test_what_is_wrong_is_told(tmp_path, call):
    assert "unknown matching engine" in call("serve", "--engine", "none", code=2).err
    assert "expected tidings://host:port" in call("serve", "--listen", "http://x", code=2).err
    assert "No such file" in call("serve", tmp_path / "none.toml", code=2).err
    assert "there is no store here" in call("ledger", tmp_path, code=2).err
    with process("--engine", "naive", "--listen", "tidings://127.0.0.1:0") as served:
        assert "cannot listen there" in call("serve", "--listen", served.address, "--engine", "naive", code=2).err


@pytest.fixture
def network(tmp_path):
    file = tmp_path / "network.toml"
    file.write_text(
        f"""
        engine = "naive"
        scheduler = "fcfs"
        [brokers.a]
        address = "tidings://127.0.0.1:{free_port()}"
        [brokers.b]
        address = "tidings://127.0.0.1:{free_port()}"
        [brokers.far]
        address = "tidings://192.0.2.1:7740"
        [[links]]
        between = ["a", "b"]
        """
    )
    yield file
    supervisor.bring_down(file)


def test_a_network_goes_up_heals_and_goes_down(network, call):
    up = call("network", "up", network, "--detach")
    assert "far lives on 192.0.2.1; start it there: tidings serve network.toml --broker far" in up.out
    assert "already" in call("network", "up", network, "--detach", code=2).err

    def status():
        return json.loads(call("network", "status", network, "--json", code=1).out)

    first = status()
    assert first["far"] is None
    pids = supervisor.running(network)
    os.kill(pids["a"], signal.SIGKILL)
    patience = time.monotonic() + 60
    while time.monotonic() < patience:
        now = status()
        if now["a"] is not None and now["a"]["started_at_s"] > first["a"]["started_at_s"]:
            break
    else:
        pytest.fail("the broker was not started again")
    assert "silent" in call("network", "status", network, code=1).out
    call("network", "down", network)
    assert supervisor.running(network) is None
    assert "not up here" in call("network", "down", network, code=1).err
