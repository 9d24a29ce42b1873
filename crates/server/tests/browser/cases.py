"""The page of a server, by real clicks: cases.py URL KEY OPERATOR PROGRAM STATE TEMPLATE [IMAGES]

STATE is the server's state folder, TEMPLATE `yes` where code-interpreter-v1 is built, IMAGES where pictures of the page go.
The last line is `N passed, N failed, N skipped`.
"""

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from browser import Browser, Failed

URL, KEY, OPERATOR, PROGRAM, STATE, TEMPLATE = sys.argv[1:7]
IMAGES = sys.argv[7] if len(sys.argv) > 7 else None
HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>'
# U+202E turns the direction of what follows.
TURNED = "invoice\u202egpj.exe"


def expect(value, what):
    if not value:
        raise Failed(what)


def ask(method, path, body=None, key=None):
    """A program's request."""
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data=data, method=method, headers={"X-API-KEY": key or KEY})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text[:1] in (b"{", b"[") else text


def command(*words, check=True):
    environment = {**os.environ, "FUMEHOOD_STATE": STATE}
    return subprocess.run([PROGRAM, *words], env=environment, capture_output=True, text=True, check=check, timeout=60).stdout.strip()


def shot(page, name):
    if IMAGES:
        page.js("document.getElementById('notices').replaceChildren()")
        time.sleep(0.3)
        page.shot(os.path.join(IMAGES, name))


def sign_in(page, key=KEY):
    page.go(URL)
    page.says("Sign in to Fumehood")
    page.fill("Key", key)
    page.click("button", "Sign in")
    page.says("Start a sandbox")


def box(**more):
    made = ask("POST", "/v1/sandboxes", {"policy": "python", "timeout": "10m", **more})
    made["path"] = f"/v1/sandboxes/{made['id']}"
    return made


def end_all():
    for one in ask("GET", "/v1/sandboxes")["sandboxes"]:
        ask("DELETE", f"/v1/sandboxes/{one['id']}")


def see(page, made, tab="terminal"):
    page.js(f"location.hash = '#/sandbox/{made['id']}/{tab}'")
    page.until(f"document.querySelector('[role=tab][aria-selected=true]')?.id === 'tab-{tab}'", f"the part {tab}")


def exec_in(made, *cmd):
    return ask("POST", made["path"] + "/exec", {"cmd": list(cmd)})


def screen(page):
    return page.js("document.querySelector('.xterm-rows')?.innerText ?? ''")


def prints(page, text):
    page.until(f"(document.querySelector('.xterm-rows')?.innerText ?? '').includes({json.dumps(text)})", f"{text!r} in the terminal")


# Cases, in the order of the file. Each begins with no sandbox, signed in, and leaves no complaint of the browser.

def signing_in(page):
    page.js("location.hash = ''")
    page.click("button", "Sign out")
    page.says("You are signed out.")
    page.fill("Key", "e2b_" + "0" * 40)
    page.click("button", "Sign in")
    page.says("no good API key")
    page.says("`fumehood keys add` makes one")
    page.complaints()
    page.fill("Key", KEY)
    page.key("Enter", 13, "\r")
    page.says("No sandbox of this key lives.")
    cookie, = [one for one in page.cookies() if one["name"].startswith("fumehood-")]
    expect(cookie["httpOnly"] and cookie["sameSite"] == "Strict", cookie)
    expect(KEY not in page.js("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, document.documentElement.outerHTML])"), "the key is kept")
    expect(page.js("document.cookie") == "", "a script reads the cookie")
    page.call("Page.reload")
    page.says("No sandbox of this key lives.")


