/* What is a timeline on its page made of, and when does it start and stop? How it moves, asks, searches and so on stands in timeline_*.js. */
(function () {
  "use strict";
  const T = (window.tracekitTimeline = window.tracekitTimeline || {});
  const make = window.tracekit.element;

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
      this.root.replaceChildren(make("div", { class: "tl-state", role: "status" }, make("div", { class: "tl-spin", "aria-hidden": "true" }), make("p", {}, "Opening the timeline …")));
      try {
        this.layout = await (await T.ask(`${this.api}/layout`, this.gone.signal)).json();
      } catch (error) {
        if (error.name === "AbortError") return;
        const again = make("button", { type: "button", class: "button", onclick: () => this.load() }, "Try again");
        this.root.replaceChildren(make("div", { class: "tl-state", role: "alert" }, make("h2", {}, "The timeline cannot be shown"), make("p", {}, T.clean(error.message)), again));
        return;
      } finally {
        this.root.removeAttribute("aria-busy");
      }
      if (!this.layout.events || !this.layout.extent_ns) {
        this.root.replaceChildren(make("div", { class: "tl-state", role: "status" }, make("h2", {}, "Nothing to draw"), make("p", {}, "The traces of this run hold no slices that take time.")));
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

    build() {
      const button = (label, words, act) => make("button", { type: "button", class: "tl-button", title: words, "aria-label": words, onclick: act }, label);
      const views = make("div", { class: "tl-views", role: "radiogroup", "aria-label": "What to show" });
      for (const [view, words, title] of [["ranks", "One line per rank", "All work of a rank on one line, its communication below"], ["devices", "Streams", "The streams of each device"], ["all", "Everything", "Streams, threads of the host, ranges"]])
        views.append(make("button", { type: "button", role: "radio", "data-view": view, title, onclick: () => this.look(view) }, words));
      this.views = views;
      this.searchBox = make("input", { type: "search", placeholder: "Find by name   /", "aria-label": "Find slices by name", maxlength: T.LONGEST, value: this.query, title: 'Part of a name; in "double quotes", the whole of it' });
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

    tell(text) {
      this.banner.textContent = text;
      this.banner.hidden = false;
    }

    quiet() {
      this.banner.hidden = true;
    }
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
    Object.assign(Timeline.prototype, T.parts);
    new MutationObserver(watch).observe(document.body, { childList: true, subtree: true });
    watch();
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
