/* How is a window of a timeline drawn? Rows of lanes on one canvas: heat maps as stretched images, slices as named bars. */
(function () {
  "use strict";
  const T = (window.tracekitTimeline = window.tracekitTimeline || {});

  const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
  const GUTTER = 216, RULER = 34;
  /* Paul Tol's bright scheme, as in the figures: work is blue or green, communication warm, the host grey. */
  const COLOURS = {
    compute: "#88aacc", forward: "#4477aa", backward: "#228833", recompute: "#aa3377", optimizer: "#66bb99", memcpy: "#66ccee", memset: "#99ddee",
    graph: "#77aadd", all_reduce: "#ee6677", all_gather: "#ccbb44", reduce_scatter: "#dd9955", all_to_all: "#e07b39", broadcast: "#c490bf",
    send_recv: "#d98c95", other_communication: "#b98a6a", operator: "#7d93a8", range: "#a3b1bf", python: "#b9a77c", launch: "#c9b98a",
    async_range: "#b9bec4", device_range: "#aebccb", other: "#a9a9a9",
  };
  const SCHEMES = {
    light: { ground: "#ffffff", band: "#f5f7f9", ink: "#1f2933", soft: "#52606d", faint: "#e4e7eb", row: "#eef1f4", mark: "#1f2933", hit: "#b8860b" },
    dark: { ground: "#1c222b", band: "#212833", ink: "#e4e9f0", soft: "#a4b0bf", faint: "#333c48", row: "#29313c", mark: "#ffffff", hit: "#ffd43b" },
  };

  T.GUTTER = GUTTER;
  T.RULER = RULER;
  T.colour = (name) => COLOURS[name] || COLOURS.other;
  T.scheme = () => {
    const said = document.documentElement.getAttribute("data-mantine-color-scheme");
    if (said === "dark" || said === "light") return said;
    return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  };

  /* Names come from trace files: control, format and unassigned characters are shown, not obeyed. */
  T.clean = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}]/gu, "\ufffd");

  /* What is written in a bar: without what every kernel's name begins with. */
  T.brief = (name) => T.clean(name).replace(/^void\s+/, "").replace(/^(?:nccl|rccl)(?:Dev)?Kernel_(\w+).*$/s, "$1");

  const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  T.time = (ns, step) => {
    if (ns === null || ns === undefined) return "unknown";
    const size = Math.max(Math.abs(ns), step || 0);
    const [factor, unit] = UNITS.find(([f]) => size >= f) || UNITS[3];
    const value = Math.round(ns) === 0 ? 0 : ns / factor;
    const digits = factor === 1 ? 0 : step ? Math.min(Math.max(0, Math.ceil(-Math.log10(step / factor) - 1e-9)), 9) : Math.max(0, 2 - Math.floor(Math.log10(Math.max(Math.abs(value), 1e-9))));
    return `${value.toLocaleString("en-US", { minimumFractionDigits: Math.min(digits, 9), maximumFractionDigits: Math.min(digits, 9) })} ${unit}`;
  };

  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const dark = (hex) => {
    const [r, g, b] = rgb(hex);
    return 0.299 * r + 0.587 * g + 0.114 * b < 140;
  };
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

  /* An answer of the server, made ready: heat maps become images one pixel high. */
  T.prepared = (answer, sorts) => {
    const rows = new Map();
    const present = new Set();
    const palette = sorts.map((s) => rgb(T.colour(s.name)));
    for (const row of answer.rows) {
      const pieces = row.pieces.map((piece) => {
        if (piece.bars) {
          const [start, dur, name, sort, event] = piece.bars;
          sort.forEach((s) => present.add(s));
          return { capture: piece.capture, start: start.map((t) => t + answer.start), dur, name, sort, event };
        }
        const cover = bytes(piece.cover), sort = bytes(piece.sort);
        const image = document.createElement("canvas");
        image.width = cover.length;
        image.height = 1;
        const pixels = new ImageData(cover.length, 1);
        for (let i = 0; i < cover.length; i++) {
          if (!cover[i]) continue;
          present.add(sort[i]);
          const [r, g, b] = palette[sort[i]] || [128, 128, 128];
          pixels.data.set([r, g, b, 56 + Math.round(cover[i] * (199 / 255))], 4 * i);
        }
        image.getContext("2d").putImageData(pixels, 0, 0);
        return { image, cover, sort, from: piece.start + answer.start, to: piece.end + answer.start };
      });
      rows.set(`${row.rank}.${row.lane}.${row.depth}`, pieces);
    }
    return { start: answer.start, end: answer.end, column: answer.column_ns, names: answer.names, rows, present, leftOut: answer.left_out };
  };

  /* Where each row stands: one line per rank, or a headline per rank and its lanes below. */
  T.arranged = (layout, view, ranks, room) => {
    const rows = [], heads = [];
    let y = 4;
    const shown = layout.ranks.filter((r) => !ranks || ranks.has(r.rank));
    const tall = view === "ranks" ? Math.max(9, Math.min(28, Math.floor((room / Math.max(shown.length, 1) - 6) / 2))) : 17;
    for (const rank of shown) {
      const device = rank.lanes.some((l) => l.what === "device");
      const wanted = { ranks: ["summary"], devices: device ? ["device", "communication"] : ["communication", "thread"] }[view];
      const top = y;
      if (view !== "ranks") y += 22;
      rank.lanes.forEach((lane, number) => {
        if (wanted ? !wanted.includes(lane.what) : lane.what === "summary") return;
        for (let depth = 0; depth < lane.tracks; depth++) {
          rows.push({ key: `${rank.rank}.${number}.${depth}`, rank: rank.rank, lane, number, depth, y, height: tall });
          y += tall + 1;
        }
        if (view !== "ranks") y += 3;
      });
      y += view === "ranks" ? 4 : 8;
      heads.push({ rank: rank.rank, host: rank.host, y: top, height: y - top });
    }
    return { rows, heads, height: y };
  };

  T.Painter = class {
    constructor(canvas) {
      this.canvas = canvas;
      this.context = canvas.getContext("2d");
      this.widths = new Map();
    }

    fit() {
      const ratio = window.devicePixelRatio || 1, box = this.canvas.getBoundingClientRect();
      this.width = Math.max(320, Math.round(box.width));
      this.height = Math.max(160, Math.round(box.height));
      const [w, h] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
      if (this.canvas.width !== w || this.canvas.height !== h) [this.canvas.width, this.canvas.height] = [w, h];
      this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    }

    /* s: t0, t1, scroll, rows, heads, data, steps, selected, hovered, hits, sorts, view */
    paint(s) {
      const c = this.context, theme = SCHEMES[T.scheme()];
      const span = this.width - GUTTER, scale = span / (s.t1 - s.t0);
      const x = (t) => GUTTER + (t - s.t0) * scale;
      c.fillStyle = theme.ground;
      c.fillRect(0, 0, this.width, this.height);
      c.save();
      c.beginPath();
      c.rect(0, RULER, this.width, this.height - RULER);
      c.clip();
      s.heads.forEach((head, i) => {
        const y = head.y - s.scroll + RULER;
        if (y > this.height || y + head.height < RULER || i % 2) return;
        c.fillStyle = theme.band;
        c.fillRect(0, y, this.width, head.height);
      });
      this.steps(s, theme, x, RULER, this.height);
      c.save();
      c.beginPath();
      c.rect(GUTTER, RULER, span, this.height - RULER);
      c.clip();
      this.marked = false;
      for (const row of s.rows) {
        const y = row.y - s.scroll + RULER;
        if (y + row.height < RULER || y > this.height) continue;
        c.fillStyle = theme.row;
        c.fillRect(GUTTER, y, span, row.height);
        for (const piece of (s.data && s.data.rows.get(row.key)) || []) {
          if (piece.image) this.heat(piece, x, y, row.height);
          else this.bars(s, theme, row, piece, x, y);
        }
      }
      this.place(s, theme, x);
      c.restore();
      this.labels(s, theme);
      c.restore();
      this.ruler(s, theme, x);
    }

    heat(piece, x, y, height) {
      const c = this.context, left = x(piece.from), right = x(piece.to), n = piece.cover.length;
      const first = Math.max(0, Math.floor(((GUTTER - left) / (right - left)) * n)), last = Math.min(n, Math.ceil(((this.width - left) / (right - left)) * n));
      if (last <= first) return;
      c.imageSmoothingEnabled = (right - left) / n < 1;
      const at = (i) => left + ((right - left) * i) / n;
      c.drawImage(piece.image, first, 0, last - first, 1, at(first), y, at(last) - at(first), height);
    }

    bars(s, theme, row, piece, x, y) {
      const c = this.context, h = row.height;
      c.font = `${h > 13 ? 11 : 9}px ${FONT}`;
      c.textBaseline = "middle";
      for (let i = 0; i < piece.start.length; i++) {
        const left = x(piece.start[i]), right = x(piece.start[i] + piece.dur[i]);
        if (right < GUTTER - 1 || left > this.width) continue;
        const from = Math.max(left, GUTTER - 2), width = Math.max(Math.min(right, this.width + 2) - from, 1);
        const colour = T.colour(s.sorts[piece.sort[i]].name);
        c.fillStyle = colour;
        c.fillRect(from, y, width > 3 ? width - 0.75 : width, h);
        const hit = s.hits && s.hits.has(piece.name[i]);
        if (hit) {
          c.fillStyle = theme.hit;
          c.fillRect(from, y + h - 3, Math.max(width, 3), 3);
        }
        if (width > 26 && h > 8) {
          c.fillStyle = dark(colour) ? "#ffffff" : "#10161c";
          const text = this.cut(T.brief(s.data.names[piece.name[i]]), width - 8);
          if (text) c.fillText(text, from + 4, y + h / 2 + 0.5);
        }
        const is = (one) => one && one.rank === row.rank && one.capture === piece.capture && one.event === piece.event[i];
        if (is(s.selected) || is(s.hovered)) {
          c.strokeStyle = theme.mark;
          c.lineWidth = is(s.selected) ? 2 : 1;
          this.marked = this.marked || is(s.selected);
          c.strokeRect(from + 0.5, y + 0.5, Math.max(width - 1, 2), h - 1);
        }
      }
    }

    /* Where the selected slice is while no bar of it is drawn: a shade stands there, or an earlier slice covers it. */
    place(s, theme, x) {
      const one = s.selected, c = this.context;
      if (this.marked || !one || one.start === undefined) return;
      const rows = s.rows.filter((r) => r.rank === one.rank && (s.view === "ranks" || r.key === `${one.rank}.${one.lane}.${one.depth}`));
      if (!rows.length) return;
      const last = rows[rows.length - 1], left = x(one.start), width = Math.max(x(one.start + one.dur) - left, 3);
      c.strokeStyle = theme.mark;
      c.lineWidth = 2;
      c.setLineDash([4, 3]);
      c.strokeRect(left, rows[0].y - s.scroll + RULER - 1, width, last.y + last.height - rows[0].y + 2);
      c.setLineDash([]);
    }

    cut(text, room) {
      const width = this.measure("e") * 0.94;
      const letters = Math.floor(room / width);
      if (letters < 2) return "";
      return text.length <= letters ? text : text.slice(0, letters - 1) + "…";
    }

    measure(letter) {
      const key = this.context.font + letter;
      if (!this.widths.has(key)) this.widths.set(key, this.context.measureText(letter).width);
      return this.widths.get(key);
    }

    labels(s, theme) {
      const c = this.context;
      c.fillStyle = theme.ground;
      c.globalAlpha = 0.86;
      c.fillRect(0, RULER, GUTTER, this.height - RULER);
      c.globalAlpha = 1;
      c.textBaseline = "middle";
      for (const head of s.heads) {
        const y = head.y - s.scroll + RULER;
        if (y > this.height || y + head.height < RULER) continue;
        const dense = s.view === "ranks" && head.height < 22;
        c.fillStyle = theme.ink;
        c.font = `600 ${dense ? 11 : 13}px ${FONT}`;
        c.fillText(`rank ${head.rank}`, 12, s.view === "ranks" ? y + head.height / 2 - 2 : y + 11);
        if (head.host && !dense) {
          c.fillStyle = theme.soft;
          c.font = `11px ${FONT}`;
          c.fillText(this.cut(T.clean(head.host), GUTTER - 88), 78, s.view === "ranks" ? y + head.height / 2 - 2 : y + 11);
        }
      }
      if (s.view === "ranks") return;
      c.font = `11px ${FONT}`;
      for (const row of s.rows) {
        const y = row.y - s.scroll + RULER;
        const deeper = row.lane.deeper && row.depth === row.lane.tracks - 1 ? `${row.lane.deeper} deeper, not drawn` : "";
        if ((row.depth && !deeper) || y + row.height < RULER || y > this.height) continue;
        c.fillStyle = theme.soft;
        c.fillText(this.cut(row.depth ? deeper : T.clean(row.lane.name), GUTTER - 30), 22, y + row.height / 2 + 0.5);
      }
    }

    steps(s, theme, x, top, bottom) {
      const c = this.context;
      c.strokeStyle = theme.faint;
      c.lineWidth = 1;
      let last = -Infinity;
      for (const step of s.steps) {
        for (const t of [step.start, step.end]) {
          const at = Math.round(x(t)) + 0.5;
          if (at < GUTTER || at > this.width || at - last < 3) continue;
          c.beginPath();
          c.moveTo(at, top);
          c.lineTo(at, bottom);
          c.stroke();
          last = at;
        }
      }
    }

    ruler(s, theme, x) {
      const c = this.context, span = this.width - GUTTER, width = s.t1 - s.t0;
      c.fillStyle = theme.ground;
      c.fillRect(0, 0, this.width, RULER);
      c.font = `11px ${FONT}`;
      c.textBaseline = "middle";
      const rough = width / Math.max(span / 130, 1), power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
      const step = Math.max(1, [1, 2, 5, 10].map((m) => m * power).find((v) => v >= rough) || 10 * power);
      c.strokeStyle = theme.faint;
      for (let t = Math.ceil(s.t0 / step) * step; t <= s.t1; t += step) {
        const at = x(t);
        c.beginPath();
        c.moveTo(Math.round(at) + 0.5, 20);
        c.lineTo(Math.round(at) + 0.5, RULER);
        c.stroke();
        c.fillStyle = theme.soft;
        const text = T.time(t, step);
        if (at + 4 + text.length * 6 < this.width) c.fillText(text, at + 4, 26);
      }
      let free = GUTTER;
      for (const one of s.steps) {
        const left = Math.max(x(one.start), GUTTER), right = Math.min(x(one.end), this.width);
        if (right - left < 4) continue;
        const text = `step ${one.step}`;
        c.fillStyle = theme.faint;
        c.fillRect(left + 1, 3, right - left - 2, 14);
        if (right - left > 44 && left >= free - 1) {
          c.fillStyle = theme.ink;
          c.fillText(text, left + 6, 10.5);
          free = left + 44;
        }
      }
      c.strokeStyle = theme.faint;
      c.beginPath();
      c.moveTo(0, RULER - 0.5);
      c.lineTo(this.width, RULER - 0.5);
      c.stroke();
    }
  };

  /* What lies under a point: a bar, a column of a heat map, or a row with nothing there. */
  T.under = (s, width, px, py) => {
    const y = py - RULER + s.scroll;
    const row = py < RULER || px < GUTTER ? null : s.rows.find((r) => y >= r.y && y < r.y + r.height);
    if (!row) return null;
    const t = s.t0 + ((px - GUTTER) * (s.t1 - s.t0)) / (width - GUTTER), pixel = (s.t1 - s.t0) / (width - GUTTER);
    for (const piece of (s.data && s.data.rows.get(row.key)) || []) {
      if (piece.image) {
        const i = Math.floor(((t - piece.from) / (piece.to - piece.from)) * piece.cover.length);
        if (i >= 0 && i < piece.cover.length && piece.cover[i]) return { row, t, cover: piece.cover[i] / 255, sort: piece.sort[i], column: s.data.column };
        continue;
      }
      let best = -1;
      for (let i = 0; i < piece.start.length; i++) {
        if (piece.start[i] - 2 * pixel > t) break;
        if (piece.start[i] + Math.max(piece.dur[i], 2 * pixel) >= t) best = i;
      }
      if (best >= 0)
        return { row, t, rank: row.rank, capture: piece.capture, event: piece.event[best], name: s.data.names[piece.name[best]], start: piece.start[best], dur: piece.dur[best], sort: piece.sort[best] };
    }
    return { row, t };
  };
})();
