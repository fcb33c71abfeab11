/* How are elements made in the browser? By name, attributes, handlers and children; children that are text are only ever text.

   Names from trace files go through here: nothing is read as HTML.
*/
(function () {
  "use strict";

  /** An element; ``on…`` attributes are handlers, null, undefined and false are left out, true is an attribute without a value. */
  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((c) => c !== null && c !== undefined));
    return made;
  }

  window.tracekit = { element };
})();
