/* What is asked of the server for what is in view, and what is said of the answer? One request at a time; late answers are dropped. */
(function () {
  "use strict";
  const T = (window.tracekitTimeline = window.tracekitTimeline || {});
  const make = window.tracekit.element;
  const PATIENCE = 70; /* ms that a window stands still before it is asked for */

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

  T.parts = Object.assign(T.parts || {}, {
    arrange() {
      this.painter.fit();
      const made = T.arranged(this.layout, this.s.view, this.ranks, this.painter.height - T.RULER);
      [this.s.rows, this.s.heads] = [made.rows, made.heads];
      this.scroller.firstChild.style.height = `${made.height + T.RULER}px`;
      /* until the page has come to rest: what stands below the picture grows with the first answer */
      const [, key, above] = /^(.+)\.(\d+)$/.exec(this.top) || [], top = this.s.rows.find((r) => r.key === key);
      if (top) this.scroller.scrollTop = Math.max(top.y - above, 0);
      this.s.scroll = this.scroller.scrollTop;
      for (const one of this.views.children) one.setAttribute("aria-checked", one.dataset.view === this.s.view ? "true" : "false");
    },

    moved() {
      this.draw();
      clearTimeout(this.timer);
      this.timer = setTimeout(() => (this.want(), this.s.data && this.report()), PATIENCE);
      this.write();
    },

    shownRanks() {
      const [top, bottom] = [this.s.scroll - 200, this.s.scroll + this.painter.height + 200];
      return this.s.heads.filter((h) => h.y + h.height > top && h.y < bottom).map((h) => h.rank);
    },

    want() {
      const { t0, t1, view } = this.s, width = t1 - t0, span = this.painter.width - T.GUTTER;
      const ranks = this.shownRanks();
      if (!ranks.length) return;
      const asked = { t0: Math.floor(t0 - width / 4), t1: Math.ceil(t1 + width / 4), px: Math.min(Math.ceil(span * 1.5 * Math.min(window.devicePixelRatio || 1, 2)), 8192), view, ranks: T.joined(ranks) };
      this.wanted = new URLSearchParams(asked).toString();
      if (!this.flying) this.fetch();
    },

    async fetch() {
      while (this.wanted && this.wanted !== this.held) {
        const asked = this.wanted, view = this.s.view;
        this.flying = new AbortController();
        const slow = setTimeout(() => (this.loading.hidden = false), 150);
        try {
          const answer = await (await T.ask(`${this.api}?${asked}`, this.flying.signal)).json();
          if (view === this.s.view) {
            this.s.data = T.prepared(answer, this.s.sorts);
            this.held = asked;
            this.quiet();
            this.mark();
            this.draw();
            this.report();
          }
          this.number += 1;
          this.root.dataset.answers = String(this.number);
        } catch (error) {
          if (error.name === "AbortError") return;
          this.tell(T.clean(error.message));
          this.wanted = null;
        } finally {
          clearTimeout(slow);
          this.flying = null;
          this.loading.hidden = true;
        }
      }
    },

    draw() {
      if (this.frame || !this.painter) return;
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.painter.fit();
        this.painter.paint(this.s);
        this.drawMap();
      });
    },

    report() {
      const data = this.s.data, names = [...data.present].sort((a, b) => a - b);
      this.legend.replaceChildren(...names.map((i) => {
        const swatch = make("span", { class: "tl-swatch" });
        swatch.style.background = T.colour(this.s.sorts[i].name);
        return make("li", {}, swatch, this.s.sorts[i].words);
      }));
      const { t0, t1, view } = this.s, seen = new Set();
      let deeper = 0;
      for (const row of this.s.rows.filter((r) => r.y + r.height > this.s.scroll && r.y < this.s.scroll + this.painter.height - T.RULER)) {
        if (row.depth === 0) deeper += row.lane.deeper;
        for (const p of data.rows.get(row.key) || [])
          if (p.start) p.start.forEach((t, i) => t < t1 && t + Math.max(p.dur[i], 1) > t0 && seen.add(`${row.rank}.${p.capture}.${p.event[i]}`));
      }
      const bars = seen.size, merged = view === "ranks" ? "where slices overlap, the earlier is shown" : deeper ? "every slice of these rows is drawn" : "every slice is drawn";
      const share = data.column ? `shades: busy share per ${T.time(data.column)}` : merged;
      const more = data.leftOut ? `; ${data.leftOut} further rows are not drawn: choose fewer ranks` : "";
      this.says.textContent = `${T.time(t1 - t0)} shown · ${bars.toLocaleString("en-US")} named ${bars === 1 ? "slice" : "slices"} · ${share}${more} · measured`;
      this.root.dataset.bars = String(bars);
    },
  });
})();
