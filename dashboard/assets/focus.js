/* Where is the keyboard after the list of runs was drawn anew? Where it was: the element of the same id or address takes it up again. */
(function () {
  "use strict";
  let held = null;

  const named = (one) => one.id || one.getAttribute("href");

  // whoever goes on to another place, or points at nothing, has left the list
  document.addEventListener("focusin", ({ target }) => (held = target.closest("#run-list") ? named(target) : null));
  document.addEventListener("pointerdown", () => (held = null));

  new MutationObserver(() => {
    if (!held || document.activeElement !== document.body) return;
    const again = [...document.querySelectorAll("#run-list input, #run-list a, #run-list button")].find((one) => named(one) === held);
    if (again) again.focus({ preventScroll: true });
  }).observe(document.documentElement, { childList: true, subtree: true });
})();
