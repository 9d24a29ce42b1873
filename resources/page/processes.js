// What runs inside, as the sandbox itself says it.

import * as api from "./api.js";
import { button, bytes, empty, h, moment, plain, put, table, trouble } from "./dom.js";
import { ended } from "./terminal.js";

export function processes(place, info) {
  let over = false;
  const [started, inside] = [h("div"), h("div")];
  put(place, h("h2", {}, "Started from outside"), started, h("h2", {}, "All processes inside"),
    h("p", { class: "quiet" }, "As the sandbox says it: a program inside chooses its own name, and may lie about itself."), inside);

  const signal = (word, name, number, tree) => button(name, async () => {
    await api.post(api.box(info.id, `/processes/${encodeURIComponent(word)}/signal`), { signal: number, tree });
    await refresh();
  }, { class: number === 9 ? "danger" : "", "aria-label": `${name} ${plain(word)}` });

  async function refresh() {
    const found = await api.get(api.box(info.id, "/processes"));
    if (over) return;
    const programs = found.programs ?? [];
    put(started, programs.length === 0
      ? empty("Nothing was started from outside.", "A terminal, code, or `exec` by any client shows here.")
      : table("Programs started from outside", ["Id", "Process", "Command", "Started", "State", ""], programs.map((program) => h("tr", {},
        h("td", {}, h("code", {}, plain(program.id))), h("td", { class: "number" }, program.pid),
        h("td", {}, h("code", { class: "wrap" }, command(program.program?.argv))), h("td", {}, moment(program.started_ms)),
        h("td", {}, program.report ? ended(program.report) : "runs"),
        h("td", { class: "acts" }, !program.report && [signal(program.id, "Interrupt", 2, false), signal(program.id, "Kill", 9, true)])))));
    const all = found.processes ?? [];
    put(inside, all.length === 0
      ? empty("No process is seen inside.", "Start a terminal, or run code.")
      : table("Processes inside", ["Process", "Parent", "State", "Memory", "Command"], all.map((process) => h("tr", {},
        h("td", { class: "number" }, process.pid), h("td", { class: "number" }, process.parent), h("td", {}, plain(process.state)),
        h("td", { class: "number" }, bytes(process.rss)), h("td", {}, h("code", { class: "wrap" }, command(process.argv)))))));
  }
  const loop = async () => {
    while (!over) {
      try { if (!document.hidden) await refresh(); } catch (error) { if (over) return; put(inside, trouble(error)); }
      await new Promise((done) => setTimeout(done, 3000));
    }
  };
  if (info.state === "running") loop();
  else put(started, empty("The sandbox is paused.", "Resume it to see what runs."));
  return () => { over = true; };
}

/// As a shell would write it, cut.
export function command(argv = []) {
  const text = argv.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${plain(word).replaceAll("'", "'\\''")}'`)).join(" ");
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}
