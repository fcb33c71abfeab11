/* How does somebody move through a timeline? By wheel, drag and keys, other views and other ranks. */
(function () {
  "use strict";
  const T = (window.tracekitTimeline = window.tracekitTimeline || {});

  T.NARROWEST = 20; /* ns of a window */

  T.parts = Object.assign(T.parts || {}, {
    whole() {
      const rest = Math.max(1, Math.round(this.layout.extent_ns * 0.01));
      return [-rest, this.layout.extent_ns + rest];
    },

    clamp() {
      const [from, to] = this.whole(), s = this.s;
      const width = Math.min(Math.max(s.t1 - s.t0, T.NARROWEST), to - from), rest = Math.min(-from, width * 0.05);
      const [a, b] = [-rest, Math.max(this.layout.extent_ns + rest, width - rest)];
      let t0 = (s.t0 + s.t1) / 2 - width / 2;
      t0 = Math.min(Math.max(t0, a), b - width);
      [s.t0, s.t1] = [t0, t0 + width];
    },

    go(t0, t1) {
      [this.s.t0, this.s.t1] = [t0, t1];
      this.clamp();
      this.moved();
    },

    zoom(factor, at) {
      const { t0, t1 } = this.s, centre = at === undefined ? (t0 + t1) / 2 : at;
      if (factor < 1 && t1 - t0 <= T.NARROWEST) return;
      this.go(centre - (centre - t0) * factor, centre + (t1 - centre) * factor);
    },

    pan(share) {
      const by = (this.s.t1 - this.s.t0) * share;
      this.go(this.s.t0 + by, this.s.t1 + by);
    },

    time(e) {
      const box = this.canvas.getBoundingClientRect();
      return this.s.t0 + ((e.clientX - box.left - T.GUTTER) * (this.s.t1 - this.s.t0)) / (box.width - T.GUTTER);
    },

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
    },

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
    },

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
    },

    look(view) {
      if (this.s.view === view) return;
      this.s.view = view;
      this.s.data = this.held = null;
      this.top = "";
      this.s.scroll = this.scroller.scrollTop = 0;
      this.arrange();
      this.moved();
    },

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
    },
  });
})();
