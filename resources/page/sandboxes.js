// All sandboxes of the key.

import * as api from "./api.js";
import { badge, button, confirm, empty, h, moment, notice, plain, put, span, table, trouble } from "./dom.js";
import { curves, forget, measure } from "./usage.js";

const EVERY = 2000;
/// Rows shown at once, and how many of them are measured in one round.
const PAGE = 100;
const MEASURED = 12;

export function sandboxes(place) {
  let over = false;
  let all = [];
  let shown = PAGE;
  const rows = new Map();
  const filter = h("input", { type: "search", "aria-label": "Find by name, id or label", placeholder: "Find by name, id or label", on: { input: () => { shown = PAGE; draw(); } } });
  const body = h("tbody");
  const list = h("div");
  const count = h("p", { class: "quiet", "aria-live": "polite" });
  put(place,
    h("div", { class: "row" }, h("h1", {}, "Sandboxes"), h("a", { class: "button primary", href: "#/new" }, "Start a sandbox")),
    h("div", { class: "row" }, filter, count), list);

  const wanted = () => {
    const word = filter.value.trim().toLowerCase();
    const text = (info) => [info.name, info.id, info.template, ...Object.entries(info.labels ?? {}).flat()].join(" ").toLowerCase();
    return word ? all.filter((info) => text(info).includes(word)) : all;
  };

  function draw() {
    const found = wanted();
    count.textContent = all.length ? `${found.length === all.length ? "" : `${found.length} of `}${all.length} ${all.length === 1 ? "lives" : "live"}` : "";
    if (all.length === 0) {
      put(list, empty("No sandbox of this key lives.", "Start one here, or with any client of E2B: what you see is what your key created.",
        h("a", { class: "button primary", href: "#/new" }, "Start a sandbox")));
      return;
    }
    const now = found.slice(0, shown);
    const known = new Set(now.map((info) => info.id));
    for (const id of rows.keys()) if (!known.has(id)) rows.delete(id);
    put(body, now.map((info) => {
      const row = rows.get(info.id) ?? make(info);
      rows.set(info.id, row);
      row.update(info);
      return row.element;
    }));
    if (!body.isConnected) {
      const made = table("Live sandboxes", ["Name", "State", "Made from", "Processor", "Memory", "Ends in", ""], []);
      made.querySelector("tbody").replaceWith(body);
      put(list, made, h("div", { id: "more" }));
    }
    put(list.querySelector("#more"), found.length > shown && button(`Show ${Math.min(PAGE, found.length - shown)} more`, () => { shown += PAGE; draw(); }));
  }

  function make(first) {
    const at = `#/sandbox/${encodeURIComponent(first.id)}`;
    const [state, cpu, memory, ends] = [h("td"), h("td"), h("td"), h("td", { class: "number" })];
    const pause = button("", async () => {
      const paused = row.info.state === "paused";
      row.update(await api.post(api.box(first.id, paused ? "/resume" : "/pause")));
    });
    const kill = button("End", () => ask(first, refresh), { class: "danger", "aria-label": `End ${plain(first.name ?? first.id)}` });
    const row = {
      element: h("tr", {},
        h("td", {}, h("a", { href: at, class: "strong" }, plain(first.name ?? first.id)),
          h("div", { class: "quiet small" }, first.name && h("code", {}, plain(first.id)), " ",
            Object.entries(first.labels ?? {}).slice(0, 4).map(([key, value]) => h("span", { class: "label" }, plain(`${key}=${value}`))))),
        state, h("td", {}, plain(first.template || "–"), h("div", { class: "quiet small" }, plain(first.tier))), cpu, memory, ends,
        h("td", { class: "acts" }, pause, kill)),
      update(info) {
        row.info = info;
        put(state, badge(info.state));
        const [one, other] = curves(info);
        put(cpu, one);
        put(memory, other);
        ends.textContent = info.ends_ms ? span(info.ends_ms - Date.now()) : "never";
        ends.title = info.ends_ms ? moment(info.ends_ms) : "";
        pause.textContent = info.state === "paused" ? "Resume" : "Pause";
        pause.setAttribute("aria-label", `${pause.textContent} ${plain(info.name ?? info.id)}`);
      },
    };
    return row;
  }

  /// The rows that are on the screen are asked one by one, so that many sandboxes cost no more than some.
  async function refresh() {
    all = (await api.get("/v1/sandboxes")).sandboxes;
    all.sort((a, b) => b.created_ms - a.created_ms);
    forget(new Set(all.map((info) => info.id)));
    if (over) return;
    draw();
    const seen = wanted().slice(0, shown).filter((info) => {
      const at = rows.get(info.id)?.element.getBoundingClientRect();
      return at && at.bottom > 0 && at.top < innerHeight;
    }).slice(0, MEASURED);
    await Promise.all(seen.map(async (info) => {
      const now = await api.get(api.box(info.id)).catch(() => undefined);
      if (!now || over) return;
      measure(now);
      rows.get(now.id)?.update(now);
    }));
  }

  const loop = async () => {
    while (!over) {
      try {
        if (!document.hidden) await refresh();
      } catch (error) {
        if (over || error.status === 401) return;
        put(list, trouble(error));
      }
      await new Promise((done) => setTimeout(done, EVERY));
    }
  };
  loop();
  return () => { over = true; };
}

/// Ends a sandbox, when somebody says so twice.
export function ask(info, then) {
  const name = plain(info.name ?? info.id);
  confirm(`End ${name}?`, "Its processes are killed and its files are gone, but for what was applied, copied or kept as a snapshot.", "End it", async () => {
    await api.drop(api.box(info.id));
    notice(`${name} has ended.`);
    await then();
  });
}
