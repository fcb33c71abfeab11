/* How does one file reach the server? Announced with its first bytes, then in pieces from wherever it is. */
(function () {
  "use strict";
  const U = (window.tracekitUpload = window.tracekitUpload || {});
  const PIECE = 8 * 1024 * 1024; // bytes per request
  const FIRST = 64 * 1024; // sent along with the announcement: what is no trace is refused at once

  async function begin(item) {
    const kept = U.recall(item);
    if (kept) {
      item.url = kept;
      await whereIs(item);
      if (item.url !== null) return;
    }
    if (item.announced && (await found(item))) return;
    item.announced = true;
    const first = item.file.slice(0, FIRST);
    const metadata = `filename ${base64(item.file.name)},relativePath ${base64(item.path)},mark ${base64(item.mark)}`;
    const headers = { "Upload-Length": String(item.file.size), "Upload-Metadata": metadata, "Content-Type": "application/offset+octet-stream" };
    const answer = await U.ask("POST", "/api/uploads", { headers, body: first, on: item });
    if (answer.status !== 201) throw U.failed(answer);
    item.url = answer.header("Location");
    item.offset = Number(answer.header("Upload-Offset"));
    U.remember(item);
  }

  /** Whether an announcement arrived whose answer did not: a second one would hold room for the file twice. */
  async function found(item) {
    const answer = await U.ask("GET", "/api/uploads", { on: item });
    if (answer.status !== 200) throw U.failed(answer);
    const there = (answer.json().uploads || []).find((upload) => upload.mark === item.mark);
    if (!there) return false;
    item.url = `/api/uploads/${there.id}`;
    item.offset = there.offset_bytes;
    U.remember(item);
    return true;
  }

  async function whereIs(item) {
    const answer = await U.ask("HEAD", item.url, { on: item });
    if (answer.status === 200) {
      item.offset = Number(answer.header("Upload-Offset"));
      if (U.batch) U.batch.moments = []; // what had arrived before says nothing of how fast it goes now
    } else if (answer.status === 404 || answer.status === 410) {
      U.forget(item);
      item.url = null;
      item.offset = 0;
    } else {
      throw U.failed(answer);
    }
  }

  async function piece(mine, item) {
    const part = item.file.slice(item.offset, item.offset + PIECE);
    const headers = { "Upload-Offset": String(item.offset), "Content-Type": "application/offset+octet-stream" };
    const progress = (loaded) => {
      item.flying = loaded;
      U.later();
    };
    let answer;
    try {
      answer = await U.ask("PATCH", item.url, { headers, body: part, progress, on: item });
    } catch (error) {
      // a file that changed or vanished under us cannot be read any more, which looks like a network error
      if (error.message === "network" && !(await readable(part))) {
        item.gone = true;
        throw new U.Final("This file changed on disk or cannot be read any more. Choose it again.");
      }
      throw error;
    } finally {
      item.flying = 0;
    }
    if (answer.status === 404) {
      U.forget(item);
      item.url = null;
      item.offset = 0;
      return;
    }
    if (answer.status === 409 && answer.header("Upload-Offset") !== null) {
      item.offset = Number(answer.header("Upload-Offset"));
      return;
    }
    if (answer.status !== 204) throw U.failed(answer);
    item.offset = Number(answer.header("Upload-Offset"));
    item.says = "";
    U.moment(mine);
    U.later();
  }

  async function readable(part) {
    try {
      await part.slice(0, 1).arrayBuffer();
      return true;
    } catch (_) {
      return false;
    }
  }

  function base64(text) {
    let bytes = "";
    for (const byte of new TextEncoder().encode(text)) bytes += String.fromCharCode(byte);
    return btoa(bytes);
  }

  Object.assign(U, { begin, piece, whereIs });
})();
