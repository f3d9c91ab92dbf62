"""The HTTP gateway: CloudEvents in and out, in the broker's process. It is a client of the broker and decides nothing.

Needs the extra `http`. `server.Gateway` starts it; docs/http.md is its manual.
"""
