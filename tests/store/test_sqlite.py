"""What can go wrong with a folder: not ours, not writable, full."""

import resource
import sqlite3
import subprocess
import sys
import threading

import pytest

from store_rig import Rig, account, event, until
from tidings.errors import ForeignStore, StoreError
from tidings.model import step as s
from tidings.store import open_reader
from tidings.store.sqlite import FILE, Sqlite


def test_a_file_that_is_no_database_stays_untouched(tmp_path):
    (tmp_path / FILE).write_bytes(b"my diary, " * 100)
    for open_it in (Rig, open_reader):
        with pytest.raises(ForeignStore, match=r"tidings\.db: not a database; expected a store of Tidings"):
            open_it(tmp_path)
    assert (tmp_path / FILE).read_bytes() == b"my diary, " * 100


def test_the_database_of_another_program_stays_untouched(tmp_path):
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute("CREATE TABLE diary (day TEXT)")
    other.close()
    before = (tmp_path / FILE).read_bytes()
    for open_it in (Rig, open_reader):
        with pytest.raises(ForeignStore, match="a database of another program"):
            open_it(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_newer_version_is_refused(tmp_path):
    Rig(tmp_path).store.close()
    with sqlite3.connect(tmp_path / FILE) as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(ForeignStore, match="version 99; this Tidings reads version 1"):
        Rig(tmp_path)


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match="expected a folder that can be written to"):
            Rig(folder)


def test_a_damaged_file_is_an_error_and_no_crash(tmp_path):
    with Rig(tmp_path) as rig:
        for n in range(200):
            rig.append(s.EventRecord(event(f"e{n}")))
    size = (tmp_path / FILE).stat().st_size
    with (tmp_path / FILE).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with open_reader(tmp_path) as reader, pytest.raises(StoreError, match=r"tidings\.db"):
        reader.read(0, 1_000)


def test_the_writer_leaves_last_and_tidies_up(tmp_path):
    rig = Rig(tmp_path)
    rig.write(s.EventRecord(event("e")))
    closing = threading.Thread(target=rig.store.close)
    with rig.store._reads():  # somebody still reads
        closing.start()
        rig.store._thread.join(0.5)
    closing.join()
    assert sorted(file.name for file in tmp_path.glob(FILE + "*") if file.name.endswith(("-wal", "-shm"))) == []


def test_a_name_with_every_kind_of_character(tmp_path):
    folder = tmp_path / "a b?c#d%20é"
    with Rig(folder) as rig:
        rig.write(s.EventRecord(event("e")))
    assert (folder / FILE).exists()


def test_each_commit_is_synced(tmp_path):
    with Rig(tmp_path) as rig:
        assert rig.store._db.rows("PRAGMA synchronous") == [(2,)], "FULL"
        assert rig.store._db.rows("PRAGMA journal_mode") == [("wal",)]


def test_a_store_that_turned_read_only_stops_accepting_and_recovers(tmp_path, monkeypatch, caplog):
    with Rig(tmp_path) as rig:
        rig.write(s.EventRecord(event("e1")), s.MatchRecord("e1", ("s",)))
        with monkeypatch.context() as broken:
            real = Sqlite._connect

            def read_only(self: Sqlite, write: bool) -> sqlite3.Connection:
                connection = real(self, write)
                connection.execute("PRAGMA query_only = ON")
                return connection

            broken.setattr(Sqlite, "_connect", read_only)
            rig.store._db.rows("PRAGMA query_only = ON")
            assert "readonly database" in rig.refused(s.EventRecord(event("lost")))
            assert not rig.store.healthy
            assert "readonly database" in rig.store.reason
            rig.store.append(0, [account("e1", "s")])
            assert "readonly database" in rig.refused(s.EventRecord(event("lost too")))
            assert [entry.event.id for entry in rig.store.read()] == ["e1"], "what is there can still be read"
        rig.write(s.EventRecord(event("e2")))
        assert rig.store.healthy
        assert [entry.event.id for entry in rig.store.read()] == ["e1", "e2"]
        total = rig.store.ledger().total
        assert (total.matched, total.on_time, total.pending) == (1, 1, 0), "the account was kept and written later"
    assert "readonly" in caplog.text


def test_it_recovers_by_itself(tmp_path):
    """Without another write to try: accounts that wait are tried again."""
    with Rig(tmp_path) as rig:
        rig.write(s.MatchRecord("e1", ("s",)))
        rig.store._db.rows("PRAGMA query_only = ON")  # until the store connects anew
        rig.store.append(0, [account("e1", "s")])
        with open_reader(tmp_path) as reader:
            until(lambda: not reader.ledger().total.pending)
        until(lambda: rig.store.healthy)


FULL_DISK = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from store_rig import Rig, account, event
from tidings.model import step as s
from tidings.model.event import checked_event

def big(n):
    return s.EventRecord(checked_event(f"e{n}", {}, data=bytes(100_000)))

with Rig(sys.argv[1]) as rig:
    rig.write(s.EventRecord(event("first")), s.MatchRecord("first", ("s",)))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))  # no file may grow beyond: the disk is full
    tickets = [rig.append(big(n)) for n in range(40)]
    rig.wait(lambda: len(rig.stored) + len(rig.failed) == 41)
    print("failed" if rig.failed else "all stored", "unhealthy" if rig.fell_ill else "healthy")
    print(next(iter(rig.failed.values())))
    rig.store.append(0, [account("first", "s")])
    rig.refused(*(big(n) for n in range(100, 140)))
    kept = len(rig.stored)
    assert len(rig.store.read()) == kept, "what failed is not there, what was acknowledged is"
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    rig.write(big(200))
    assert len(rig.store.read()) == kept + 1
    assert rig.store.ledger().total.on_time == 1
    print("healthy" if rig.store.healthy else "unhealthy")
"""


def test_a_full_disk_stops_accepting_and_recovers_when_there_is_space(tmp_path):
    here = sys.modules["store_rig"].__file__
    assert here is not None
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "store"), here.rpartition("/")[0]],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    first, reason, last = done.stdout.splitlines()
    assert (first, last) == ("failed unhealthy", "healthy")
    assert "tidings.db: " in reason
    assert "disk" in reason
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1_000_000