def starting_one_and_typing(page):
    page.click("button", "Start a sandbox")
    page.fill("Name", "first")
    page.choose("Policy", "python")
    page.click("button", "Start")
    page.says("process ")
    page.click(".screen")
    page.type("echo he''llo; printf '\\033[38;2;12;34;56mtrue\\033[0m\\n'; stty size")
    page.enter()
    prints(page, "hello")
    prints(page, "true")
    colours = page.js("[...document.querySelectorAll('.xterm-rows span')].filter((e) => e.textContent === 'true').map((e) => getComputedStyle(e).color)")
    expect("rgb(12, 34, 56)" in colours, f"colours that a style attribute would set: {colours}")
    before = screen(page)
    page.size(900, 700)
    time.sleep(1)
    page.type("clear; echo si''zed $(stty size)")
    page.enter()
    prints(page, "sized ")
    size = lambda text: [word for word in text.split("\n") if word.replace("sized ", "").replace(" ", "").isdigit()][-1].replace("sized ", "")
    expect(size(screen(page)) != size(before), "a smaller window makes a smaller terminal")
    page.size(1280, 900)
    page.type("exit 3")
    page.enter()
    page.says("exited with 3")
    page.click("button", "Start another shell")
    page.says("process ")
    page.click(".screen")
    page.type("sleep 1000")
    page.enter()
    pid = lambda: [one for one in ask("GET", "/v1/sandboxes/first/processes")["processes"] if one["argv"][:1] == ["sleep"]]
    until(pid, "sleep runs")
    page.click("tab", "About")
    until(lambda: not pid(), "a terminal that is left ends its program")


def until(what, name, patience=20):
    end = time.monotonic() + patience
    while not what():
        if time.monotonic() > end:
            raise Failed(f"{name} did not come")
        time.sleep(0.2)


def list_and_curves(page):
    one, two = box(name="busy", labels={"team": "ml"}), box(name="quiet")
    exec_id = ask("POST", one["path"] + "/exec", {"cmd": ["sh", "-c", "timeout 60 sh -c 'while :; do :; done'"], "detach": True})
    expect(exec_id["id"], exec_id)
    page.js("location.hash = '#/'")
    page.says("2 live")
    busy = "[...document.querySelectorAll('tbody tr')].find((row) => row.textContent.includes('busy'))"
    page.until(f"{busy}.querySelector('.spark polyline').points.length > 2 && parseInt({busy}.querySelector('.number').textContent) > 20", "a curve of the busy one")
    quiet = page.js(busy.replace("busy", "quiet") + ".querySelector('.number').textContent")
    expect(int(quiet.split()[0]) < 20, quiet)
    if IMAGES:
        # Curves need some time to be some.
        time.sleep(20)
    shot(page, "page-sandboxes.png")
    page.colours("dark")
    shot(page, "page-sandboxes-dark.png")
    page.colours("light")
    page.fill("Find by name, id or label", "team=ml".split("=")[1])
    page.says("1 of 2")
    page.fill("Find by name, id or label", "")
    page.says("2 live")
    page.click("button", "Pause quiet")
    page.says("paused")
    page.click("button", "Resume quiet")
    page.silent("paused")
    page.click("button", "End quiet")
    page.click("button", "Cancel")
    expect(len(ask("GET", "/v1/sandboxes")["sandboxes"]) == 2, "cancelled, and ended all the same")
    page.click("button", "End quiet")
    page.click("button", "End it")
    page.says("quiet has ended.")
    page.says("1 lives")


def files(page):
    made = box(name="files")
    exec_in(made, "sh", "-c", "cd; mkdir -p deep/er; printf 'line one\\nline two\\n' > deep/a.txt; head -c 100 /dev/zero > zero; ln -s deep link")
    see(page, made, "files")
    home = made["agent"]["home"]
    page.until("!!document.querySelector('.crumbs button')", "the folder")
    if home not in page.js("document.querySelector('.crumbs').textContent"):
        page.click("button", "The topmost folder")
        for part in home.strip("/").split("/"):
            page.click("button", part + "/")
    page.click("button", "deep/")
    page.click("button", "a.txt")
    page.says("line two")
    shot(page, "page-files.png")
    page.click("button", "New folder")
    page.fill("Name", "made")
    page.click("button", "Make it")
    page.says("made/")
    page.click("button", "Remove a.txt")
    page.says("Remove a.txt?")
    page.click("button", "Remove")
    page.silent("a.txt")
    said = exec_in(made, "sh", "-c", "cd; ls deep")
    expect(said["stdout"].split() == ["er", "made"], said)
    page.click("button", home.strip("/").split("/")[-1])
    page.click("button", "zero")
    page.says("It is no text: download it.")


