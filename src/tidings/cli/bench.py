"""`tidings bench`: measure on this machine what the documentation claims."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidings.cli.output import fail, on_terminal, print_json, print_table

if TYPE_CHECKING:
    from tidings.cli.bench_match import Row

app = typer.Typer(no_args_is_help=True, help="Measure on this machine.")

_MATCH_HELP = """Measure the matching engines, all alike.

match_us is an encoded event in, numbers out; call_us the whole call, an Event in, a list of ids out; batch_us one of 1,024
events in columns. Times are medians of CPU time in microseconds, of the quietest of three windows. All engines of a run must
find the same ids.

\b
  tidings bench match --workload ceem1 --subscriptions 50000
  tidings bench match --workload ceem1,mtep --subscriptions 50000,1000000 --engines boxtree,ceem --json
"""
_COLUMNS = {
    "engine": "engine",
    "workload": "workload",
    "subscriptions": "subscriptions",
    "match_us": "match us",
    "call_us": "call us",
    "batch_us": "batch us",
    "insert_us": "insert us",
    "insert_max_ms": "max ms",
    "remove_us": "remove us",
    "bytes_per_subscription": "bytes/sub",
    "process_bytes_per_subscription": "process",
    "indexed_share": "indexed",
    "ids_per_event": "ids/event",
}


@app.callback()
def bench() -> None:
    """Keeps `match` a command of its own while it is the only one."""


@app.command(help=_MATCH_HELP)
def match(
    workload: str = typer.Option(
        "ceem1", metavar="NAMES", help="ceem1, ceem2, mtep, sparse, mixed; several with commas."
    ),
    subscriptions: str = typer.Option("50000", metavar="NUMBERS", help="How many; several with commas."),
    engines: str = typer.Option(None, metavar="NAMES", help="Which engines, with commas; all if not said."),
    budget_s: float = typer.Option(2.0, metavar="SECONDS", help="CPU time for each number of each engine."),
    seed: int = typer.Option(1, help="The same seed makes the same subscriptions and events."),
    json: bool = typer.Option(False, "--json", help="The rows as a JSON list."),
    picture: Path = typer.Option(None, metavar="FILE", help="Draw match_us into a file (.png, .svg, .pdf)."),
) -> None:
    try:
        counts = [int(number.replace("_", "")) for number in _names(subscriptions)]
    except ValueError:
        fail(f"--subscriptions {subscriptions}: expected numbers with commas between them")
    if min(counts) < 1:
        fail("--subscriptions: expected numbers above zero")
    draw = _drawing() if picture else None

    from tidings.cli.bench_match import ENGINES, Disagreement, measure_all

    try:
        rows = measure_all(
            _names(engines) if engines else list(ENGINES), _names(workload), counts, budget_s, seed, _progress
        )
    except Disagreement as error:
        fail(str(error), 1)
    finally:
        _progress("")
    if json:
        print_json([_as_dict(row) for row in rows])
    else:
        print_table(list(_COLUMNS.values()), [[_shown(getattr(row, name)) for name in _COLUMNS] for row in rows])
    if draw:
        _draw(draw, rows, picture)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _as_dict(row: "Row") -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def _shown(value: Any) -> Any:
    return "-" if value is None else round(value, 1) if isinstance(value, float) and abs(value) >= 10 else value


def _progress(text: str) -> None:
    """One line that is written over on a terminal; nothing in a pipe."""
    if on_terminal(sys.stderr):
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _drawing() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError:
        fail("a picture needs matplotlib: pip install 'tidings[plot]'")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _draw(pyplot: Any, rows: list["Row"], picture: Path) -> None:
    """One panel per workload, one line per engine, both axes logarithmic."""
    workloads = list(dict.fromkeys(row.workload for row in rows))
    figure, panels = pyplot.subplots(
        1, len(workloads), figsize=(4.5 * len(workloads), 4), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, workload in zip(panels[0], workloads, strict=True):
        for engine in dict.fromkeys(row.engine for row in rows):
            own = [row for row in rows if (row.engine, row.workload) == (engine, workload)]
            panel.plot([row.subscriptions for row in own], [row.match_us for row in own], marker="o", label=engine)
        panel.set(xscale="log", yscale="log", title=workload, xlabel="subscriptions")
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("match, microseconds per event")
    panels[0][-1].legend()
    figure.savefig(picture, dpi=150)
    pyplot.close(figure)
