"""What can go wrong with a server: it goes away, it holds something else."""

import subprocess
import sys

import psycopg
import pytest

from store_rig import Rig, account, event
from tidings.errors import ForeignStore, StoreError
from tidings.model import step as s
from tidings.store import open_reader


def run(where: str, sql: str) -> None:
    with psycopg.connect(where.rpartition("&")[0], autocommit=True) as connection:
        connection.execute(sql.encode())


def test_a_server_that_crashes_fails_what_waits_and_comes_back(server):
    where = server.new()
    with Rig(where) as rig, open_reader(where) as reader:
        rig.write(s.EventRecord(event("e1")), s.MatchRecord("e1", ("s",)))
        assert len(reader.read()) == 1
        server.stop("immediate")
        try:
            assert "PostgreSQL, schema" in rig.refused(s.EventRecord(event("lost")))
            assert not rig.store.healthy
            rig.store.append(0, [account("e1", "s")])
            with pytest.raises(StoreError):
                reader.read()
        finally:
            server.start()
        rig.write(s.EventRecord(event("e2")))
        assert rig.store.healthy
        assert [entry.event.id for entry in reader.read()] == ["e1", "e2"]
        assert rig.store.ledger().total.on_time == 1


def test_a_commit_of_unknown_outcome_is_taken_back(server, monkeypatch):
    where = server.new()
    with Rig(where) as rig:
        rig.write(s.EventRecord(event("e1")), s.MatchRecord("e1", ("s",)))
        commit = rig.store._db._commit

        def lost() -> None:
            commit()
            raise StoreError("the connection was lost during COMMIT")

        rig.store._db._commit = lost  # type: ignore[method-assign]
        rig.store.append(0, [account("e1", "s")])
        rig.refused(s.EventRecord(event("doubtful")), s.MatchRecord("doubtful", ("s",)))
        rig.write(s.EventRecord(event("e2")), s.MatchRecord("e2", ()))
        assert [entry.event.id for entry in rig.store.read()] == ["e1", "e2"]
        assert rig.store.read()[-1].offset > 2, "somebody may have read the offset: it is not used again"
        total = rig.store.ledger().total
        assert (total.matched, total.on_time, total.pending) == (1, 1, 0), "and nothing counts twice"
    with Rig(where) as rig:
        assert rig.store.restore().accounts.total == total


def test_a_schema_of_another_program_is_refused(server):
    where = server.new()
    schema = where.rpartition("=")[2]
    run(where, f"CREATE SCHEMA {schema}")
    for open_it in (Rig, open_reader):
        with pytest.raises(ForeignStore, match="expected a store of Tidings, version 1, found: another schema"):
            open_it(where)


def test_a_newer_version_is_refused(server):
    where = server.new()
    Rig(where).store.close()
    run(where, f"COMMENT ON SCHEMA {where.rpartition('=')[2]} IS 'store of Tidings, version 9'")
    with pytest.raises(ForeignStore, match="version 9"):
        Rig(where)


def test_no_server_is_a_clear_error_that_names_no_password(tmp_path):
    with pytest.raises(StoreError, match="PostgreSQL, schema 'tidings'") as failure:
        Rig(f"postgresql://me:secret@/nowhere?host={tmp_path}")
    assert "secret" not in str(failure.value)


def test_without_the_driver_the_error_says_what_to_install():
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from tidings.store import open_reader\n"
        "try: open_reader('postgresql:///x')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "StoreError PostgreSQL needs a driver: pip install 'tidings[postgres]'\n"
