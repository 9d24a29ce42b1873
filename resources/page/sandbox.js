// One sandbox.

import * as api from "./api.js";
import { badge, bytes, button, confirm, field, h, moment, notice, plain, put, span, table, trouble } from "./dom.js";
import { activity } from "./activity.js";
import { changes } from "./changes.js";
import { code } from "./code.js";
import { files } from "./files.js";
import { processes } from "./processes.js";
import { ask as askToEnd } from "./sandboxes.js";
import { terminal } from "./terminal.js";
import { follow, show } from "./usage.js";

const TABS = [
  ["terminal", "Terminal", terminal],
  ["code", "Code", code],
  ["files", "Files", files],
  ["processes", "Processes", processes],
  ["changes", "Changes", changes],
  ["activity", "Activity", activity],
  ["about", "About", about],
];

export function sandbox(place, id, tab = "terminal", ...rest) {
  const [head, meters, acts, panel] = [h("div"), h("div", { class: "meters" }), h("div", { class: "row" }), h("section", { class: "panel", role: "tabpanel", id: "panel", tabindex: "-1" })];
  let [end, state, stop] = [() => {}, undefined, () => {}];
  let gone = false;
  put(place, h("p", {}, h("a", { href: "#/" }, "Sandboxes")), head, meters, acts, tabs(id, tab), panel);
  panel.setAttribute("aria-labelledby", `tab-${tab}`);

  const view = TABS.find(([word]) => word === tab)?.[2];
  const update = (info, error) => {
    if (gone) return;
    if (error) {
      if (error.status === 404) { put(place, h("h1", {}, "No such sandbox"), trouble(error), h("p", {}, h("a", { href: "#/" }, "See the sandboxes"))); gone = true; end(); }
      return;
    }
    title(head, info);
    show(meters, info);
    if (state === info.state) return;
    state = info.state;
    actions(acts, info, update);
    end();
    end = () => {};
    put(panel);
    if (info.state === "ended" && tab !== "about" && tab !== "activity" && tab !== "changes") ended(panel, info);
    else if (view) end = view(panel, info, ...rest) ?? (() => {});
    else put(panel, h("p", {}, "There is no such part."));
  };
  stop = follow(id, update);
  return () => { gone = true; stop(); end(); };
}

function tabs(id, tab) {
  const links = TABS.map(([word, text]) => h("a", {
    role: "tab", id: `tab-${word}`, href: `#/sandbox/${encodeURIComponent(id)}/${word}`, "aria-selected": String(word === tab), "aria-controls": "panel", tabindex: word === tab ? 0 : -1,
  }, text));
  const move = (event) => {
    const at = links.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: links.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    links[(to + links.length) % links.length].focus();
  };
  return h("div", { class: "tabs", role: "tablist", "aria-label": "Parts of this sandbox", on: { keydown: move } }, links);
}

function title(place, info) {
  document.title = `${plain(info.name ?? info.id)} · Fumehood`;
  put(place, h("h1", {}, plain(info.name ?? info.id), " ", badge(info.state)),
    h("p", { class: "quiet" }, [
      info.name && h("code", {}, plain(info.id)), plain(info.template || "no template"), `${plain(info.tier)} tier`,
      info.state === "ended" ? (info.ended_ms ? `ended ${moment(info.ended_ms)}` : "ended") : info.ends_ms ? `ends in ${span(info.ends_ms - Date.now())}` : "no end",
    ].filter(Boolean).flatMap((part, at) => (at ? [" · ", part] : [part]))));
}

function actions(place, info, update) {
  const path = (rest) => api.box(info.id, rest);
  if (info.state === "ended") { put(place); return; }
  const paused = info.state === "paused";
  put(place,
    button(paused ? "Resume" : "Pause", async () => update(await api.post(path(paused ? "/resume" : "/pause")))),
    button("Live longer", () => longer(info, update)),
    button("End", () => askToEnd(info, async () => update(await api.get(path("")))), { class: "danger" }));
}

function longer(info, update) {
  const life = h("input", { type: "text", value: "10m", required: true });
  confirm("How long from now?", null, "Set", async () => {
    const now = await api.post(api.box(info.id, "/timeout"), { timeout: life.value });
    update(now);
    notice(`It ends in ${span(now.ends_ms - Date.now())}.`);
  }, field("Life", life, "30s, 10m, 2h: counted from now, at most what the key allows"));
}

function ended(place, info) {
  put(place, h("div", { class: "empty" }, h("p", { class: "strong" }, `This sandbox has ended: ${plain(info.reason ?? "")}`),
    info.message && h("p", {}, plain(info.message)), h("p", { class: "quiet" }, "Its changes and what happened in it are still there to be looked at."),
    h("a", { class: "button primary", href: "#/new" }, "Start another one")));
}

function about(place, info) {
  const rows = [
    ["Id", info.id], ["Run", info.run], ["Policy", info.policy], ["Plan", info.plan], ["Tier", info.tier], ["Template", info.template || "none"],
    ["Created", moment(info.created_ms)], ["Ends", info.ends_ms ? moment(info.ends_ms) : "never"], ["Ends when idle for", info.idle_ms ? span(info.idle_ms) : "never"],
    ["Memory, at most", info.memory_limit ? bytes(info.memory_limit) : "no limit"], ["Processors, at most", info.cpus ?? "no limit"], ["Disk, at most", info.disk_limit ? bytes(info.disk_limit) : "no limit"],
    ["User inside", info.agent?.user], ["Home inside", info.agent?.home], ["Why it ended", info.reason], ["Message", info.message],
    ...Object.entries(info.labels ?? {}).map(([key, value]) => [`Label ${key}`, value]),
  ];
  put(place, table("About this sandbox", ["What", "Value"], rows.filter(([, value]) => value !== undefined && value !== null)
    .map(([what, value]) => h("tr", {}, h("th", { scope: "row" }, plain(what)), h("td", { class: "breaks" }, plain(value))))),
  h("h2", {}, "Use"),
  table("Use", ["What", "Amount"], Object.entries(info.usage ?? {}).filter(([, value]) => typeof value === "number")
    .map(([what, value]) => h("tr", {}, h("th", { scope: "row" }, plain(what.replaceAll("_", " "))),
      h("td", { class: "number" }, /percent/.test(what) ? `${value.toFixed(0)} %` : /cpu|wall/.test(what) ? `${value.toFixed(2)} s` : /pids|count/.test(what) ? value : bytes(value))))));
}
