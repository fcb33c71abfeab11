/* Which window, ranks, names and slice does the address of the page ask for, and how does it follow? */
(function () {
  "use strict";
  const T = (window.tracekitTimeline = window.tracekitTimeline || {});

  T.parts = Object.assign(T.parts || {}, {
    read() {
      const asked = new URLSearchParams(window.location.search);
      const whole = (name) => (/^-?\d{1,16}$/.test(asked.get(name) || "") ? Number(asked.get(name)) : null);
      const [t0, t1] = [whole("t0"), whole("t1")];
      [this.s.t0, this.s.t1] = t0 !== null && t1 !== null && t1 > t0 ? [t0, t1] : this.whole();
      this.s.view = ["ranks", "devices", "all"].includes(asked.get("view")) ? asked.get("view") : this.layout.ranks.length > 4 ? "ranks" : "devices";
      this.ranksText = (asked.get("ranks") || "").slice(0, 500);
      this.ranks = this.parsed(this.ranksText) || null;
      this.query = (asked.get("search") || "").slice(0, T.LONGEST);
      this.top = (/^\d+\.\d+\.\d+\.\d{1,3}$/.exec(asked.get("top") || "") || [""])[0];
      const one = /^(\d{1,9})\.(\d{1,9})\.(\d{1,9})$/.exec(asked.get("selected") || "");
      this.s.selected = one ? { rank: +one[1], capture: +one[2], event: +one[3] } : null;
      this.clamp();
    },

    /* The address follows when the movement has come to rest. */
    write() {
      clearTimeout(this.written);
      this.written = setTimeout(() => this.gone.signal.aborted || this.writeNow(), 300);
    },

    writeNow() {
      const asked = new URLSearchParams(window.location.search);
      const set = (name, value) => (value === "" || value === null ? asked.delete(name) : asked.set(name, value));
      const all = this.whole();
      const every = Math.round(this.s.t0) === all[0] && Math.round(this.s.t1) === all[1];
      set("t0", every ? "" : String(Math.round(this.s.t0)));
      set("t1", every ? "" : String(Math.round(this.s.t1)));
      set("view", this.s.view);
      set("ranks", this.ranksText);
      set("search", this.query);
      const top = this.s.scroll > 0 && this.s.rows.find((r) => r.y >= this.s.scroll);
      if (this.s.data) this.top = "";
      set("top", this.top || (top ? `${top.key}.${Math.round(top.y - this.s.scroll)}` : ""));
      const one = this.s.selected;
      set("selected", one ? `${one.rank}.${one.capture}.${one.event}` : "");
      window.history.replaceState(window.history.state, "", `${window.location.pathname}?${asked}`);
    },

    /* Ranks such as 0-3,8; null for all, undefined where it is no list of ranks. */
    parsed(text) {
      const flat = text.replace(/\s/g, "");
      if (!flat) return null;
      if (!/^\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*$/.test(flat)) return undefined;
      const ranges = flat.split(",").map((p) => p.split("-").map(Number)).map(([a, b]) => [a, b === undefined ? a : b]);
      const found = this.layout.ranks.map((r) => r.rank).filter((r) => ranges.some(([a, b]) => a <= r && r <= b));
      return found.length ? new Set(found) : undefined;
    },
  });

  /* 0,1,2,5 -> 0-2,5 */
  T.joined = (ranks) => {
    const runs = [];
    for (const rank of [...ranks].sort((a, b) => a - b)) {
      const last = runs[runs.length - 1];
      if (last && rank === last[1] + 1) last[1] = rank;
      else runs.push([rank, rank]);
    }
    return runs.map(([a, b]) => (a === b ? String(a) : `${a}-${b}`)).join(",");
  };
})();
