"""`python -m tidings` is the command `tidings`."""

from tidings.cli.main import app

app(prog_name="tidings")
