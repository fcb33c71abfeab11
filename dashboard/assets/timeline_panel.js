/* What is shown of one slice? All that was recorded of it, what launched it, and the same call on the other ranks. */
(function () {
  "use strict";
  const T = (window.tracekitTimeline = window.tracekitTimeline || {});
  const make = window.tracekit.element;

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
})();
