"""`tidings sub`: print the events that a broker has for us."""

import math
import sys
from typing import TYPE_CHECKING, Any

import typer

from tidings.cli.output import json_line

if TYPE_CHECKING:
    from tidings.net.client import Client

HELP = """Subscribe at a broker and print what arrives, one JSON object on each line.

With --name, --id and --durable the subscription goes on while nobody listens, and resumes after the last printed event.

\b
  tidings sub tidings://localhost:7740 "symbol = 'LEGEND' AND change > 1" --deadline 40 --price 1.5
  tidings sub tidings://localhost:7740 "change > 1" --name desk --id movers --durable
"""


def sub(
    address: str = typer.Argument(..., metavar="ADDRESS", help="tidings://host:port"),
    filter: str = typer.Argument(
        "", metavar="[FILTER]", help="Filter text or a JSON pattern; without one: everything."
    ),
    type: list[str] = typer.Option([], "--type", help="Only events of this type; may be given again."),
    deadline: float = typer.Option(math.inf, metavar="SECONDS", help="By when an event must be here."),
    price: float = typer.Option(1.0, help="What an event in time is worth."),
    penalty: float = typer.Option(0.0, help="What one that is not in time costs."),
    count: int = typer.Option(0, help="End after so many events; 0: never."),
    name: str = typer.Option("", help="Who we are, for durable subscriptions."),
    id: str = typer.Option(None, help="The subscription's id."),
    durable: bool = typer.Option(False, "--durable", help="Keep it while we are away."),
    token: str = typer.Option("", envvar="TIDINGS_TOKEN", help="What the broker wants to hear."),
    tls_ca: str = typer.Option(None, metavar="FILE", help="The authority of the broker's certificate (PEM)."),
    tls_cert: str = typer.Option(None, metavar="FILE", help="A certificate of our own, if the broker wants one."),
    tls_key: str = typer.Option(None, metavar="FILE", help="Its key."),
) -> None:
    from tidings.cli.lines import filter_of
    from tidings.net.address import Tls
    from tidings.net.client import Client
    from tidings.net.loop import run

    wanted: dict[str, Any] = {
        "filter": filter_of(filter),
        "types": tuple(type),
        "deadline_s": deadline,
        "price": price,
        "penalty": penalty,
        "id": id,
        "durable": durable,
    }
    tls = Tls(tls_cert, tls_key, tls_ca) if tls_ca or tls_cert else None
    try:
        run(_print(Client(address, token=token, name=name, tls=tls), wanted, count))
    except KeyboardInterrupt:
        raise typer.Exit from None


async def _print(client: "Client", wanted: dict[str, Any], count: int) -> None:
    async with client as bus:
        stream = await bus.subscribe(**wanted)
        sys.stderr.write(f"subscribed {stream.id}\n")
        sys.stderr.flush()
        printed = 0
        async for notification in stream:
            event = notification.event
            shown = {"id": event.id, "type": event.type, "attributes": event.attributes, "age_s": notification.age_s}
            if notification.redelivered:
                shown["redelivered"] = True
            sys.stdout.buffer.write(json_line(shown))
            sys.stdout.buffer.flush()
            printed += 1
            if printed == count:
                return
