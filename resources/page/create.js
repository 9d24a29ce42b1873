// Starting a sandbox.

import * as api from "./api.js";
import { field, h, plain, put, select, trouble } from "./dom.js";

const PRESETS = ["strict", "python", "node", "data-analysis", "coding-agent"];

export function create(place) {
  const name = h("input", { type: "text", maxlength: 63, spellcheck: "false" });
  const template = select([["", "none: the policy alone"], "base", "code-interpreter-v1"], "");
  const policy = select([["", "that of the template, or base"], ...PRESETS], "");
  const life = h("input", { type: "text", value: "30m", required: true });
  const idle = h("input", { type: "text", value: "" });
  const more = h("textarea", { rows: 4, spellcheck: "false", class: "code" });
  const result = h("div");
  function wanted() {
    const clauses = more.value.trim() ? read(more.value) : undefined;
    const asked = clauses ? (policy.value ? { extends: policy.value, ...clauses } : clauses) : policy.value || undefined;
    return { policy: asked, template: template.value || undefined };
  }
  async function start(event) {
    event.preventDefault();
    put(result);
    const go = form.querySelector("button.primary");
    go.disabled = true;
    go.textContent = "Starting";
    try {
      const made = await api.post("/v1/sandboxes", { ...wanted(), name: name.value || undefined, timeout: life.value, idle: idle.value || undefined });
      location.hash = `#/sandbox/${encodeURIComponent(made.id)}/${template.value.startsWith("code") ? "code" : "terminal"}`;
    } catch (error) {
      put(result, trouble(error));
    } finally {
      go.disabled = false;
      go.textContent = "Start";
    }
  }
  const form = h("form", { class: "card", on: { submit: start } },
    field("Name", name, "May stand for its id; of those that live, no two have the same"),
    h("div", { class: "columns" },
      field("Template", template, "Files and packages that are there from the start: `fumehood template build`"),
      field("Policy", policy, "A preset, laid under what this key may have at most")),
    h("div", { class: "columns" },
      field("Life", life, "30s, 10m, 2h"), field("Ends when idle for", idle, "Empty: it does not")),
    h("details", {}, h("summary", {}, "More clauses"), field("Clauses as JSON", more, '{"limits": {"memory": "1G", "pids": 128}}')),
    result,
    h("div", { class: "row end" },
      h("button", { class: "primary" }, "Start")));
  put(place, h("h1", {}, "Start a sandbox"), form);
  name.focus();
}

export function read(text) {
  try {
    const value = JSON.parse(text);
    if (value && typeof value === "object" && !Array.isArray(value)) return value;
  } catch (error) {
    throw new api.Problem(0, { what: "the clauses are no JSON", why: error.message, instead: 'write {"limits": {"memory": "1G"}}' });
  }
  throw new api.Problem(0, { what: "the clauses are no table", why: "each clause has a name", instead: 'write {"limits": {"memory": "1G"}}' });
}
