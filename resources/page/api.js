// Asking the server. The page is a client of `/v1` like any other; its session is a cookie that no script reads, and a word
// kept for this origin alone, which goes along as a header.

const STORE = "fumehood.page";

export const session = {
  get half() { return localStorage.getItem(STORE) ?? ""; },
  set half(value) { if (value) localStorage.setItem(STORE, value); else localStorage.removeItem(STORE); },
  /// Called when the server says that it is over.
  over: () => {},
};

export class Problem extends Error {
  constructor(status, body) {
    super(body?.what ?? body?.title ?? body?.message ?? `the server answered ${status}`);
    this.status = status;
    this.body = body;
    this.record = { id: body?.id, clause: body?.clause, what: this.message, why: body?.why ?? body?.detail, instead: body?.instead };
    this.refused = body?.refused ?? [];
  }
}

async function ask(method, path, { body, raw, accept, signal } = {}) {
  const headers = { "X-Fumehood-Page": session.half };
  if (accept) headers.Accept = accept;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: raw ?? (body === undefined ? undefined : JSON.stringify(body)), signal, credentials: "same-origin", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { what: "the server does not answer", why: String(error.message), instead: "see whether `fumehood serve` runs" });
  }
  if (response.ok) return response;
  const text = await response.text();
  let problem;
  try { problem = JSON.parse(text); } catch { problem = { what: text.slice(0, 500) || `the server answered ${response.status}` }; }
  if (response.status === 401) session.over();
  throw new Problem(response.status, problem);
}

export const get = async (path, options) => (await ask("GET", path, options)).json();
export const post = async (path, body = {}, options = {}) => (await ask("POST", path, { body, ...options })).json();
export const drop = async (path) => (await ask("DELETE", path)).json();
export const put = async (path, raw) => (await ask("PUT", path, { raw })).json();
export const blob = async (path) => (await ask("GET", path)).blob();

/// The start of a file, and whether there is more.
export async function head(path, most) {
  const abort = new AbortController();
  const response = await ask("GET", path, { signal: abort.signal });
  const reader = response.body.getReader();
  const parts = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return { bytes: await new Blob(parts).arrayBuffer(), more: false };
    parts.push(value);
    size += value.length;
    if (size > most) {
      abort.abort();
      return { bytes: (await new Blob(parts).arrayBuffer()).slice(0, most), more: true };
    }
  }
}

/// Lines of a body as they come.
async function* split(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    rest += value;
    const all = rest.split("\n");
    rest = all.pop();
    yield* all;
  }
  if (rest) yield rest;
}

/// Server-sent events: `{event, data}`, data as JSON. Ends with the stream.
export async function* events(method, path, options = {}) {
  const response = await ask(method, path, { accept: "text/event-stream", ...options });
  let event = "message";
  let data = [];
  for await (const raw of split(response)) {
    const line = raw.replace(/\r$/, "");
    if (line === "") {
      if (data.length) yield { event, data: parse(data.join("\n")) };
      event = "message";
      data = [];
    } else if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
}

function parse(text) {
  try { return JSON.parse(text); } catch { return text; }
}

/// A WebSocket of our own session: it cannot carry headers, so the word goes along as a protocol.
export function socket(path) {
  const url = new URL(path, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const made = new WebSocket(url, ["fumehood.terminal", `fumehood.page.${session.half}`]);
  made.binaryType = "arraybuffer";
  return made;
}

export const query = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value !== undefined && value !== "")).toString();
export const box = (id, rest = "") => `/v1/sandboxes/${encodeURIComponent(id)}${rest}`;
