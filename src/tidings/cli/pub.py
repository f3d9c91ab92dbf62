"""`tidings pub`: publish events to a broker, confirmed."""

import math

import typer

from tidings.cli.output import BAD_INPUT, counted

HELP = """Publish events to a broker; each is confirmed when it is safe.

An event is a JSON object: its attributes, or {"attributes": {...}, "id": ..., "type": ..., "timeout_s": ...}. Without one,
or with -, they are read from standard input, one on each line. Prints the ids of confirmed events.

\b
  tidings pub tidings://localhost:7740 '{"symbol": "LEGEND", "change": 1.5}' --type quote --timeout 60
  tidings pub tidings://localhost:7740 < quotes.jsonl
"""


def pub(
    address: str = typer.Argument(..., metavar="ADDRESS", help="tidings://host:port"),
    events: list[str] = typer.Argument(None, metavar="[EVENT]...", help="JSON objects; - is standard input."),
    type: str = typer.Option("", help="The type of events that name none."),
    timeout: float = typer.Option(math.inf, metavar="SECONDS", help="How long they are valid if they do not say."),
    token: str = typer.Option("", envvar="TIDINGS_TOKEN", help="What the broker wants to hear."),
    tls_ca: str = typer.Option(None, metavar="FILE", help="The authority of the broker's certificate (PEM)."),
    tls_cert: str = typer.Option(None, metavar="FILE", help="A certificate of our own, if the broker wants one."),
    tls_key: str = typer.Option(None, metavar="FILE", help="Its key."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print how many, not which."),
) -> None:
    from tidings.net.address import Tls
    from tidings.net.loop import run

    tls = Tls(tls_cert, tls_key, tls_ca) if tls_ca or tls_cert else None
    confirmed, bad = run(_publish(address, events or ["-"], type, timeout, token, tls, quiet))
    if quiet:
        typer.echo(f"{counted(confirmed, 'event')} confirmed")
    if bad:
        raise typer.Exit(BAD_INPUT)


async def _publish(
    address: str, events: list[str], type: str, timeout_s: float, token: str, tls: object, quiet: bool
) -> tuple[int, int]:
    import asyncio
    from collections import deque

    from tidings.cli.lines import STANDARD_INPUT, Complaints, EventReader, Line, batches
    from tidings.errors import NetworkError, TidingsError
    from tidings.net.client import Client

    reader, complaints = EventReader(), Complaints()
    waiting: deque[tuple[str, asyncio.Future[str]]] = deque()
    confirmed = 0

    async def settle(most: int) -> None:
        """Wait for the oldest answers until at most so many are open."""
        nonlocal confirmed
        while len(waiting) > most:
            place, answer = waiting.popleft()
            try:
                id = await answer
            except NetworkError:
                raise
            except TidingsError as error:
                complaints.about(place, error)
            else:
                confirmed += 1
                if not quiet:
                    typer.echo(id)

    async def post(line: Line) -> None:
        try:
            event = reader.event(line.text, "-")
            answer = await bus.post(
                event.attributes,
                event.type or type,
                id=None if event.id == "-" else event.id,
                timeout_s=timeout_s if event.timeout_s == math.inf else event.timeout_s,
                data=event.data,
                content_type=event.content_type,
            )
        except NetworkError:
            raise
        except TidingsError as error:
            complaints.about(line.place, error)
        else:
            waiting.append((line.place, answer))

    async with Client(address, token=token, tls=tls) as bus:  # type: ignore[arg-type]
        for number, text in enumerate(events, 1):
            if text != STANDARD_INPUT:
                await post(Line("argument", number, text.encode()))
                continue
            lines = batches(STANDARD_INPUT, complaints)
            while (batch := await asyncio.to_thread(next, lines, None)) is not None:
                for line in batch:
                    await post(line)
                    await settle(1_000)
                await settle(0)  # a pipe may be slow: nobody waits for the next line to hear of this one
        await settle(0)
    return confirmed, complaints.count