def processes(page):
    made = box(name="processes")
    running = ask("POST", made["path"] + "/exec", {"cmd": ["sleep", "777"], "detach": True})
    see(page, made, "processes")
    page.says("sleep 777")
    page.click("button", f"Kill {running['id']}")
    page.says("ended by signal 9")


def changes(page):
    made = box(name="changes", template="base", policy=None)
    see(page, made, "changes")
    page.says("Nothing changed.")
    exec_in(made, "sh", "-c", f"cd /workspace; printf '+1\\n' > new.txt; printf x > '{HOSTILE.replace('/', '')}'")
    page.click("button", "Look again")
    page.says("2 changes in")
    page.says("new.txt")
    page.says("++1")
    page.js("window.scrollTo(0, 0)")
    shot(page, "page-changes.png")
    page.click("button", "Take all")
    page.click("button", "Take them over")
    page.says("nothing can be applied")
    page.says("a copy of an empty folder of the server")
    page.click("button", "Cancel")
    page.complaints()


def code(page):
    if TEMPLATE != "yes":
        return "the template code-interpreter-v1 cannot be built here"
    made = box(name="code", template="code-interpreter-v1", policy=None)
    see(page, made, "code")

    def run(text):
        # What is printed comes before the end of the cell, and the page runs one cell at a time.
        page.until("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Interrupt').disabled", "the end of the cell before")
        page.click("field", "Code: Control and Enter run it")
        page.js("document.activeElement.select()")
        page.type(text)
        page.enter(2)

    run("import pandas as pd; import matplotlib.pyplot as plt\nx = 20 + 1; print('pri' + 'nted')\nx * 2")
    page.says("printed")
    page.says("42")
    run("x + 2")
    page.says("23")
    run("plt.plot([1, 2, 3], [4, 9, 16], label='squares'); plt.title('Growth'); plt.xlabel('n'); plt.ylabel('n squared'); plt.show()")
    page.until("document.querySelector('.cell img')?.naturalWidth > 100", "the picture of the chart", 60)
    page.until("document.querySelector('.cell svg.chart polyline')?.points.length === 3", "the chart drawn anew")
    shot(page, "page-code.png")
    run("from IPython.display import HTML, SVG, display\n"
        f"display(HTML('''{HOSTILE}'''))\n"
        "display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"20\" height=\"20\" onload=\"window.owned=1\"><script>window.top.owned=1</script><rect width=\"20\" height=\"20\"/></svg>'))")
    page.says("HTML, as text")
    page.click("button", "HTML, as text")
    page.says("<img src=x onerror=")
    run("1 / 0")
    page.says("ZeroDivisionError: division by zero")
    run("import time; time.sleep(60)")
    page.says("runs")
    page.click("button", "Interrupt")
    page.says("interrupted")
    run("x + 100")
    page.says("121")
    return None


def hostile_text_stays_text(page):
    made = box(name="hostile", labels={HOSTILE: HOSTILE, "turned": TURNED})
    name = HOSTILE.replace("/", "")
    exec_in(made, "sh", "-c", f"cd; printf '%s' '{HOSTILE}' > '{name}'; printf x > '{TURNED}'")
    ask("POST", made["path"] + "/exec", {"cmd": ["sh", "-c", "sleep 300", HOSTILE], "detach": True})
    page.js("location.hash = '#/'")
    page.says("onerror=")
    page.says("\\u{202e}")
    for tab in ("about", "processes", "files"):
        see(page, made, tab)
        if tab == "files":
            page.click("button", "The topmost folder")
            for part in made["agent"]["home"].strip("/").split("/"):
                page.click("button", part + "/")
            page.says("invoice\\u{202e}gpj.exe")
            page.click("button", name)
            page.says("</script>")
        else:
            page.says("onerror=")
    see(page, made, "terminal")
    page.says("process ")
    page.click(".screen")
    page.type(f"printf '%s\\033]0;{'t' * 9}\\007\\033]8;;javascript:window.owned=1\\033\\\\link\\033]8;;\\033\\\\' '{HOSTILE}'")
    page.enter()
    prints(page, "</script>link")
    time.sleep(0.5)
    expect(page.js("window.owned ?? null") is None, "a script of a sandbox ran in the page")
    expect(page.js("document.querySelectorAll('main img, main script, main iframe').length") == 0, "elements of a sandbox stand in the page")
    expect("ttttttttt" not in page.js("document.title"), "a program set the title of the page")
    # The control: where HTML is read, the same text does run, so that it is the page that keeps it from that.
    other = page.browser.page()
    other.go("data:text/html,<body>")
    other.until("!!document.body", "a page without a policy")
    other.js(f"document.body.innerHTML = {json.dumps(HOSTILE)}")
    other.until("window.owned === 1", "the attack without the control")
    # And a slip would meet the policy.
    slipped = page.js(f"(() => {{ try {{ document.createElement('div').innerHTML = {json.dumps(HOSTILE)}; return 'read'; }} catch (error) {{ return error.name; }} }})()")
    expect(slipped == "TypeError", slipped)
    page.complaints()


