/* Builds the tables of a fold when it is first opened, from what its element states as JSON.

   Most readers never open most folds, and a page without their cells stands in half the time. Cells hold names from trace files: they are
   shown through textContent only. The same tables as components: dashboard/components/text.py.
*/
(function () {
  "use strict";

  const { element } = window.tracekit;
  const UNKNOWN = "unknown";

  function table(grid) {
    const num = (i) => (grid.numeric[i] ? "num" : null);
    const head = element("tr", {}, ...grid.header.map((name, i) => element("th", { scope: "col", class: num(i) }, name)));
    const cell = (text, i) => element("td", { class: [num(i), text === UNKNOWN ? UNKNOWN : ""].filter(Boolean).join(" ") || null }, text);
    const rows = grid.rows.map((row) => element("tr", {}, ...row.map(cell)));
    const whole = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
    const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": grid.title }, whole);
    const note = grid.note ? [element("p", { class: "note" }, grid.note)] : [];
    return element("div", { class: "grid" }, element("h4", {}, grid.title), scroll, ...note);
  }

  function fill(place) {
    const stated = place.dataset.grids;
    if (place.built === stated) return;
    place.built = stated;
    place.replaceChildren(...JSON.parse(stated).map(table));
  }

  // toggle does not bubble: it is caught on its way down
  document.addEventListener(
    "toggle",
    (event) => {
      const fold = event.target;
      if (fold.open && fold.querySelectorAll) fold.querySelectorAll(":scope > [data-grids]").forEach(fill);
    },
    true
  );
  // a page that is drawn anew may keep the fold, open as it is, and state other numbers
  new MutationObserver((changes) => changes.forEach((c) => c.target.parentElement && c.target.parentElement.open && fill(c.target))).observe(
    document.documentElement,
    { attributes: true, attributeFilter: ["data-grids"], subtree: true }
  );
})();
