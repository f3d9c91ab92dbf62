"""The command line itself: which commands there are, and what becomes of an error.

Commands import what is heavy when they run, so that `tidings --help` is there at once.
"""

import io
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from tidings import __version__
from tidings.cli import (
    bench,
    bench_bus,
    bench_spark,
    edge,
    explain,
    ledger,
    match,
    network,
    pipeline,
    pub,
    reproduce,
    serve,
    sub,
    warm,
)
from tidings.cli.output import READER_GONE, fail
from tidings.cli.system import command as system
from tidings.errors import TidingsError

_HELP = """Content-based publish/subscribe with deadlines.

A subscriber says what it wants, by when, what an event in time is worth and what a late one costs.

\b
  tidings explain "symbol = 'LEGEND' AND change > 1" '{"symbol": "LEGEND", "change": 1.5}'
  tidings match --filter "change > 1" quotes.jsonl
  tail -f quotes.jsonl | tidings match --filters filters.txt -
  tidings demo
"""

_EXIT_CODES = """\b
Exit codes:
  0  fine
  1  something in the input was bad, and told on standard error; the rest was done
  2  nothing could be done: wrong usage, a bad filter, no file
"""


class Commands(TyperGroup):
    """Bad input ends in one message, never in a traceback."""

    def invoke(self, ctx: Any) -> Any:
        for name in ("stdin", "stdout", "stderr"):
            if getattr(sys, name) is None:  # closed by whoever started us
                setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
        for stream in (sys.stdout, sys.stderr):
            # A character that the terminal's encoding lacks is shown by its number.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except TidingsError as error:
            fail(str(error))
        except BrokenPipeError:
            _abandon_output()
            raise typer.Exit(READER_GONE) from None
        except OSError as error:
            _abandon_output()
            fail(error.strerror or str(error))


def _abandon_output() -> None:
    """Python flushes standard output once more when it ends: that must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(
    cls=Commands,
    help=_HELP,
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: half the time, and the same in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidings {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    pass


app.command("explain", help=explain.HELP)(explain.explain)
app.command("match", help=match.HELP)(match.match)
app.command("demo", help=system.HELP)(system.demo)
app.command("warm", help=warm.HELP)(warm.warm)
app.command("reproduce", help=reproduce.HELP)(reproduce.reproduce)
pipeline.app.command("edge", help=edge.HELP)(edge.edge)
app.add_typer(pipeline.app, name="pipeline")
app.command("serve", help=serve.HELP)(serve.serve)
app.add_typer(network.app, name="network")
app.command("pub", help=pub.HELP)(pub.pub)
app.command("sub", help=sub.HELP)(sub.sub)
app.command("ledger", help=ledger.HELP)(ledger.ledger)
bench.app.command("spark", help=bench_spark.HELP)(bench_spark.spark)
bench.app.command("bus", help=bench_bus.HELP)(bench_bus.bus)
app.add_typer(bench.app, name="bench")
