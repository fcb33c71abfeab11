/* Which slice is meant? What is under the pointer, what was chosen, and how it comes into view. */
(function () {
  "use strict";
  const T = (window.tracekitTimeline = window.tracekitTimeline || {});
  const make = window.tracekit.element;

  T.parts = Object.assign(T.parts || {}, {
    under(e) {
      const box = this.canvas.getBoundingClientRect();
      return T.under(this.s, this.painter.width, e.clientX - box.left, e.clientY - box.top);
    },

    hover(e) {
      if (e.buttons) return;
      this.point(this.under(e), e);
    },

    point(what, e) {
      const before = this.s.hovered;
      this.s.hovered = what && what.event !== undefined ? what : null;
      if ((before && T.keyed(before)) !== (this.s.hovered && T.keyed(this.s.hovered))) this.draw();
      this.canvas.style.cursor = this.s.hovered ? "pointer" : "default";
      if (!what || (what.event === undefined && what.cover === undefined)) return void (this.tip.hidden = true);
      const where = `rank ${what.row.rank} · ${T.clean(what.row.lane.name)}`, words = this.s.sorts[what.sort].words;
      const lines = what.event !== undefined ? [make("b", {}, T.clean(what.name)), `${T.time(what.dur)}${what.row.lane.what === "summary" ? " on this line" : ""} · ${words}`, where] : [make("b", {}, `${what.cover > 0 && what.cover < 0.005 ? "<1" : Math.round(100 * what.cover)} % busy, mostly ${words}`), `within ${T.time(what.column)} · zoom in for names`, where];
      this.tip.replaceChildren(...lines.map((l) => make("div", {}, l)));
      this.tip.hidden = false;
      const box = this.stage.getBoundingClientRect(), size = this.tip.getBoundingClientRect();
      const x = Math.min(e.clientX - box.left + 14, box.width - size.width - 4), y = e.clientY - box.top + 16;
      Object.assign(this.tip.style, { left: `${Math.max(x, 4)}px`, top: `${y + size.height > box.height ? Math.max(y - size.height - 28, 0) : y}px` });
    },

    click(e) {
      const what = this.under(e);
      this.canvas.focus({ preventScroll: true });
      if (what && what.event !== undefined) this.explain(what, false);
      else if (what && what.cover !== undefined) this.zoom(0.25, what.t);
      else this.unselect();
    },

    into(what) {
      if (!what || what.start === undefined) return;
      const rest = Math.max(what.dur, 10) * 1.5;
      this.go(what.start - rest, what.start + what.dur + rest);
    },

    unselect() {
      this.s.selected = null;
      this.panel.hidden = true;
      this.write();
      this.draw();
    },

    /* Show everything that is known of a slice; with ``move`` bring it into view first. */
    async explain(what, move) {
      this.s.selected = { ...what };
      this.panel.hidden = false;
      const head = make("div", { class: "tl-head" }, make("h2", {}, "Slice"), make("button", { type: "button", class: "tl-button", "aria-label": "Close details", onclick: () => this.unselect() }, "×"));
      this.panel.replaceChildren(head, make("p", { class: "tl-quiet" }, "Reading …"));
      this.write();
      this.draw();
      try {
        const asked = new URLSearchParams({ rank: what.rank, capture: what.capture, event: what.event });
        const found = await (await T.ask(`${this.api}/event?${asked}`, this.gone.signal)).json();
        const still = this.s.selected;
        if (!still || T.keyed(still) !== T.keyed(what)) return;
        Object.assign(still, { start: found.start, dur: found.dur, lane: found.lane, depth: found.depth });
        this.draw();
        if (move) this.reveal(found);
        const acts = make("div", { class: "tl-acts" });
        acts.append(make("button", { type: "button", class: "tl-button", onclick: () => this.into(still) }, "Zoom to it"));
        if (found.columns.name) acts.append(make("button", { type: "button", class: "tl-button", onclick: () => this.find(`"${found.columns.name}"`, found.start) }, "Find all of this name"));
        this.panel.replaceChildren(head, T.details(found, (other) => this.explain(other, true)), acts);
      } catch (error) {
        if (error.name !== "AbortError") this.panel.replaceChildren(head, make("p", { role: "alert" }, T.clean(error.message)));
      }
    },

    /* Bring a slice into view: its time, its lane, its row. */
    reveal(found) {
      const s = this.s, box = this.painter.width - T.GUTTER;
      if (this.ranks && !this.ranks.has(found.rank)) {
        this.ranks = null;
        this.ranksText = this.ranksBox.value = "";
        this.arrange();
      }
      const key = `${found.rank}.${found.lane}.${found.depth}`;
      if (found.lane !== undefined && s.view !== "ranks" && !s.rows.some((r) => r.key === key)) this.look("all");
      if (found.lane !== undefined && s.view === "ranks" && !(this.layout.ranks.find((r) => r.rank === found.rank).lanes[found.lane].what.match(/^(device|communication)$/))) this.look("all");
      const row = s.rows.find((r) => (s.view === "ranks" ? r.rank === found.rank : r.key === key));
      if (row && (row.y < s.scroll || row.y + row.height > s.scroll + this.painter.height - T.RULER)) this.scroller.scrollTop = Math.max(row.y - this.painter.height / 2, 0);
      const wide = (found.dur / (s.t1 - s.t0)) * box, middle = found.start + found.dur / 2;
      const width = wide >= 6 && wide <= box ? s.t1 - s.t0 : Math.max(found.dur * 12, T.NARROWEST);
      if (wide < 6 || wide > box || found.start < s.t0 || found.start + found.dur > s.t1) this.go(middle - width / 2, middle + width / 2);
      else this.moved();
    },
  });

  /* One name for a slice: ranks and captures count their events from 0. */
  T.keyed = (m) => `${m.rank}.${m.capture}.${m.event}`;
})();
