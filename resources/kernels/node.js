// Runs inside a sandbox, one for each context in JavaScript or TypeScript: a kernel in a process of its own, and this program
// around it, which can interrupt it and outlives it. Started by `node.sh`; untrusted like everything in there. The lines are
// those of `python.py`.
(() => {
"use strict";
const { spawn } = require("child_process");
const fs = require("fs");
const os = require("os");
const util = require("util");

// Longest text of one `stream` message, characters; a longer one is sent in pieces.
const PIECE = 32 * 1024;
// Longest line, bytes; what is larger is left out and named.
const LONGEST = 12 * 1024 * 1024;

function putLine(fd, value) {
  let bytes = Buffer.from(JSON.stringify(value) + "\n");
  while (bytes.length > 0) {
    try {
      bytes = bytes.subarray(fs.writeSync(fd, bytes));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }
}

// Calls `take` with each line, without its newline.
function lines(take) {
  let rest = [];
  return (bytes) => {
    let at;
    while ((at = bytes.indexOf(10)) >= 0) {
      rest.push(bytes.subarray(0, at));
      const line = Buffer.concat(rest).toString();
      rest = [];
      bytes = bytes.subarray(at + 1);
      if (line.trim() !== "") take(line);
    }
    if (bytes.length > 0) rest.push(Buffer.from(bytes));
  };
}

// What turns TypeScript into JavaScript; undefined where nothing does.
function stripper() {
  const { stripTypeScriptTypes } = require("module");
  if (stripTypeScriptTypes) return (code) => stripTypeScriptTypes(code, { mode: "transform" });
  try {
    const ts = require(require.resolve("typescript", { paths: [process.cwd(), ...(process.env.NODE_PATH ?? "").split(":")] }));
    const compilerOptions = { target: "ESNext", module: "ESNext", verbatimModuleSyntax: true };
    return (code) => ts.transpileModule(code, { compilerOptions }).outputText;
  } catch {
    return undefined;
  }
}

function driver(language) {
  const put = (value) => putLine(1, value);
  if (language === "--list-node") return put({ languages: stripper() ? ["javascript", "typescript"] : ["javascript"] });
  if (language === "typescript" && !stripper()) {
    return put({ missing: { what: "Node of version 22.13 or later, or npm package typescript" } });
  }
  // A kernel of its own process group: an interrupt reaches what it started, and not us.
  const kernel = spawn(process.execPath, [...process.execArgv, "--", "kernel", language], {
    detached: true,
    stdio: ["ignore", "pipe", "pipe", "pipe", "ipc"],
  });
  let ready = false;
  let said = "";
  let last = {};
  const end = (line) => {
    put(line);
    process.exit(0);
  };
  kernel.on("error", (error) => end({ failed: String(error) }));
  kernel.on("close", (code, signal) => {
    if (!ready) end({ failed: "the kernel ended while it started: " + (said.trim().slice(-2000) || "it said nothing") });
    end({ dead: { code: signal ? -os.constants.signals[signal] : code } });
  });
  kernel.stdio[3].on(
    "data",
    lines((line) => {
      if (!ready) {
        ready = true;
        return put({ ready: { language, kernel: "node", pid: kernel.pid } });
      }
      const message = JSON.parse(line);
      last = message.parent_header;
      put({ message });
    }),
  );
  // What programs of the kernel print past it.
  for (const [name, from] of [["stdout", kernel.stdout], ["stderr", kernel.stderr]]) {
    from.setEncoding("utf8");
    from.on("data", (text) => {
      if (!ready) said += text;
      else put({ message: message("iopub", "stream", { name, text }, last) });
    });
  }
  process.on("SIGINT", () => {});
  const interrupt = () => {
    try {
      process.kill(-kernel.pid, "SIGINT");
    } catch {}
  };
  const control = (asked) => {
    const kind = asked.header.msg_type;
    const reply = (content) => put({ message: message("control", kind.replace("_request", "_reply"), content, asked.header) });
    if (kind === "interrupt_request") {
      interrupt();
      reply({ status: "ok" });
    } else if (kind === "shutdown_request") {
      reply({ status: "ok", restart: Boolean(asked.content?.restart) });
      process.kill(-kernel.pid, "SIGKILL");
    } else {
      kernel.send({ channel: "control", message: asked });
    }
  };
  process.stdin.on(
    "data",
    lines((line) => {
      const asked = JSON.parse(line);
      if (asked.op === "interrupt") interrupt();
      else if (asked.op === "send" && typeof asked.message?.header?.msg_type === "string") {
        if (asked.channel === "control") control(asked.message);
        else if (asked.channel === "shell") kernel.send({ channel: "shell", message: asked.message });
      }
    }),
  );
  process.stdin.on("end", () => {
    try {
      process.kill(-kernel.pid, "SIGKILL");
    } catch {}
    process.exit(0);
  });
}

let named = 0;
function message(channel, msg_type, content, parent_header) {
  const msg_id = `${process.pid}_${++named}`;
  const date = new Date().toISOString();
  const header = { msg_id, msg_type, username: "node", session: String(process.pid), date, version: "5.3" };
  return { channel, header, parent_header: parent_header ?? {}, metadata: {}, content };
}

function kernel(language) {
  const vm = require("vm");
  // Older versions have no word for the usual way, and take ours.
  const importModuleDynamically = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER ?? importing;
  const strip = language === "typescript" ? stripper() : undefined;
  let count = 0;
  let parent = {};
  const put = (channel, kind, content, header = parent) => {
    let made = message(channel, kind, content, header);
    const size = JSON.stringify(made).length;
    if (size > LONGEST) {
      const text = `[fumehood: ${size} bytes were left out here: more than a message may have]`;
      made = message(channel, kind, content.data ? { ...content, data: { "text/plain": text } } : { status: content.status, ename: content.ename, evalue: text }, header);
    }
    putLine(3, made);
  };
  const publish = (kind, content) => put("iopub", kind, content);
  const print = (name, text) => {
    for (let at = 0; at < text.length; at += PIECE) publish("stream", { name, text: text.slice(at, at + PIECE) });
  };
  for (const name of ["stdout", "stderr"]) {
    process[name].write = (chunk, encoding, done) => {
      print(name, typeof chunk === "string" ? chunk : Buffer.from(chunk).toString());
      const then = typeof encoding === "function" ? encoding : done;
      if (then) process.nextTick(then);
      return true;
    };
  }
  process.on("uncaughtException", (error) => print("stderr", `Uncaught ${words(error)}\n`));
  process.on("unhandledRejection", (error) => print("stderr", `Uncaught (in promise) ${words(error)}\n`));

  // Who waits for a promise; an interrupt ends the wait. Code that waits for nothing is interrupted by `breakOnSigint`.
  let waiting;
  process.on("SIGINT", () => waiting?.());
  const interrupted = () => Object.assign(new Error("the execution was interrupted"), { name: "KeyboardInterrupt" });
  const awaited = async (value) => {
    if (value === null || typeof value !== "object" || typeof value.then !== "function") return value;
    try {
      return await Promise.race([value, new Promise((_, reject) => (waiting = () => reject(interrupted())))]);
    } finally {
      waiting = undefined;
    }
  };
  // Newer versions hand the last value on in an object, so that a promise is not taken for the wait itself.
  const hands = /\bvalue\b/.test(topLevelAwait("await 0") ?? "");
  const evaluate = async (text) => {
    const code = modules(strip ? strip(text) : text);
    const run = (code) => {
      const script = new vm.Script(code, { filename: `[${count}]`, importModuleDynamically });
      return script.runInThisContext({ breakOnSigint: true, displayErrors: false });
    };
    const wrapped = /\bawait\b/.test(code) ? topLevelAwait(code) : null;
    if (wrapped !== null) {
      const ended = await awaited(run(wrapped));
      return awaited(hands ? ended?.value : ended);
    }
    // What begins with a brace is an object before it is a block, as in Node's own prompt.
    if (/^\s*\{/.test(code) && !/;\s*$/.test(code)) {
      try {
        new vm.Script(`(${code}\n)`);
        return awaited(run(`(${code}\n)`));
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
      }
    }
    return awaited(run(code));
  };

  globalThis.display = async (value) => publish("display_data", { data: await forms(value), metadata: {} });
  Object.defineProperty(globalThis, "__fumehood_import", { value: importing, enumerable: false });

  const failed = (error) => {
    const cut = ["ERR_SCRIPT_EXECUTION_INTERRUPTED", "ERR_SCRIPT_EXECUTION_TIMEOUT"].includes(error?.code);
    if (cut) error = interrupted();
    const is = error instanceof Error || (typeof error?.name === "string" && typeof error?.message === "string");
    const ename = is ? error.name : "Uncaught";
    const evalue = is ? error.message : util.inspect(error);
    const text = is && error.stack ? error.stack : `${ename}: ${evalue}`;
    // Where in our own program it passed is nobody's concern.
    const own = /^\s+at (.*(node:vm|\[eval\]|node:internal)|process\.emit )/;
    return { ename, evalue, traceback: text.split("\n").filter((line) => !own.test(line)) };
  };
  const words = (error) => failed(error).traceback.join("\n");
  const execute = async (request) => {
    const { code, silent, stop_on_error } = request.content;
    if (!silent) publish("execute_input", { code, execution_count: ++count });
    try {
      const value = await evaluate(String(code));
      if (!silent && value !== undefined) {
        publish("execute_result", { data: await forms(value), metadata: {}, execution_count: count });
      }
      return { status: "ok", execution_count: count, user_expressions: {}, payload: [] };
    } catch (error) {
      const told = failed(error);
      if (!silent) publish("error", told);
      if (stop_on_error !== false) abort();
      return { status: "error", execution_count: count, ...told };
    }
  };
  // Node's own prompt knows how to complete; it is asked nothing else.
  let prompt;
  const complete = ({ code, cursor_pos }) =>
    new Promise((resolve) => {
      const { PassThrough } = require("stream");
      prompt ??= require("repl").start({ prompt: "", input: new PassThrough(), output: new PassThrough().resume(), useGlobal: true });
      const upTo = String(code).slice(0, cursor_pos);
      prompt.completer(upTo.split("\n").pop(), (error, [matches, on] = [[], ""]) => {
        const found = error ? [] : matches.filter((match) => match !== "");
        resolve({ status: "ok", matches: found, cursor_start: cursor_pos - on.length, cursor_end: cursor_pos, metadata: {} });
      });
    });
  const answers = {
    execute_request: execute,
    complete_request: (request) => complete(request.content),
    inspect_request: () => ({ status: "ok", found: false, data: {}, metadata: {} }),
    is_complete_request: () => ({ status: "unknown" }),
    history_request: () => ({ status: "ok", history: [] }),
    comm_info_request: () => ({ status: "ok", comms: {} }),
    kernel_info_request: () => ({
      status: "ok",
      protocol_version: "5.3",
      implementation: "fumehood-node",
      implementation_version: process.versions.node,
      banner: `Node.js ${process.version}`,
      help_links: [],
      language_info:
        language === "typescript"
          ? { name: "typescript", version: process.versions.node, mimetype: "text/typescript", file_extension: ".ts" }
          : { name: "javascript", version: process.versions.node, mimetype: "text/javascript", file_extension: ".js" },
    }),
  };
  const queue = [];
  let busy = false;
  // After an error what waits is not executed, as with other kernels.
  const abort = () => {
    for (const one of queue.splice(0)) {
      if (one.message.header.msg_type !== "execute_request") queue.push(one);
      else put(one.channel, "execute_reply", { status: "aborted" }, one.message.header), idle(one.message.header);
    }
  };
  const idle = (header) => put("iopub", "status", { execution_state: "idle" }, header);
  const work = async () => {
    if (busy) return;
    busy = true;
    for (let one; (one = queue.shift()); ) {
      const { channel, message: request } = one;
      const kind = request.header.msg_type;
      parent = request.header;
      publish("status", { execution_state: "busy" });
      const content = answers[kind] ? await answers[kind](request) : undefined;
      if (content) put(channel, kind.replace("_request", "_reply"), content);
      publish("status", { execution_state: "idle" });
    }
    busy = false;
  };
  process.on("message", (one) => {
    queue.push(one);
    work();
  });
  process.on("disconnect", () => process.exit(0));
  putLine(3, { ready: true });
}

// How a value is shown: by what it says of itself, as notebooks of Deno and of ijavascript know it, or as text.
async function forms(value) {
  const shown = { "text/plain": util.inspect(value, typeof value === "string" ? { maxStringLength: Infinity } : {}) };
  if (value === null || (typeof value !== "object" && typeof value !== "function")) return shown;
  const ask = (name) => (typeof value[name] === "function" ? value[name]() : undefined);
  const own = await ask(Symbol.for("Jupyter.display"));
  if (own) return { ...own };
  const known = { _toHtml: "text/html", _toSvg: "image/svg+xml", _toPng: "image/png", _toJpeg: "image/jpeg" };
  for (const [name, mime] of Object.entries(known)) {
    const form = await ask(name);
    if (form !== undefined) shown[mime] = form;
  }
  Object.assign(shown, await ask("_toMime"));
  const plain = Array.isArray(value) || [Object.prototype, null].includes(Object.getPrototypeOf(value));
  if (plain) {
    try {
      shown["application/json"] = JSON.parse(JSON.stringify(value));
    } catch {}
  }
  return shown;
}

// A module by its name: seen from the working folder, or among the packages of the template.
async function importing(name) {
  try {
    return await import(/[.]{1,2}[/]/.test(name.slice(0, 3)) ? require("url").pathToFileURL(require("path").resolve(name)) : name);
  } catch (error) {
    if (error.code !== "ERR_MODULE_NOT_FOUND" || !process.env.NODE_PATH) throw error;
    const found = require.resolve(name, { paths: process.env.NODE_PATH.split(":") });
    return await import(require("url").pathToFileURL(found));
  }
}

// Code that waits at its top as code that can be run; null where it does not, or cannot be read.
function topLevelAwait(code) {
  const { processTopLevelAwait } = require("internal/repl/await");
  try {
    return processTopLevelAwait(code);
  } catch {
    return null;
  }
}

// `import` statements stand in modules alone; here they become declarations that live on, as all others do.
function modules(code) {
  if (!/\b(import|export)\b/.test(code)) return code;
  let tree;
  try {
    const { Parser } = require("internal/deps/acorn/acorn/dist/acorn");
    tree = Parser.parse(code, { ecmaVersion: "latest", sourceType: "module", allowHashBang: true });
  } catch {
    // It is no module, or no code; whoever runs it says so.
    return code;
  }
  const name = (node) => node.name ?? JSON.stringify(node.value);
  const declared = ({ specifiers, source }) => {
    const from = `await __fumehood_import(${JSON.stringify(source.value)})`;
    const whole = specifiers.find((one) => one.type === "ImportNamespaceSpecifier");
    const parts = specifiers
      .filter((one) => one !== whole)
      .map((one) => (one.type === "ImportDefaultSpecifier" ? `default: ${one.local.name}` : `${name(one.imported)}: ${one.local.name}`));
    if (specifiers.length === 0) return `${from};`;
    const taken = whole ? `var ${whole.local.name} = ${from};` : `var { ${parts.join(", ")} } = ${from};`;
    return whole && parts.length ? `${taken} var { ${parts.join(", ")} } = ${whole.local.name};` : taken;
  };
  for (const node of tree.body.reverse()) {
    if (node.type === "ImportDeclaration") code = code.slice(0, node.start) + declared(node) + code.slice(node.end);
    else if (node.type === "ExportNamedDeclaration" && node.declaration) {
      code = code.slice(0, node.start) + code.slice(node.declaration.start);
    } else if (node.type === "ExportNamedDeclaration" && !node.source && node.specifiers.length === 0) {
      code = code.slice(0, node.start) + code.slice(node.end);
    }
  }
  return code;
}

if (process.argv[1] === "kernel") kernel(process.argv[2]);
else driver(process.argv[1]);
})();
