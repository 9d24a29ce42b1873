// Files inside: what the sandbox's own user may read and write, and no more.

import * as api from "./api.js";
import { badge, button, bytes, confirm, empty, field, h, moment, notice, plain, put, table, trouble } from "./dom.js";

/// How much of a file is shown.
const SHOWN = 256 * 1024;

export function files(place, info) {
  let over = false;
  const home = info.agent?.cwd || info.agent?.home || "/";
  const [crumbs, list, shown] = [h("nav", { class: "crumbs", "aria-label": "Folder" }), h("div"), h("div", { "aria-live": "polite" })];
  const upload = h("input", { type: "file", multiple: true, class: "unseen", tabindex: "-1", "aria-hidden": "true" });
  let here = home;
  put(place, h("div", { class: "row" }, crumbs), h("div", { class: "row" },
    button("Upload", () => upload.click()), upload, button("New folder", folder), button("Look again", () => open(here))), list, shown);
  if (info.state !== "running") { put(list, empty("The sandbox is paused.", "Resume it to see its files.")); return () => {}; }

  upload.addEventListener("change", async () => {
    for (const file of upload.files) {
      try { await api.put(at(join(here, file.name)), file); notice(`${plain(file.name)} is there.`); } catch (error) { notice(error); }
    }
    upload.value = "";
    await open(here);
  });
  const at = (path) => api.box(info.id, `/files?${api.query({ path })}`);

  async function open(path) {
    here = path;
    put(shown);
    trail(path);
    try {
      const { entries } = await api.get(api.box(info.id, `/files/list?${api.query({ path })}`));
      if (over || here !== path) return;
      entries.sort((a, b) => (is(b) - is(a)) || (a.name < b.name ? -1 : 1));
      put(list, entries.length === 0 ? empty("This folder is empty.", "Upload a file, or let a program write one.")
        : table(`Files in ${plain(path)}`, ["Name", "Kind", "Size", "Mode", "Changed", ""], entries.map(row)));
    } catch (error) {
      if (!over) put(list, trouble(error));
    }
  }
  const is = (entry) => Number(entry.kind === "dir" || entry.target_kind === "dir");

  function row(entry) {
    const path = join(here, entry.name);
    const go = () => (is(entry) ? open(path) : view(path, entry));
    return h("tr", {},
      h("td", {}, h("button", { type: "button", class: "plainly", on: { click: go } }, plain(entry.name) + (is(entry) ? "/" : "")),
        entry.target !== undefined && h("span", { class: "quiet small" }, ` → ${plain(entry.target)}`)),
      h("td", {}, entry.kind === "other" ? "special" : plain(entry.kind)), h("td", { class: "number" }, entry.kind === "file" ? bytes(entry.size) : ""),
      h("td", { class: "number" }, h("code", {}, (entry.mode & 0o7777).toString(8).padStart(3, "0"))), h("td", {}, moment(entry.modified[0] * 1000)),
      h("td", { class: "acts" }, entry.kind === "file" && button("Download", () => save(path, entry.name), { "aria-label": `Download ${plain(entry.name)}` }),
        button("Remove", () => remove(path, entry.name), { class: "danger", "aria-label": `Remove ${plain(entry.name)}` })));
  }

  function trail(path) {
    const parts = path.split("/").filter(Boolean);
    put(crumbs, h("button", { type: "button", class: "plainly", "aria-label": "The topmost folder", on: { click: () => open("/") } }, "/"),
      parts.map((part, index) => [
        h("button", { type: "button", class: "plainly", "aria-current": index === parts.length - 1 ? "page" : null, on: { click: () => open(`/${parts.slice(0, index + 1).join("/")}`) } }, plain(part)),
        index < parts.length - 1 && h("span", { class: "quiet" }, "/"),
      ]));
  }

  async function view(path, entry) {
    try {
      const head = await api.head(at(path), SHOWN);
      const content = new Uint8Array(head.bytes);
      const binary = content.subarray(0, 8192).includes(0);
      const text = new TextDecoder().decode(content);
      const part = h("section", { "aria-label": plain(entry.name) }, h("h2", {}, plain(path), " ", badge(bytes(entry.size))),
        binary ? h("p", {}, "It is no text: download it.") : h("pre", { tabindex: "0" }, plain(text, true)),
        head.more && h("p", { class: "quiet" }, `The first ${bytes(SHOWN)} are shown.`));
      put(shown, part);
      part.scrollIntoView({ block: "nearest" });
    } catch (error) {
      put(shown, trouble(error));
    }
  }

  async function save(path, name) {
    const link = h("a", { href: URL.createObjectURL(await api.blob(at(path))), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  function remove(path, name) {
    confirm(`Remove ${plain(name)}?`, "A folder goes with all that is in it.", "Remove", async () => { await api.drop(at(path)); await open(here); });
  }

  function folder() {
    const name = h("input", { type: "text", required: true });
    confirm("New folder", null, "Make it", async () => {
      await api.post(api.box(info.id, "/files/mkdir"), { path: join(here, name.value) });
      await open(here);
    }, field("Name", name));
    name.focus();
  }

  open(here);
  return () => { over = true; };
}

const join = (folder, name) => (folder.endsWith("/") ? folder + name : `${folder}/${name}`);
