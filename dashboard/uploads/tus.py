"""How do the bytes of a file come here? In pieces, resumable: the core of tus 1.0 with creation, creation-with-upload and termination.

    POST   /api/uploads            Upload-Length, Upload-Metadata (filename, relativePath); the first bytes may come along -> 201 Location
    HEAD   /api/uploads/<id>       -> Upload-Offset
    PATCH  /api/uploads/<id>       Upload-Offset, bytes -> 204 Upload-Offset; 409 where that is not the offset
    DELETE /api/uploads/<id>       -> 204
    GET    /api/uploads            the sender's uploads that are on their way (JSON; ours, not tus')

Any client of the protocol works that can send the header X-Tracekit: 1.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from flask import Blueprint, Response, jsonify, make_response, request

from dashboard.security import current_user
from dashboard.uploads.names import label_of
from dashboard.uploads.room import Limits, Stored, check
from dashboard.uploads.sniffing import FIRST, refuse_by_content, refuse_by_name
from dashboard.uploads.spool import Arrived, Refused, Spool
from tracekit.errors import InputError

VERSION = "1.0.0"
BODY = "application/offset+octet-stream"
#: Bytes that one request may bring: they are put aside before any check; senders cut their files into smaller pieces.
MOST_PER_REQUEST = 16 << 20


def blueprint(spool: Spool, limits: Limits, stored: Stored) -> Blueprint:
    """The routes of uploads.

    Args:
        spool: where they are kept until a run is made of them.
        limits: how much may be uploaded.
        stored: bytes that stored runs hold.
    """
    routes = Blueprint("uploads", __name__, url_prefix="/api/uploads")

    @routes.route("", methods=["OPTIONS"], provide_automatic_options=False)
    @routes.route("/<id>", methods=["OPTIONS"], provide_automatic_options=False)
    def options(id: str = "") -> Response:
        headers = {"Tus-Version": VERSION, "Tus-Extension": "creation,creation-with-upload,termination", "Tus-Max-Size": str(limits.file_bytes)}
        return _answer(204, headers)

    @routes.get("")
    def listed() -> Response:
        return jsonify({"uploads": [_shown(a) for a in spool.all(current_user())]})

    @routes.post("")
    def create() -> Response:
        _check_version()
        size = _number("Upload-Length")
        metadata = _metadata(request.headers.get("Upload-Metadata", ""))
        label = _label(metadata)
        refuse_by_name(label, size)
        with spool.admission:
            check(spool, limits, stored, current_user(), size)
            made = spool.create(size, str(label), current_user(), metadata.get("mark", "")[:128])
        offset = 0
        if request.mimetype == BODY and request.content_length:
            try:
                offset = _take(spool, made.id, 0).offset
            except Refused:
                spool.delete(made.id)
                raise
        return _answer(201, {"Location": f"/api/uploads/{made.id}", "Upload-Offset": str(offset)})

    @routes.route("/<id>", methods=["HEAD"])
    def offset(id: str) -> Response:
        _check_version()
        arrived = _own(spool, id)
        return _answer(200, {"Upload-Offset": str(arrived.offset), "Upload-Length": str(arrived.announced.size)})

    @routes.patch("/<id>")
    def patch(id: str) -> Response:
        _check_version()
        if request.mimetype != BODY:
            raise Refused(415, f"the bytes of an upload have the content type {BODY}")
        _own(spool, id)
        return _answer(204, {"Upload-Offset": str(_take(spool, id, _number("Upload-Offset")).offset)})

    @routes.delete("/<id>")
    def delete(id: str) -> Response:
        _check_version()
        _own(spool, id)
        spool.delete(id)
        return _answer(204, {})

    @routes.errorhandler(Refused)
    def refused(error: Refused) -> Response:
        answer = make_response(jsonify({"error": error.reason}), error.status)
        answer.headers["Tus-Resumable"] = VERSION
        if error.status == 412:
            answer.headers["Tus-Version"] = VERSION
        if error.offset is not None:
            answer.headers["Upload-Offset"] = str(error.offset)
        return answer

    return routes


def _take(spool: Spool, id: str, offset: int) -> Arrived:
    """Write the body of this request; once its beginning is there, refuse what is no trace."""
    arrived = spool.append(id, offset, request.stream)
    if offset < FIRST and (arrived.offset >= FIRST or arrived.complete):
        try:
            refuse_by_content(spool.part(id), PurePosixPath(arrived.announced.label))
        except Refused:
            spool.delete(id)
            raise
    return arrived


def _own(spool: Spool, id: str) -> Arrived:
    """An upload of this user; that of another is none."""
    arrived = spool.arrived(id)
    if arrived.announced.user != current_user():
        raise Refused(404, "there is no such upload")
    return arrived


def _check_version() -> None:
    if request.headers.get("Tus-Resumable") != VERSION:
        raise Refused(412, f"this server speaks tus {VERSION}; send Tus-Resumable: {VERSION}")


def _number(header: str) -> int:
    text = request.headers.get(header, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Refused(400, f"{header} needs a number of bytes")
    return int(text)


def _metadata(header: str) -> dict[str, str]:
    """Keys and decoded values of Upload-Metadata.

    >>> _metadata("filename cmFuazAuanNvbg==,empty")
    {'filename': 'rank0.json', 'empty': ''}
    """
    if len(header) > 16_384:
        raise Refused(400, "Upload-Metadata is too long")
    out = {}
    for pair in filter(None, (p.strip() for p in header.split(","))):
        key, _, value = pair.partition(" ")
        try:
            out[key] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, ValueError) as error:
            raise Refused(400, "Upload-Metadata needs values in base64 of UTF-8 text") from error
    return out


def _label(metadata: Mapping[str, str]) -> PurePosixPath:
    """The label of a file: its path within the folder that was chosen, else its name."""
    try:
        return label_of(metadata.get("relativePath") or metadata.get("filename") or "")
    except InputError as error:
        raise Refused(400, f"{error.reason} ({error.path})" if error.path else error.reason) from error


def _shown(arrived: Arrived) -> dict[str, Any]:
    announced = arrived.announced
    known = {"id": announced.id, "label": announced.label, "mark": announced.mark, "made_s": announced.made}
    return {**known, "size_bytes": announced.size, "offset_bytes": arrived.offset}


def _answer(status: int, headers: Mapping[str, str]) -> Response:
    answer = make_response("", status)
    answer.headers.update({"Tus-Resumable": VERSION, "Cache-Control": "no-store", **headers})
    return answer
