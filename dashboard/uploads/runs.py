"""How do uploads become a run, and how far is it? Made once all its files are here; then watched and cancelled by its id.

POST /api/runs                    {name, uploads: [id, …]} -> 201 {run, url, state, already}; 200 where these files are here already,
                                  or this very request was answered before and the answer was lost
GET  /api/runs/<id>/progress      how far it is, in numbers and in words
POST /api/runs/<id>/cancel        stop reading it
POST /api/runs/<id>/retry         read it once more
"""

from __future__ import annotations

from typing import Any

import msgspec
from flask import Blueprint, Response, jsonify, make_response, request

from dashboard.library import Library, NoRoom, UnknownRun
from dashboard.security import current_user
from dashboard.store.database import StoreFull
from dashboard.store.rows import JobProgress, RunRow, State
from dashboard.uploads.handover import complete, distinct
from dashboard.uploads.spool import Refused, Spool
from tracekit.errors import InputError, TracekitError, UsageError
from tracekit.wording import clean


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked for: a name, and the uploads that become the run."""

    uploads: list[str]
    name: str = ""


def blueprint(spool: Spool, library: Library) -> Blueprint:
    """The routes of runs and their jobs.

    Args:
        spool: the uploads.
        library: where runs are stored.
    """
    routes = Blueprint("jobs", __name__, url_prefix="/api/runs")

    @routes.post("")
    def create() -> Response:
        try:
            wanted = msgspec.json.decode(request.get_data(), type=Wanted)
        except msgspec.MsgspecError as error:
            raise Refused(400, f"a run is made of {{name, uploads}}: {error}") from error
        user, began = current_user(), library.clock()
        id = spool.made(wanted.uploads, user)
        if id is None:
            try:
                id = library.create_run(wanted.name, user, distinct(spool, complete(spool, wanted.uploads, user)))
            except (Refused, InputError, OSError):
                # a sender that grew tired of waiting asks again while its first request is being answered, and that takes the uploads away
                id = spool.made(wanted.uploads, user)
                if id is None:
                    raise
        run = library.run(id)
        if run is None:
            raise Refused(410, "the run was deleted meanwhile")
        spool.finish(wanted.uploads, user, id)  # not before the run is written down: whoever is killed in between asks again
        already = run.created_at.timestamp() < began
        url = f"/runs/{run.id}/overview" if run.state is State.READY else f"/job/{run.id}"
        return make_response(jsonify({"run": run.id, "url": url, "state": str(run.state), "already": already}), 200 if already else 201)

    @routes.get("/<run_id>/progress")
    def progress(run_id: str) -> Response:
        run, told = library.run(run_id), library.progress(run_id)
        if run is None or told is None:
            raise Refused(404, "there is no such run; it may have been deleted")
        return jsonify(shown(run, told))

    @routes.post("/<run_id>/cancel")
    def cancel(run_id: str) -> Response:
        if library.run(run_id) is None:
            raise Refused(404, "there is no such run; it may have been deleted")
        if not library.cancel(run_id):
            raise Refused(409, "this run is not being read any more")
        return make_response("", 204)

    @routes.post("/<run_id>/retry")
    def retry(run_id: str) -> Response:
        try:
            library.retry(run_id)
        except UnknownRun as error:
            raise Refused(404, str(error)) from error
        except UsageError as error:
            raise Refused(409, str(error)) from error
        return make_response("", 204)

    @routes.errorhandler(Refused)
    def refused(error: Refused) -> Response:
        return make_response(jsonify({"error": error.reason}), error.status)

    @routes.errorhandler(TracekitError)
    def not_taken(error: TracekitError) -> Response:
        status = 413 if isinstance(error, NoRoom) else 507 if isinstance(error, StoreFull) else 400
        return make_response(jsonify({"error": clean(error, 1000)}), status)

    return routes


def shown(run: RunRow, told: JobProgress) -> dict[str, Any]:
    """How far a run is, for the page that follows it; null is unknown.

    ``results`` is where what is known so far can be read, or null; ``stage`` is the stage it is in, or ended in.
    """
    return {
        "run": run.id,
        "name": run.name,
        "state": str(told.state),
        "stage": told.stage,
        "says": says(told),
        "done": told.done,
        "total": told.total,
        "events": told.events,
        "events_per_s": told.events_per_s,
        "seconds_left": told.seconds_left,
        "share": told.share,
        "ranks_read": list(told.ranks_read),
        "error": told.error,
        "generation": run.generation,
        "results": f"/runs/{run.id}/overview" if run.generation else None,
    }


def says(told: JobProgress) -> str:
    """What is going on, in a sentence."""
    if told.state == State.FAILED:
        return clean(told.error or "It failed, and no reason was recorded.", 1000)
    message = "" if told.state.ended else clean(told.message, 300)
    words = {
        State.QUEUED: "It waits for its turn.",
        State.READING: "The files are being read.",
        State.ANALYSING: "All ranks are read; now they are brought together.",
        State.READY: "The results are ready.",
        State.CANCELLED: "It was cancelled.",
    }
    return message[:1].upper() + message[1:] or words.get(told.state, str(told.state))
