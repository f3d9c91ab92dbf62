"""boxtree, the default engine: see engine.py for what it is and index.py for what it stands on."""

from tidings.matching.boxtree.engine import BoxTree

__all__ = ["BoxTree"]
