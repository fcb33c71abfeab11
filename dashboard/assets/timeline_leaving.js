/* How does a window leave this page? As a file, or to Perfetto in a window of its own. */
(function () {
  "use strict";
  const T = (window.tracekitTimeline = window.tracekitTimeline || {});

  const saved = (blob, name) => {
    const link = window.tracekit.element("a", { href: URL.createObjectURL(blob), download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const named = (answer, otherwise) => {
    const found = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") || "");
    return found ? found[1] : otherwise;
  };

  const download = async (address, form) => {
    const answer = await T.ask(address);
    saved(await answer.blob(), named(answer, `slice.${form}`));
  };

  /* Perfetto's page answers PONG when it is ready; only then, and only to its own origin, are the bytes posted. */
  const perfetto = (site, address, title) => {
    const origin = new URL(site).origin;
    const other = window.open(site, "_blank");
    if (!other) return Promise.reject(new Error("The browser blocked the new window. Allow it for this page, or download the slice and open it there."));
    const ready = new Promise((resolve, reject) => {
      const since = Date.now();
      const heard = (event) => {
        if (event.source !== other || event.origin !== origin || event.data !== "PONG") return;
        stop();
        resolve();
      };
      const timer = setInterval(() => {
        if (other.closed) return stop(), reject(new Error("The window was closed before it was ready."));
        if (Date.now() - since > 30000) return stop(), reject(new Error(`${origin} does not answer. Without internet, download the slice instead.`));
        other.postMessage("PING", origin);
      }, 100);
      const stop = () => {
        clearInterval(timer);
        window.removeEventListener("message", heard);
      };
      window.addEventListener("message", heard);
    });
    const bytes = T.ask(address).then(async (answer) => ({ buffer: await answer.arrayBuffer(), fileName: named(answer, "slice.pftrace") }));
    bytes.catch(() => other.close());
    return Promise.all([bytes, ready]).then(([{ buffer, fileName }]) => other.postMessage({ perfetto: { buffer, title, fileName, keepApiOpen: false } }, origin, [buffer]));
  };

  T.parts = Object.assign(T.parts || {}, {
    cut(form) {
      const ranks = T.joined(this.shownRanks());
      const [t0, t1] = [Math.max(Math.floor(this.s.t0), 0), Math.ceil(this.s.t1)];
      return `${this.api}/slice?${new URLSearchParams({ t0, t1, ranks, form })}`;
    },

    download(form, button) {
      return this.leave(button, () => download(this.cut(form), form));
    },

    perfetto(button) {
      return this.leave(button, () => perfetto(this.site, this.cut("pftrace"), `tracekit: ${this.root.dataset.run}, ${T.time(this.s.t1 - this.s.t0)}`));
    },

    /* Writing a large window takes seconds: its button says so, and is not pressed twice. */
    async leave(button, act) {
      const words = button.textContent;
      this.quiet();
      [button.disabled, button.textContent] = [true, "Writing the slices …"];
      try {
        await act();
      } catch (error) {
        this.tell(T.clean(error.message));
      } finally {
        [button.disabled, button.textContent] = [false, words];
      }
    },
  });
})();
