/* How does somebody move through a timeline? State in the address, one request at a time, keys, wheel, drag, search. */
(function () {
  "use strict";
  const T = (window.tracekitTimeline = window.tracekitTimeline || {});
  const NARROWEST = 20, PATIENCE = 70, LONGEST = 8000, MOST_MATCHES = 200;

  class Timeline {
    constructor(root) {
      this.root = root;
      this.api = `/api/runs/${encodeURIComponent(root.dataset.run)}/timeline`;
      this.site = root.dataset.perfetto;
      this.s = { t0: 0, t1: 1, scroll: 0, rows: [], heads: [], steps: [], sorts: [], data: null, selected: null, hovered: null, hits: null, view: "ranks" };
      this.ranksText = "";
      this.query = "";
      this.matches = [];
      this.place = -1;
      this.wanted = null;
      this.flying = null;
      this.number = 0;
      this.gone = new AbortController();
      this.load();
    }

    async load() {
      this.root.setAttribute("aria-busy", "true");
      this.root.replaceChildren(T.make("div", { class: "tl-state", role: "status" }, T.make("div", { class: "tl-spin", "aria-hidden": "true" }), T.make("p", {}, "Opening the timeline …")));
      try {
        this.layout = await (await T.ask(`${this.api}/layout`, this.gone.signal)).json();
      } catch (error) {
        if (error.name === "AbortError") return;
        const again = T.make("button", { type: "button", class: "button", onclick: () => this.load() }, "Try again");
        this.root.replaceChildren(T.make("div", { class: "tl-state", role: "alert" }, T.make("h2", {}, "The timeline cannot be shown"), T.make("p", {}, T.clean(error.message)), again));
        return;
      } finally {
        this.root.removeAttribute("aria-busy");
      }
      if (!this.layout.events || !this.layout.extent_ns) {
        this.root.replaceChildren(T.make("div", { class: "tl-state", role: "status" }, T.make("h2", {}, "Nothing to draw"), T.make("p", {}, "The traces of this run hold no slices that take time.")));
        return;
      }
      this.s.steps = this.layout.steps;
      this.s.sorts = this.layout.sorts;
      this.read();
      this.build();
      this.arrange();
      this.moved();
      this.overview();
      if (this.query) this.search(Math.max(this.s.t0, 0));
      if (this.s.selected) this.explain(this.s.selected, false);
    }

    /* ---- the address ---- */
    read() {
      const asked = new URLSearchParams(window.location.search);
      const whole = (name) => (/^-?\d{1,16}$/.test(asked.get(name) || "") ? Number(asked.get(name)) : null);
      const [t0, t1] = [whole("t0"), whole("t1")];
      [this.s.t0, this.s.t1] = t0 !== null && t1 !== null && t1 > t0 ? [t0, t1] : this.whole();
      this.s.view = ["ranks", "devices", "all"].includes(asked.get("view")) ? asked.get("view") : this.layout.ranks.length > 4 ? "ranks" : "devices";
      this.ranksText = (asked.get("ranks") || "").slice(0, 500);
      this.ranks = this.parsed(this.ranksText) || null;
      this.query = (asked.get("search") || "").slice(0, LONGEST);
      this.top = (/^\d+\.\d+\.\d+\.\d{1,3}$/.exec(asked.get("top") || "") || [""])[0];
      const one = /^(\d{1,9})\.(\d{1,9})\.(\d{1,9})$/.exec(asked.get("selected") || "");
      this.s.selected = one ? { rank: +one[1], capture: +one[2], event: +one[3] } : null;
      this.clamp();
    }

    /* The address follows when the movement has come to rest. */
    write() {
      clearTimeout(this.written);
      this.written = setTimeout(() => this.gone.signal.aborted || this.writeNow(), 300);
    }

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
    }

    whole() {
      const rest = Math.max(1, Math.round(this.layout.extent_ns * 0.01));
      return [-rest, this.layout.extent_ns + rest];
    }

    /* Ranks such as 0-3,8; null for all, undefined where it is no list of ranks. */
    parsed(text) {
      const flat = text.replace(/\s/g, "");
      if (!flat) return null;
      if (!/^\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*$/.test(flat)) return undefined;
      const ranges = flat.split(",").map((p) => p.split("-").map(Number)).map(([a, b]) => [a, b === undefined ? a : b]);
      const found = this.layout.ranks.map((r) => r.rank).filter((r) => ranges.some(([a, b]) => a <= r && r <= b));
      return found.length ? new Set(found) : undefined;
    }

    /* ---- the page ---- */
    build() {
      const make = T.make, button = (label, words, act) => make("button", { type: "button", class: "tl-button", title: words, "aria-label": words, onclick: act }, label);
      const views = make("div", { class: "tl-views", role: "radiogroup", "aria-label": "What to show" });
      for (const [view, words, title] of [["ranks", "One line per rank", "All work of a rank on one line, its communication below"], ["devices", "Streams", "The streams of each device"], ["all", "Everything", "Streams, threads of the host, ranges"]])
        views.append(make("button", { type: "button", role: "radio", "data-view": view, title, onclick: () => this.look(view) }, words));
      this.views = views;
      this.searchBox = make("input", { type: "search", placeholder: "Find by name   /", "aria-label": "Find slices by name", maxlength: LONGEST, value: this.query, title: 'Part of a name; in "double quotes", the whole of it' });
      this.searchBox.addEventListener("keydown", (e) => {
        if (e.key === "Enter") e.preventDefault(), this.searchBox.value === this.query && this.matches.length ? this.step(e.shiftKey ? -1 : 1) : this.find(this.searchBox.value);
        if (e.key === "Escape") this.canvas.focus();
      });
      this.searchBox.addEventListener("change", () => this.searchBox.value !== this.query && this.find(this.searchBox.value));
      this.found = make("span", { class: "tl-found", role: "status" });
      this.ranksBox = make("input", { type: "text", placeholder: "all ranks", "aria-label": "Ranks to show, such as 0-3,8", value: this.ranksText, size: 10 });
      this.ranksBox.addEventListener("change", () => this.choose(this.ranksBox.value));
      this.ranksBox.addEventListener("keydown", (e) => e.key === "Enter" && this.choose(this.ranksBox.value));
      const host = this.site ? new URL(this.site).host : "";
      const out = make("div", { class: "tl-out" });
      if (this.site) {
        const title = `Sends the slices of this window to ${host}, another site, which shows them in your browser`;
        out.append(make("button", { type: "button", class: "tl-button tl-perfetto", title, onclick: (e) => this.perfetto(e.currentTarget) }, "Open this window in Perfetto ↗"), make("span", {}, `(goes to ${host})`));
      }
      out.append(
        make("button", { type: "button", class: "tl-button", title: "The slices of this window as a Chrome trace", onclick: (e) => this.download("json.gz", e.currentTarget) }, "Download JSON"),
        make("button", { type: "button", class: "tl-button", title: "The slices of this window as Perfetto protobuf", onclick: (e) => this.download("pftrace", e.currentTarget) }, ".pftrace")
      );
      const bar = make(
        "div", { class: "tl-bar" }, views, make("label", { class: "tl-label" }, "Ranks ", this.ranksBox),
        make("div", { class: "tl-search" }, this.searchBox, button("‹", "Previous match (Shift+N)", () => this.step(-1)), button("›", "Next match (N)", () => this.step(1)), this.found),
        make("div", { class: "tl-zoom" }, button("−", "Zoom out (−)", () => this.zoom(2)), button("+", "Zoom in (+)", () => this.zoom(0.5)), button("Whole run", "Everything (0)", () => this.go(...this.whole())))
      );
      this.canvas = make("canvas", { class: "tl-canvas", tabindex: 0, role: "application", "aria-label": "Timeline. Arrow keys move, plus and minus zoom, 0 shows everything, N goes to the next match.", "aria-describedby": "tl-says" });
      this.map = make("canvas", { class: "tl-map", "aria-hidden": "true", height: 26 });
      this.tip = make("div", { class: "tl-tip", role: "tooltip", hidden: true });
      this.rubber = make("div", { class: "tl-rubber", hidden: true });
      this.loading = make("div", { class: "tl-loading", hidden: true });
      this.scroller = make("div", { class: "tl-scroll", "aria-hidden": "true" }, make("div", {}));
      this.stage = make("div", { class: "tl-stage" }, this.canvas, this.scroller, this.loading, this.rubber, this.tip);
      this.panel = make("aside", { class: "tl-panel", "aria-label": "Details of a slice", hidden: true });
      this.banner = make("div", { class: "tl-banner", role: "alert", hidden: true });
      this.legend = make("ul", { class: "tl-legend", "aria-label": "Colours" });
      this.says = make("p", { class: "tl-says", id: "tl-says", role: "status" });
      const notes = this.layout.notes.map((note) => make("p", { class: "tl-note", role: "note" }, T.clean(note)));
      const help = make("p", { class: "tl-help" }, "Wheel zooms, drag moves, Shift+drag zooms into a part, click tells more; keys ← → + − 0 N /");
      this.root.replaceChildren(bar, ...notes, this.banner, this.map, make("div", { class: "tl-body" }, this.stage, this.panel), make("div", { class: "tl-foot" }, this.legend, help), make("div", { class: "tl-foot" }, this.says, out));
      this.painter = new T.Painter(this.canvas);
      this.listen();
    }

    listen() {
      const signal = this.gone.signal, canvas = this.canvas;
      this.observers = [new ResizeObserver(() => this.s.rows.length && (this.arrange(), this.moved())), new MutationObserver(() => this.draw())];
      this.observers[0].observe(this.stage);
      this.observers[1].observe(document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
      window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw(), { signal });
      this.scroller.addEventListener("scroll", () => ((this.s.scroll = this.scroller.scrollTop), this.moved()));
      canvas.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
      canvas.addEventListener("pointerdown", (e) => this.grab(e));
      canvas.addEventListener("pointermove", (e) => this.hover(e));
      canvas.addEventListener("pointerleave", () => this.point(null));
      canvas.addEventListener("dblclick", (e) => this.into(this.under(e)));
      canvas.addEventListener("keydown", (e) => this.key(e));
      const jump = (e) => {
        const box = this.map.getBoundingClientRect(), [a, b] = this.whole();
        const t = a + ((e.clientX - box.left - T.GUTTER) / Math.max(box.width - T.GUTTER, 1)) * (b - a), half = (this.s.t1 - this.s.t0) / 2;
        this.go(t - half, t + half);
      };
      this.map.addEventListener("pointerdown", (e) => (this.map.setPointerCapture(e.pointerId), jump(e)));
      this.map.addEventListener("pointermove", (e) => e.buttons && jump(e));
      document.addEventListener("keydown", (e) => {
        if (e.key !== "/" || /^(input|textarea|select)$/i.test(e.target.tagName)) return;
        e.preventDefault();
        this.searchBox.focus();
      }, { signal });
    }

    close() {
      this.gone.abort();
      (this.observers || []).forEach((o) => o.disconnect());
      if (this.flying) this.flying.abort();
    }

    /* ---- moving ---- */
    clamp() {
      const [from, to] = this.whole(), s = this.s;
      const width = Math.min(Math.max(s.t1 - s.t0, NARROWEST), to - from), rest = Math.min(-from, width * 0.05);
      const [a, b] = [-rest, Math.max(this.layout.extent_ns + rest, width - rest)];
      let t0 = (s.t0 + s.t1) / 2 - width / 2;
      t0 = Math.min(Math.max(t0, a), b - width);
      [s.t0, s.t1] = [t0, t0 + width];
    }

    go(t0, t1) {
      [this.s.t0, this.s.t1] = [t0, t1];
      this.clamp();
      this.moved();
    }

    zoom(factor, at) {
      const { t0, t1 } = this.s, centre = at === undefined ? (t0 + t1) / 2 : at;
      if (factor < 1 && t1 - t0 <= NARROWEST) return;
      this.go(centre - (centre - t0) * factor, centre + (t1 - centre) * factor);
    }

    pan(share) {
      const by = (this.s.t1 - this.s.t0) * share;
      this.go(this.s.t0 + by, this.s.t1 + by);
    }

    time(e) {
      const box = this.canvas.getBoundingClientRect();
      return this.s.t0 + ((e.clientX - box.left - T.GUTTER) * (this.s.t1 - this.s.t0)) / (box.width - T.GUTTER);
    }

    wheel(e) {
      const box = this.canvas.getBoundingClientRect();
      if (e.clientX - box.left < T.GUTTER) {
        this.scroller.scrollTop += e.deltaY;
        return e.preventDefault();
      }
      e.preventDefault();
      const unit = e.deltaMode === 1 ? 16 : 1;
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) return this.pan((((e.deltaX || e.deltaY) * unit) / (box.width - T.GUTTER)));
      /* two fingers that pinch arrive as a wheel with Ctrl and small steps */
      this.zoom(Math.min(Math.max(Math.exp(e.deltaY * unit * (e.ctrlKey ? 0.01 : 0.0022)), 0.25), 4), this.time(e));
    }

    grab(e) {
      if (e.button !== 0 || !e.isPrimary) return;
      const over = new AbortController();
      const box = this.canvas.getBoundingClientRect(), from = { x: e.clientX, y: e.clientY, t0: this.s.t0, t1: this.s.t1, scroll: this.s.scroll };
      const selects = e.shiftKey || e.clientY - box.top < T.RULER, begin = this.time(e);
      let far = false;
      this.canvas.setPointerCapture(e.pointerId);
      const move = (m) => {
        far = far || Math.hypot(m.clientX - from.x, m.clientY - from.y) > 4;
        if (!far) return;
        this.point(null);
        if (selects) {
          const left = Math.max(Math.min(from.x, m.clientX) - box.left, T.GUTTER), right = Math.min(Math.max(from.x, m.clientX) - box.left, box.width);
          this.rubber.hidden = false;
          Object.assign(this.rubber.style, { left: `${left}px`, width: `${Math.max(right - left, 0)}px` });
          return;
        }
        const by = ((from.x - m.clientX) * (from.t1 - from.t0)) / (box.width - T.GUTTER);
        this.scroller.scrollTop = from.scroll + from.y - m.clientY;
        this.go(from.t0 + by, from.t1 + by);
      };
      const end = (u) => {
        over.abort();
        this.rubber.hidden = true;
        if (u.type === "pointercancel") return;
        if (!far) return this.click(u);
        if (selects) this.go(...[begin, this.time(u)].sort((a, b) => a - b));
      };
      for (const [name, act] of [["pointermove", move], ["pointerup", end], ["pointercancel", end]]) this.canvas.addEventListener(name, act, { signal: over.signal });
    }

    key(e) {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const acts = {
        ArrowLeft: () => this.pan(e.shiftKey ? -0.5 : -0.1), ArrowRight: () => this.pan(e.shiftKey ? 0.5 : 0.1),
        ArrowUp: () => (this.scroller.scrollTop -= 40), ArrowDown: () => (this.scroller.scrollTop += 40),
        PageUp: () => (this.scroller.scrollTop -= this.painter.height), PageDown: () => (this.scroller.scrollTop += this.painter.height),
        "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), 0: () => this.go(...this.whole()), Home: () => this.go(...this.whole()),
        n: () => this.step(1), N: () => this.step(-1), Enter: () => this.s.selected && this.into(this.s.selected), Escape: () => this.unselect(),
      };
      if (!acts[e.key]) return;
      e.preventDefault();
      acts[e.key]();
    }

    look(view) {
      if (this.s.view === view) return;
      this.s.view = view;
      this.s.data = this.held = null;
      this.top = "";
      this.s.scroll = this.scroller.scrollTop = 0;
      this.arrange();
      this.moved();
    }

    choose(text) {
      const ranks = this.parsed(text);
      this.ranksBox.setAttribute("aria-invalid", ranks === undefined ? "true" : "false");
      if (ranks === undefined) return this.tell(`Ranks are numbers and ranges, such as 0-3,8; this run has ${this.layout.ranks.length} of them.`);
      if (text.trim() === this.ranksText) return;
      this.ranksText = text.trim();
      this.ranks = ranks;
      this.top = "";
      this.quiet();
      this.arrange();
      this.moved();
      if (this.query) this.search(this.s.t0);
    }

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
    }

    /* ---- asking: one request at a time, late answers dropped ---- */
    moved() {
      this.draw();
      clearTimeout(this.timer);
      this.timer = setTimeout(() => (this.want(), this.s.data && this.report()), PATIENCE);
      this.write();
    }

    shownRanks() {
      const [top, bottom] = [this.s.scroll - 200, this.s.scroll + this.painter.height + 200];
      return this.s.heads.filter((h) => h.y + h.height > top && h.y < bottom).map((h) => h.rank);
    }

    want() {
      const { t0, t1, view } = this.s, width = t1 - t0, span = this.painter.width - T.GUTTER;
      const ranks = this.shownRanks();
      if (!ranks.length) return;
      const asked = { t0: Math.floor(t0 - width / 4), t1: Math.ceil(t1 + width / 4), px: Math.min(Math.ceil(span * 1.5 * Math.min(window.devicePixelRatio || 1, 2)), 8192), view, ranks: joined(ranks) };
      this.wanted = new URLSearchParams(asked).toString();
      if (!this.flying) this.fetch();
    }

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
    }

    draw() {
      if (this.frame || !this.painter) return;
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.painter.fit();
        this.painter.paint(this.s);
        this.drawMap();
      });
    }

    report() {
      const data = this.s.data, names = [...data.present].sort((a, b) => a - b);
      this.legend.replaceChildren(...names.map((i) => {
        const swatch = T.make("span", { class: "tl-swatch" });
        swatch.style.background = T.colour(this.s.sorts[i].name);
        return T.make("li", {}, swatch, this.s.sorts[i].words);
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
    }

    /* ---- the overview above ---- */
    async overview() {
      try {
        const [a, b] = this.whole(), ranks = joined(this.layout.ranks.slice(0, 256).map((r) => r.rank));
        const asked = new URLSearchParams({ t0: a, t1: b, px: 900, view: "ranks", ranks });
        const data = T.prepared(await (await T.ask(`${this.api}?${asked}`, this.gone.signal)).json(), this.s.sorts);
        const sums = new Float64Array(900);
        for (const [key, pieces] of data.rows) {
          if (!key.endsWith(".0")) continue; /* communication is part of the work above it */
          for (const p of pieces) {
            const n = p.cover ? p.cover.length : p.start.length;
            for (let i = 0; i < n; i++) {
              const from = p.cover ? p.from + ((p.to - p.from) * i) / n : p.start[i], to = p.cover ? p.from + ((p.to - p.from) * (i + 1)) / n : from + p.dur[i];
              const [left, right] = [from, to].map((t) => ((t - a) / (b - a)) * 900);
              for (let x = Math.max(Math.floor(left), 0); x < Math.min(right, 900); x++) sums[x] += ((p.cover ? p.cover[i] / 255 : 1) * (Math.min(x + 1, right) - Math.max(x, left)));
            }
          }
        }
        this.busy = sums.map((v) => Math.min(v / Math.min(this.layout.ranks.length, 256), 1));
        this.draw();
      } catch (error) {
        this.busy = null;
      }
    }

    drawMap() {
      const box = this.map.getBoundingClientRect(), ratio = window.devicePixelRatio || 1, dark = T.scheme() === "dark";
      if (!box.width) return;
      [this.map.width, this.map.height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
      const c = this.map.getContext("2d"), span = box.width - T.GUTTER, [a, b] = this.whole();
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      c.fillStyle = dark ? "#29313c" : "#eef1f4";
      c.fillRect(T.GUTTER, 0, span, box.height);
      if (this.busy) {
        c.fillStyle = dark ? "#6f93b8" : "#7a9cbf";
        const step = span / this.busy.length;
        /* what is hardly ever busy stands out above the frame of the window */
        const tall = (v) => Math.max(v * (box.height - 2), 3);
        this.busy.forEach((v, i) => v && c.fillRect(T.GUTTER + i * step, box.height - tall(v), step + 0.5, tall(v)));
      }
      c.fillStyle = dark ? "#a4b0bf" : "#52606d";
      c.font = "11px system-ui, sans-serif";
      c.textBaseline = "middle";
      c.fillText(`whole run, ${T.time(this.layout.extent_ns)}`, 12, box.height / 2);
      const x = (t) => T.GUTTER + ((t - a) / (b - a)) * span, left = x(this.s.t0), right = Math.max(x(this.s.t1), left + 3);
      c.fillStyle = dark ? "rgba(0,0,0,0.45)" : "rgba(255,255,255,0.6)";
      c.fillRect(T.GUTTER, 0, left - T.GUTTER, box.height);
      c.fillRect(right, 0, box.width - right, box.height);
      c.strokeStyle = dark ? "#e6e8eb" : "#1f2933";
      c.strokeRect(left + 0.5, 0.5, right - left - 1, box.height - 1);
    }

    /* ---- pointing and selecting ---- */
    under(e) {
      const box = this.canvas.getBoundingClientRect();
      return T.under(this.s, this.painter.width, e.clientX - box.left, e.clientY - box.top);
    }

    hover(e) {
      if (e.buttons) return;
      this.point(this.under(e), e);
    }

    point(what, e) {
      const before = this.s.hovered;
      this.s.hovered = what && what.event !== undefined ? what : null;
      if ((before && keyed(before)) !== (this.s.hovered && keyed(this.s.hovered))) this.draw();
      this.canvas.style.cursor = this.s.hovered ? "pointer" : "default";
      if (!what || (what.event === undefined && what.cover === undefined)) return void (this.tip.hidden = true);
      const where = `rank ${what.row.rank} · ${T.clean(what.row.lane.name)}`, words = this.s.sorts[what.sort].words;
      const lines = what.event !== undefined ? [T.make("b", {}, T.clean(what.name)), `${T.time(what.dur)}${what.row.lane.what === "summary" ? " on this line" : ""} · ${words}`, where] : [T.make("b", {}, `${what.cover > 0 && what.cover < 0.005 ? "<1" : Math.round(100 * what.cover)} % busy, mostly ${words}`), `within ${T.time(what.column)} · zoom in for names`, where];
      this.tip.replaceChildren(...lines.map((l) => T.make("div", {}, l)));
      this.tip.hidden = false;
      const box = this.stage.getBoundingClientRect(), size = this.tip.getBoundingClientRect();
      const x = Math.min(e.clientX - box.left + 14, box.width - size.width - 4), y = e.clientY - box.top + 16;
      Object.assign(this.tip.style, { left: `${Math.max(x, 4)}px`, top: `${y + size.height > box.height ? Math.max(y - size.height - 28, 0) : y}px` });
    }

    click(e) {
      const what = this.under(e);
      this.canvas.focus({ preventScroll: true });
      if (what && what.event !== undefined) this.explain(what, false);
      else if (what && what.cover !== undefined) this.zoom(0.25, what.t);
      else this.unselect();
    }

    into(what) {
      if (!what || what.start === undefined) return;
      const rest = Math.max(what.dur, 10) * 1.5;
      this.go(what.start - rest, what.start + what.dur + rest);
    }

    unselect() {
      this.s.selected = null;
      this.panel.hidden = true;
      this.write();
      this.draw();
    }

    /* Show everything that is known of a slice; with ``move`` bring it into view first. */
    async explain(what, move) {
      this.s.selected = { ...what };
      this.panel.hidden = false;
      const head = T.make("div", { class: "tl-head" }, T.make("h2", {}, "Slice"), T.make("button", { type: "button", class: "tl-button", "aria-label": "Close details", onclick: () => this.unselect() }, "×"));
      this.panel.replaceChildren(head, T.make("p", { class: "tl-quiet" }, "Reading …"));
      this.write();
      this.draw();
      try {
        const asked = new URLSearchParams({ rank: what.rank, capture: what.capture, event: what.event });
        const found = await (await T.ask(`${this.api}/event?${asked}`, this.gone.signal)).json();
        const still = this.s.selected;
        if (!still || keyed(still) !== keyed(what)) return;
        Object.assign(still, { start: found.start, dur: found.dur, lane: found.lane, depth: found.depth });
        this.draw();
        if (move) this.reveal(found);
        const acts = T.make("div", { class: "tl-acts" });
        acts.append(T.make("button", { type: "button", class: "tl-button", onclick: () => this.into(still) }, "Zoom to it"), T.make("button", { type: "button", class: "tl-button", onclick: () => this.find(`"${found.columns.name}"`, found.start) }, "Find all of this name"));
        this.panel.replaceChildren(head, T.details(found, (other) => this.explain(other, true)), acts);
      } catch (error) {
        if (error.name !== "AbortError") this.panel.replaceChildren(head, T.make("p", { role: "alert" }, T.clean(error.message)));
      }
    }

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
      const width = wide >= 6 && wide <= box ? s.t1 - s.t0 : Math.max(found.dur * 12, NARROWEST);
      if (wide < 6 || wide > box || found.start < s.t0 || found.start + found.dur > s.t1) this.go(middle - width / 2, middle + width / 2);
      else this.moved();
    }

    /* ---- search ---- */
    find(text, at) {
      this.query = text.trim().slice(0, LONGEST);
      this.searchBox.value = this.query;
      this.matches = [];
      this.place = -1;
      this.mark();
      this.write();
      this.draw();
      if (!this.query) return void (this.found.textContent = "");
      this.search(at === undefined ? Math.max(this.s.t0, 0) : at, true);
    }

    mark() {
      const whole = /^"(.+)"$/s.exec(this.query), wanted = this.query.toLowerCase(), data = this.s.data;
      /* names are sent cut */
      const hit = whole ? (n) => n === [...whole[1]].slice(0, 200).join("") : (n) => n.toLowerCase().includes(wanted);
      this.s.hits = wanted && data ? new Set(data.names.map((n, i) => (hit(n) ? i : -1)).filter((i) => i >= 0)) : null;
    }

    async search(at, move, back, seen) {
      const query = this.query, asked = new URLSearchParams({ q: query, at: String(Math.round(at)), most: String(Math.min(50 + (seen ? seen.size : 0), MOST_MATCHES)), back: back ? "1" : "0" });
      if (this.ranks) asked.set("ranks", joined([...this.ranks]));
      this.found.textContent = "…";
      try {
        const answer = await (await T.ask(`${this.api}/search?${asked}`, this.gone.signal)).json();
        if (query !== this.query) return;
        this.total = answer.total;
        if (seen) answer.matches = answer.matches.filter((m) => !seen.has(keyed(m)));
        if (!answer.matches.length && answer.total && move && seen !== null) {
          this.found.textContent = `${answer.total.toLocaleString("en-US")} found`;
          return this.search(back ? this.layout.extent_ns + 1 : 0, move, back, null);
        }
        this.matches = answer.matches;
        this.place = move ? (back ? answer.matches.length - 1 : 0) : -1;
        this.counted();
        if (move && this.matches.length) this.explain(this.matches[this.place], true);
      } catch (error) {
        if (error.name !== "AbortError") this.found.textContent = T.clean(error.message);
      }
    }

    counted() {
      this.found.textContent = this.total ? `${this.total.toLocaleString("en-US")} found` : "nothing found";
      this.mark();
      this.draw();
    }

    step(by) {
      if (!this.query) return this.searchBox.focus();
      const next = this.place + by;
      if (this.matches[next] && (this.place >= 0 || !this.s.selected)) {
        this.place = next;
        return this.explain(this.matches[next], true);
      }
      const last = this.matches[this.place] || (this.s.selected && this.s.selected.start !== undefined ? this.s.selected : null);
      /* others may begin at the very same time: they are asked for too, and those already seen left out */
      const seen = last ? new Set([last, ...this.matches.filter((m) => m.start === last.start)].map(keyed)) : new Set();
      const full = seen.size >= MOST_MATCHES;
      if (by > 0) this.search(last ? last.start + (full ? 1 : 0) : Math.max(this.s.t0, 0), true, false, seen);
      else this.search(last ? last.start + (full ? 0 : 1) : this.s.t1, true, true, seen);
    }

    /* ---- out of this page ---- */
    cut(form) {
      const ranks = joined(this.shownRanks());
      const [t0, t1] = [Math.max(Math.floor(this.s.t0), 0), Math.ceil(this.s.t1)];
      return `${this.api}/slice?${new URLSearchParams({ t0, t1, ranks, form })}`;
    }

    download(form, button) {
      return this.leave(button, () => T.download(this.cut(form), form));
    }

    perfetto(button) {
      return this.leave(button, () => T.perfetto(this.site, this.cut("pftrace"), `tracekit: ${this.root.dataset.run}, ${T.time(this.s.t1 - this.s.t0)}`));
    }

    /* Writing a large window takes seconds: its button says so, and is not pressed twice. */
    async leave(button, act) {
      const words = button.textContent;
      this.quiet();
      [button.disabled, button.textContent] = [true, "Writing the slices …"];
      try {
        await act();
      } catch (error) {
        this.tell(T.clean(error.message));
      } finally {
        [button.disabled, button.textContent] = [false, words];
      }
    }

    tell(text) {
      this.banner.textContent = text;
      this.banner.hidden = false;
    }

    quiet() {
      this.banner.hidden = true;
    }
  }

  const keyed = (m) => `${m.rank}.${m.capture}.${m.event}`;

  /* 0,1,2,5 -> 0-2,5 */
  function joined(ranks) {
    const runs = [];
    for (const rank of [...ranks].sort((a, b) => a - b)) {
      const last = runs[runs.length - 1];
      if (last && rank === last[1] + 1) last[1] = rank;
      else runs.push([rank, rank]);
    }
    return runs.map(([a, b]) => (a === b ? String(a) : `${a}-${b}`)).join(",");
  }

  /* Pages come and go without a reload: start where a root appears, stop where it is gone. */
  let now = null;
  const watch = () => {
    const root = document.getElementById("timeline-root");
    if (now && now.root !== root) {
      now.close();
      now = null;
    }
    if (root && !now) now = new Timeline(root);
  };
  const begin = () => {
    new MutationObserver(watch).observe(document.body, { childList: true, subtree: true });
    watch();
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
