/* What does this browser remember of uploads that it began, and which does another tab of it send? */
(function () {
  "use strict";
  const U = (window.tracekitUpload = window.tracekitUpload || {});
  const KEY = "tracekit.upload.";
  const KEPT_DAYS = 14;
  const TABS = "tracekit.upload"; // by which tabs of one browser tell each other what they send
  const ANSWER_MS = 300; // another tab answers within

  function fingerprint(item) {
    return KEY + [item.path, item.file.size, item.file.lastModified].join("|");
  }

  function recall(item) {
    const kept = U.parsed(stored(() => localStorage.getItem(fingerprint(item))) || "null");
    return kept && kept.url;
  }

  function remember(item) {
    stored(() => localStorage.setItem(fingerprint(item), JSON.stringify({ url: item.url, at: Date.now() })));
  }

  function forget(item) {
    stored(() => localStorage.removeItem(fingerprint(item)));
  }

  /** Uploads this browser began, by url; those that are too old are dropped. */
  function begun() {
    const found = new Map();
    stored(() => {
      for (const key of Object.keys(localStorage).filter((k) => k.startsWith(KEY))) {
        const kept = U.parsed(localStorage.getItem(key)) || {};
        if (Date.now() - (kept.at || 0) > KEPT_DAYS * 864e5) localStorage.removeItem(key);
        else found.set(kept.url, key);
      }
    });
    return found;
  }

  /** Storage may be full or forbidden; then a reload starts again, and nothing else is lost. */
  function stored(act) {
    try {
      return act();
    } catch (_) {
      return null;
    }
  }

  const tabs = "BroadcastChannel" in window ? new BroadcastChannel(TABS) : null;
  if (tabs) {
    tabs.onmessage = (event) => {
      const mine = U.batch && U.batch.state !== "done" && U.batch.state !== "failed" ? U.batch.items.map((i) => i.url).filter(Boolean) : [];
      if (event.data === "who" && mine.length) tabs.postMessage({ sending: mine });
    };
  }

  /** Uploads, by url, that other tabs of this browser are sending. */
  function elsewhere() {
    const found = new Set();
    if (!tabs) return Promise.resolve(found);
    const asking = new BroadcastChannel(TABS);
    asking.onmessage = (event) => ((event.data && event.data.sending) || []).forEach((url) => found.add(url));
    asking.postMessage("who");
    return U.pause(ANSWER_MS / 1000).then(() => {
      asking.close();
      return found;
    });
  }

  Object.assign(U, { begun, elsewhere, forget, recall, remember, stored });
})();
