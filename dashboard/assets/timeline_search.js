/* Where are the slices of a name? All that hold it, one after the other. */
(function () {
  "use strict";
  const T = (window.tracekitTimeline = window.tracekitTimeline || {});

  T.LONGEST = 8000; /* letters that are looked for */
  const MOST_MATCHES = 200; /* that the server gives at a time */

  T.parts = Object.assign(T.parts || {}, {
    find(text, at) {
      this.query = text.trim().slice(0, T.LONGEST);
      this.searchBox.value = this.query;
      this.matches = [];
      this.place = -1;
      this.mark();
      this.write();
      this.draw();
      if (!this.query) return void (this.found.textContent = "");
      this.search(at === undefined ? Math.max(this.s.t0, 0) : at, true);
    },

    mark() {
      const whole = /^"(.+)"$/s.exec(this.query), wanted = this.query.toLowerCase(), data = this.s.data;
      const sent = whole && [...whole[1]].slice(0, 200).join(""); /* names are sent cut */
      const hit = whole ? (n) => n === sent : (n) => n.toLowerCase().includes(wanted);
      this.s.hits = wanted && data ? new Set(data.names.map((n, i) => (hit(n) ? i : -1)).filter((i) => i >= 0)) : null;
    },

    async search(at, move, back, seen) {
      const query = this.query, asked = new URLSearchParams({ q: query, at: String(Math.round(at)), most: String(Math.min(50 + (seen ? seen.size : 0), MOST_MATCHES)), back: back ? "1" : "0" });
      if (this.ranks) asked.set("ranks", T.joined([...this.ranks]));
      this.found.textContent = "…";
      try {
        const answer = await (await T.ask(`${this.api}/search?${asked}`, this.gone.signal)).json();
        if (query !== this.query) return;
        this.total = answer.total;
        if (seen) answer.matches = answer.matches.filter((m) => !seen.has(T.keyed(m)));
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
    },

    counted() {
      this.found.textContent = this.total ? `${this.total.toLocaleString("en-US")} found` : "nothing found";
      this.mark();
      this.draw();
    },

    step(by) {
      if (!this.query) return this.searchBox.focus();
      const next = this.place + by;
      if (this.matches[next] && (this.place >= 0 || !this.s.selected)) {
        this.place = next;
        return this.explain(this.matches[next], true);
      }
      const last = this.matches[this.place] || (this.s.selected && this.s.selected.start !== undefined ? this.s.selected : null);
      /* others may begin at the very same time: they are asked for too, and those already seen left out */
      const seen = last ? new Set([last, ...this.matches.filter((m) => m.start === last.start)].map(T.keyed)) : new Set();
      const full = seen.size >= MOST_MATCHES;
      if (by > 0) this.search(last ? last.start + (full ? 1 : 0) : Math.max(this.s.t0, 0), true, false, seen);
      else this.search(last ? last.start + (full ? 0 : 1) : this.s.t1, true, true, seen);
    },
  });
})();
