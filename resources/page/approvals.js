// Calls of tools that wait for a person.

import * as api from "./api.js";
import { badge, button, confirm, empty, field, h, moment, notice, plain, put, select, span, trouble } from "./dom.js";

export function approvals(place) {
  let over = false;
  let before = "";
  const all = h("input", { type: "checkbox", id: "all", on: { change: () => { before = ""; look(); } } });
  const list = h("div", { "aria-live": "polite" });
  put(place, h("h1", {}, "Approvals"), h("p", { class: "quiet" }, "A call stands for exactly these arguments, once. Nobody's answer within its time is a no."),
    h("div", { class: "row" }, h("label", { for: "all" }, all, " also those that were answered")), list);

  async function look() {
    const { calls } = await api.get(`/v1/approvals?${api.query({ all: all.checked ? "true" : undefined })}`);
    // A list that is the same is left as it is: somebody may be reading, or about to click.
    const now = JSON.stringify(calls);
    if (over || now === before) return;
    before = now;
    put(list, calls.length === 0 ? empty("No call waits for an answer.", "Where a policy says `ask`, an agent's call is parked here with its arguments until somebody answers.") : calls.map(card));
  }

  function card(call) {
    const { args } = call;
    const text = JSON.stringify(args, null, 2);
    const ends = Date.parse(call.expires);
    const waits = call.state === "waiting";
    const answer = async (said) => { await api.post(`/v1/approvals/${encodeURIComponent(call.id)}`, said); notice(`${plain(call.tool)}: ${said.decision === "approve" ? "approved" : "denied"}.`); await look(); };
    return h("section", { class: "card", "aria-label": `${plain(call.tool)} by ${plain(call.agent)}` },
      h("h2", {}, h("code", {}, plain(call.tool)), " ", badge(call.state, waits ? "ask" : call.state === "approved" ? "allow" : "deny")),
      h("p", {}, plain(`Agent ${call.agent}, session ${call.session}${call.server ? `, server ${call.server}` : ""}`)),
      h("p", { class: "quiet" }, plain(`Asked because of ${call.reason ?? ""}${call.rule ? ` (${call.rule})` : ""}`), waits && `; ends ${moment(ends)}, in ${span(ends - Date.now())}`),
      h("h3", { class: "small" }, "Arguments, as the tool would get them"), h("pre", { tabindex: "0" }, plain(text, true)), look_alikes(text),
      call.by && h("p", { class: "quiet" }, plain(`Answered by ${call.by}${call.why ? `: ${call.why}` : ""}`)),
      waits && h("div", { class: "row" },
        button("Approve once", () => answer({ decision: "approve" }), { class: "primary", "aria-label": `Approve ${plain(call.tool)} once` }),
        button("Approve and remember", () => remember(call, args, answer)),
        button("Deny", () => deny(call, answer), { class: "danger", "aria-label": `Deny ${plain(call.tool)}` })));
  }

  const loop = async () => {
    while (!over) {
      try { if (!document.hidden) await look(); } catch (error) { if (over) return; put(list, trouble(error)); if (error.status !== 0) return; }
      await new Promise((done) => setTimeout(done, 2000));
    }
  };
  loop();
  return () => { over = true; };
}

function deny(call, answer) {
  const why = h("input", { type: "text", maxlength: 500 });
  confirm(`Deny ${plain(call.tool)}?`, null, "Deny", () => answer({ decision: "deny", why: why.value }), field("Why", why, "The agent is told"));
  why.focus();
}

function remember(call, args, answer) {
  const what = select([["args", "the same arguments"], ["tool", "any arguments of this tool, for this agent"], ["session", "any arguments, in this session"]], "args");
  const life = h("input", { type: "text", value: "1h" });
  const any = Object.keys(args && typeof args === "object" ? args : {}).map((name) => [name, h("input", { type: "checkbox" })]);
  const wild = h("fieldset", {}, h("legend", {}, "May be anything"), any.map(([name, check]) => h("label", {}, check, ` ${plain(name)} `)));
  what.addEventListener("change", () => { wild.hidden = what.value !== "args"; });
  confirm(`Approve ${plain(call.tool)}, and what else?`, "Calls like this are then approved without asking.", "Approve and remember", () => answer({
    decision: "approve", remember: { what: what.value, any: what.value === "args" ? any.filter(([, check]) => check.checked).map(([name]) => name) : [], for: life.value },
  }), field("Covers", what), any.length > 0 && wild, field("For", life, "30s, 10m, 8h; at most 30 days"));
}

/// Letters beyond ASCII are named: some look like others.
function look_alikes(text) {
  const odd = [...new Set([...text].filter((c) => /\p{L}/u.test(c) && c > "\u007f"))];
  return odd.length > 0 && h("p", { class: "quiet small" }, `Letters that may look like others: ${odd.slice(0, 30).map((c) => `${c} is \\u{${c.codePointAt(0).toString(16)}}`).join(", ")}`);
}
