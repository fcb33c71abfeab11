/* Sends trace files and folders in pieces that survive a reload, a network cut and a restart of the server: where it starts, and what all of it shares.

   One batch of files becomes one run. Its state lives here and not in the page: Dash may draw the area again at any time,
   and another page may be open meanwhile. Each of upload_*.js answers one question. */
(function () {
  "use strict";
  const U = (window.tracekitUpload = window.tracekitUpload || {});

  U.AREA = "tk-upload";
  U.batch = null;

  // a file that misses the area must not replace the page
  for (const kind of ["dragover", "drop"]) {
    window.addEventListener(kind, (event) => {
      if (event.dataTransfer && [...event.dataTransfer.types].includes("Files")) event.preventDefault();
    });
  }

  // Dash draws the page after this script has run, and again on every change of page
  function look() {
    const area = document.getElementById(U.AREA);
    if (area && !area.dataset.built) U.build(area);
  }
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", look);
  else look();
})();
