"""Databases, libraries and tiny runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from dashboard.library import Library, UploadedFile
from dashboard.settings import Settings
from dashboard.store.database import Database
from tests.dashboard import postgres

DAY = 86_400.0


class Clock:
    """A clock that goes a millisecond further whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres.cluster() as url:
        if url is None:
            if os.environ.get("TRACEKIT_POSTGRES") == "required":
                pytest.fail(postgres.MISSING)
            pytest.skip(postgres.MISSING)
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'test.db'}"
        return
    server = make_url(request.getfixturevalue("postgres_url")).set(drivername="postgresql+psycopg")
    name = f"tracekit_{uuid4().hex}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    try:
        with admin.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        yield server.set(database=name).render_as_string(hide_password=False)
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    finally:
        admin.dispose()


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """A database with the newest schema."""
    made = Database(url)
    made.upgrade()
    yield made
    made.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def library(tmp_path: Path, clock: Clock) -> Iterator[Library]:
    made = Library(Settings(tmp_path / "root", min_free_bytes=0), clock)
    yield made
    made.close()


@pytest.fixture
def upload(tmp_path: Path) -> Callable[..., UploadedFile]:
    """A file that has arrived."""

    def arrived(label: str = "rank0.json", content: bytes = b"{}") -> UploadedFile:
        path = tmp_path / uuid4().hex
        path.write_bytes(content)
        return UploadedFile(path, label)

    return arrived


def trace(rank: int, ranks: int = 1, steps: int = 2, kernels: int = 3) -> bytes:
    """A tiny trace: steps of 100 us, in each some kernels of 10 us."""
    events = []
    for step in range(steps):
        at = 1000 + 100 * step
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": at, "dur": 100})
        for k in range(kernels):
            link = {"correlation": 100 * step + k}
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 20 * k, "dur": 2, "args": link})
            arguments = {**link, "device": rank, "stream": 7}
            events.append({"ph": "X", "cat": "kernel", "name": f"gemm_{k}", "pid": rank, "tid": 7, "ts": at + 5 + 20 * k, "dur": 10, "args": arguments})
    return json.dumps({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks}, "traceEvents": events}).encode()
