// Elements and text. Everything that comes from a sandbox, a key's holder or a model gets into the page as text, by `plain`
// and text nodes; nothing here, and nothing in the other files, reads HTML.

const SVG = "http://www.w3.org/2000/svg";

/// Text with what cannot be seen, or turns the direction of writing, made visible: a name must look like what it is.
export function plain(value, lines = false) {
  const odd = lines
    ? /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g
    : /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
  return String(value ?? "").replace(odd, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/// An element. `on` are listeners, `class` its classes, `value`, `checked` and `disabled` are properties, the rest attributes.
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "indeterminate") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function put(place, ...children) {
  place.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

export function button(text, act, attributes = {}) {
  const click = async (event) => {
    const self = event.currentTarget;
    self.disabled = true;
    try { await act(event); } catch (error) { notice(error); } finally { self.disabled = false; }
  };
  return h("button", { type: "button", ...attributes, on: { click } }, text);
}

/// What went wrong, as every part of Fumehood says it: what, why, what to do.
export function trouble(error) {
  const all = error.refused?.length ? error.refused : [error.record ?? { what: error.message ?? String(error) }];
  return h("div", { class: "trouble", role: "alert" }, all.map((record) => h("dl", {},
    h("dt", {}, "What"), h("dd", { class: "strong" }, plain(record.clause ? `${record.clause}: ${record.what}` : record.what)),
    record.why && [h("dt", {}, "Why"), h("dd", {}, plain(record.why))],
    record.instead && [h("dt", {}, "Do"), h("dd", {}, plain(record.instead))],
    record.id && [h("dt", {}, "Id"), h("dd", {}, h("code", {}, plain(record.id)))])));
}

/// Says something for a while; a failure stays until it is closed.
export function notice(what) {
  const place = document.getElementById("notices");
  const failed = what instanceof Error;
  const box = h("div", { class: failed ? "notice failed" : "notice" }, failed ? trouble(what) : plain(what));
  box.append(h("button", { type: "button", class: "close", "aria-label": "Close this message", on: { click: () => box.remove() } }, "×"));
  place.append(box);
  if (!failed) setTimeout(() => box.remove(), 5000);
}

/// An empty place says what would be there, and what to do for it.
export function empty(what, todo, ...more) {
  return h("div", { class: "empty" }, h("p", { class: "strong" }, what), h("p", { class: "quiet" }, todo), ...more);
}

/// Asks before something that cannot be taken back; what `act` says when it fails is shown there.
export function confirm(title, text, word, act, ...fields) {
  const place = h("div");
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
    h("h2", { id: "dialog-title" }, title), text && h("p", {}, text), fields, place);
  const close = () => { dialog.close(); dialog.remove(); };
  const go = button(word, async () => {
    try { await act(); close(); } catch (error) { put(place, trouble(error)); }
  }, { class: "primary" });
  dialog.append(h("div", { class: "row end" }, button("Cancel", close), go));
  dialog.addEventListener("cancel", (event) => { event.preventDefault(); close(); });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

export function field(label, input, hint) {
  const id = input.id || `f${Math.random().toString(36).slice(2)}`;
  input.id = id;
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), input, hint && h("p", { class: "hint", id: `${id}-hint` }, hint));
}

export function select(options, value, attributes = {}) {
  const element = h("select", attributes, options.map((option) => {
    const [word, text] = Array.isArray(option) ? option : [option, option];
    return h("option", { value: word }, plain(text));
  }));
  element.value = value ?? element.options[0]?.value ?? "";
  return element;
}

/// A table with a caption for those who do not see it.
export function table(caption, heads, rows, attributes = {}) {
  return h("div", { class: "scroll" }, h("table", attributes, h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows)));
}

/// A bare curve of the newest 30 values, from 0 to `most`.
export function spark(values, most, label) {
  const [width, height] = [120, 28];
  const top = Math.max(most || 0, ...values, 1e-9);
  const step = width / 29;
  const points = values.slice(-30).map((value, at, all) => [width - (all.length - 1 - at) * step, height - 2 - (value / top) * (height - 4)]);
  const line = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const first = points[0] ?? [width, height];
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
    svg("title", {}, label),
    svg("polygon", { points: `${first[0].toFixed(1)},${height} ${line} ${width},${height}` }),
    svg("polyline", { points: line }));
}

export function bytes(count) {
  if (!Number.isFinite(count)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${count >= 10 || at === 0 ? count.toFixed(0) : count.toFixed(1)} ${units[at]}`;
}

export function span(ms) {
  if (!Number.isFinite(ms)) return "–";
  const past = ms < 0;
  const s = Math.round(Math.abs(ms) / 1000);
  const text = s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return past ? `${text} ago` : text;
}

export function moment(ms) {
  return Number.isFinite(ms) ? new Date(ms).toLocaleString() : "–";
}

/// A word with a colour of its own, never by colour alone.
export function badge(word, kind = word) {
  return h("span", { class: `badge ${String(kind).replace(/[^a-z]/gi, "")}` }, plain(word));
}
