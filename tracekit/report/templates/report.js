"use strict";
(function () {
  var options = { responsive: true, displayModeBar: false };
  var narrow = window.innerWidth < 640;
  var dark = document.querySelector("main.both") && window.matchMedia("(prefers-color-scheme: dark)").matches;
  var night = { "#1F2933": "#E6EBF1", "#52606D": "#A3B1C0", "#E4E7EB": "#33404D", "white": "#1A2129" };
  document.querySelectorAll("[data-figure]").forEach(function (node) {
    var text = document.getElementById(node.dataset.figure).textContent;
    if (dark) {
      Object.keys(night).forEach(function (colour) { text = text.split('"' + colour + '"').join('"' + night[colour] + '"'); });
    }
    var fig = JSON.parse(text);
    if (narrow) {
      fig.layout.font.size = 11;
      fig.layout.legend = Object.assign({}, fig.layout.legend, { font: { size: 10 } });
      var names = fig.data.map(function (trace) { return (trace.name || "").length; });
      var widest = Math.max.apply(null, names);
      var lines = function (width, letter) { return Math.ceil(names.length / Math.max(1, Math.floor(width / (letter * widest + 46)))); };
      if (fig.layout.showlegend) {
        fig.layout.height += 17 * (lines(node.clientWidth - 20, 5.4) - lines(900, 6.6));
        node.style.minHeight = fig.layout.height + "px";
      }
    }
    Plotly.newPlot(node, fig.data, fig.layout, options);
  });
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("[data-figure]").forEach(function (node) { Plotly.Plots.resize(node); });
  });
  var links = {};
  document.querySelectorAll("nav a[href^='#']").forEach(function (a) { links[a.getAttribute("href").slice(1)] = a; });
  if ("IntersectionObserver" in window) {
    var seen = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (entry.isIntersecting && links[entry.target.id]) {
          Object.keys(links).forEach(function (id) { links[id].classList.toggle("here", id === entry.target.id); });
        }
      });
    }, { rootMargin: "-80px 0px -70% 0px" });
    document.querySelectorAll("header[id], section[id]").forEach(function (section) { seen.observe(section); });
  }
})();
