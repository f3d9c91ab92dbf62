"""`tidings reproduce`: run one of the papers' experiments, or one of ours, and write its table, picture and data."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

import tidings
from tidings.cli.market import missing
from tidings.cli.output import fail, print_json, print_table
from tidings.errors import UnknownName

EXPERIMENTS = {
    "mtep.fig07": "mtep/fig07_algorithms.py",
    "mtep.fig08": "mtep/fig08_load.py",
    "mtep.fig09": "mtep/fig09_weight.py",
    "mtep.beyond": "mtep/beyond_mtep.py",
    "mtep.adapt": "mtep/adapt.py",
    "ceem.fig03": "ceem/fig03_04_time.py",
    "ceem.fig05": "ceem/fig05_06_memory.py",
}

FEW = 40  # runs up to which processes are enough: nobody has to wait for Spark to start

HELP = f"""Run an experiment of a paper, and write table, picture and data.

Names: {", ".join(EXPERIMENTS)}. Experiments live beside the package, in the folder `experiments` of a clone.

\b
  tidings reproduce mtep.fig07 --quick
  tidings reproduce mtep.beyond --seeds 10 --first-seed 1001 --json
"""


def reproduce(
    name: str = typer.Argument(help="Which experiment."),
    json: bool = typer.Option(False, "--json", help="Print the result as JSON instead of tables."),
    quick: bool = typer.Option(False, "--quick", help="Fewer topologies, or smaller sizes."),
    seeds: int = typer.Option(None, min=1, help="How many topologies, where there are any."),
    first_seed: int = typer.Option(None, "--first-seed", min=0, help="The seed of the first one."),
    out: Path = typer.Option(Path("out"), help="The folder for picture and data."),
    spark: bool = typer.Option(True, help="Run large grids on Spark, where it is installed."),
) -> None:
    if name not in EXPERIMENTS:
        raise UnknownName(f"unknown experiment {name!r}: expected one of {', '.join(EXPERIMENTS)}")
    chosen = {key: value for key, value in (("seeds", seeds), ("first_seed", first_seed)) if value is not None}
    if chosen and not name.startswith("mtep."):
        fail(f"{name} has no topologies to choose: --seeds and --first-seed mean nothing to it")
    module = _load(EXPERIMENTS[name])
    if spark and hasattr(module, "sweep") and not missing():
        module.sweep = _on_spark(module.sweep, out / "runs")  # type: ignore[attr-defined]
    result = module.run(out, quick=quick, **chosen)
    if json:
        print_json(result)
        return
    for title, headers, rows in _tables(module, result):
        typer.echo(title)
        print_table(headers, rows)
    typer.echo(f"Data and picture: {out}")


def _on_spark(on_processes: Callable[..., list[Any]], runs: Path) -> Callable[..., list[Any]]:
    """The sweep of an experiment as Spark tasks, each with a Parquet file of its own: what was stopped goes on."""

    def sweep(function: Callable[[Any], Any], grid: Sequence[Any], progress: Any = None) -> list[Any]:
        if len(grid) <= FEW:
            return on_processes(function, grid, progress)
        from tidings.spark.session import session
        from tidings.spark.sweep import sweep_points

        return sweep_points(function, grid, out=str(runs), spark=session("tidings reproduce"), progress=progress)

    return sweep


def _load(file: str) -> ModuleType:
    path = _folder() / file
    spec = importlib.util.spec_from_file_location(f"tidings_experiment_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _folder() -> Path:
    """Beside the sources that are running, or in the folder that we are in."""
    places = [Path(tidings.__file__).parents[2] / "experiments", Path.cwd() / "experiments"]
    found = next((place for place in places if (place / "mtep").is_dir()), None)
    if found is None:
        fail(f"no experiments found; looked for a clone's folder `experiments` at {' and '.join(map(str, places))}")
    return found


def _tables(module: ModuleType, result: dict[str, Any]) -> list[tuple[str, list[str], list[list[object]]]]:
    if hasattr(module, "tables"):
        return module.tables(result)  # type: ignore[no-any-return]
    rows = result["rows"]
    return [
        (module.__doc__.splitlines()[0] if module.__doc__ else "", list(rows[0]), [list(row.values()) for row in rows])
    ]
