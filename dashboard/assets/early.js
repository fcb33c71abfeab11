// Which colours does the page begin with? The remembered ones, else those of the system: set before anything is drawn.
(function () {
  "use strict";
  var kept = null;
  try { kept = window.localStorage.getItem("mantine-color-scheme-value"); } catch (e) { kept = null; }
  var dark = kept === "dark" || (kept !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
})();
