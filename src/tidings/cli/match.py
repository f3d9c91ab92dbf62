"""`tidings match`: grep for events. Filters and JSON lines in, one notification per (event, subscription) out."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from tidings.cli.output import (
    BAD_INPUT,
    UNUSABLE,
    bold,
    complain,
    counted,
    fail,
    json_line,
    on_terminal,
    print_json,
    print_table,
    printable,
)
from tidings.errors import TidingsError

if TYPE_CHECKING:
    from tidings.cli.lines import Complaints, Line
    from tidings.model.event import Event
    from tidings.model.subscription import Subscription

HELP = """Find the events that filters want: grep for events.

EVENTS are files of JSON lines, "-" or nothing for standard input. Each line is an object of attributes, or an
envelope {"id", "type", "timeout_s", "data", "content_type", "attributes": {...}}. null is a missing attribute, an array a
set, {"$date": "2026-01-31T12:00:00Z"} a date.

FILE holds one filter per line, with # comments; in a .jsonl or .ndjson file each line is an object {"filter", "id", "types",
"deadline_s", "price", "penalty"}. A filter is text or a JSON pattern. Without an id, the number of its line is its id.

A bad line in either is told on standard error as file:line: reason; the rest goes on, and the exit code is 1.

\b
  tidings match --filter "change > 1" quotes.jsonl
  tail -f quotes.jsonl | tidings match --filters filters.txt --lines -
  tidings match --filters filters.jsonl --count quotes-*.jsonl
"""


def match(
    events: list[str] = typer.Argument(None, metavar="EVENTS", show_default=False, help="Files of JSON lines."),
    filters: str = typer.Option(None, "--filters", "-f", metavar="FILE", help="A file of filters."),
    filter: list[str] = typer.Option(None, "--filter", "-e", metavar="FILTER", help="One filter; may be repeated."),
    engine: str = typer.Option(None, metavar="NAME", help="The matching engine; all of them find the same."),
    json: bool = typer.Option(None, "--json/--text", help="JSON lines (the default in a pipe) or text for people."),
    count: bool = typer.Option(False, "--count", "-c", help="Print how many events each filter matched."),
    lines: bool = typer.Option(False, "--lines", "-l", help="Print the lines that match any filter, unchanged."),
    invert: bool = typer.Option(False, "--invert", "-v", help="Print the lines that match no filter, unchanged."),
    flatten: bool = typer.Option(False, "--flatten", help="Turn nested objects into dotted names."),
    dates: str = typer.Option("", metavar="NAMES", help="Attributes whose text is a date: when,seen.at"),
) -> None:
    sources = events or ["-"]
    if bool(filters) == bool(filter):
        fail("give either --filters FILE or --filter FILTER")
    if count + lines + invert > 1:
        fail("--count, --lines and --invert exclude each other")
    if filters == "-" and "-" in sources:
        fail("standard input holds either the filters or the events, not both")

    from tidings.broker import catalog
    from tidings.cli.lines import Complaints, EventReader, batches, names_of
    from tidings.model.event import MAX_ID_LENGTH

    complaints = Complaints()
    wanted = _subscriptions(filters, filter or [], complaints)
    matcher = catalog.matcher(engine or catalog.DEFAULT_MATCHER)()
    matcher.add_all(wanted)
    reader = EventReader(flatten, names_of(dates))
    as_data = not on_terminal() if json is None else json
    show = _shown(count, lines, invert, as_data)

    out = sys.stdout.buffer
    found = dict.fromkeys((subscription.id for subscription in wanted), 0)
    seen = read = 0
    for source in sources:
        for batch in batches(source, complaints):
            read += 1
            for line in batch:
                try:
                    event = reader.event(line.text, line.place[-MAX_ID_LENGTH:])
                except TidingsError as error:
                    complaints.about(line.place, error)
                    continue
                seen += 1
                ids = matcher.match(event)
                for id in ids:
                    found[id] += 1
                out.write(show(line, event, ids))
            out.flush()

    if count:
        _print_counts(wanted, found, as_data)
    if complaints.count or on_terminal(sys.stderr):
        totals = (
            counted(seen, "event"),
            counted(sum(found.values()), "notification"),
            counted(complaints.count, "bad line"),
        )
        complain(f"tidings: {', '.join(totals)}")
    if complaints.count:
        raise typer.Exit(BAD_INPUT if read else UNUSABLE)


def _subscriptions(path: str | None, texts: list[str], complaints: "Complaints") -> list["Subscription"]:
    from tidings.cli.lines import filter_of, subscriptions
    from tidings.model.subscription import Subscription

    if path is None:
        return [Subscription(str(number), "match", filter_of(text)) for number, text in enumerate(texts, 1)]
    found = subscriptions(path, complaints)
    if not found:
        fail(f"{path}: no usable filter")
    return found


def _shown(count: bool, lines: bool, invert: bool, as_data: bool) -> Callable[["Line", "Event", list[str]], bytes]:
    """What is printed for an event and the subscriptions that want it."""
    if count:
        return lambda line, event, ids: b""
    if lines or invert:
        return lambda line, event, ids: line.text + b"\n" if bool(ids) is not invert else b""
    return _as_json if as_data else _as_text


def _as_json(line: "Line", event: "Event", ids: list[str]) -> bytes:
    return b"".join(
        json_line({"event": event.id, "subscription": id, "file": line.file, "line": line.number}) for id in ids
    )


def _as_text(line: "Line", event: "Event", ids: list[str]) -> bytes:
    text = printable(line.text.strip().decode())
    return "".join(f"{printable(line.place)}: {bold(printable(id))}: {text}\n" for id in ids).encode()


def _print_counts(wanted: list["Subscription"], found: dict[str, int], as_data: bool) -> None:
    if as_data:
        for subscription in wanted:
            print_json({"subscription": subscription.id, "count": found[subscription.id]})
    else:
        print_table(
            ["subscription", "events", "filter"],
            [(subscription.id, found[subscription.id], str(subscription.filter)) for subscription in wanted],
        )
