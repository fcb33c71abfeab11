/* How is the server asked, and what does a refusal mean? One request at a time for each file; tus 1.0, see dashboard/uploads/tus.py. */
(function () {
  "use strict";
  const U = (window.tracekitUpload = window.tracekitUpload || {});
  const HEADERS = { "X-Tracekit": "1", "Tus-Resumable": "1.0.0" };

  /** One request; resolves with {status, header(name), json()} and rejects with Error("network") or Error("stopped"). */
  function ask(method, url, { headers = {}, body = null, progress = null, on = null } = {}) {
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open(method, url);
      for (const [name, value] of Object.entries({ ...HEADERS, ...headers })) request.setRequestHeader(name, value);
      if (progress) request.upload.onprogress = (event) => progress(event.loaded);
      request.onload = () => resolve({ status: request.status, header: (name) => request.getResponseHeader(name), json: () => parsed(request.responseText) });
      request.onerror = request.ontimeout = () => reject(new Error("network"));
      request.onabort = () => reject(new Error("stopped"));
      if (on) on.request = request;
      request.send(body);
    });
  }

  function parsed(text) {
    try {
      return JSON.parse(text);
    } catch (_) {
      return {};
    }
  }

  class Final extends Error {} // trying again at once would not help
  class NoTrace extends Final {} // the file itself is refused; the others go on without it

  function failed(answer) {
    const said = answer.json().error;
    if (answer.status === 401) return new Final("You are signed out. Open the address with ?token=… again, then go on.");
    const again = answer.status >= 500 && answer.status !== 507;
    const busy = answer.status === 423 || answer.status === 429 || answer.status === 409 || answer.status === 408;
    const reason = said || `The server answered ${answer.status}.`;
    if (answer.status === 415 || answer.status === 400) return new NoTrace(reason);
    return again || busy ? new Error(reason) : new Final(reason);
  }

  Object.assign(U, { Final, NoTrace, ask, failed, parsed });
})();
