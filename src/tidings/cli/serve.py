"""`tidings serve`: one broker, from flags or from a network file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidings.cli.output import fail

if TYPE_CHECKING:
    from tidings.net.config import BrokerConfig
    from tidings.net.runtime import Runtime

HELP = """Run one broker until it is told to end.

It prints one line when it is ready. Without --store it keeps nothing on disk.

\b
  tidings serve --store data --http 127.0.0.1:8080
  tidings serve --name b --listen tidings://0.0.0.0:7741 --peer tidings://localhost:7740
  tidings serve network.toml --broker a
"""


def serve(
    file: Path = typer.Argument(None, metavar="[FILE]", help="A network file; --broker names which of its brokers."),
    broker: str = typer.Option("", help="The broker of the network file to run."),
    name: str = typer.Option("broker", help="The broker's name."),
    listen: str = typer.Option("tidings://127.0.0.1:7740", metavar="ADDRESS", help="Where to listen; port 0: any."),
    store: str = typer.Option("", metavar="FOLDER", help="Where to keep events, or postgresql://..."),
    engine: str = typer.Option(None, metavar="NAME", help="The matching engine."),
    scheduler: str = typer.Option(None, metavar="NAME", help="The delivery scheduler."),
    http: str = typer.Option("", metavar="HOST:PORT", help="Where the HTTP gateway shall listen; port 0: any."),
    peer: list[str] = typer.Option([], metavar="ADDRESS", help="A broker to link with; may be given again."),
    mesh: bool = typer.Option(False, "--mesh", help="Others may link with it, though it links with nobody."),
    token: str = typer.Option("", envvar="TIDINGS_TOKEN", help="What clients and brokers must say to be let in."),
    window_kb: float = typer.Option(None, help="How much a client may have that it has not acknowledged."),
    tls_cert: str = typer.Option(None, metavar="FILE", help="The broker's certificate (PEM)."),
    tls_key: str = typer.Option(None, metavar="FILE", help="Its key."),
    tls_ca: str = typer.Option(
        None, metavar="FILE", help="Whoever connects must show a certificate of this authority."
    ),
    log_level: str = typer.Option("WARNING", help="DEBUG, INFO, WARNING or ERROR."),
) -> None:
    from tidings.net import config as c
    from tidings.net.address import Tls, parse_address
    from tidings.net.serve import serve as run

    config: BrokerConfig
    if file is not None:
        network = c.read_network(file)
        if broker not in network.brokers:
            fail(f"{file}: --broker {broker!r}: expected one of {', '.join(network.brokers)}")
        config = network.brokers[broker]
    else:
        given: dict[str, Any] = {"engine": engine, "scheduler": scheduler, "window_kb": window_kb}
        tls = Tls(tls_cert, tls_key, tls_ca) if tls_cert else None
        config = c.BrokerConfig(
            name,
            parse_address(listen)._replace(tls=tls is not None),
            store,
            overlay="mesh" if peer or mesh else "lone",
            neighbours=tuple(c.Neighbour(parse_address(address)) for address in peer),
            token=token,
            broker_token=token,
            tls=tls,
            http=c.http_address(http) if http else None,
            **{key: value for key, value in given.items() if value is not None},
        )
        c.check(config)

    def ready(runtime: "Runtime") -> None:
        typer.echo(f"broker {config.id} listens on {runtime.address}")
        if runtime.http:
            typer.echo(f"broker {config.id} listens on {runtime.http}")

    run(config, ready, log_level.upper())
