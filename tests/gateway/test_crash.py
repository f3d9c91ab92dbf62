"""kill -9 of a broker that is used over HTTP: what was confirmed is there, what was acknowledged does not come again."""

import json
from pathlib import Path

import requests

from gateway_rig import BATCHED, Sink, Socket, Stream, eventually
from net_rig import PATIENCE_S, Process, free_port


class Outside:
    """A broker process, as its HTTP clients see it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, path: str, **options) -> requests.Response:
        answer = requests.request(method, self.url + path, timeout=PATIENCE_S, **options)
        assert answer.ok, answer.text
        return answer


def test_nothing_confirmed_is_lost_and_nothing_acknowledged_comes_again(tmp_path: Path):
    address = f"127.0.0.1:{free_port()}"
    server, events = Outside(f"http://{address}"), 60
    broker = Process(
        "--store", tmp_path / "data", "--http", address, "--listen", "tidings://127.0.0.1:0", "--engine", "naive"
    )
    with Sink() as sink:
        try:
            broker.start()
            sink.last = 503
            server.ask("PUT", "/subscriptions/read", json={})
            server.ask("PUT", "/subscriptions/posted", json={"sink": sink.url})
            for first in range(0, events, 20):
                batch = [
                    {"specversion": "1.0", "id": str(n), "source": "/x", "type": "t", "data": {"n": n}}
                    for n in range(first, first + 20)
                ]
                server.ask("POST", "/events", data=json.dumps(batch), headers=BATCHED)
            socket = Socket(server, "/subscriptions/read/events")
            taken = [socket.next() for _ in range(25)]
            numbers = [event["tidingsdelivery"] for event in taken[:20]]
            socket.send({"ack": numbers, "confirm": True})
            while (answer := socket.next()).get("acknowledged") != numbers:
                assert "specversion" in answer
            broker.kill()
            socket.close()
            sink.last = 200
            broker.start()
            stream = Stream(server, "read", f"?count={events - 20}")
            found = {event["data"]["n"]: event for _ in range(events - 20) if (event := stream.next())}
            assert sorted(found) == sorted(set(range(events)) - {event["data"]["n"] for event in taken[:20]})
            assert found[taken[20]["data"]["n"]]["tidingsredelivered"] is True
            eventually(lambda: set(sink.ids) == {str(n) for n in range(events)})

            def settled() -> bool:
                (total,) = server.ask("GET", "/accounts?by=total").json()["rows"]
                return total["matched"] == total["on_time"] == 2 * events

            eventually(settled)
        finally:
            broker.stop()