def keyboard_alone(page):
    box(name="keys")
    page.js("location.hash = '#/'")
    page.says("1 lives")
    page.js("document.activeElement.blur()")
    for _ in range(40):
        page.key("Tab", 9)
        if page.js("document.activeElement.textContent") == "keys":
            break
    expect(page.js("document.activeElement.textContent") == "keys", "the sandbox is not reached by Tab")
    expect(page.js("getComputedStyle(document.activeElement).outlineStyle") != "none", "what has the focus is not shown")
    page.enter()
    page.says("process ")
    page.until("document.activeElement.classList.contains('xterm-helper-textarea')", "the focus in the terminal")
    page.key("Escape", 27)
    page.key("Tab", 9)
    page.until("!document.activeElement.classList.contains('xterm-helper-textarea')", "the way out of the terminal")
    page.js("document.querySelector('[role=tab][aria-selected=true]').focus()")
    page.key("ArrowRight", 39)
    page.enter()
    page.until("document.querySelector('[role=tab][aria-selected=true]').id !== 'tab-terminal'", "the next part by the arrow")
    unlabelled = page.js("[...document.querySelectorAll('button, a, input, select, textarea')].filter((e) => e.checkVisibility() && !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim())).map((e) => e.outerHTML)")
    expect(unlabelled == [], unlabelled)


def small_screen(page):
    box(name="narrow", labels={"a": "b" * 60})
    page.size(390, 800)
    page.js("location.hash = '#/'")
    page.says("1 lives")
    wide = page.js("document.documentElement.scrollWidth")
    page.size(1280, 900)
    expect(wide <= 390, f"the page is {wide} wide on a screen of 390")


def an_end_is_told(page):
    made = box(name="ends")
    see(page, made)
    page.says("process ")
    ask("DELETE", made["path"])
    page.says("This sandbox has ended: killed")
    see(page, made, "about")
    page.says("Why it ended")
    page.js("location.hash = '#/sandbox/none0000000000000000/about'")
    page.says("No such sandbox")
    page.complaints()


