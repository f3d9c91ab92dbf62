"""`tidings network`: the brokers of a network file, started, watched and ended together."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidings.cli.output import BAD_INPUT, fail, print_json, print_table

if TYPE_CHECKING:
    from tidings.model.status import StatusReport
    from tidings.net.config import NetworkConfig

app = typer.Typer(
    no_args_is_help=True, help="Run the brokers of a network file: up, status, down.", rich_markup_mode=None
)

_FILE = typer.Argument(..., metavar="FILE", help="The network file (TOML): see docs/network.md.")


@app.command(help="Start the brokers that live on this machine, keep them running, and say how to start the others.")
def up(
    file: Path = _FILE,
    detach: bool = typer.Option(False, "--detach", "-d", help="Return when all brokers answer; `down` ends them."),
    until_eof: bool = typer.Option(False, "--until-eof", help="End them also when standard input ends (a pipe)."),
    patience: float = typer.Option(60.0, metavar="SECONDS", help="How long --detach waits for the brokers."),
) -> None:
    from tidings.net import supervisor as s
    from tidings.net.config import read_network

    network = read_network(file)
    for name in s.elsewhere(network):
        typer.echo(
            f"{name} lives on {network.brokers[name].listen.host}; start it there: {s.how_to_start(network, name)}"
        )
    if not detach:
        supervisor = s.Supervisor(network, lambda name, what: typer.echo(f"{name}: {what}"))
        asyncio.run(supervisor.run(until_eof))
        return
    if s.running(file) is not None:
        fail(f"{file}: this network is up already")
    log = s.run_file(file).with_suffix(".log")
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidings", "network", "up", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    _await(network, process, patience, log)
    process.returncode = 0  # it goes on without us: nobody waits for it
    here = [name for name in network.brokers if name not in s.elsewhere(network)]
    for name in here:
        typer.echo(f"{name} listens on {network.brokers[name].listen}")


def _await(network: "NetworkConfig", process: "subprocess.Popen[bytes]", patience_s: float, log: Path) -> None:
    from tidings.net import supervisor as s

    limit_s = time.monotonic() + patience_s
    away = set(s.elsewhere(network))
    while True:
        reports = _ask(network, 1.0)
        missing = [name for name, report in reports.items() if report is None and name not in away]
        if not missing:
            return
        if process.poll() is not None:
            fail(f"the supervisor ended with code {process.returncode}; see {log}")
        if time.monotonic() > limit_s:
            s.bring_down(network.file)
            fail(f"no answer from {', '.join(missing)} within {patience_s:g} s; see {log}")
        time.sleep(0.1)


@app.command(help="Ask every broker of the network how it is.")
def status(
    file: Path = _FILE,
    json: bool = typer.Option(
        False, "--json", help="Print one JSON object: broker -> status, or null if it is silent."
    ),
) -> None:
    from tidings.net.config import read_network

    reports = _ask(read_network(file), 2.0)
    if json:
        print_json(reports)
    else:
        print_table(
            "broker up links clients subscriptions published delivered queued pending on_time expired healthy".split(),
            [_cells(name, report) for name, report in reports.items()],
        )
    if not all(reports.values()):
        raise typer.Exit(BAD_INPUT)


@app.command(help="End the brokers that `up` started.")
def down(file: Path = _FILE) -> None:
    from tidings.net.supervisor import bring_down

    if not bring_down(file):
        fail(f"{file}: this network is not up here", BAD_INPUT)


def _ask(network: "NetworkConfig", patience_s: float) -> dict[str, "StatusReport | None"]:
    from tidings.errors import TidingsError
    from tidings.net.client import Client

    async def one(name: str) -> "StatusReport | None":
        broker = network.brokers[name]
        try:
            async with asyncio.timeout(patience_s):
                async with Client(str(broker.listen), token=broker.token, tls=broker.tls, patience_s=0.0) as bus:
                    return await bus.status()
        except (TidingsError, TimeoutError):
            return None

    async def all_of_them() -> dict[str, "StatusReport | None"]:
        return dict(zip(network.brokers, await asyncio.gather(*map(one, network.brokers)), strict=True))

    return asyncio.run(all_of_them())


def _cells(name: str, report: "StatusReport | None") -> list[Any]:
    if report is None:
        return [name, "silent", *[0] * 9, ""]
    brokers = [link for link in report.links if link.role == "broker"]
    links = f"{sum(link.connected for link in brokers)}/{len(brokers)}"
    accounts = report.accounts
    counts = (report.clients, report.subscriptions, report.published, report.delivered)
    queued = sum(link.queued for link in report.links)
    ended = (int(accounts[name]) for name in ("pending", "on_time", "expired"))
    return [
        name,
        f"{report.uptime_s:.0f} s",
        links,
        *counts,
        queued,
        *ended,
        "yes" if report.healthy else report.reason,
    ]
