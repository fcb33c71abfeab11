"use strict";
(function () {
  var options = { responsive: true, displayModeBar: false };
  var narrow = window.innerWidth < 640;
  document.querySelectorAll("[data-figure]").forEach(function (node) {
    var fig = JSON.parse(document.getElementById(node.dataset.figure).textContent);
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
