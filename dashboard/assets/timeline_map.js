/* Where in the whole run is the window? The strip above: how busy all ranks are, and a frame. */
(function () {
  "use strict";
  const T = (window.tracekitTimeline = window.tracekitTimeline || {});

  T.parts = Object.assign(T.parts || {}, {
    async overview() {
      try {
        const [a, b] = this.whole(), ranks = T.joined(this.layout.ranks.slice(0, 256).map((r) => r.rank));
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
    },

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
    },
  });
})();
