/* What does the area for uploads show? Names of files are untrusted: they are shown as text only. */
(function () {
  "use strict";
  const U = (window.tracekitUpload = window.tracekitUpload || {});
  const { element } = window.tracekit;
  const SHOWN = 100; // files listed by name

  function build(area) {
    const files = element("input", { type: "file", multiple: true, hidden: true, "aria-label": "Trace files", onchange: (e) => U.add(U.picked(e.target)) });
    const folder = element("input", { type: "file", webkitdirectory: true, hidden: true, "aria-label": "A folder", onchange: (e) => U.add(U.picked(e.target)) });
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
        U.add(await U.dropped(event.dataTransfer));
      } catch (_) {
        say("What was dropped cannot be read; choose the files instead.");
      }
    });
    const progress = element("div", { class: "tk-upload-progress" });
    const status = element("p", { class: "tk-upload-status", role: "status", "aria-live": "polite" });
    area.replaceChildren(zone, status, progress);
    area.dataset.built = "1";
    draw();
    if (!U.batch) interrupted(progress);
  }

  function say(text) {
    const status = document.querySelector(`#${U.AREA} .tk-upload-status`);
    if (status && status.textContent !== text) status.textContent = text;
  }

  let planned = false;
  function later() {
    if (planned) return;
    planned = true;
    setTimeout(() => {
      planned = false;
      if (U.batch && U.batch.state === "sending") U.moment(U.batch);
      draw();
    }, 200);
  }

  /** Uploads that a reload cut off: the same files, chosen again, go on where they were. */
  async function interrupted(progress) {
    const known = U.begun();
    if (!known.size) return;
    let open = [];
    try {
      const answer = await U.ask("GET", "/api/uploads");
      open = (answer.json().uploads || []).filter((u) => known.has(`/api/uploads/${u.id}`));
    } catch (_) {
      return;
    }
    if (!open.length) return;
    const busy = await U.elsewhere();
    if (U.batch) return;
    const sending = open.length;
    open = open.filter((u) => !busy.has(`/api/uploads/${u.id}`));
    if (!open.length) return say(`Another tab of this browser is sending ${sending === 1 ? "a file" : `${sending} files`}; it goes on there.`);
    const size = open.reduce((sum, u) => sum + u.size_bytes, 0);
    const there = open.reduce((sum, u) => sum + u.offset_bytes, 0);
    const names = open.slice(0, 3).map((u) => u.label).join(", ") + (open.length > 3 ? ", …" : "");
    say(`An upload was interrupted: ${U.bytes(there)} of ${U.bytes(size)} have arrived (${names}). Choose the same files again to go on from there.`);
    const discard = async () => {
      for (const upload of open) {
        U.stored(() => localStorage.removeItem(known.get(`/api/uploads/${upload.id}`)));
        await U.ask("DELETE", `/api/uploads/${upload.id}`).catch(() => null);
      }
      say("");
      progress.replaceChildren();
    };
    progress.replaceChildren(element("button", { type: "button", class: "tk-upload-button", onclick: discard }, "Discard it"));
  }

  function draw() {
    const area = document.getElementById(U.AREA);
    if (!area || !area.dataset.built) return;
    const progress = area.querySelector(".tk-upload-progress");
    if (!U.batch) {
      progress.replaceChildren();
      say("");
      return;
    }
    const { size, done, files, sent } = U.totals(U.batch);
    const rate = U.speed(U.batch);
    const share = size ? Math.floor((100 * done) / size) : 0;
    const parts = [`${sent} of ${files} ${files === 1 ? "file" : "files"}`, `${U.bytes(done)} of ${U.bytes(size)}`];
    const stuck = U.batch.items.every((i) => i.state !== "sending" || i.says);
    if (U.batch.state === "sending" && rate && !stuck) parts.push(`${U.bytes(rate)}/s`, `${U.time((size - done) / rate)} left`);
    const words = { sending: "Uploading", paused: "Paused", finishing: "Making the run", done: "Done", failed: "Not uploaded" };
    const panel = progress.querySelector(".tk-upload-panel") || panelOf(progress);
    panel.dataset.state = U.batch.state;
    text(panel, ".tk-upload-what", words[U.batch.state]);
    text(panel, ".tk-upload-numbers", U.batch.state === "failed" ? "" : parts.join(" · "));
    const bar = panel.querySelector("progress");
    bar.max = Math.max(size, 1);
    bar.value = done;
    bar.hidden = U.batch.state === "failed";
    bar.setAttribute("aria-valuetext", `${share} %`);
    show(panel, ".tk-upload-pause", U.batch.state === "sending");
    show(panel, ".tk-upload-go", U.batch.state === "paused");
    show(panel, ".tk-upload-cancel", U.batch.state === "sending" || U.batch.state === "paused");
    const open = panel.querySelector(".tk-upload-open");
    open.hidden = !U.batch.run;
    if (U.batch.run) open.setAttribute("href", U.batch.run);
    say(U.batch.says);
    list(panel.querySelector("ul"), U.batch.state === "failed" && U.batch.items.length === 1 ? [] : U.batch.items);
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
        element("button", { type: "button", class: "tk-upload-button tk-upload-pause", onclick: () => U.stop("") }, "Pause"),
        element("button", { type: "button", class: "tk-upload-button tk-upload-go", onclick: U.go }, "Go on"),
        element("button", { type: "button", class: "tk-upload-button tk-upload-cancel", onclick: U.cancel }, "Cancel"),
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

  Object.assign(U, { build, draw, later, say });
})();
