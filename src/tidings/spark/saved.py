"""Compiled subscriptions that outlive a run: kept beside their table with its version, so that a restart does not parse again.

    table/compiled/saved.json              the version, what was compiled how, and the names of the files
    table/compiled/tidings-1f3a.engine     the engine's snapshot, and .arrow: the terms by slot

What was compiled by other code, or otherwise (engine, shards), is not taken. A table that has changed since is loaded as it was,
and then changed. Only for tables at a local path: reading and writing elsewhere would cost what it saves.

Cost of a restart: loading the engine and one row per subscription; nothing is parsed or indexed but what has changed since.
"""

import contextlib
import os
import shutil
from pathlib import Path

import msgspec

from tidings.compiled import digest
from tidings.spark.compiled import Compiler
from tidings.spark.subscriptions import Problem
from tidings.spark.versions import SubscriptionTable
from tidings.spark.worker import Part

_FOLDER, _RECORD = "compiled", "saved.json"
_CODE = ("language", "matching", "model", "spark")  # packages that decide what compiled subscriptions look like
_SUFFIXES = ("engine", "arrow")


class _Saved(msgspec.Struct, frozen=True):
    version: int
    code: str
    how: tuple[str, str, int | None, int]  # engine, missing, shards asked for, share
    id_type: str
    homes: list[str]
    attributes: list[str]
    problems: list[Problem]
    parts: list[Part]


def load(compiler: Compiler, table: SubscriptionTable, version: int) -> bool:
    """Compile a version of a table, by way of what was saved if that is of use; whether it was."""
    saved = _record(table)
    if saved is None or saved.code != digest(_CODE) or saved.how != _how(compiler) or saved.version > version:
        compiler.load(table.read(version))
        return False
    try:
        for part in saved.parts:
            for suffix in _SUFFIXES:
                _copy(_folder(table) / f"{part.name}.{suffix}", Path(compiler.folder, f"{part.name}.{suffix}"))
    except OSError:  # a file is gone
        compiler.load(table.read(version))
        return False
    compiler.adopt(saved.parts, saved.id_type, saved.homes, saved.attributes, saved.problems)
    if version > saved.version:
        put, removed = table.between(saved.version, version)
        compiler.change(put, removed)
        touched = {*map(str, put["id"].to_pylist()), *map(str, removed)}
        compiler.problems[:0] = [problem for problem in saved.problems if problem.id not in touched]
    return True


def save(compiler: Compiler, table: SubscriptionTable, version: int) -> None:
    """Keep what is compiled, unless that is kept already or holds a change that is not yet taken in."""
    parts = compiler.whole_parts()
    there = _record(table)
    if "://" in str(table.place) or parts is None or (there is not None and there.parts == parts):
        return
    folder = _folder(table)
    folder.mkdir(exist_ok=True)
    for part in parts:
        for suffix in _SUFFIXES:
            _copy(Path(compiler.folder, f"{part.name}.{suffix}"), folder / f"{part.name}.{suffix}")
    record = _Saved(
        version,
        digest(_CODE),
        _how(compiler),
        str(compiler.id_type),
        list(compiler.homes),
        list(compiler.attributes),
        compiler.problems,
        parts,
    )
    table.place.write(f"{_FOLDER}/{_RECORD}", msgspec.json.encode(record))
    kept = {f"{part.name}.{suffix}" for part in parts for suffix in _SUFFIXES} | {_RECORD}
    for name in table.place.names(_FOLDER):
        if name not in kept:
            (folder / name).unlink(missing_ok=True)


def _how(compiler: Compiler) -> tuple[str, str, int | None, int]:
    return compiler.engine, compiler.missing, compiler.shards, compiler.share_bytes


def _folder(table: SubscriptionTable) -> Path:
    return Path(str(table.place), _FOLDER)


def _record(table: SubscriptionTable) -> _Saved | None:
    content = None if "://" in str(table.place) else table.place.read(f"{_FOLDER}/{_RECORD}")
    with contextlib.suppress(msgspec.DecodeError):
        return None if content is None else msgspec.json.decode(content, type=_Saved)
    return None


def _copy(source: Path, target: Path) -> None:
    """A second name where that is possible: these files never change."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        return
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)
