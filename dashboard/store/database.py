"""How is the database spoken to? One engine; reading and writing transactions; SQLite with a write-ahead log, or Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from tracekit.errors import TracekitError, UsageError

_MIGRATIONS = Path(__file__).parent / "migrations"
#: A writer waits so long for another one, in seconds.
_PATIENCE = 30
#: Two servers that start together on Postgres: the second waits for the first to have migrated.
_MIGRATION_LOCK = 0x7472_6163
FULL = "the server's disk is full; delete runs, or free space there"
#: How Postgres says that its disk is full.
_PG_FULL = "53100"


class StoreError(TracekitError):
    """The database cannot be used (exit code 4)."""

    exit_code = 4


class StoreFull(StoreError):
    """The disk of the store is full (exit code 4)."""

    def __init__(self, says: str = FULL) -> None:
        super().__init__(says)


class Database:
    """The store's database.

    Args:
        url: SQLAlchemy's address.
    """

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self.sqlite = self.engine.dialect.name == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that changes nothing; it sees one state of the database throughout."""
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that changes something: all of it, or nothing where the block raises.

        Raises:
            StoreFull: there is no room to write it down.
        """
        try:
            with self.engine.connect() as connection:
                marked = connection.execution_options(tracekit_writes=True)
                with marked.begin():
                    yield marked
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _PG_FULL and getattr(error.orig, "sqlite_errorname", None) != "SQLITE_FULL":
                raise
            raise StoreFull from error

    def alone(self, connection: Connection, what: str) -> None:
        """Until a writing transaction ends, no other one is in here with the same words; SQLite has one writer at a time anyway."""
        if not self.sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:what, 0))"), {"what": what})

    def upgrade(self, revision: str = "head") -> None:
        """Bring the schema to a revision; data stays.

        Raises:
            StoreError: the database cannot be opened, or was made by a later tracekit.
        """
        try:
            with self._migrating() as connection:
                known = {script.revision for script in ScriptDirectory.from_config(_config(None)).walk_revisions()}
                current = MigrationContext.configure(connection).get_current_revision()
                if current is not None and current not in known:
                    raise StoreError(f"the database has the schema {current[:40]!r} of a later tracekit; start that one, or choose another --root")
                command.upgrade(_config(connection), revision)
        except DBAPIError as error:
            raise StoreError(f"the database cannot be used: {' '.join(str(error.orig).split())[:200]}") from error

    @contextmanager
    def _migrating(self) -> Iterator[Connection]:
        """A writing transaction in which tables may be made anew, alone among all servers."""
        with self.engine.connect() as connection:
            marked = connection.execution_options(tracekit_writes=True)
            if self.sqlite:
                # to change a column SQLite makes its table anew; with foreign keys on, dropping the old one would delete what refers to it
                driver: Any = connection.connection.dbapi_connection
                driver.execute("PRAGMA foreign_keys=OFF")
            try:
                with marked.begin():
                    if not self.sqlite:
                        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
                    yield marked
                    if self.sqlite and (broken := connection.exec_driver_sql("PRAGMA foreign_key_check").first()):
                        raise StoreError(f"a migration would leave rows of {broken[0]} without what they refer to; nothing was changed")
            finally:
                if self.sqlite:
                    driver.execute("PRAGMA foreign_keys=ON")

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() != "sqlite":
            return create_engine(parsed, pool_pre_ping=True, pool_size=8, max_overflow=24)
    except (ImportError, ValueError, DBAPIError) as error:
        raise UsageError(f"the database's address cannot be used: {error}; Postgres needs the package: pip install 'tracekit-train[postgres]'") from error
    engine = create_engine(parsed, connect_args={"timeout": _PATIENCE, "check_same_thread": False}, pool_size=8, max_overflow=56)

    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: Any) -> None:
        connection.create_function("lower", 1, _lower, deterministic=True)  # SQLite's own knows A to Z only
        connection.isolation_level = None  # transactions begin where SQLAlchemy says, not where the driver guesses
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={_PATIENCE * 1000}"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        # a transaction that reads first and writes later would fail where another one wrote in between: writers queue up front
        writes = connection.get_execution_options().get("tracekit_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
