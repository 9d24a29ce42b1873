// Code in a context of the sandbox: what is defined stays there for the next cell.

import * as api from "./api.js";
import { button, h, plain, put, select, trouble } from "./dom.js";
import { chart } from "./chart.js";

const LANGUAGES = ["python", "bash", "javascript", "typescript"];
/// Most text of one cell that is shown.
const MOST = 256 * 1024;
const FIRST = { python: "import math\n[math.sqrt(n) for n in range(5)]", bash: "ls -la", javascript: "[1, 2, 3].map(Math.sqrt)", typescript: "const n: number = 6 * 7; n" };

export function code(place, info) {
  let [running, number] = [undefined, 0];
  const language = select(LANGUAGES, "python", { "aria-label": "Language" });
  const source = h("textarea", { class: "code", rows: 6, spellcheck: "false", "aria-label": "Code: Control and Enter run it", value: FIRST.python });
  const cells = h("div", { "aria-live": "polite" });
  const run = button("Run", start, { class: "primary" });
  const stop = h("button", { type: "button", disabled: true, on: { click: () => running?.abort() } }, "Interrupt");
  put(place, h("div", { class: "row" }, language, h("span", { class: "quiet" }, "What is defined stays for the next cell. Control and Enter run it.")),
    source, h("div", { class: "row" }, run, stop), cells);
  language.addEventListener("change", () => { if (Object.values(FIRST).includes(source.value)) source.value = FIRST[language.value] ?? ""; });
  source.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); if (!running) run.click(); }
  });

  async function start() {
    running = new AbortController();
    stop.disabled = false;
    const cell = h("section", { class: "cell", "aria-label": `Cell ${++number}` }, h("pre", { class: "quiet" }, plain(source.value, true)));
    const state = h("p", { class: "quiet", role: "status" }, "runs");
    cell.append(state);
    cells.prepend(cell);
    const printed = printer(cell, state);
    try {
      const body = { code: source.value, language: language.value };
      let whole = false;
      for await (const { event, data } of api.events("POST", api.box(info.id, "/code"), { body, signal: running.signal })) {
        if (event === "line") take(data, printed, state);
        else if (event === "failed") throw new api.Problem(500, data);
        else if (event === "ended") whole = true;
      }
      if (!whole) throw new api.Problem(0, { what: "the execution broke off", why: "the sandbox was paused or ended", instead: "resume it, or start another one" });
      if (state.textContent === "runs") state.textContent = "done";
    } catch (error) {
      state.replaceWith(error.name === "AbortError" ? h("p", { class: "quiet" }, "interrupted") : trouble(error));
    } finally {
      running = undefined;
      stop.disabled = true;
    }
  }
  return () => running?.abort();
}

function printer(cell, state) {
  const last = {};
  let room = MOST;
  return {
    text(kind, text) {
      if (room <= 0) return;
      const kept = text.slice(0, room);
      room -= kept.length;
      if (last.kind !== kind) { Object.assign(last, { kind, pre: h("pre", { class: kind, tabindex: "0" }) }); cell.insertBefore(last.pre, state); }
      last.pre.append(plain(kept, true));
      if (room <= 0) cell.insertBefore(h("p", { class: "quiet" }, "More was printed than is shown here."), state);
    },
    show(element) { last.kind = undefined; cell.insertBefore(element, state); },
  };
}

function take(line, printed, state) {
  if (line.type === "stdout") printed.text("out", line.text);
  else if (line.type === "stderr") printed.text("err", line.text);
  else if (line.type === "error") printed.text("err", `${line.name}: ${line.value}\n${strip(line.traceback ?? "")}\n`);
  else if (line.type === "result") result(line, printed);
  else if (line.type === "number_of_executions") state.textContent = `done: execution ${line.execution_count}`;
}

/// Pictures are pictures: an image runs no script and loads nothing. Everything else is shown as text, HTML too.
function result(line, printed) {
  const picture = [["png", "image/png"], ["jpeg", "image/jpeg"]].find(([name]) => typeof line[name] === "string");
  if (picture) image(printed, `data:${picture[1]};base64,${line[picture[0]].replace(/[^A-Za-z0-9+/=]/g, "")}`, line.text);
  else if (typeof line.svg === "string") image(printed, URL.createObjectURL(new Blob([line.svg], { type: "image/svg+xml" })), line.text);
  const drawn = line.chart && Array.isArray(line.chart.elements) ? chart(line.chart) : undefined;
  if (drawn) printed.show(drawn);
  const said = [line.text, line.markdown, line.latex, line.json !== undefined ? JSON.stringify(line.json, null, 2) : undefined].find((text) => typeof text === "string");
  if (said !== undefined && !picture) printed.text("result", `${said}\n`);
  if (typeof line.html === "string") printed.show(h("details", {}, h("summary", {}, "HTML, as text"), h("pre", { tabindex: "0" }, plain(line.html.slice(0, MOST), true))));
}

function image(printed, src, text) {
  printed.show(h("img", { src, alt: plain(text ?? "a picture that the code made") }));
}

/// Colours of a terminal.
const strip = (text) => text.replace(/\u001b\[[0-9;]*m/g, "");
