// What the sandbox changed in its workspace: shown, and taken over to the host by who may.

import * as api from "./api.js";
import { badge, button, bytes, confirm, empty, h, notice, plain, put, trouble } from "./dom.js";

/// Files whose differences are open from the start, and lines that are shown of one.
const OPEN = 10;
const LINES = 2000;

export function changes(place, info) {
  let over = false;
  const [list, result] = [h("div"), h("div", { "aria-live": "polite" })];
  put(place, h("div", { class: "row" }, button("Look again", look), h("span", { class: "quiet" }, "Against the workspace as it was given; everything inside stands still while it is read.")), result, list);

  async function look() {
    put(list, h("p", { class: "quiet" }, "Reading what changed"));
    try {
      const found = await api.get(api.box(info.id, "/changes"));
      if (!over) draw(found);
    } catch (error) {
      if (!over) put(list, trouble(error));
    }
  }

  function draw(found) {
    put(result);
    if (found.entries.length === 0 && found.refused.length === 0) {
      put(list, empty("Nothing changed.", "What programs inside write in the workspace is shown here, file by file."));
      return;
    }
    const boxes = new Map();
    const take = (chosen) => confirm(`Take ${chosen ? `${chosen.length} of ${found.entries.length}` : "all"} changes over?`,
      `They are written to ${plain(found.workspace)} on the host, exactly as they are shown here.`, "Take them over", async () => {
        const done = await apply(chosen ? { paths: chosen } : { digest: found.digest });
        await look();
        put(result, done);
      });
    const chosen = () => found.entries.filter((entry) => boxes.get(entry).checked && typeof entry.path === "string").map((entry) => entry.path);
    const some = button("Take the chosen ones", () => (chosen().length ? take(chosen()) : notice("Choose a file first.")));
    put(list,
      h("div", { class: "row" }, h("span", { class: "strong" }, `${found.entries.length} ${found.entries.length === 1 ? "change" : "changes"} in `, h("code", {}, plain(found.workspace))),
        button("Take all", () => take(undefined), { class: "primary" }), some,
        info.state === "ended" && button("Throw away", () => confirm("Throw all changes away?", "Nothing of them is kept.", "Throw them away", async () => { await api.post(api.box(info.id, "/changes/discard")); await look(); }), { class: "danger" })),
      found.entries.map((entry, index) => {
        const check = h("input", { type: "checkbox", "aria-label": `Choose ${plain(entry.name)}` });
        boxes.set(entry, check);
        return h("div", { class: "card change" }, h("div", { class: "row" }, check, badge(entry.change), h("code", { class: "strong" }, plain(entry.name)),
          h("span", { class: "quiet" }, `${plain(entry.kind)}, ${bytes(entry.size)}`), entry.marks.map((mark) => h("span", { class: "badge ask" }, plain(typeof mark === "string" ? mark : JSON.stringify(mark)))),
          entry.touched && h("span", { class: "badge ask" }, "changed on the host meanwhile")),
        entry.diff && h("details", { open: index < OPEN }, h("summary", {}, "Difference"), difference(entry.diff)));
      }),
      found.refused.length > 0 && h("div", { class: "trouble" }, h("p", { class: "strong" }, "Not carried over"), found.refused.map((row) => h("p", {}, plain(`${name(row.path)}: ${row.why}`)))));
  }

  async function apply(asked) {
    let taken;
    try {
      taken = await api.post(api.box(info.id, "/changes/apply"), asked);
    } catch (error) {
      if (error.status !== 409 || !error.body?.conflicts) throw error;
      const reasons = error.body.conflicts.map((row) => ({ what: `${name(row.path)} was not taken`, why: row.why, instead: "nothing was applied: choose the others, or settle it on the host" }));
      throw Object.assign(error, { refused: reasons });
    }
    const done = taken.done;
    const count = done.count ?? done.paths.length;
    return h("p", { role: "status" }, `${count} ${count === 1 ? "path was" : "paths were"} taken over.${done.left ? ` ${done.left} protected ones were left.` : ""}`);
  }

  look();
  return () => { over = true; };
}

const name = (path) => (typeof path === "string" ? path : `bytes ${path.hex}`);

function difference(text) {
  const lines = text.split("\n");
  const kind = (line) => (line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : line.startsWith("@@") ? "at" : "same");
  return h("pre", { class: "diff", tabindex: "0" }, lines.slice(0, LINES).map((line) => h("span", { class: kind(line) }, plain(line, true) || " ")),
    lines.length > LINES && h("span", { class: "at" }, `${lines.length - LINES} more lines`));
}
