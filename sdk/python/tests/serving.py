"""The server itself, for tests that have one."""

import contextlib
import json
import secrets
import subprocess

from conftest import product


def said(*args):
    return subprocess.run([product(), *args], capture_output=True, text=True, timeout=60)


def new_key(*flags):
    made = said("keys", "add", "--name", f"test-{secrets.token_hex(4)}", *flags)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@contextlib.contextmanager
def served(*flags, of_key=()):
    """`fumehood serve` in the state folder of the test; its process, and what `Sandbox` takes to be one of its sandboxes."""
    key = new_key(*of_key)
    serving = subprocess.Popen([product(), "serve", "--listen", "127.0.0.1:0", *flags], stderr=subprocess.PIPE, text=True)
    try:
        first = serving.stderr.readline()
        assert first.startswith("listening on http://"), first
        yield serving, {"url": first.removeprefix("listening on ").strip(), "key": key}
    finally:
        serving.kill()
        serving.wait()
        serving.stderr.close()
        left = [one["id"] for one in json.loads(said("ps", "--json").stdout)["sandboxes"]]
        if left:
            said("kill", *left)
