/* Sends trace files and folders in pieces that survive a reload, a network cut and a restart of the server (tus 1.0, see dashboard/uploads/tus.py).

   One batch of files becomes one run. Its state lives here and not in the page: Dash may draw the area again at any time,
   and another page may be open meanwhile. Names of files are untrusted: they are shown through textContent only. */
(function () {
  "use strict";

  const { element } = window.tracekit;
  const PIECE = 8 * 1024 * 1024; // bytes per request
  const FIRST = 64 * 1024; // sent along with the announcement: what is no trace is refused at once
  const SENDERS = 4; // files on their way at a time
  const TRIES = 12; // in a row without a byte getting through
  const SHOWN = 100; // files listed by name
  const KEY = "tracekit.upload.";
  const KEPT_DAYS = 14;
  const HEADERS = { "X-Tracekit": "1", "Tus-Resumable": "1.0.0" };
  const AREA = "tk-upload";

  let batch = null;
  let drawn = 0;

  // ---------------------------------------------------------------- asking the server

  /** One request; resolves with {status, header(name), json()} and rejects with Error("network") or Error("stopped"). */
  function ask(method, url, { headers = {}, body = null, progress = null, on = null } = {}) {
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open(method, url);
      for (const [name, value] of Object.entries({ ...HEADERS, ...headers })) request.setRequestHeader(name, value);
      if (progress) request.upload.onprogress = (event) => progress(event.loaded);
      request.onload = () => resolve({ status: request.status, header: (name) => request.getResponseHeader(name), json: () => parsed(request.responseText) });
      request.onerror = request.ontimeout = () => reject(new Error("network"));
      request.onabort = () => reject(new Error("stopped"));
      if (on) on.request = request;
      request.send(body);
    });
  }

  function parsed(text) {
    try {
      return JSON.parse(text);
    } catch (_) {
      return {};
    }
  }

  class Final extends Error {} // trying again at once would not help
  class NoTrace extends Final {} // the file itself is refused; the others go on without it

  function failed(answer) {
    const said = answer.json().error;
    if (answer.status === 401) return new Final("You are signed out. Open the address with ?token=… again, then go on.");
    const again = answer.status >= 500 && answer.status !== 507;
    const busy = answer.status === 423 || answer.status === 429 || answer.status === 409 || answer.status === 408;
    const reason = said || `The server answered ${answer.status}.`;
    if (answer.status === 415 || answer.status === 400) return new NoTrace(reason);
    return again || busy ? new Error(reason) : new Final(reason);
  }

  // ---------------------------------------------------------------- what this browser remembers

  function fingerprint(item) {
    return KEY + [item.path, item.file.size, item.file.lastModified].join("|");
  }

  function recall(item) {
    const kept = parsed(stored(() => localStorage.getItem(fingerprint(item))) || "null");
    return kept && kept.url;
  }

  function remember(item) {
    stored(() => localStorage.setItem(fingerprint(item), JSON.stringify({ url: item.url, at: Date.now() })));
  }

  function forget(item) {
    stored(() => localStorage.removeItem(fingerprint(item)));
  }

  /** Uploads this browser began, by url; those that are too old are dropped. */
  function begun() {
    const found = new Map();
    stored(() => {
      for (const key of Object.keys(localStorage).filter((k) => k.startsWith(KEY))) {
        const kept = parsed(localStorage.getItem(key)) || {};
        if (Date.now() - (kept.at || 0) > KEPT_DAYS * 864e5) localStorage.removeItem(key);
        else found.set(kept.url, key);
      }
    });
    return found;
  }

  /** Storage may be full or forbidden; then a reload starts again, and nothing else is lost. */
  function stored(act) {
    try {
      return act();
    } catch (_) {
      return null;
    }
  }

  // ---------------------------------------------------------------- which files

  /** Files of a drop, folders opened: [{file, path}]. */
  async function dropped(transfer) {
    const entries = [...transfer.items].map((item) => (item.webkitGetAsEntry ? item.webkitGetAsEntry() : null)).filter(Boolean);
    if (!entries.length) return [...transfer.files].map((file) => ({ file, path: file.name }));
    const found = [];
    for (const entry of entries) await walk(entry, found);
    return found;
  }

  async function walk(entry, found) {
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      found.push({ file, path: entry.fullPath.replace(/^\//, "") });
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) return;
      for (const inner of some) await walk(inner, found);
    }
  }

  function picked(input) {
    const found = [...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
    input.value = ""; // else the same file cannot be chosen a second time
    return found;
  }

  function hidden(path) {
    return path.split("/").some((part) => part.startsWith("."));
  }

  // ---------------------------------------------------------------- sending

  function add(files) {
    const wanted = files.filter((f) => !hidden(f.path));
    if (!wanted.length) {
      say(files.length ? "Only hidden files were chosen; there is no trace among them." : "That folder is empty.");
      return;
    }
    if (!batch || batch.state === "done" || batch.state === "failed") {
      batch = { items: [], state: "sending", says: "", name: nameOf(wanted), moments: [], senders: 0, run: null };
    }
    const known = new Set(batch.items.map((item) => item.path + "|" + item.file.size + "|" + item.file.lastModified));
    const again = new Set(wanted.map((f) => f.path));
    batch.items = batch.items.filter((item) => !(item.gone && again.has(item.path)));
    for (const { file, path } of wanted) {
      if (known.has(path + "|" + file.size + "|" + file.lastModified)) continue;
      batch.items.push({ file, path, url: null, offset: 0, flying: 0, state: "waiting", says: "" });
    }
    if (batch.state === "paused") batch.state = "sending";
    pump();
    draw();
  }

  function nameOf(files) {
    const top = files[0].path.split("/")[0];
    return files.length === 1 || files[0].path.includes("/") ? top.replace(/(\.pt)?(\.trace)?\.json(\.gz)?$/, "") : `${files.length} files`;
  }

  function pump() {
    while (batch && batch.state === "sending" && batch.senders < SENDERS) {
      const item = batch.items.find((i) => i.state === "waiting");
      if (!item) break;
      item.state = "sending";
      batch.senders += 1;
      const mine = batch;
      send(mine, item).finally(() => {
        mine.senders -= 1;
        if (mine === batch) {
          pump();
          if (!mine.senders && mine.state === "sending" && !mine.items.some((i) => i.state === "waiting")) finish(mine);
          draw();
        }
      });
    }
  }

  /** One file from wherever it is to its end, over network cuts and restarts of the server. */
  async function send(mine, item) {
    let misses = 0;
    while (mine.state === "sending") {
      try {
        const before = item.offset;
        if (item.url === null) await begin(item);
        else if (misses) await whereIs(item);
        if (item.url !== null && item.offset < item.file.size) await piece(mine, item);
        if (item.url !== null && item.offset >= item.file.size) {
          item.state = "sent";
          item.says = "";
          return;
        }
        if (item.offset > before) misses = 0;
      } catch (error) {
        item.flying = 0;
        if (error.message === "stopped") break;
        if (error instanceof Final) {
          const reason = error.message.startsWith(item.path + ": ") ? error.message.slice(item.path.length + 2) : error.message;
          item.says = reason;
          if (error instanceof NoTrace) {
            item.state = "refused";
            forget(item);
            return;
          }
          // no room, no right, not readable: without this file the run would lack a rank, so there is none; what has arrived is kept
          if (mine === batch) stop(`${item.path}: ${reason} No run was made. What has arrived is kept: go on when this is mended.`);
          break;
        }
        misses += 1;
        if (misses > TRIES) {
          stop("The server cannot be reached. What has arrived is kept there: go on when it is back.");
          break;
        }
        const wait = Math.min(30, 0.5 * 2 ** misses) * (0.75 + Math.random() / 2);
        item.says = error.message === "network" ? `No connection. Trying again in ${Math.ceil(wait)} s.` : error.message;
        draw();
        await pause(wait);
      }
    }
    if (item.state === "sending") item.state = "waiting";
  }

  /** Resolves after some seconds, or as soon as the browser is online again. */
  function pause(seconds) {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        window.removeEventListener("online", end);
        resolve();
      };
      const timer = setTimeout(end, seconds * 1000);
      window.addEventListener("online", end);
    });
  }

  async function begin(item) {
    const kept = recall(item);
    if (kept) {
      item.url = kept;
      await whereIs(item);
      if (item.url !== null) return;
    }
    const first = item.file.slice(0, FIRST);
    const metadata = `filename ${base64(item.file.name)},relativePath ${base64(item.path)}`;
    const headers = { "Upload-Length": String(item.file.size), "Upload-Metadata": metadata, "Content-Type": "application/offset+octet-stream" };
    const answer = await ask("POST", "/api/uploads", { headers, body: first, on: item });
    if (answer.status !== 201) throw failed(answer);
    item.url = answer.header("Location");
    item.offset = Number(answer.header("Upload-Offset"));
    remember(item);
  }

  async function whereIs(item) {
    const answer = await ask("HEAD", item.url, { on: item });
    if (answer.status === 200) {
      item.offset = Number(answer.header("Upload-Offset"));
    } else if (answer.status === 404 || answer.status === 410) {
      forget(item);
      item.url = null;
      item.offset = 0;
    } else {
      throw failed(answer);
    }
  }

  async function piece(mine, item) {
    const part = item.file.slice(item.offset, item.offset + PIECE);
    const headers = { "Upload-Offset": String(item.offset), "Content-Type": "application/offset+octet-stream" };
    const progress = (loaded) => {
      item.flying = loaded;
      later();
    };
    let answer;
    try {
      answer = await ask("PATCH", item.url, { headers, body: part, progress, on: item });
    } catch (error) {
      // a file that changed or vanished under us cannot be read any more, which looks like a network error
      if (error.message === "network" && !(await readable(part))) {
        item.gone = true;
        throw new Final("This file changed on disk or cannot be read any more. Choose it again.");
      }
      throw error;
    } finally {
      item.flying = 0;
    }
    if (answer.status === 404) {
      forget(item);
      item.url = null;
      item.offset = 0;
      return;
    }
    if (answer.status === 409 && answer.header("Upload-Offset") !== null) {
      item.offset = Number(answer.header("Upload-Offset"));
      return;
    }
    if (answer.status !== 204) throw failed(answer);
    item.offset = Number(answer.header("Upload-Offset"));
    item.says = "";
    moment(mine);
    later();
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

  /** Every file has arrived: they become one run. */
  async function finish(mine) {
    const sent = mine.items.filter((i) => i.state === "sent");
    if (!sent.length) {
      mine.state = "failed";
      mine.says = mine.items.length === 1 ? mine.items[0].says : "None of these files is a trace that is known here.";
      return draw();
    }
    mine.state = "finishing";
    draw();
    const body = JSON.stringify({ name: mine.name, uploads: sent.map((i) => i.url.split("/").pop()) });
    for (let misses = 0; ; misses += 1) {
      try {
        const answer = await ask("POST", "/api/runs", { headers: { "Content-Type": "application/json" }, body });
        if (answer.status !== 200 && answer.status !== 201) throw failed(answer);
        sent.forEach(forget);
        const said = answer.json();
        mine.state = "done";
        mine.run = said.url;
        mine.says = said.already ? "These files are here already." : "Everything has arrived.";
        draw();
        // those that were left out are read before the page goes on
        if (!said.already && !mine.items.some((i) => i.state === "refused") && document.getElementById(AREA)) window.location.assign(said.url);
        return;
      } catch (error) {
        if (error instanceof Final || misses > TRIES) {
          mine.state = "failed";
          mine.says = error.message === "network" ? "The server cannot be reached." : error.message;
          return draw();
        }
        mine.says = "No connection. Trying again.";
        draw();
        await pause(Math.min(30, 0.5 * 2 ** misses));
      }
    }
  }

  function stop(says) {
    batch.state = "paused";
    batch.says = says;
    for (const item of batch.items) if (item.request) item.request.abort();
    draw();
  }

  function go() {
    batch.state = "sending";
    batch.says = "";
    batch.moments = [];
    pump();
    draw();
  }

  async function cancel() {
    const gone = batch;
    gone.state = "cancelled";
    for (const item of gone.items) if (item.request) item.request.abort();
    batch = null;
    draw();
    for (const item of gone.items) {
      forget(item);
      if (item.url) await ask("DELETE", item.url).catch(() => null); // those it cannot reach are cleared away by the server in time
    }
  }

  // ---------------------------------------------------------------- progress in numbers

  function totals(mine) {
    const counted = mine.items.filter((i) => i.state !== "refused");
    const size = counted.reduce((sum, i) => sum + i.file.size, 0);
    const done = counted.reduce((sum, i) => sum + Math.min(i.file.size, i.offset + i.flying), 0);
    return { size, done, files: counted.length, sent: counted.filter((i) => i.state === "sent").length };
  }

  /** Remember how much was there when; speed is taken over the last ten seconds. */
  function moment(mine) {
    const now = performance.now();
    mine.moments.push({ now, done: totals(mine).done });
    while (mine.moments.length > 2 && now - mine.moments[0].now > 10000) mine.moments.shift();
  }

  function speed(mine) {
    const first = mine.moments[0];
    const last = mine.moments[mine.moments.length - 1];
    return first && last.now - first.now > 500 ? Math.max(0, ((last.done - first.done) / (last.now - first.now)) * 1000) : null;
  }

  function bytes(count) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (count >= 1024 && unit < units.length - 1) {
      count /= 1024;
      unit += 1;
    }
    return `${unit ? count.toPrecision(3) : count} ${units[unit]}`;
  }

  function time(seconds) {
    if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    return `${(seconds / 3600).toFixed(1)} h`;
  }

  // ---------------------------------------------------------------- the area on the page

  function build(area) {
    const files = element("input", { type: "file", multiple: true, hidden: true, "aria-label": "Trace files", onchange: (e) => add(picked(e.target)) });
    const folder = element("input", { type: "file", webkitdirectory: true, hidden: true, "aria-label": "A folder", onchange: (e) => add(picked(e.target)) });
    const zone = element(
      "div",
      { class: "tk-upload-zone" },
      element("p", { class: "tk-upload-title" }, "Drop trace files or a folder here"),
      element("p", { class: "tk-upload-hint" }, "All ranks of one job at once; .json, .json.gz, archives, run directories, NCCL and Nsight exports, of any size."),
      element(
        "div",
        { class: "tk-upload-buttons" },
        element("button", { type: "button", class: "tk-upload-button tk-upload-primary", onclick: () => files.click() }, "Choose files"),
        element("button", { type: "button", class: "tk-upload-button", onclick: () => folder.click() }, "Choose a folder")
      ),
      files,
      folder
    );
    zone.addEventListener("dragover", (event) => {
      event.preventDefault();
      zone.classList.add("tk-upload-over");
    });
    zone.addEventListener("dragleave", () => zone.classList.remove("tk-upload-over"));
    zone.addEventListener("drop", async (event) => {
      event.preventDefault();
      zone.classList.remove("tk-upload-over");
      try {
        add(await dropped(event.dataTransfer));
      } catch (_) {
        say("What was dropped cannot be read; choose the files instead.");
      }
    });
    const progress = element("div", { class: "tk-upload-progress" });
    const status = element("p", { class: "tk-upload-status", role: "status", "aria-live": "polite" });
    area.replaceChildren(zone, status, progress);
    area.dataset.built = "1";
    draw();
    if (!batch) interrupted(progress);
  }

  function say(text) {
    const status = document.querySelector(`#${AREA} .tk-upload-status`);
    if (status && status.textContent !== text) status.textContent = text;
  }

  let planned = false;
  function later() {
    if (planned) return;
    planned = true;
    setTimeout(() => {
      planned = false;
      if (batch && batch.state === "sending") moment(batch);
      draw();
    }, 200);
  }

  /** Uploads that a reload cut off: the same files, chosen again, go on where they were. */
  async function interrupted(progress) {
    const known = begun();
    if (!known.size) return;
    let open = [];
    try {
      const answer = await ask("GET", "/api/uploads");
      open = (answer.json().uploads || []).filter((u) => known.has(`/api/uploads/${u.id}`));
    } catch (_) {
      return;
    }
    if (!open.length || batch) return;
    const size = open.reduce((sum, u) => sum + u.size_bytes, 0);
    const there = open.reduce((sum, u) => sum + u.offset_bytes, 0);
    const names = open.slice(0, 3).map((u) => u.label).join(", ") + (open.length > 3 ? ", …" : "");
    say(`An upload was interrupted: ${bytes(there)} of ${bytes(size)} have arrived (${names}). Choose the same files again to go on from there.`);
    const discard = async () => {
      for (const upload of open) {
        stored(() => localStorage.removeItem(known.get(`/api/uploads/${upload.id}`)));
        await ask("DELETE", `/api/uploads/${upload.id}`).catch(() => null);
      }
      say("");
      progress.replaceChildren();
    };
    progress.replaceChildren(element("button", { type: "button", class: "tk-upload-button", onclick: discard }, "Discard it"));
  }

  function draw() {
    drawn = performance.now();
    const area = document.getElementById(AREA);
    if (!area || !area.dataset.built) return;
    const progress = area.querySelector(".tk-upload-progress");
    if (!batch) {
      progress.replaceChildren();
      say("");
      return;
    }
    const { size, done, files, sent } = totals(batch);
    const rate = speed(batch);
    const share = size ? Math.floor((100 * done) / size) : 0;
    const parts = [`${sent} of ${files} ${files === 1 ? "file" : "files"}`, `${bytes(done)} of ${bytes(size)}`];
    const stuck = batch.items.every((i) => i.state !== "sending" || i.says);
    if (batch.state === "sending" && rate && !stuck) parts.push(`${bytes(rate)}/s`, `${time((size - done) / rate)} left`);
    const words = { sending: "Uploading", paused: "Paused", finishing: "Making the run", done: "Done", failed: "Not uploaded" };
    const panel = progress.querySelector(".tk-upload-panel") || panelOf(progress);
    panel.dataset.state = batch.state;
    text(panel, ".tk-upload-what", words[batch.state]);
    text(panel, ".tk-upload-numbers", batch.state === "failed" ? "" : parts.join(" · "));
    const bar = panel.querySelector("progress");
    bar.max = Math.max(size, 1);
    bar.value = done;
    bar.hidden = batch.state === "failed";
    bar.setAttribute("aria-valuetext", `${share} %`);
    show(panel, ".tk-upload-pause", batch.state === "sending");
    show(panel, ".tk-upload-go", batch.state === "paused");
    show(panel, ".tk-upload-cancel", batch.state === "sending" || batch.state === "paused");
    const open = panel.querySelector(".tk-upload-open");
    open.hidden = !batch.run;
    if (batch.run) open.setAttribute("href", batch.run);
    say(batch.says);
    list(panel.querySelector("ul"), batch.state === "failed" && batch.items.length === 1 ? [] : batch.items);
  }

  function panelOf(progress) {
    const panel = element(
      "div",
      { class: "tk-upload-panel" },
      element("div", { class: "tk-upload-head" }, element("strong", { class: "tk-upload-what" }), element("span", { class: "tk-upload-numbers" })),
      element("progress", { "aria-label": "Upload" }),
      element(
        "div",
        { class: "tk-upload-buttons" },
        element("button", { type: "button", class: "tk-upload-button tk-upload-pause", onclick: () => stop("") }, "Pause"),
        element("button", { type: "button", class: "tk-upload-button tk-upload-go", onclick: go }, "Go on"),
        element("button", { type: "button", class: "tk-upload-button tk-upload-cancel", onclick: cancel }, "Cancel"),
        element("a", { class: "tk-upload-button tk-upload-primary tk-upload-open", href: "#" }, "Open the run")
      ),
      element("ul", { class: "tk-upload-files" })
    );
    progress.replaceChildren(panel);
    return panel;
  }

  /** Refused files come first: they are what needs a look. */
  function list(ul, items) {
    const order = { refused: 0, sending: 1, waiting: 2, sent: 3 };
    const rows = [...items].sort((a, b) => order[a.state] - order[b.state]).slice(0, SHOWN);
    const more = items.length - rows.length;
    const wanted = rows.length + (more ? 1 : 0);
    while (ul.children.length < wanted) ul.append(element("li", {}, element("span", { class: "tk-upload-name" }), element("span", { class: "tk-upload-note" })));
    while (ul.children.length > wanted) ul.lastChild.remove();
    rows.forEach((item, at) => {
      const row = ul.children[at];
      const part = item.file.size ? Math.floor((100 * (item.offset + item.flying)) / item.file.size) : 0;
      const notes = { sent: "arrived", waiting: item.says || "waiting", sending: item.says || `${Math.min(part, 100)} %`, refused: `left out: ${item.says}` };
      row.dataset.state = item.state;
      text(row, ".tk-upload-name", item.path);
      text(row, ".tk-upload-note", notes[item.state]);
    });
    if (more) {
      const row = ul.children[rows.length];
      row.dataset.state = "more";
      text(row, ".tk-upload-name", `and ${more} more`);
      text(row, ".tk-upload-note", "");
    }
  }

  function text(within, selector, words) {
    const found = within.querySelector(selector);
    if (found.textContent !== words) found.textContent = words;
  }

  function show(within, selector, shown) {
    within.querySelector(selector).hidden = !shown;
  }

  // a file that misses the area must not replace the page
  for (const kind of ["dragover", "drop"]) {
    window.addEventListener(kind, (event) => {
      if (event.dataTransfer && [...event.dataTransfer.types].includes("Files")) event.preventDefault();
    });
  }

  // Dash draws the page after this script has run, and again on every change of page
  function look() {
    const area = document.getElementById(AREA);
    if (area && !area.dataset.built) build(area);
  }
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
  look();
})();
