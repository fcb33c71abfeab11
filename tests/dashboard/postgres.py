"""A Postgres for the tests: the one that is named, else a throw-away cluster of the machine's own Postgres, without a port.

``TRACEKIT_TEST_POSTGRES`` names one (``postgresql://user@host/name``; its user may create databases). Else ``initdb`` is looked for
where Debian puts it. Postgres refuses to run as root: then the cluster belongs to the user ``postgres``.
"""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MISSING = "no Postgres is here: install Debian's package postgresql, or name one with TRACEKIT_TEST_POSTGRES=postgresql://user@host/name"
_FAST = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=40 -c shared_buffers=16MB"


@contextmanager
def cluster() -> Iterator[str | None]:
    """The address of a Postgres for as long as the block runs, or None where there is none."""
    named, programs = os.environ.get("TRACEKIT_TEST_POSTGRES"), _programs()
    if named or programs is None:
        yield named
        return
    user = "postgres" if os.getuid() == 0 else getpass.getuser()
    folder = Path(tempfile.mkdtemp(prefix="tracekit-pg-"))
    try:
        if os.getuid() == 0:
            owner = pwd.getpwnam(user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        _run(user, [programs / "initdb", "-D", folder / "data", "-A", "trust", "-U", "tracekit", "--no-sync", "-E", "UTF8", "--locale=C"])
        start = f"-k {folder} -c listen_addresses='' {_FAST}"
        _run(user, [programs / "pg_ctl", "-D", folder / "data", "-l", folder / "log", "-w", "-o", start, "start"])
        try:
            yield f"postgresql://tracekit@/postgres?host={folder}"
        finally:
            _run(user, [programs / "pg_ctl", "-D", folder / "data", "-m", "immediate", "-w", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path | None:
    """Folder of Postgres' own programs, the newest; None where there is none that this user may use."""
    if os.getuid() == 0 and "postgres" not in {entry.pw_name for entry in pwd.getpwall()}:
        return None
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


def _run(user: str, command: list[str | Path]) -> None:
    done = subprocess.run([str(c) for c in command], user=user if os.getuid() == 0 else None, cwd="/", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-500:]} {done.stderr[-500:]}"
