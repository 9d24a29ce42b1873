// Which view is shown: the address after `#` says it. A view is a function of its place and the rest of the address, and
// gives back what ends it.

import * as api from "./api.js";
import { button, h, notice, plain, put, trouble } from "./dom.js";
import { create } from "./create.js";
import { sandbox } from "./sandbox.js";
import { sandboxes } from "./sandboxes.js";

const PAGES = [
  ["", "Sandboxes", sandboxes],
];
const OTHERS = { new: create, sandbox };

const main = document.getElementById("main");
const top = document.getElementById("top");
let end = () => {};

function show() {
  end();
  end = () => {};
  document.querySelectorAll("dialog").forEach((dialog) => dialog.remove());
  const [word = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  const page = PAGES.find(([path]) => path === word);
  const view = page?.[2] ?? OTHERS[word] ?? missing;
  const current = page ? word : "";
  put(document.getElementById("nav"), PAGES.map(([path, title]) =>
    h("a", { href: `#/${path}`, "aria-current": path === current && (page || word !== "nowhere") ? "page" : null }, title)));
  document.title = page ? `${page[1]} · Fumehood` : "Fumehood";
  put(main);
  try {
    end = view(main, ...rest) ?? (() => {});
  } catch (error) {
    put(main, trouble(error));
  }
  window.scrollTo(0, 0);
}

function decode(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

function missing(place) {
  put(place, h("h1", {}, "Nothing is here"), h("p", {}, h("a", { href: "#/" }, "See the sandboxes")));
}

function signIn(why) {
  end();
  end = () => {};
  top.hidden = true;
  document.querySelectorAll("dialog").forEach((dialog) => dialog.remove());
  document.title = "Sign in · Fumehood";
  const key = h("input", { type: "password", id: "key", autocomplete: "current-password", required: true, spellcheck: "false", "aria-describedby": "key-hint" });
  const place = h("div");
  const submit = async (event) => {
    event.preventDefault();
    try {
      const opened = await api.post("/page/session", { key: key.value });
      api.session.half = opened.page;
      key.value = "";
      begin(opened);
    } catch (error) {
      put(place, trouble(error));
      key.select();
    }
  };
  put(main, h("form", { class: "card signin", on: { submit } },
    h("h1", {}, "Sign in to Fumehood"),
    why && h("p", { role: "status" }, plain(why)),
    h("label", { for: "key" }, "Key"), key,
    h("p", { class: "hint", id: "key-hint" }, "On the server, ", h("code", {}, "fumehood keys add --name me"), " prints one, once."),
    h("button", { class: "primary" }, "Sign in"), place));
  key.focus();
}

async function signOut() {
  await api.drop("/page/session");
  api.session.half = "";
  signIn("You are signed out.");
}

function begin(who) {
  top.hidden = false;
  put(document.getElementById("who"),
    h("span", { title: who.ceiling ? `under the policy ${plain(who.ceiling)}` : "without a ceiling of its own" }, `key ${plain(who.key)}`),
    button("Sign out", signOut));
  show();
}

api.session.over = () => {
  const was = api.session.half !== "";
  api.session.half = "";
  if (was) signIn("The session is over: sign in again.");
};
window.addEventListener("hashchange", () => { if (!top.hidden) show(); });
window.addEventListener("unhandledrejection", (event) => { if (event.reason?.name !== "AbortError") notice(event.reason); });

if (api.session.half) {
  api.get("/page/session").then(begin, (error) => { if (error.status !== 401) put(main, trouble(error)); });
} else {
  signIn();
}
