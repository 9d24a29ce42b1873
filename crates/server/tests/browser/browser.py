"""A browser without a window, driven over the DevTools protocol on two pipes: nothing to install but Chromium itself."""

import base64
import json
import os
import select
import subprocess
import time

PATIENCE = 30


class Failed(Exception):
    """What a case expected did not come."""


class Browser:
    def __init__(self, program, folder):
        self.number, self.events, self.rest = 0, [], b""
        to_read, self.to = os.pipe()
        self.from_, from_write = os.pipe()
        words = [program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={folder}", "--no-first-run", "--disable-gpu",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--force-color-profile=srgb", "--window-size=1280,900", "about:blank"]
        if os.geteuid() == 0:
            # Chromium's own sandbox stays on: it is started as a plain user.
            os.chown(folder, 1000, 1000)
            words = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", *words]
        environment = {"HOME": folder, "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TZ": "UTC", "XDG_RUNTIME_DIR": folder}

        def pipes():
            # Both may lie on each other's numbers.
            read, write = os.dup(to_read), os.dup(from_write)
            read, write = os.dup2(read, 30), os.dup2(write, 31)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.log = open(f"{folder}/log", "wb")
        self.process = subprocess.Popen(words, preexec_fn=pipes, close_fds=False, env=environment, cwd=folder, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        os.close(to_read)
        os.close(from_write)

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        wanted, until = self.number, time.monotonic() + PATIENCE
        while True:
            answer = self.take(until)
            if answer.get("id") == wanted:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def take(self, until):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.from_], [], [], max(0, until - time.monotonic()))
            piece = os.read(self.from_, 1 << 20) if ready else b""
            if not piece:
                raise Failed("the browser does not answer: " + open(self.log.name).read()[-2000:])
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def page(self, **context):
        found = self.call("Target.createBrowserContext", **context)
        target = self.call("Target.createTarget", url="about:blank", browserContextId=found["browserContextId"])["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session)

    def close(self):
        try:
            self.call("Browser.close")
        except Failed:
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# By what a person finds it: its role and its words, or the label of a field.
FIND = r"""
(role, name, nth) => {
  const roles = { button: 'button, .button, summary', link: 'a', tab: '[role=tab]', field: 'input, select, textarea', row: 'tr', text: 'body *' };
  const label = (e) => e.getAttribute('aria-label') ?? (e.labels?.length ? [...e.labels].map((l) => l.textContent).join(' ') : e.textContent);
  const seen = (e) => e.checkVisibility() && e.getClientRects().length > 0;
  const dialog = document.querySelector('dialog[open]');
  const all = [...(dialog ?? document).querySelectorAll(roles[role] ?? role)].filter((e) => seen(e) && (name === null || label(e).trim() === name || (role === 'row' && e.textContent.includes(name))));
  return all[nth] ?? null;
}
"""


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        for domain in ("Page", "Runtime", "Log", "Network", "Security"):
            self.call(f"{domain}.enable")
        self.size(1280, 900)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def colours(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def go(self, url):
        self.call("Page.navigate", url=url)

    def js(self, text):
        found = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise Failed(f"{text[:80]}: {found['exceptionDetails'].get('exception', {}).get('description')}")
        return found["result"].get("value")

    def until(self, text, what, patience=PATIENCE):
        """Waits until an expression is true."""
        end = time.monotonic() + patience
        while True:
            try:
                value = self.js(text)
            except Failed as failed:
                value, what = None, f"{what} ({failed})"
            if value:
                return value
            if time.monotonic() > end:
                raise Failed(f"{what} did not come; the page says: {self.text()[:1500]}")
            time.sleep(0.1)

    def text(self):
        return self.js("document.body.innerText")

    def says(self, text, patience=PATIENCE):
        self.until(f"document.body.innerText.includes({json.dumps(text)})", repr(text), patience)

    def silent(self, text):
        self.until(f"!document.body.innerText.includes({json.dumps(text)})", f"the end of {text!r}")

    def click(self, role, name=None, nth=0, patience=PATIENCE):
        """A real click in the middle of an element, which must be what lies there."""
        find = f"({FIND})({json.dumps(role)}, {json.dumps(name)}, {nth})"
        place = self.until(f"""(() => {{
          const e = {find};
          if (!e || e.disabled) return null;
          e.scrollIntoView({{ block: 'center', behavior: 'instant' }});
          const r = e.getClientRects()[0], x = r.x + r.width / 2, y = r.y + r.height / 2;
          const top = document.elementFromPoint(x, y);
          return top && (e === top || e.contains(top) || top.contains(e)) ? [x, y] : null;
        }})()""", f"{role} {name!r} to click", patience)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            count = 0 if kind == "mouseMoved" else 1
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left" if count else "none", clickCount=count)

    def fill(self, label, text):
        self.click("field", label)
        self.js("document.activeElement.select?.()")
        self.type(text) if text else self.key("Delete", 46)

    def choose(self, label, value):
        find = f"({FIND})('field', {json.dumps(label)}, 0)"
        self.until(f"[...({find}?.options ?? [])].some((o) => o.value === {json.dumps(value)})", f"{value!r} in {label!r}")
        self.js(f"(() => {{ const e = {find}; e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, code, text=None, modifiers=0):
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, modifiers=modifiers, **more)

    def enter(self, modifiers=0):
        self.key("Enter", 13, "\r", modifiers)

    def shot(self, path):
        picture = self.call("Page.captureScreenshot", format="png")
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))

    def cookies(self):
        return self.call("Network.getCookies")["cookies"]

    def complaints(self):
        """What the browser complained of since the last call: exceptions, refused resources."""
        self.js("1")
        kept, found = [], []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                kept.append(event)
            elif event["method"] == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"])[:500])
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                found.append(event["params"]["entry"]["text"] + " " + event["params"]["entry"].get("url", ""))
        self.browser.events = kept
        return found

    def requests(self):
        """The addresses that were asked since the last call."""
        self.js("1")
        return [event["params"]["request"]["url"] for event in self.browser.events
                if event.get("sessionId") == self.session and event["method"] == "Network.requestWillBeSent"]
