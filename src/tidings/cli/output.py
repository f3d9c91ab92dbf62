"""How every command speaks: data on standard output, complaints on standard error, and what an exit code means."""

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

import typer

# The documented exit codes.
BAD_INPUT, UNUSABLE, READER_GONE = 1, 2, 141


def complain(text: str) -> None:
    """One message on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def fail(reason: str, code: int = UNUSABLE) -> NoReturn:
    """Nothing could be done: say why and end."""
    complain(f"tidings: {reason}")
    raise typer.Exit(code)


def on_terminal(stream: TextIO | None = None) -> bool:
    return (stream or sys.stdout).isatty()


def bold(text: str) -> str:
    return typer.style(text, bold=True) if on_terminal() and "NO_COLOR" not in os.environ else text


def json_line(data: Any) -> bytes:
    """One line of JSON. Infinity, which JSON lacks, becomes null: no limit."""
    from msgspec.json import encode

    return encode(data) + b"\n"


def print_json(data: Any) -> None:
    """JSON is UTF-8 whatever the locale says, so it goes past the text layer."""
    sys.stdout.flush()
    sys.stdout.buffer.write(json_line(_plain(data)))
    sys.stdout.buffer.flush()


def _plain(data: Any) -> Any:
    """Sets get an order, so that the same data always prints the same."""
    match data:
        case dict():
            return {name: _plain(value) for name, value in data.items()}
        case list() | tuple():
            return [_plain(value) for value in data]
        case set() | frozenset():
            return sorted(data)
        case _ if hasattr(data, "__struct_fields__"):
            return {name: _plain(getattr(data, name)) for name in data.__struct_fields__}
    return data


def printable(text: str) -> str:
    """Text of unknown origin on a terminal: control characters are shown, not obeyed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def counted(number: int, noun: str) -> str:
    """1 event, 2 events."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Numbers to the right, text to the left; drawn on a terminal, plain columns in a pipe."""
    cells = [[printable(f"{cell:,}" if isinstance(cell, int | float) else str(cell)) for cell in row] for row in rows]
    right = [all(isinstance(row[at], int | float) for row in rows) for at in range(len(headers))]
    if on_terminal():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD)
        for header, numeric in zip(headers, right, strict=True):
            table.add_column(header, justify="right" if numeric else "left", overflow="fold")
        for row in cells:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    for row in [list(headers), *cells]:
        aligned = (
            cell.rjust(width) if numeric else cell.ljust(width)
            for cell, width, numeric in zip(row, widths, right, strict=True)
        )
        typer.echo("  ".join(aligned).rstrip())
