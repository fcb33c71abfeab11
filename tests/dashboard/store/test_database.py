"""The schema grows with the data in it, on both databases."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from dashboard.settings import Settings
from dashboard.store import queue, runs
from dashboard.store.database import Database, StoreError
from dashboard.store.tables import metadata
from tracekit.errors import UsageError

OLD_RUN = (
    "INSERT INTO runs (id, name, owner, state, created_at, nbytes, fingerprint, generation, partial) "
    "VALUES ('0123', 'a run', 'me', 'ready', 1700000000.25, 77, 'f', 3, false)"
)
OLD_FILE = "INSERT INTO files (run_id, place, label, nbytes, sha256) VALUES ('0123', 'rank0.json', 'rank0.json', 77, 'abc')"
OLD_TAG = "INSERT INTO tags (run_id, tag) VALUES ('0123', 'good')"


def test_an_older_database_is_brought_up_to_date_with_its_data(url: str) -> None:
    database = Database(url)
    database.upgrade("0001")
    with database.write() as db:
        for row in (OLD_RUN, OLD_FILE, OLD_TAG):
            db.execute(text(row))
    database.upgrade()
    database.upgrade()
    with database.read() as db:
        assert db.execute(text("SELECT opened_at, stored_bytes FROM runs")).one() == (1700000000.25, 77)
        found = runs.one(db, "0123")
        assert found is not None and (found.name, found.tags, found.generation) == ("a run", ("good",), 3)
        assert [f.place for f in runs.files_of(db, "0123")] == ["rank0.json"]
    with database.write() as db:
        runs.remove(db, "0123")
        assert runs.files_of(db, "0123") == []
    database.close()


def test_the_migrations_lead_to_the_tables_that_are_used(database: Database) -> None:
    with database.read() as db:
        assert compare_metadata(MigrationContext.configure(db), metadata) == []


def test_a_database_of_a_later_version_is_left_alone(database: Database) -> None:
    with database.write() as db:
        db.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="schema '9999' of a later tracekit"):
        database.upgrade()


def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    with pytest.raises(RuntimeError), database.write() as db:
        runs.add(db, "1" * 32, "a", "me", "f", [runs.FileRow("a", "a", 1, "x")], 1.0)
        raise RuntimeError
    with database.read() as db:
        assert runs.ids(db) == set()


def test_every_job_is_taken_once_by_many_servers(database: Database) -> None:
    wanted = {f"{n:032x}" for n in range(12)}
    with database.write() as db:
        for id in wanted:
            runs.add(db, id, id, "me", id, [runs.FileRow("a", "a", 1, "x")], 1.0)
            queue.put(db, id, 1.0)
    taken: list[str] = []

    def server(name: str) -> None:
        while True:
            with database.write() as db:
                id = queue.claim(db, name, 2.0)
            if id is None:
                return
            taken.append(id)

    threads = [threading.Thread(target=server, args=(f"server {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(wanted)


def test_what_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, and long enough to be told from one")
    with pytest.raises(StoreError, match="file is not a database"):
        Database(f"sqlite:///{tmp_path / 'text.db'}").upgrade()
    with pytest.raises(UsageError, match="SQLite or Postgres"):
        Settings(tmp_path, database_url="mysql://somewhere/x")
    with pytest.raises(UsageError, match="ttl_days must be more than 0"):
        Settings(tmp_path, ttl_days=0)
    assert Settings(tmp_path, database_url="postgresql://me@here/x").url == "postgresql+psycopg://me@here/x"
