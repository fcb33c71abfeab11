// What do pages do in the browser? Fetch figures, keep the address and the choices the same, save images, follow links without a reload.
(function () {
  "use strict";

  var held = new Map();           // address -> promise of a figure
  var MOST = 80;

  function scheme() {
    return document.documentElement.getAttribute("data-mantine-color-scheme") === "dark" ? "dark" : "light";
  }

  function navigate(url, replace) {
    if (replace) { window.history.replaceState({}, "", url); } else { window.history.pushState({}, "", url); }
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
  }

  function fetched(url) {
    if (!held.has(url)) {
      if (held.size >= MOST) { held.delete(held.keys().next().value); }
      held.set(url, fetch(url, { credentials: "same-origin" }).then(function (answer) {
        if (!answer.ok) { throw new Error("the server answered " + answer.status); }
        return answer.json();
      }).catch(function (error) { held.delete(url); throw error; }));
    }
    return held.get(url);
  }

  function settle(name, state) {
    var plots = document.querySelectorAll("[data-figure]");
    plots.forEach(function (plot) {
      if (plot.dataset.figure === name) { plot.classList.remove("loading"); plot.classList.toggle("failed", state === "failed"); }
    });
  }

  // Figures in the window are drawn first; the others follow by themselves, one at a time from the top, when the browser has nothing else to do.
  var NEAR = "300px";             // how far below the window counts as in it
  var drawing = 0, waiting = [], asked = false;

  function turn(name) {
    var plot = Array.prototype.find.call(document.querySelectorAll("[data-figure]"), function (p) { return p.dataset.figure === name; });
    if (!plot || !window.IntersectionObserver) { return Promise.resolve(); }
    return new Promise(function (resolve) {
      var entry = { plot: plot, go: go };
      var watch = new IntersectionObserver(function (seen) {
        if (seen.some(function (s) { return s.isIntersecting; })) { go(); } else if (waiting.indexOf(entry) < 0) { waiting.push(entry); next(); }
      }, { rootMargin: NEAR });
      function go() { watch.disconnect(); waiting = waiting.filter(function (w) { return w !== entry; }); resolve(); }
      watch.observe(plot);
    });
  }
  function next() {
    if (asked || drawing || !waiting.length) { return; }
    asked = true;
    (window.requestIdleCallback || function (f) { setTimeout(f, 50); })(function () {
      asked = false;
      if (drawing || !waiting.length) { return; }
      waiting.reduce(function (a, b) { return b.plot.getBoundingClientRect().top < a.plot.getBoundingClientRect().top ? b : a; }).go();
    });
  }

  function lost(error) {
    var ink = scheme() === "dark" ? "#E4E9F0" : "#1F2933";
    return {
      data: [],
      layout: {
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", xaxis: { visible: false }, yaxis: { visible: false },
        annotations: [{ text: "This figure could not be fetched. Reload the page to try again.", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5, font: { color: ink, size: 14 } }]
      }
    };
  }

  function announce(words) {
    var place = document.getElementById("announce");
    if (place) { place.textContent = words; }
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    tracekit: {
      figure: function (source, _scheme, id) {
        if (!source) { return window.dash_clientside.no_update; }
        var url = source + (source.indexOf("?") < 0 ? "?" : "&") + "theme=" + scheme();
        return turn(id.name).then(function () { drawing += 1; return fetched(url); }).then(function (figure) {
          settle(id.name, "drawn");
          return { data: figure.data, layout: Object.assign({}, figure.layout, { autosize: true }) };
        }, function (error) {
          settle(id.name, "failed");
          return lost(error);
        }).then(function (figure) {
          // what is handed back here is drawn right after: the next one waits until that is over
          setTimeout(function () { drawing -= 1; next(); }, 0);
          return figure;
        });
      },
      controls: function (values, ids) {
        var query = new URLSearchParams(window.location.search), before = query.toString();
        ids.forEach(function (id, i) {
          var value = values[i];
          if (value === null || value === undefined || value === "") { query.delete(id.name); } else { query.set(id.name, value); }
        });
        var after = query.toString();
        if (after !== before) {
          query.delete("page");
          after = query.toString();
          navigate(window.location.pathname + (after ? "?" + after : ""));
        }
        return after;
      },
      picked: function (checked, ids) {
        var runs = ids.filter(function (_, i) { return checked[i]; }).map(function (id) { return id.run; });
        var query = new URLSearchParams(window.location.search);
        if (runs.length) { query.set("pick", runs.join(",")); } else { query.delete("pick"); }
        var text = query.toString();
        if (window.location.pathname === "/") { window.history.replaceState({}, "", "/" + (text ? "?" + text.replace(/%2C/g, ",") : "")); }
        // what is ticked stays so on other pages of the list, and where a tag narrows it
        document.querySelectorAll("#run-list a").forEach(function (to) {
          var other = new URL(to.href);
          if (other.pathname !== "/") { return; }
          if (runs.length) { other.searchParams.set("pick", runs.join(",")); } else { other.searchParams.delete("pick"); }
          to.setAttribute("href", other.pathname + other.search);
        });
        var link = document.getElementById("compare-picked");
        if (link) {
          link.classList.toggle("off", runs.length !== 2);
          link.setAttribute("aria-disabled", runs.length === 2 ? "false" : "true");
          link.setAttribute("title", runs.length === 2 ? "Compare the two ticked runs" : "Tick two runs");
        }
        var href = runs.length === 2 ? "/compare?a=" + encodeURIComponent(runs[1]) + "&b=" + encodeURIComponent(runs[0]) : "/compare";
        return [href, Object.fromEntries(query)];
      },
      // How a table is sorted and filtered goes to the address, where a link and a reload find it; the page itself is not drawn again.
      grids: function (asked, ids, of) {
        var query = new URLSearchParams(window.location.search), before = query.toString();
        ids.forEach(function (id, i) {
          if (!asked[i] || !of[i]) { return; }
          var table = of[i].table, where = "where." + table + ".", words = asked[i].filterModel || {};
          var sort = (asked[i].sortModel || []).map(function (s) { return (s.sort === "asc" ? "-" : "") + s.colId; }).join(",");
          if (sort === of[i].sort) { query.delete("sort." + table); } else { query.set("sort." + table, sort || "-"); }
          Array.from(query.keys()).forEach(function (name) { if (name.indexOf(where) === 0) { query.delete(name); } });
          Object.keys(words).forEach(function (column) { if (words[column].filter) { query.set(where + column, words[column].filter); } });
          told(id.of, where, words);
        });
        var after = query.toString();
        if (after !== before) { window.history.replaceState({}, "", window.location.pathname + (after ? "?" + after : "") + window.location.hash); }
        return after;
      },
      burger: function (opened, navbar) {
        return Object.assign({}, navbar, { collapsed: { mobile: !opened } });
      }
    }
  });

  function told(key, where, words) {
    document.querySelectorAll("[data-rows]").forEach(function (link) {
      if (link.dataset.rows !== key) { return; }
      var to = new URL(link.href);
      Array.from(to.searchParams.keys()).forEach(function (name) { if (name.indexOf(where) === 0) { to.searchParams.delete(name); } });
      Object.keys(words).forEach(function (column) { if (words[column].filter) { to.searchParams.set(where + column, words[column].filter); } });
      link.setAttribute("href", to.pathname + to.search);
    });
  }

  function coloured() {
    document.body.setAttribute("data-ag-theme-mode", scheme());
    if (window.dash_clientside && window.dash_clientside.set_props && document.getElementById("content")) {
      window.dash_clientside.set_props("scheme", { data: scheme() });
    }
  }

  function save(name) {
    var plot = Array.prototype.find.call(document.querySelectorAll("[data-figure]"), function (p) { return p.dataset.figure === name; });
    var drawn = plot && plot.querySelector(".js-plotly-plot");
    if (drawn && window.Plotly) {
      window.Plotly.downloadImage(drawn, { format: "png", scale: 2, width: drawn.clientWidth, height: drawn.clientHeight, filename: "tracekit-" + name });
      announce("Image saved");
    }
  }

  function plain(event, link) {
    var href = link.getAttribute("href");
    return !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.button) && href && href[0] === "/" && href[1] !== "/" && !link.target &&
      !link.hasAttribute("download") && href.indexOf("/api/") !== 0 && href.indexOf("/_") !== 0;
  }

  document.addEventListener("click", function (event) {
    var png = event.target.closest && event.target.closest("[data-png]");
    if (png) { save(png.dataset.png); return; }
    var link = event.target.closest && event.target.closest("a");
    if (!link) { return; }
    if (link.classList.contains("off")) { event.preventDefault(); return; }
    if (link.getAttribute("href") === "") { event.preventDefault(); window.location.reload(); return; }
    if (link.getAttribute("href") === "#content") { event.preventDefault(); document.getElementById("content").focus(); return; }
    if (!plain(event, link)) { return; }
    event.preventDefault();
    if (link.dataset.copy && navigator.clipboard) {
      navigator.clipboard.writeText(link.href).then(function () { announce("Link copied"); link.classList.add("done"); setTimeout(function () { link.classList.remove("done"); }, 1500); }, function () {});
      window.history.replaceState({}, "", link.href);
      return;
    }
    var same = link.pathname === window.location.pathname && link.search === window.location.search;
    navigate(link.href);
    if (!link.hash) { window.scrollTo(0, 0); }
    if (same && link.hash) { anchor(); }
    if (!link.hash) { var content = document.getElementById("content"); if (content) { content.focus({ preventScroll: true }); } }
  });

  var wanted = null;
  function anchor() {
    wanted = decodeURIComponent(window.location.hash.slice(1)) || null;
    arrive();
  }
  function arrive() {
    if (!wanted) { return; }
    var place = document.getElementById(wanted);
    if (!place) { return; }
    wanted = null;
    setTimeout(function () { place.scrollIntoView({ block: "start" }); place.classList.add("arrived"); setTimeout(function () { place.classList.remove("arrived"); }, 2000); }, 250);
  }
  window.addEventListener("hashchange", anchor);
  window.addEventListener("_dashprivate_pushstate", anchor);

  // A server that does not answer is said so; what is on the page stays.
  var ask = window.fetch;
  window.fetch = function () {
    var to = String(arguments[0] && arguments[0].url || arguments[0] || "");
    return ask.apply(this, arguments).then(function (answer) {
      if (to.indexOf("_dash-update-component") >= 0) { offline(answer.status >= 500 ? "The server failed on this request. What is shown may be old; reload the page to try again." : ""); }
      return answer;
    }, function (error) {
      if (to.indexOf("_dash-update-component") >= 0) { offline("The server does not answer. What is shown stays as it was; it goes on when the server is back."); }
      throw error;
    });
  };
  function offline(words) {
    var place = document.getElementById("offline");
    if (place) { place.hidden = !words; place.textContent = words; }
  }

  function start() {
    new MutationObserver(coloured).observe(document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
    new MutationObserver(arrive).observe(document.body, { childList: true, subtree: true });
    document.body.setAttribute("data-ag-theme-mode", scheme());
    anchor();
  }
  if (document.body) { start(); } else { document.addEventListener("DOMContentLoaded", start); }
})();
