// What sandboxes used, as it was measured lately: curves are kept while the page is open.

import * as api from "./api.js";
import { bytes, h, put, spark } from "./dom.js";

const KEPT = 30;
const histories = new Map();

/// Adds a measurement: `info` as `/v1` shows a sandbox. What nobody measured has no curve.
export function measure(info) {
  const { usage = {}, id } = info;
  const now = performance.now();
  const cpu = (usage.cpu_user ?? 0) + (usage.cpu_system ?? 0);
  const known = histories.get(id) ?? { cpu: [], memory: [] };
  if (known.at !== undefined && now - known.at < 500) return known;
  if (known.at !== undefined) {
    known.cpu.push(Math.max(0, (cpu - known.used) / ((now - known.at) / 1000) * 100));
    if (usage.memory !== undefined) known.memory.push(usage.memory);
  }
  Object.assign(known, { at: now, used: cpu, now: usage.memory });
  for (const list of [known.cpu, known.memory]) list.splice(0, list.length - KEPT);
  histories.set(id, known);
  return known;
}

export function forget(known) {
  for (const id of histories.keys()) if (!known.has(id)) histories.delete(id);
}

/// Two curves: of processor time and of memory.
export function curves(info, known = histories.get(info.id) ?? measure(info)) {
  const percent = known.cpu.at(-1) ?? 0;
  const limit = info.memory_limit ? ` of ${bytes(info.memory_limit)}` : "";
  return [
    h("span", { class: "usage" }, spark(known.cpu, (info.cpus ?? 1) * 100, `processor ${percent.toFixed(0)} %`),
      h("span", { class: "number" }, `${percent.toFixed(0)} %`)),
    h("span", { class: "usage" }, spark(known.memory, info.memory_limit, `memory ${bytes(known.now)}${limit}`),
      h("span", { class: "number" }, bytes(known.now))),
  ];
}

/// Measures one sandbox again and again, and calls `tell` with each measurement.
export function follow(id, tell, every = 2000) {
  let over = false;
  const ask = async () => {
    while (!over) {
      try {
        const info = await api.get(api.box(id));
        if (over) return;
        measure(info);
        tell(info);
        if (info.state === "ended") return;
      } catch (error) {
        if (over) return;
        tell(undefined, error);
        if (error.status === 404 || error.status === 401) return;
      }
      await new Promise((done) => setTimeout(done, document.hidden ? 4 * every : every));
    }
  };
  ask();
  return () => { over = true; };
}

export function show(place, info) {
  const [cpu, memory] = curves(info);
  put(place, h("div", { class: "meter" }, h("span", { class: "quiet" }, "Processor"), cpu),
    h("div", { class: "meter" }, h("span", { class: "quiet" }, "Memory"), memory));
}
