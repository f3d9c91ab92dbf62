"""`tidings explain`: why an event matches a filter or does not, and what an index can serve of a filter."""

import sys

import typer

from tidings.cli.output import BAD_INPUT, fail, print_json

HELP = """Say why an event matches a filter or does not.

Without EVENT: what an index can serve of FILTER, and what is left to verify.

FILTER is filter text, or a JSON pattern if it begins with "{". EVENT is a JSON object, @FILE or "-" for standard input,
written as for `tidings match`.

\b
  tidings explain "symbol = 'LEGEND' AND change > 1" '{"symbol": "LEGEND", "change": 0.4}'
  tidings explain "price < 90 OR NOT (change BETWEEN -1 AND 1)"
  tidings explain '{"symbol": [{"prefix": "LE"}]}' @quote.json
"""


def explain(
    filter: str = typer.Argument(metavar="FILTER", show_default=False),
    event: str = typer.Argument(None, metavar="EVENT", show_default=False),
    flatten: bool = typer.Option(False, "--flatten", help="Turn nested objects into dotted names."),
    dates: str = typer.Option("", metavar="NAMES", help="Attributes whose text is a date: when,seen.at"),
    exit_code: bool = typer.Option(False, "--exit-code", help="End with 1 if the event does not match."),
    json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    from tidings import language
    from tidings.cli.lines import EventReader, filter_of, names_of

    parsed = filter_of(filter)
    attributes = None
    if event is not None:
        attributes = EventReader(flatten, names_of(dates)).event(_text(event), "event").matchable()
    explanation = language.explain(parsed, attributes)
    if json:
        print_json(explanation)
    else:
        typer.echo(str(explanation))
    if exit_code and explanation.matches is False:
        raise typer.Exit(BAD_INPUT)


def _text(event: str) -> bytes:
    """What the argument says, or what the file that it names holds."""
    from tidings.cli.lines import MAX_LINE_BYTES

    if event == "-":
        return sys.stdin.buffer.read(MAX_LINE_BYTES + 1)
    if not event.startswith("@"):
        return event.encode(errors="surrogateescape")
    try:
        with open(event[1:], "rb") as file:
            return file.read(MAX_LINE_BYTES + 1)
    except OSError as error:
        fail(f"{event[1:]}: {error.strerror}")