def a_refusal_says_what_why_and_what_to_do(page):
    page.js("location.hash = '#/new'")
    page.click("button", "More clauses")
    page.fill("Clauses as JSON", '{"limits": {"memry": "1G"}}')
    page.click("button", "Start")
    page.says("memry")
    for word in ("What", "Why", "Do"):
        expect(page.js(f"[...document.querySelectorAll('.trouble dt')].some((e) => e.textContent === '{word}')"), word)
    page.fill("Clauses as JSON", "{")
    page.click("button", "Start")
    page.says("the clauses are no JSON")
    page.complaints()


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Another server of this host: a browser sends it the cookies of every port."""

    cookies = []
    page = b""

    def do_GET(self):
        Elsewhere.cookies.append(self.headers.get("Cookie", ""))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(Elsewhere.page)

    def log_message(self, *_):
        pass


def another_site_can_do_nothing(page):
    made = box(name="held")
    pause, terminal = URL + made["path"] + "/pause", URL.replace("http", "ws", 1) + made["path"] + "/terminal?cmd=touch&cmd=/tmp/owned"
    Elsewhere.page = f"""<!doctype html><iframe name=f></iframe><form method=post target=f action="{pause}"></form><script>
      const sent = fetch("{pause}", {{ method: "POST", mode: "no-cors", credentials: "include" }}).then(() => "sent", (e) => e.name);
      const socket = new Promise((done) => {{ const s = new WebSocket("{terminal}", ["fumehood.terminal"]); s.onopen = () => done("open"); s.onerror = () => done("refused"); }});
      const read = fetch("{URL}/v1/sandboxes", {{ credentials: "include" }}).then((r) => r.text(), (e) => e.name);
      document.forms[0].submit();
      setTimeout(async () => {{ window.all = JSON.stringify([await sent, await socket, await read]); }}, 1000);
    </script>""".encode()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page.go(f"http://127.0.0.1:{server.server_port}/")
        sent, socket, read = json.loads(page.until("window.all", "what the other site tried"))
    finally:
        server.shutdown()
    cookie = next((text for text in Elsewhere.cookies if "fumehood-" in text), None)
    expect(cookie, "the other site was not even sent the cookie: the case shows nothing")
    expect((socket, read) == ("refused", "TypeError"), (sent, socket, read))
    expect(ask("GET", made["path"])["state"] == "running", "another site paused a sandbox")
    expect(exec_in(made, "ls", "/tmp/owned")["report"]["code"] != 0, "another site opened a terminal")
    for headers in ({"Cookie": cookie}, {"Cookie": cookie, "Origin": URL, "X-Fumehood-Page": "0" * 64}):
        try:
            urllib.request.urlopen(urllib.request.Request(URL + "/v1/sandboxes", headers=headers), timeout=10)
            raise Failed("the cookie alone opens the server")
        except urllib.error.HTTPError as refused:
            expect(refused.code == 401, refused.code)
    page.complaints()
    page.requests()
    page.browser.events.clear()
    # The control: our own page does it.
    page.go(URL)
    page.click("button", "Pause held")
    until(lambda: ask("GET", made["path"])["state"] == "paused", "the pause by our own page")


def a_removed_key_ends_the_session(page):
    key = command("keys", "add", "--name", "short")
    other = page.browser.page()
    sign_in(other, key)
    command("keys", "rm", "short")
    other.says("The session is over: sign in again.")


def who_holds_what(page):
    page.js("location.hash = '#/plan'")
    page.says("No plan is shown yet.")
    page.choose("Policy", "strict")
    page.click("button", "Show the plan")
    page.says("Who holds what: container tier")
    page.says("limits.memory")
    held = page.js("[...document.querySelectorAll('tbody tr')].find((row) => row.textContent.startsWith('limits.memory')).textContent")
    expect("cgroup" in held, held)
    shot(page, "page-plan.png")
    page.click("button", "More clauses")
    page.fill("Clauses as JSON", '{"fs": {"read": ["/root"]}}')
    page.click("button", "Show the plan")
    page.says("This is refused")
    page.complaints()


def what_is_recorded(page):
    made = box(name="recorded")
    exec_in(made, "true")
    see(page, made, "activity")
    page.says("live.exec")
    page.says("run.planned")
    other = box(name="other")
    page.js("location.hash = '#/audit'")
    page.says("run.planned")
    expect(other["run"] in page.text() and made["run"] in page.text(), "both sandboxes are recorded")
    page.fill("Only events with this word", made["run"])
    page.silent(other["run"])
    # What was stopped is told at the end, with its clause and who saw it; of one that nothing stopped, that it was not.
    stopped = box(name="stopped", policy={"extends": "python", "limits": {"pids": 8}})
    see(page, stopped, "activity")
    page.says("What was denied is counted at the end of the sandbox")
    exec_in(stopped, "sh", "-c", "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1 & done; wait")
    for one, told in ((stopped, "limits.pids: starting another process or thread"), (other, "Nothing was denied")):
        ask("DELETE", one["path"])
        see(page, one, "about")
        page.says("Why it ended")
        see(page, one, "activity")
        page.says(told)
        expect(("seen by the kernel" in page.text()) == (one is stopped), page.text())


TOOLS = """version = 1

