"""The pipeline on Spark against SQL, DuckDB and Polars: the same as `tidings bench spark`."""

import sys

from tidings.cli.main import app

if __name__ == "__main__":
    app(["bench", "spark", *sys.argv[1:]])
