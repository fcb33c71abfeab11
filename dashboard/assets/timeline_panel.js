/* What is shown of one slice, and how does a window leave this page? Details, downloads, and Perfetto in a window of its own. */
(function () {
  "use strict";
  const T = (window.tracekitTimeline = window.tracekitTimeline || {});

  T.make = (tag, attributes, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((c) => c !== null && c !== undefined));
    return made;
  };
  const make = T.make;

  /* An answer, or an error that says in one line what is wrong. */
  T.ask = async (address, signal) => {
    let answer;
    try {
      answer = await fetch(address, { signal, headers: { Accept: "application/json" } });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The server cannot be reached. It may have been stopped, or the network is down.");
    }
    if (!answer.ok) {
      let reason = `the server answered ${answer.status}`;
      try {
        reason = (await answer.json()).error || reason;
      } catch (_) {
        reason = answer.status === 401 ? "sign in first: reload this page" : reason;
      }
      throw Object.assign(new Error(reason), { status: answer.status });
    }
    return answer;
  };

  const WORDS = {
    ts: "recorded at", external_id: "External id", sequence: "Sequence number", fwd_thread: "Fwd thread id", nbytes: "bytes",
    group_desc: "group", group: "group name", group_ranks: "ranks of the group", group_size: "ranks in the group", seq: "number in the group",
    layer_source: "layer known from", correlation: "correlation id", kind: "kind",
  };
  const FIRST = new Set(["step", "phase", "layer", "microbatch", "nbytes"]);
  const HIDDEN = new Set(["name", "dur", "elements", "thread"]);

  T.details = (found, go) => {
    const row = (word, value) => [make("dt", {}, word), make("dd", {}, value)];
    const list = make("dl", {}), rest = make("dl", {});
    list.append(...row("starts at", T.time(found.start, 1)), ...row("takes", T.time(found.dur)));
    list.append(...row("rank", `${found.rank}${found.capture ? `, capture ${found.capture}` : ""}`));
    if (found.lane_name) list.append(...row("lane", T.clean(found.lane_name)));
    for (const [name, value] of Object.entries(found.columns)) {
      if (HIDDEN.has(name) || value === false) continue;
      const text = name === "nbytes" ? `${value.toLocaleString("en-US")}` : T.clean(String(value));
      (FIRST.has(name) ? list : rest).append(...row(WORDS[name] || name.replaceAll("_", " "), text.length > 300 ? text.slice(0, 300) + "…" : text));
    }
    const links = make("div", { class: "tl-links" });
    for (const [key, word] of [["launch", "launched by"], ["parent", "inside"]]) {
      const other = found[key];
      if (!other) continue;
      const to = { rank: found.rank, capture: found.capture, event: other.event, start: other.start, dur: other.dur };
      links.append(make("button", { type: "button", class: "tl-link", onclick: () => go(to) }, `${word} `, make("b", {}, T.clean(other.name).slice(0, 120))));
    }
    const more = make("details", { open: !found.instance }, make("summary", {}, "Everything that was recorded"), rest);
    return make("div", {}, make("h3", {}, T.clean(found.columns.name || "without a name")), list, links, instance(found), more);
  };

  function instance(found) {
    const known = found.instance;
    const communicates = found.columns.kind === "communication";
    if (!known) return communicates ? make("p", { class: "tl-quiet" }, "Not matched with other ranks: how long it waited and how long it moved bytes is unknown.") : null;
    if (known.kind === "send") {
      const lists = known.sends.map((a) => {
        const list = make("dl", {});
        for (const [word, value] of [["from rank", a.src], ["to rank", a.dst], ["transfer", T.time(a.transfer_ns)], ["sender waits", T.time(a.send_wait_ns)], ["receiver waits", T.time(a.recv_wait_ns)]])
          list.append(make("dt", {}, word), make("dd", {}, value === null ? "unknown" : String(value)));
        return list;
      });
      return make("section", {}, make("h4", {}, lists.length > 1 ? `Both ends of the ${lists.length} transfers of this batch` : "Both ends"), ...lists);
    }
    const a = known.about;
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...["rank", "arrives", "waits", "moves bytes"].map((w) => make("th", { scope: "col" }, w)))));
    const first = Math.min(...known.ranks.map((r) => r.start)), worst = Math.max(1, ...known.ranks.map((r) => r.wait_ns || 0));
    const body = make("tbody", {});
    for (const r of known.ranks) {
      const bar = make("span", { class: "tl-wait" });
      bar.style.width = `${Math.round((100 * (r.wait_ns || 0)) / worst)}%`;
      const cells = [String(r.rank), `+${T.time(r.start - first)}`, make("span", {}, T.time(r.wait_ns), bar), T.time(r.transfer_ns)];
      body.append(make("tr", { class: r.rank === found.rank ? "tl-own" : false }, ...cells.map((c) => make("td", {}, c))));
    }
    table.append(body);
    const late = known.ranks.reduce((l, r) => (r.start > l.start ? r : l));
    const close = a.wait_resolution_ns !== null && a.wait_resolution_ns !== undefined && a.wait_max_ns !== null && a.wait_max_ns <= a.wait_resolution_ns && a.wait_resolution_ns > 0;
    const says = close ? `The ranks arrive closer together than their clocks can tell (${T.time(a.wait_resolution_ns)}).` : known.ranks.length > 1 ? `Rank ${late.rank} arrives last; the others wait for it, then bytes move for ${T.time(a.transfer_ns)}.` : "Only this rank's part was read.";
    const bound = a.wait_is_lower_bound ? " Ranks are missing: the waits are lower bounds." : "";
    return make("section", {}, make("h4", {}, `The same ${T.clean(String(a.kind)).replaceAll("_", "-")} on ${known.ranks.length} ranks`), make("p", { class: "tl-quiet" }, says + bound), table);
  }

  const saved = (blob, name) => {
    const link = make("a", { href: URL.createObjectURL(blob), download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const named = (answer, otherwise) => {
    const found = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") || "");
    return found ? found[1] : otherwise;
  };

  T.download = async (address, form) => {
    const answer = await T.ask(address);
    saved(await answer.blob(), named(answer, `slice.${form}`));
  };

  /* Perfetto's page answers PONG when it is ready; only then, and only to its own origin, are the bytes posted. */
  T.perfetto = (site, address, title) => {
    const origin = new URL(site).origin;
    const other = window.open(site, "_blank");
    if (!other) return Promise.reject(new Error("The browser blocked the new window. Allow it for this page, or download the slice and open it there."));
    const ready = new Promise((resolve, reject) => {
      const since = Date.now();
      const heard = (event) => {
        if (event.source !== other || event.origin !== origin || event.data !== "PONG") return;
        stop();
        resolve();
      };
      const timer = setInterval(() => {
        if (other.closed) return stop(), reject(new Error("The window was closed before it was ready."));
        if (Date.now() - since > 30000) return stop(), reject(new Error(`${origin} does not answer. Without internet, download the slice instead.`));
        other.postMessage("PING", origin);
      }, 100);
      const stop = () => {
        clearInterval(timer);
        window.removeEventListener("message", heard);
      };
      window.addEventListener("message", heard);
    });
    const bytes = T.ask(address).then(async (answer) => ({ buffer: await answer.arrayBuffer(), fileName: named(answer, "slice.pftrace") }));
    bytes.catch(() => other.close());
    return Promise.all([bytes, ready]).then(([{ buffer, fileName }]) => other.postMessage({ perfetto: { buffer, title, fileName, keepApiOpen: false } }, origin, [buffer]));
  };
})();
