/* Which files were dropped or picked? Folders are opened, hidden files left out. */
(function () {
  "use strict";
  const U = (window.tracekitUpload = window.tracekitUpload || {});

  /** Files of a drop, folders opened: [{file, path}]. */
  async function dropped(transfer) {
    const entries = [...transfer.items].map((item) => (item.webkitGetAsEntry ? item.webkitGetAsEntry() : null)).filter(Boolean);
    if (!entries.length) return [...transfer.files].map((file) => ({ file, path: file.name }));
    const found = [];
    for (const entry of entries) await walk(entry, found);
    return found;
  }

  async function walk(entry, found) {
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      found.push({ file, path: entry.fullPath.replace(/^\//, "") });
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) return;
      for (const inner of some) await walk(inner, found);
    }
  }

  function picked(input) {
    const found = [...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
    input.value = ""; // else the same file cannot be chosen a second time
    return found;
  }

  function hidden(path) {
    return path.split("/").some((part) => part.startsWith("."));
  }

  Object.assign(U, { dropped, hidden, picked });
})();
