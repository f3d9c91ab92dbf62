"""A webhook's sink is kept by whatever store the broker has."""

from gateway_rig import Sink, eventually, served


def test_a_sink_survives_a_restart(where: str) -> None:
    with Sink() as sink:
        with served(store=where) as server:
            server.subscribe(types=["b"], sink=sink.url, protocolsettings={"headers": {"x-key": "k"}})
            shown = server.ask("GET", "/subscriptions").json()
        with served(store=where) as server:
            assert server.ask("GET", "/subscriptions").json() == shown
            server.publish({}, id="1", type="b")
            eventually(lambda: sink.ids == ["1"])
            assert sink.received[0][0]["x-key"] == "k"
