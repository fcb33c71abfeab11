"""What may go? Runs past their time to live, abandoned uploads, and folders that crashes left behind."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass

from dashboard.settings import Settings
from dashboard.store import runs
from dashboard.store.database import Database
from dashboard.store.folders import leftovers, old_attempts, remove_folder, size_of
from dashboard.uploads.spool import Spool
from tracekit.errors import InputError

log = logging.getLogger(__name__)

#: Folders of unknown runs are only taken for lost when they are older: another server may just be making one.
_YOUNG_S = 900.0
_DAY_S, _HOUR_S = 86_400.0, 3_600.0


@dataclass(frozen=True)
class Tidied:
    """What went: runs past their time to live, folders of no run, and how many uploads of which nothing came any more."""

    runs: tuple[str, ...]
    folders: tuple[str, ...]
    uploads: int


def tidy(database: Database, settings: Settings, now: float) -> Tidied:
    """Delete what may go.

    Args:
        database: of the store.
        settings: how long runs live, and where they stand.
        now: seconds since 1970.
    """
    expired: list[str] = []
    if settings.ttl_days is not None:
        with database.write() as db:
            expired = [id for id in runs.not_opened_since(db, now - settings.ttl_days * _DAY_S) if runs.remove(db, id)]
    for id in expired:
        remove_folder(settings.runs, id)
    with database.read() as db:
        known = runs.ids(db)
        shown = runs.shown(db)
    lost = leftovers(settings.runs, known, now - _YOUNG_S)
    for path in lost:
        shutil.rmtree(path, ignore_errors=True)
    for id, analysis in shown.items():
        try:
            old = old_attempts(settings.runs / id, analysis, now - _YOUNG_S)
        except (InputError, OSError) as error:  # one damaged run must not keep the others from being cleared
            log.warning("run %s is not cleared of old attempts: %s", id, error)
            continue
        for path in old:
            shutil.rmtree(path, ignore_errors=True)
        if old:
            with database.write() as db:
                runs.change(db, id, stored_bytes=size_of(settings.runs / id))
        lost += old
    uploads = Spool(settings.uploads).reap(settings.upload_ttl_hours * _HOUR_S)
    return Tidied(tuple(expired), tuple(p.name for p in lost), uploads)
