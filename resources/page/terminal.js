// A terminal in a sandbox.

import { Terminal } from "./xterm/xterm.mjs";
import { FitAddon } from "./xterm/addon-fit.mjs";
import * as api from "./api.js";
import { button, h, plain, put, trouble } from "./dom.js";

/// xterm.js writes its colours and sizes into style elements, and some colours into style attributes. Neither is let through
/// by a policy without `unsafe-inline`; style sheets that a script makes, and properties that it sets, are. So what it makes
/// as a style element fills such a sheet, and what it writes into the attribute is set as properties.
const make = Document.prototype.createElement;
document.createElement = function (name, ...rest) {
  if (String(name).toLowerCase() === "style") return sheet();
  const element = make.call(document, name, ...rest);
  element.setAttribute = (attribute, value) => {
    if (attribute === "style") element.style.cssText = value;
    else Element.prototype.setAttribute.call(element, attribute, value);
  };
  return element;
};

function sheet() {
  const [stand, made] = [make.call(document, "template"), new CSSStyleSheet()];
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, made];
  Object.defineProperty(stand, "textContent", { set: (text) => made.replaceSync(text), get: () => "" });
  stand.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((known) => known !== made);
    Element.prototype.remove.call(stand);
  };
  return stand;
}

const THEMES = {
  light: { background: "#fbfbfa", foreground: "#1d2527", cursor: "#0f766e", cursorAccent: "#ffffff", selectionBackground: "#b7e0da", white: "#5d6b6e", brightWhite: "#3b4749", yellow: "#8a6100", brightYellow: "#7a5600", green: "#22733d", brightGreen: "#1a6b34", cyan: "#0f6f78", brightCyan: "#0d6670" },
  dark: { background: "#12181a", foreground: "#dbe4e5", cursor: "#4fc4b8", cursorAccent: "#12181a", selectionBackground: "#2d5f5a" },
};

export function terminal(place, info) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const screen = h("div", { class: "screen" });
  const state = h("p", { class: "quiet", role: "status" });
  const again = button("Start another shell", () => open());
  const command = h("input", { type: "text", "aria-label": "Program to start instead of a shell", placeholder: "a shell, or a command line", spellcheck: "false" });
  put(place, h("div", { class: "row" }, command, again, state), screen);

  const shown = new Terminal({
    fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace", fontSize: 14,
    cursorBlink: false, scrollback: 5000, screenReaderMode: false, theme: THEMES[dark.matches ? "dark" : "light"], allowProposedApi: false,
    // What runs inside must not reach the clipboard, the title or a link of this page.
    linkHandler: { activate() {}, allowNonHttpProtocols: false },
  });
  const fit = new FitAddon();
  shown.loadAddon(fit);
  shown.open(screen);
  fit.fit();
  shown.textarea?.setAttribute("aria-label", "Terminal: Tab goes to the program; press Escape and then Tab to leave");
  const recolour = () => { shown.options.theme = THEMES[dark.matches ? "dark" : "light"]; };
  dark.addEventListener("change", recolour);

  // The keyboard must be able to get out of the terminal again.
  let escaped = false;
  shown.attachCustomKeyEventHandler((event) => {
    if (event.type !== "keydown") return true;
    const leaves = event.key === "Tab" && escaped;
    escaped = event.key === "Escape";
    return !leaves;
  });

  let line;
  const say = (control) => { if (line?.readyState === WebSocket.OPEN) line.send(JSON.stringify(control)); };
  shown.onData((text) => { if (line?.readyState === WebSocket.OPEN) type(new TextEncoder().encode(text)); });
  shown.onBinary((text) => { if (line?.readyState === WebSocket.OPEN) type(Uint8Array.from(text, (c) => c.charCodeAt(0))); });
  const type = (all) => { for (let at = 0; at < all.length; at += 32768) line.send(all.slice(at, at + 32768)); };
  shown.onResize(({ rows, cols }) => say({ resize: { rows, cols } }));
  const fitted = new ResizeObserver(() => fit.fit());
  fitted.observe(screen);

  function open() {
    line?.close();
    shown.reset();
    const words = new URLSearchParams({ rows: shown.rows, cols: shown.cols });
    const text = command.value.trim();
    if (text) for (const word of ["/bin/sh", "-c", text]) words.append("cmd", word);
    const now = line = api.socket(api.box(info.id, `/terminal?${words}`));
    let told = false;
    state.textContent = "connecting";
    now.onmessage = ({ data }) => {
      if (now !== line) return;
      if (data instanceof ArrayBuffer) {
        shown.write(new Uint8Array(data));
        return;
      }
      const event = JSON.parse(data);
      if (event.started) state.textContent = `process ${event.started.pid}`;
      if (event.ended) state.textContent = ended(event.ended);
      if (event.failed) put(state, trouble({ refused: [event.failed] }));
      told = Boolean(event.ended || event.failed);
    };
    now.onclose = () => {
      if (now !== line || told) return;
      // A browser does not say why a WebSocket was refused; plain HTTP does.
      state.textContent = "the connection ended";
      api.get(api.box(info.id)).then((found) => { state.textContent = found.state === "running" ? "the connection ended: start another shell" : `the sandbox is ${found.state}`; }, (error) => put(state, trouble(error)));
    };
    shown.focus();
  }
  command.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
  if (info.state === "running") open(); else state.textContent = "the sandbox is paused: resume it first";
  return () => {
    dark.removeEventListener("change", recolour);
    fitted.disconnect();
    const last = line;
    line = undefined;
    last?.close();
    shown.dispose();
  };
}

export function ended(report) {
  const how = report.limit ? `ended by its limit ${report.limit}` : report.signal ? `ended by signal ${report.signal}` : `exited with ${report.code}`;
  return plain(`${how} after ${(report.wall ?? 0).toFixed(1)} s`);
}
