// A plan: who would hold which clause on this machine, before anything runs.

import * as api from "./api.js";
import { badge, button, empty, field, h, plain, put, select, table, trouble } from "./dom.js";
import { read } from "./create.js";

export const PRESETS = ["strict", "python", "node", "data-analysis", "coding-agent"];

/// What a plan for a new sandbox says, as a part of a page.
export async function planned(asked) {
  try {
    return drawn(await api.post("/v1/plan", asked));
  } catch (error) {
    if (error.status === 401) throw error;
    return h("div", {}, h("h2", {}, "This is refused"), trouble(error));
  }
}

function drawn(found) {
  const weakened = found.weakened ?? [];
  const clauses = (found.clauses ?? []).map((row) => h("tr", {},
    h("th", { scope: "row" }, h("code", {}, plain(row.clause))), h("td", { class: "breaks" }, value(row.value), row.origin && h("div", { class: "quiet small" }, plain(typeof row.origin === "string" ? row.origin : JSON.stringify(row.origin)))),
    h("td", { class: "breaks" }, row.enforcer ? h("code", {}, plain(row.enforcer)) : "–"), h("td", {}, row.strength ? badge(row.strength) : "–"),
    h("td", {}, plain(row.against ?? "–")), h("td", {}, plain(row.overshoot ?? ""))));
  return h("div", {}, h("h2", {}, `Who holds what: ${plain(found.tier)} tier by ${plain(found.backend)}`),
    h("p", { class: "quiet small" }, "Digest ", h("code", {}, plain(found.digest))),
    weakened.length > 0 && h("div", { class: "trouble" }, h("p", { class: "strong" }, "Weaker than asked for, because the policy prefers it so"),
      weakened.map((row) => h("p", {}, plain(`${row.clause}: wanted ${text(row.wanted)}, got ${text(row.got)}: ${row.why}`)))),
    table("Clauses and who holds them", ["Clause", "Value", "Held by", "Strength", "Against", "Overshoot"], clauses));
}

const text = (what) => (typeof what === "string" ? what : JSON.stringify(what));
const value = (what) => h("code", {}, plain(text(what) ?? "–"));

export function plan(place) {
  const preset = select(PRESETS, "strict");
  const more = h("textarea", { rows: 4, class: "code", spellcheck: "false" });
  const shown = h("div", { "aria-live": "polite" }, empty("No plan is shown yet.", "Choose a policy: nothing is started for a plan."));
  const draw = async () => {
    const asked = more.value.trim() ? { extends: preset.value, ...read(more.value) } : preset.value;
    put(shown, h("p", { class: "quiet" }, "Asking what this machine can hold"));
    put(shown, await planned({ policy: asked }));
  };
  put(place, h("h1", {}, "Plan"),
    h("p", { class: "quiet" }, "Each clause of a policy is held by a named mechanism of this machine, or the sandbox is refused. This is what would hold, and what it would not promise."),
    h("div", { class: "card" }, field("Policy", preset), h("details", {}, h("summary", {}, "More clauses"), field("Clauses as JSON", more, '{"limits": {"memory": "1G"}}')),
      h("div", { class: "row end" }, button("Show the plan", draw, { class: "primary" }))), shown);
}
