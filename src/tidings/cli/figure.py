"""What every experiment leaves behind: its data (JSON and CSV) and its picture, and how it tells that it is still at work."""

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidings.cli.output import complain

Row = Mapping[str, Any]


def save(
    out_dir: Path, name: str, result: Mapping[str, Any], rows: Sequence[Row], draw: Callable[[Any], None] | None = None
) -> None:
    """`name.json` holds the result, `name.csv` the rows, `name.png` what `draw` paints on a matplotlib figure."""
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    with (out_dir / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    if draw is not None:
        _paint(out_dir / f"{name}.png", draw)


def _paint(file: Path, draw: Callable[[Any], None]) -> None:
    try:
        import matplotlib
    except ModuleNotFoundError:
        complain("no picture: pip install 'tidings[plot]' brings matplotlib")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(10, 4.2), layout="constrained")
    draw(figure)
    figure.savefig(file, dpi=130, metadata={"Software": None})
    pyplot.close(figure)


def telling(what: str) -> Callable[[int, int], None]:
    """A progress line on the terminal, and silence in a pipe."""

    def tell(done: int, of: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done == of else ""
            sys.stderr.write(f"\r{what}: {done} of {of} runs{end}")
            sys.stderr.flush()

    return tell
