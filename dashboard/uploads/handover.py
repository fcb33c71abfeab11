"""Which uploads become a run? All that are named, each whole and the sender's own; one that came twice counts once."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.library import UploadedFile
from dashboard.uploads.room import MOST_FILES
from dashboard.uploads.spool import Announced, Refused, Spool


def complete(spool: Spool, ids: Sequence[str], user: str) -> list[Announced]:
    """The uploads of a run to be, each whole.

    Raises:
        Refused: none are named, too many are, one is not there (404) or has not arrived as a whole (409).
    """
    if not ids:
        raise Refused(400, "a run needs at least one file")
    if len(ids) > MOST_FILES:
        raise Refused(413, f"{len(ids)} files are more than the {MOST_FILES} that a run may have; give an archive of them")
    found = []
    for id in dict.fromkeys(ids):
        arrived = spool.arrived(id)
        if arrived.announced.user != user:
            raise Refused(404, "there is no such upload")
        if not arrived.complete:
            raise Refused(409, f"{arrived.announced.label}: {arrived.offset} of {arrived.announced.size} bytes have arrived; send the rest first")
        found.append(arrived.announced)
    return found


def distinct(spool: Spool, uploads: Sequence[Announced]) -> list[UploadedFile]:
    """The files of complete uploads, each content under a label once."""
    once = {(upload.label, spool.sha256(upload.id)): upload for upload in uploads}
    return [UploadedFile(spool.part(upload.id), label, sha256) for (label, sha256), upload in once.items()]
