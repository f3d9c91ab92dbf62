"""The network file: what it says, and that every error names file, key and expectation."""

from pathlib import Path

import pytest

from tidings.errors import ConfigError
from tidings.net.address import Address, parse_address
from tidings.net.config import SHAPED_WINDOW_KB, WINDOW_KB, read_network
from tidings.net.shape import Shape

EXAMPLE = Path(__file__).parents[2] / "examples" / "network.toml"

GOOD = """
overlay = "mesh"
scheduler = "mtep"
engine = "naive"
token = "secret"
data = "data"

[brokers.a]
address = "tidings://127.0.0.1:7741"

[brokers.b]
address = "tidings://127.0.0.1:7742"
store = "elsewhere"

[[links]]
between = ["a", "b"]
rate_kb_s = 20
delay_s = 0.01
loss = 0.1
"""


def read(tmp_path, text):
    path = tmp_path / "network.toml"
    path.write_text(text)
    return read_network(path)


def test_a_network_file(tmp_path):
    network = read(tmp_path, GOOD)
    a, b = network.brokers["a"], network.brokers["b"]
    assert (a.scheduler, a.engine, a.overlay, a.token, a.broker_token) == ("mtep", "naive", "mesh", "secret", "secret")
    assert (a.store, b.store) == (str(tmp_path / "data" / "a"), str(tmp_path / "elsewhere"))
    assert (a.neighbours[0].name, a.neighbours[0].dial, a.neighbours[0].address) == ("b", True, b.listen)
    assert (b.neighbours[0].name, b.neighbours[0].dial) == ("a", False)
    assert a.neighbours[0].shape == b.neighbours[0].shape == Shape(0.05, 0.0, 0.01, 0.1)
    assert a.neighbours[0].window_kb == SHAPED_WINDOW_KB < WINDOW_KB


def test_the_example_is_fine():
    assert len(read_network(EXAMPLE).brokers) >= 3


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("scheduler", "sheduler", "top level: 'sheduler' is no key here"),
        ('"mtep"', '"best"', "scheduler: unknown scheduler 'best': expected one of fcfs"),
        ('"mesh"', '"web"', "overlay: unknown overlay 'web': expected one of"),
        ('engine = "naive"', "engine = 3", "engine: expected str, got int"),
        ("loss = 0.1", "loss = 1", r"links[0].loss: expected a share from 0 to below 1, found 1.0"),
        ("loss = 0.1", 'loss = "much"', r"links[0].loss: expected float, got str"),
        ("loss = 0.1", "lost = 0.1", r"links[0]: 'lost' is no key here"),
        ("delay_s = 0.01", "s_per_kb = 1", r"links[0].rate_kb_s: expected either rate_kb_s or s_per_kb"),
        ("delay_s = 0.01", "delay_s = -1", r"links[0].delay_s: expected no negative number, found -1.0"),
        ("delay_s = 0.01", "window_kb = 0", r"links[0].window_kb: expected a positive number of KB, found 0.0"),
        ('["a", "b"]', '["a", "c"]', r"links[0].between: expected one of a, b, found 'c'"),
        ('["a", "b"]', '["a", "a"]', r"links[0].between: expected two brokers, each pair once"),
        ('["a", "b"]', '["a"]', r"links[0].between: expected array of length 2, got 1"),
        ("tidings://127.0.0.1:7741", "http://x", "brokers.a.address: address 'http://x': expected tidings://host:port"),
        ("tidings://127.0.0.1:7741", "tidings://x:99999", "brokers.a.address: address 'tidings://x:99999'"),
        ("[brokers.a]", '[brokers."a b"]', "brokers.a b: expected a name of letters"),
        ("[brokers.a]", "[brokers.a", "Expected ']'"),
        ('overlay = "mesh"', 'matching = "flink"', "matching: expected 'brokers' or 'spark', found 'flink'"),
        (
            'data = "data"',
            'matching = "spark"',
            "brokers.a.store: expected a store (or `data`): Spark reads what is in it",
        ),
    ],
)
def test_every_error_names_file_key_and_expectation(tmp_path, old, new, complaint):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, GOOD.replace(old, new))
    assert str(caught.value).startswith(f"{tmp_path / 'network.toml'}: ")
    assert complaint in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_network(tmp_path / "nowhere.toml")


def test_addresses():
    assert parse_address("localhost") == Address("localhost", 7740)
    assert parse_address("tidings+tls://[::1]:1") == Address("::1", 1, True)
    assert str(Address("::1", 1)) == "tidings://[::1]:1"
    for bad in ("", "tidings://", "tidings://a:b", "tidings://a/path", "amqp://a"):
        with pytest.raises(ConfigError, match="expected"):
            parse_address(bad)
