// The official TypeScript SDK as client, both of its lines: v1 (`@modelcontextprotocol/sdk`) and v2 (`client`).
// usage: node client.mjs FOLDER PLAN     FOLDER has node_modules; PLAN is JSON: {sdk, command | url, token, checks: [...]}
// Prints one line of JSON: what each check gave.
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const [folder, text] = process.argv.slice(2);
const plan = JSON.parse(text);
const load = async (path) => import(pathToFileURL(join(folder, "node_modules/@modelcontextprotocol", path)).href);

const old = plan.sdk === "v1";
const { Client } = await load(old ? "sdk/dist/esm/client/index.js" : "client/dist/index.mjs");
const { StdioClientTransport } = await load(old ? "sdk/dist/esm/client/stdio.js" : "client/dist/stdio.mjs");
const { StreamableHTTPClientTransport } = await load(old ? "sdk/dist/esm/client/streamableHttp.js" : "client/dist/index.mjs");

const headers = plan.token ? { Authorization: `Bearer ${plan.token}` } : {};
const transport = plan.url
  ? new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers } })
  : new StdioClientTransport({ command: plan.command[0], args: plan.command.slice(1), env: process.env, cwd: plan.cwd, stderr: "inherit" });
const options = plan.version ? { versionNegotiation: { mode: plan.version } } : {};
const client = new Client({ name: "peer", version: "1" }, { capabilities: {}, ...options });
await client.connect(transport);

const call = (name, args, more) =>
  old ? client.callTool({ name, arguments: args }, undefined, more) : client.callTool({ name, arguments: args }, more);
const results = {};
for (const check of plan.checks) {
  try {
    if (check.do === "list") {
      results[check.id] = (await client.listTools()).tools.map((tool) => tool.name).sort();
    } else if (check.do === "call") {
      const progress = [];
      const result = await call(check.name, check.arguments, { onprogress: (told) => progress.push(told.progress) });
      const parts = (result.content ?? []).map((part) => part.text ?? part.type);
      results[check.id] = { error: result.isError === true, parts, progress: progress.length };
    } else if (check.do === "cancel") {
      const stop = new AbortController();
      setTimeout(() => stop.abort(), check.after);
      results[check.id] = await call(check.name, check.arguments, { signal: stop.signal }).then(() => "answered", () => "cancelled");
      await new Promise((done) => setTimeout(done, 500));
    } else if (check.do === "resources") {
      results[check.id] = (await client.listResources()).resources.length;
    }
  } catch (error) {
    results[check.id] = { failed: String(error?.message ?? error) };
  }
}
results.version = (client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion ?? null);
if (plan.url && !(results.version ?? "").startsWith("2026") && transport.terminateSession) await transport.terminateSession();
await client.close();
console.log(JSON.stringify(results));
