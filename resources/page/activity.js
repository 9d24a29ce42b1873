// What happened: the audit log, of one sandbox or of all that the key may see, and what was denied.

import * as api from "./api.js";
import { badge, button, empty, h, moment, plain, put, table, trouble } from "./dom.js";

const MOST = 200;
const BAD = /violation|refused|aborted|denied|lost|threshold/;

export function activity(place, info) {
  let over = false;
  let [events, last] = [[], undefined];
  const kind = h("input", { type: "search", "aria-label": "Only events with this word", placeholder: "Only events with this word", on: { input: () => draw() } });
  const [denied, list] = [h("div"), h("div")];
  put(place, !info && h("h1", {}, "Audit"), info && h("h2", {}, "Denied"), info && denied, info && h("h2", {}, "Record"),
    h("div", { class: "row" }, kind, button("Look again", look)), list);
  if (info) put(denied, violations(info));

  async function look() {
    const found = await api.get(`/v1/audit?${api.query({ sandbox: info?.id, limit: MOST, after: last })}`);
    if (over) return;
    last = found.last ?? last;
    events = [...events, ...found.events].slice(-1000);
    draw();
  }
  function draw() {
    const word = kind.value.trim().toLowerCase();
    const shown = events.filter((event) => !word || JSON.stringify(event).toLowerCase().includes(word)).toReversed();
    put(list, shown.length === 0
      ? empty(events.length ? "No event has this word." : "Nothing is recorded yet.", events.length ? "Try another one." : "Each start, exec, denial, answer and end is recorded here.")
      : table("Events, the newest first", ["Number", "Time", "Event", "Run", "What"], shown.map((event) => h("tr", {},
        h("td", { class: "number" }, event.seq), h("td", {}, moment(Date.parse(event.time))), h("td", {}, badge(event.kind, BAD.test(event.kind) ? "denied" : "event")),
        h("td", {}, h("code", { class: "small" }, plain(event.run))),
        h("td", {}, h("details", {}, h("summary", {}, plain(short(event.body))), h("pre", { tabindex: "0" }, plain(JSON.stringify(event.body, null, 2), true))))))));
  }
  const loop = async () => {
    while (!over) {
      try { if (!document.hidden) await look(); } catch (error) { if (over) return; put(list, trouble(error)); if (error.status !== 0) return; }
      await new Promise((done) => setTimeout(done, 4000));
    }
  };
  loop();
  return () => { over = true; };
}

function short(body) {
  const said = body?.what ?? body?.message ?? body?.reason ?? body?.outcome?.kind ?? body?.outcome ?? body?.route ?? body?.id;
  const text = typeof said === "string" ? said : Object.keys(body ?? {}).join(", ");
  return text.length > 90 ? `${text.slice(0, 90)}…` : text;
}

const SEEN = { output: "read from a program's output: a hint, not evidence", kernel: "seen by the kernel", broker: "seen by the broker" };

/// As the report of a run has them.
function violations(info) {
  const all = info.report?.violations ?? info.violations ?? [];
  if (all.length === 0) {
    return h("p", { class: "quiet" }, info.state === "ended" ? "Nothing was denied that the kernel or a program's own words told of." : "What was denied is counted at the end of the sandbox; until then the record below tells of the first of each kind that the network's broker stopped, and the programs' own output of the rest.");
  }
  return all.map((one) => h("div", { class: "card" }, trouble({ refused: [one] }), h("p", { class: "quiet small" }, plain(`${one.count ?? 1} times, ${SEEN[one.seen] ?? one.seen}${one.program ? `, of ${one.program}` : ""}`))));
}
