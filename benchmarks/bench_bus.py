"""One live broker against NATS with filters in the subscribers: `tidings bench bus`, with the options given here."""

import sys

from tidings.cli.main import app

if __name__ == "__main__":
    app(["bench", "bus", *sys.argv[1:]], prog_name="tidings")
