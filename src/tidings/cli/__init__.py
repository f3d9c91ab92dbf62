"""The `tidings` command: one file per command."""
