"""The matching engines on every workload; the same as `tidings bench match`, with sizes that take some minutes.

Without options: all workloads at 50,000 subscriptions, as a table. What is to be compared are ratios inside one run.
"""

import sys

from tidings.cli.bench import app

DEFAULTS = ["--workload", "ceem1,ceem2,mtep,sparse,mixed"]

if __name__ == "__main__":
    app(["match", *DEFAULTS, *sys.argv[1:]])
