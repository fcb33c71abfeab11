/* How much has arrived, how fast, and how long will the rest take? */
(function () {
  "use strict";
  const U = (window.tracekitUpload = window.tracekitUpload || {});

  function totals(mine) {
    const counted = mine.items.filter((i) => i.state !== "refused");
    const size = counted.reduce((sum, i) => sum + i.file.size, 0);
    const done = counted.reduce((sum, i) => sum + Math.min(i.file.size, i.offset + i.flying), 0);
    return { size, done, files: counted.length, sent: counted.filter((i) => i.state === "sent").length };
  }

  /** Remember how much was there when; speed is taken over the last ten seconds. */
  function moment(mine) {
    const now = performance.now();
    mine.moments.push({ now, done: totals(mine).done });
    while (mine.moments.length > 2 && now - mine.moments[0].now > 10000) mine.moments.shift();
  }

  function speed(mine) {
    const first = mine.moments[0];
    const last = mine.moments[mine.moments.length - 1];
    return first && last.now - first.now > 500 ? Math.max(0, ((last.done - first.done) / (last.now - first.now)) * 1000) : null;
  }

  function bytes(count) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (count >= 1024 && unit < units.length - 1) {
      count /= 1024;
      unit += 1;
    }
    return `${unit ? count.toPrecision(3) : count} ${units[unit]}`;
  }

  function time(seconds) {
    if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    return `${(seconds / 3600).toFixed(1)} h`;
  }

  Object.assign(U, { bytes, moment, speed, time, totals });
})();
