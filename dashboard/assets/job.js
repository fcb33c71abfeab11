/* Follows one run from the queue to its results, by a small answer of the server, one question at a time.

   The next question is asked only after the last one was answered, so a slow server is never asked twice at once; a hidden tab asks nothing.
   Text of the server holds names from trace files: it is shown through textContent only. */
(function () {
  "use strict";

  const { element } = window.tracekit;
  const AREA = "tk-job";
  const SOON = 700; // ms between an answer and the next question while things move
  const SLOW = 5000; // at most, while nothing changes or the server is away
  const STEPS = [
    ["queued", "Queued"],
    ["reading", "Reading"],
    ["analysing", "Analysing"],
    ["ready", "Ready"],
  ];
  const ENDS = new Set(["ready", "failed", "cancelled"]);
  const NEAR = 150; // ms between questions while ranks are brought together: the results are a moment away

  let following = null;

  function build(area) {
    area.dataset.built = "1";
    area.replaceChildren(
      element("ol", { class: "tk-job-steps", "aria-label": "Stages" }, ...STEPS.map(([name, words]) => element("li", { "data-step": name }, words))),
      element("p", { class: "tk-job-says", role: "status", "aria-live": "polite" }, "Asking the server…"),
      element("progress", { "aria-label": "Progress", max: "1", value: "0" }),
      element("p", { class: "tk-job-numbers" }),
      element("p", { class: "tk-job-lost", role: "alert" }),
      element(
        "div",
        { class: "tk-upload-buttons" },
        element("a", { class: "tk-upload-button tk-upload-primary tk-job-open", href: "/" }, "Open the results"),
        element("button", { type: "button", class: "tk-upload-button tk-job-cancel", onclick: () => order(area, "cancel", "cancelled") }, "Cancel"),
        element("button", { type: "button", class: "tk-upload-button tk-job-retry", onclick: () => order(area, "retry", "read again") }, "Read it again"),
        element("a", { class: "tk-upload-button tk-job-back", href: "/" }, "All runs")
      )
    );
    for (const name of ["open", "cancel", "retry"]) area.querySelector(`.tk-job-${name}`).hidden = true;
    follow(area);
  }

  async function follow(area) {
    const mine = {};
    following = mine;
    let wait = SOON;
    let last = "";
    while (following === mine && area.isConnected) {
      if (document.hidden) await visible();
      try {
        const answer = await fetch(`/api/runs/${encodeURIComponent(area.dataset.run)}/progress`, { headers: { Accept: "application/json" } });
        const told = await answer.json();
        if (following !== mine || !area.isConnected) return; // whoever went elsewhere meanwhile stays there
        if (!answer.ok) {
          lost(area, told.error || `The server answered ${answer.status}.`);
          if (answer.status === 404 || answer.status === 401) return;
          wait = Math.min(SLOW, wait * 1.5);
        } else {
          lost(area, "");
          draw(area, told);
          if (ENDS.has(told.state)) return ended(area, told);
          const now = JSON.stringify(told);
          wait = told.state === "analysing" ? NEAR : now === last ? Math.min(SLOW, wait * 1.3) : SOON;
          last = now;
        }
      } catch (_) {
        lost(area, "The server cannot be reached at the moment. It goes on by itself when it is back; nothing is lost.");
        wait = Math.min(SLOW, wait * 1.5);
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  function visible() {
    return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
  }

  function draw(area, told) {
    area.dataset.state = told.state;
    const at = STEPS.findIndex(([name]) => name === (told.state === "failed" || told.state === "cancelled" ? told.stage : told.state));
    [...area.querySelectorAll(".tk-job-steps li")].forEach((step, i) => {
      const here = i === at ? (told.state === "failed" || told.state === "cancelled" ? "broken" : "now") : i < at ? "past" : "to come";
      step.dataset.state = told.state === "ready" ? "past" : here;
      if (here === "now") step.setAttribute("aria-current", "step");
      else step.removeAttribute("aria-current");
    });
    const numbers = [];
    if (told.total && told.state === "reading") numbers.push(told.total === 1 ? percent(told.share) : `${told.done} of ${told.total} files read`);
    if (told.ranks_read && told.ranks_read.length) numbers.push(`${told.ranks_read.length} ${told.ranks_read.length === 1 ? "rank" : "ranks"} done`);
    if (told.events) numbers.push(`${told.events.toLocaleString("en")} events`);
    if (told.events_per_s && told.state === "reading") numbers.push(`${Math.round(told.events_per_s).toLocaleString("en")} events/s`);
    if (told.seconds_left && !ENDS.has(told.state)) numbers.push(`about ${time(told.seconds_left)} left`);
    text(area, ".tk-job-says", told.says);
    text(area, ".tk-job-numbers", numbers.filter(Boolean).join(" · "));
    const bar = area.querySelector("progress");
    bar.hidden = ENDS.has(told.state);
    if (told.state === "reading" && told.total) {
      bar.max = 1;
      bar.value = told.share === null ? told.done / told.total : told.share;
    } else {
      bar.removeAttribute("value");
    }
    const open = area.querySelector(".tk-job-open");
    open.hidden = !told.results;
    open.setAttribute("href", told.results || "/");
    open.textContent = told.state === "ready" ? "Open the results" : "See what is known so far";
    area.querySelector(".tk-job-cancel").hidden = ENDS.has(told.state);
    area.querySelector(".tk-job-retry").hidden = !(told.state === "failed" || told.state === "cancelled" || (told.state === "ready" && stays(area)));
  }

  function ended(area, told) {
    if (told.state === "ready" && told.results && !stays(area)) {
      // the pages are loaded already: going on inside them saves loading them again
      window.history.replaceState({}, "", told.results);
      window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    }
  }

  /** Whether its person came to have a run that is ready read again. */
  function stays(area) {
    return area.dataset.stay === "yes";
  }

  /** Have the run cancelled, or read once more. */
  async function order(area, what, done) {
    const button = area.querySelector(`.tk-job-${what}`);
    button.disabled = true;
    let failed = "";
    try {
      const answer = await fetch(`/api/runs/${encodeURIComponent(area.dataset.run)}/${what}`, { method: "POST", headers: { "X-Tracekit": "1" } });
      if (!answer.ok) failed = (await answer.json()).error || `It could not be ${done}.`;
    } catch (_) {
      failed = `The server cannot be reached; it was not ${done}.`;
    }
    button.disabled = false;
    if (failed) return lost(area, failed);
    area.dataset.stay = "no";
    follow(area);
  }

  function lost(area, words) {
    text(area, ".tk-job-lost", words);
  }

  function text(area, selector, words) {
    const found = area.querySelector(selector);
    if (found && found.textContent !== words) found.textContent = words;
  }

  function percent(share) {
    return share === null || share === undefined ? "" : `about ${Math.floor(100 * share)} % of the file read`;
  }

  function time(seconds) {
    if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
    return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
  }

  function look() {
    const area = document.getElementById(AREA);
    if (area && !area.dataset.built) build(area);
  }
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
  look();
})();
