/* What becomes of a batch of files? They are sent some at a time, over network cuts and restarts, paused, cancelled, and made one run. */
(function () {
  "use strict";
  const U = (window.tracekitUpload = window.tracekitUpload || {});
  const SENDERS = 4; // files on their way at a time
  const TRIES = 12; // in a row without a byte getting through
  const ROUNDS = 3; // what was forgotten there while the rest was sent is sent again so often
  const GO_ON = "tracekit-go-on";

  function add(files) {
    const wanted = files.filter((f) => !U.hidden(f.path));
    if (!wanted.length) {
      U.say(files.length ? "Only hidden files were chosen; there is no trace among them." : "That folder is empty.");
      return;
    }
    if (!U.batch || U.batch.state === "done" || U.batch.state === "failed") {
      U.batch = { items: [], late: [], state: "sending", says: "", name: nameOf(wanted), moments: [], senders: 0, rounds: 0, run: null };
    }
    const again = new Set(wanted.map((f) => f.path));
    U.batch.items = U.batch.items.filter((item) => !(item.gone && again.has(item.path)));
    const known = new Set([...U.batch.items, ...U.batch.late].map(sameAs));
    const fresh = wanted.filter((f) => !known.has(sameAs(f)));
    if (U.batch.state === "finishing") {
      if (!fresh.length) return;
      U.batch.late.push(...fresh);
      U.batch.says = "These came after the others had been sent; they are sent next.";
      return U.draw();
    }
    U.batch.items.push(...fresh.map(itemOf));
    if (U.batch.state === "paused") go();
    pump();
    U.draw();
  }

  function sameAs({ file, path }) {
    return [path, file.size, file.lastModified].join("|");
  }

  function itemOf({ file, path }) {
    const mark = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`; // by which the server's list tells it from every other
    return { file, path, mark, announced: false, url: null, offset: 0, flying: 0, state: "waiting", says: "" };
  }

  function nameOf(files) {
    const top = files[0].path.split("/")[0];
    return files.length === 1 || files[0].path.includes("/") ? top.replace(/(\.pt)?(\.trace)?\.json(\.gz)?$/, "") : `${files.length} files`;
  }

  function pump() {
    while (U.batch && U.batch.state === "sending" && U.batch.senders < SENDERS) {
      const item = U.batch.items.find((i) => i.state === "waiting");
      if (!item) break;
      item.state = "sending";
      U.batch.senders += 1;
      const mine = U.batch;
      send(mine, item).finally(() => {
        mine.senders -= 1;
        if (mine === U.batch) {
          pump();
          settle(mine);
          U.draw();
        }
      });
    }
  }

  /** Once nothing is left to send, the run is made. */
  function settle(mine) {
    if (!mine.senders && mine.state === "sending" && !mine.items.some((i) => i.state === "waiting")) finish(mine);
  }

  /** One file from wherever it is to its end, over network cuts and restarts of the server. */
  async function send(mine, item) {
    let misses = 0;
    while (mine.state === "sending") {
      try {
        const before = item.offset;
        if (item.url === null) await U.begin(item);
        else if (misses) await U.whereIs(item);
        if (item.url !== null && item.offset < item.file.size) await U.piece(mine, item);
        if (item.url !== null && item.offset >= item.file.size) {
          item.state = "sent";
          item.says = "";
          return;
        }
        if (item.offset > before) misses = 0;
      } catch (error) {
        item.flying = 0;
        if (error.message === "stopped") break;
        if (error instanceof U.Final) {
          const reason = error.message.startsWith(item.path + ": ") ? error.message.slice(item.path.length + 2) : error.message;
          item.says = reason;
          if (error instanceof U.NoTrace) {
            item.state = "refused";
            U.forget(item);
            return;
          }
          // no room, no right, not readable: without this file the run would lack a rank, so there is none; what has arrived is kept
          if (mine === U.batch) stop(`${item.path}: ${ended(reason)} No run was made. What has arrived is kept: go on when this is mended.`);
          break;
        }
        misses += 1;
        if (misses > TRIES) {
          if (mine === U.batch) stop(`${item.path}: ${unreached(error)} What has arrived is kept there: go on when this is mended.`);
          break;
        }
        const wait = Math.min(30, 0.5 * 2 ** misses) * (0.75 + Math.random() / 2);
        item.says = error.message === "network" ? `No connection. Trying again in ${Math.ceil(wait)} s.` : error.message;
        U.draw();
        await pause(wait);
      }
    }
    if (item.state === "sending") item.state = "waiting";
  }

  /** Why the last of many tries failed: the server's own words, where it said something. */
  function unreached(error) {
    return error.message === "network" ? "The server cannot be reached." : ended(error.message.charAt(0).toUpperCase() + error.message.slice(1));
  }

  function ended(sentence) {
    return /[.!?]$/.test(sentence) ? sentence : sentence + ".";
  }

  /** Resolves after some seconds, or as soon as the browser is online again or its person stops or goes on. */
  function pause(seconds) {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        for (const event of ["online", GO_ON]) window.removeEventListener(event, end);
        resolve();
      };
      const timer = setTimeout(end, seconds * 1000);
      for (const event of ["online", GO_ON]) window.addEventListener(event, end);
    });
  }

  /** Every file has arrived: they become one run. */
  async function finish(mine) {
    const sent = mine.items.filter((i) => i.state === "sent");
    if (!sent.length) {
      mine.state = "failed";
      mine.says = mine.items.length === 1 ? mine.items[0].says : "None of these files is a trace that is known here.";
      return U.draw();
    }
    mine.state = "finishing";
    U.draw();
    const body = JSON.stringify({ name: mine.name, uploads: sent.map((i) => i.url.split("/").pop()) });
    for (let misses = 0; ; misses += 1) {
      try {
        const answer = await U.ask("POST", "/api/runs", { headers: { "Content-Type": "application/json" }, body });
        if ((answer.status === 404 || answer.status === 409) && mine.rounds < ROUNDS && (await lost(sent))) {
          mine.rounds += 1;
          mine.state = "sending";
          mine.says = "";
          takeIn(mine);
          pump();
          return U.draw();
        }
        if (answer.status !== 200 && answer.status !== 201 && answer.status !== 410) throw U.failed(answer);
        sent.forEach(U.forget);
        if (answer.status === 410) {
          mine.state = "failed";
          mine.says = unreached(U.failed(answer));
          return mine.late.length ? add(mine.late) : U.draw();
        }
        const said = answer.json();
        mine.state = "done";
        mine.run = said.url;
        mine.says = said.already ? "These files are here already." : "Everything has arrived.";
        U.draw();
        if (mine.late.length) {
          const without = mine.items.filter((i) => i.state === "refused").map((i) => i.path);
          add(mine.late);
          const less = without.length ? ` (without ${without.slice(0, 3).join(", ")}${without.length > 3 ? ", …" : ""})` : "";
          U.batch.says = `The run before is made${less}, and stands in the list of runs. These files came after it and become a run of their own.`;
          return U.draw();
        }
        // those that were left out are read before the page goes on
        if (!said.already && !mine.items.some((i) => i.state === "refused") && document.getElementById(U.AREA)) window.location.assign(said.url);
        return;
      } catch (error) {
        if (error instanceof U.Final || misses > TRIES) {
          mine.state = "paused";
          mine.says = `${unreached(error)} No run was made yet. What has arrived is kept: go on when this is mended.`;
          takeIn(mine);
          return U.draw();
        }
        mine.says = error.message === "network" ? "No connection. Trying again." : error.message;
        U.draw();
        await pause(Math.min(30, 0.5 * 2 ** misses));
      }
    }
  }

  /** Files that came while the run was to be made become part of it after all. */
  function takeIn(mine) {
    mine.items.push(...mine.late.splice(0).map(itemOf));
  }

  /** Whether some of what was sent is not there any more, because it waited too long for the rest or another tab made a run of it: it is to be sent again. */
  async function lost(sent) {
    for (const item of sent) {
      if (item.url !== null) await U.whereIs(item);
      if (item.url === null || item.offset < item.file.size) item.state = "waiting";
    }
    return sent.some((item) => item.state === "waiting");
  }

  function stop(says) {
    U.batch.state = "paused";
    U.batch.says = says;
    for (const item of U.batch.items) if (item.request) item.request.abort();
    window.dispatchEvent(new Event(GO_ON));
    U.draw();
  }

  function go() {
    U.batch.state = "sending";
    U.batch.says = "";
    U.batch.moments = [];
    U.batch.rounds = 0;
    window.dispatchEvent(new Event(GO_ON));
    pump();
    settle(U.batch);
    U.draw();
  }

  async function cancel() {
    const gone = U.batch;
    gone.state = "cancelled";
    for (const item of gone.items) if (item.request) item.request.abort();
    window.dispatchEvent(new Event(GO_ON));
    U.batch = null;
    U.draw();
    for (const item of gone.items) {
      U.forget(item);
      if (item.url) await U.ask("DELETE", item.url).catch(() => null); // those it cannot reach are cleared away by the server in time
    }
  }

  Object.assign(U, { add, cancel, go, pause, stop });
})();