[[tools.tool]]
name = "mail.send"
decision = "ask"
effect = "write"
schema = { type = "object", required = ["to", "count"], properties = { to = { type = "string" }, count = { type = "integer" } } }
"""


def a_person_answers(page):
    """Calls of a gateway that shares the state folder, answered by an operator's key alone."""
    expect(not page.js("[...document.querySelectorAll('nav a')].some((e) => e.textContent === 'Approvals')"), "a key of programs sees approvals")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("policy.toml", TOOLS), ("send.py", "print('sent')\n")):
            with open(f"{folder}/{name}", "w") as file:
                file.write(text)
        gateway = subprocess.Popen([PROGRAM, "tools", "serve", "-p", f"{folder}/policy.toml", "--tool", f"mail.send={folder}/send.py", "--listen", "127.0.0.1:0"],
                                   env={**os.environ, "FUMEHOOD_STATE": STATE}, stderr=subprocess.PIPE, text=True)
        try:
            at = next(line.split()[-1] for line in gateway.stderr if "http://" in line)
            with open(f"{STATE}/tools.token") as file:
                token = file.read().strip()
            answers = []

            def call(to):
                body = json.dumps({"args": {"to": to, "count": 4711}}).encode()
                request = urllib.request.Request(at + "/v1/tools/mail.send:call", data=body, headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
                try:
                    answers.append((to, urllib.request.urlopen(request, timeout=60).status))
                except urllib.error.HTTPError as refused:
                    answers.append((to, refused.code, refused.read().decode()))

            boss = page.browser.page()
            sign_in(boss, OPERATOR)
            boss.click("link", "Approvals")
            boss.says("No call waits for an answer.")
            for to, word, status in ((f"b\u043eb@example.org {HOSTILE}", "Approve mail.send once", 200), ("eve@example.org", "Deny mail.send", 403)):
                thread = threading.Thread(target=call, args=(to,))
                thread.start()
                until(lambda: answers or "example.org" in boss.text(), "the call")
                expect(not answers or answers[-1][0] != to, answers)
                boss.says("4711")
                if status == 200:
                    boss.says("\u043e is \\u{43e}")
                    boss.says("onerror=")
                    shot(boss, "page-approvals.png")
                boss.click("button", word)
                if status == 403:
                    boss.fill("Why", "not her")
                    boss.click("button", "Deny")
                thread.join(30)
                expect(answers.pop()[1] == status, answers)
                boss.says("No call waits for an answer.")
            expect(boss.complaints() == [], "the browser complains")
        finally:
            gateway.terminate()
            gateway.wait(10)


CASES = [who_holds_what, what_is_recorded, a_person_answers, signing_in, starting_one_and_typing, list_and_curves, files, processes, changes, code, hostile_text_stays_text, keyboard_alone, small_screen,
         an_end_is_told, a_refusal_says_what_why_and_what_to_do, another_site_can_do_nothing, a_removed_key_ends_the_session]


def main():
    passed, failed, skipped = 0, 0, 0
    only = os.environ.get("CASES", "").split()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser("chromium", folder)
        try:
            page = browser.page()
            sign_in(page)
            for case in CASES:
                if only and case.__name__ not in only:
                    continue
                try:
                    end_all()
                    reason = case(page)
                    expect((found := page.complaints()) == [], f"the browser complains: {found}")
                    foreign = [url for url in page.requests() if not url.startswith((URL, URL.replace("http", "ws", 1), "data:", "blob:", URL.replace("127.0.0.1", "localhost")))]
                    expect(foreign == [], f"it asked elsewhere: {foreign}")
                    if reason:
                        skipped += 1
                        print(f"skip: {case.__name__}: {reason}", flush=True)
                    else:
                        passed += 1
                except (Failed, urllib.error.HTTPError, AssertionError) as why:
                    failed += 1
                    said = why.read().decode() if isinstance(why, urllib.error.HTTPError) else why
                    print(f"FAILED {case.__name__}: {said}", flush=True)
                    page.complaints()
                    page = browser.page()
                    sign_in(page)
            end_all()
        finally:
            browser.close()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
