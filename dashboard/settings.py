"""How is the dashboard run? Everything that whoever starts it may decide, checked once; nothing is read from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tracekit.errors import UsageError
from tracekit.reading import Reading

GIB = 1 << 30
_READING = Reading(salvage=True, keep_going=True)


@dataclass(frozen=True)
class Settings:
    """How a dashboard is run.

    Attributes:
        root: folder of everything that is stored; made if need be, readable by its owner only.
        database_url: SQLAlchemy's address of a Postgres database; None: SQLite in ``root``.
        host: address to listen at.
        port: TCP port; 0: any that is free.
        token: what visitors must know; None: nobody is asked.
        proxy_header: header in which a trusted proxy names the user; None: there is no such proxy.
        hosts: names, beside those of this machine, under which the server may be asked for.
        quota_bytes_total: most bytes of all runs together; None: what the disk holds.
        quota_bytes_per_user: most bytes of one user's runs; None: no limit of their own.
        ttl_days: runs that nobody opened for so many days are deleted; None: kept.
        upload_ttl_hours: uploads of which nothing arrived for so long are forgotten.
        min_free_bytes: bytes of the disk that stay free.
        max_upload_bytes: most bytes of one file.
        workers: runs that are read at the same time; 0: none here, another server on the same database does it.
        readers: processes that read one run.
        job_memory_bytes: memory (address space) that each process may take for what it reads; None: no limit.
        job_seconds: longest time that a run may take from its first byte to its analysis; None: any.
        reading: caps against hostile files; whole records around damage are recovered, and a file that is refused takes none along.
        perfetto_url: the Perfetto that windows are opened in; None: none is offered, only a download.
        cache_bytes: what drawings, documents and pages may take in memory.
        analysis_cache_bytes: what opened analyses may take in memory.
    """

    root: Path
    database_url: str | None = None
    host: str = "127.0.0.1"
    port: int = 8900
    token: str | None = None
    proxy_header: str | None = None
    hosts: tuple[str, ...] = ()
    quota_bytes_total: int | None = None
    quota_bytes_per_user: int | None = None
    ttl_days: float | None = None
    upload_ttl_hours: float = 24.0
    min_free_bytes: int = 2 * GIB
    max_upload_bytes: int = 64 * GIB
    workers: int = 1
    readers: int = max(1, min(os.cpu_count() or 1, 8))
    job_memory_bytes: int | None = 16 * GIB
    job_seconds: float | None = 3600.0
    reading: Reading = _READING
    perfetto_url: str | None = "https://ui.perfetto.dev"
    cache_bytes: int = 64 << 20
    analysis_cache_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        Raises:
            UsageError: a limit is no limit, or the database is none that is supported.
        """
        for name in (
            "quota_bytes_total",
            "quota_bytes_per_user",
            "ttl_days",
            "upload_ttl_hours",
            "max_upload_bytes",
            "readers",
            "job_memory_bytes",
            "job_seconds",
        ):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"{name} must be more than 0, not {value}")
        if self.min_free_bytes < 0 or self.workers < 0 or not 0 <= self.port < 65536:
            raise UsageError("min_free_bytes and workers cannot be negative, and a port lies between 0 and 65535")
        if self.database_url is not None and self.database_url.split(":", 1)[0].split("+")[0] not in ("sqlite", "postgresql", "postgres"):
            raise UsageError("the database is SQLite or Postgres: give an address like postgresql://user@host/name")
        object.__setattr__(self, "root", Path(self.root).expanduser().absolute())

    @property
    def url(self) -> str:
        """SQLAlchemy's address of the database that is used."""
        if self.database_url is None:
            return f"sqlite:///{self.root / 'tracekit.db'}"
        scheme, rest = self.database_url.split(":", 1)
        return f"postgresql+psycopg:{rest}" if scheme.split("+")[0] in ("postgresql", "postgres") else self.database_url

    @property
    def runs(self) -> Path:
        """Folder of the stored runs, one folder each."""
        return self.root / "runs"

    @property
    def uploads(self) -> Path:
        """Folder of the uploads on their way."""
        return self.root / "uploads"

    @property
    def temporary(self) -> Path:
        """Folder of what a request brings until it is checked: on the disk that is watched, not in the system's."""
        return self.root / "tmp"
