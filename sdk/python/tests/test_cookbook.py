"""Each recipe of the cookbook runs as it is printed: its naive check is passed, its gate holds."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import product
from serving import served
from test_live_code import CACHE, KERNELS, with_kernels

BOOK = pathlib.Path(__file__).resolve().parents[3] / "docs" / "cookbook"
RECIPES = sorted(path.parent.name for path in BOOK.glob("*/recipe.py"))
#: Where `scripts/e2b` puts E2B's newest client.
E2B = CACHE / "e2b" / "newest" / "bin" / "python"


def python_of(recipe):
    """The Python that has what a recipe needs beside us."""
    if recipe != "run-code":
        return sys.executable
    if not (KERNELS / "bin" / "python3").exists():
        pytest.skip("no kernels (`scripts/setup kernels`)")
    return str(KERNELS / "bin" / "python3")


def at_most():
    """What a key may ask for that makes the stock interpreter's sandboxes with the kernels of the tests."""
    stock = {
        "memory": "2G", "pids": 512, "open_files": 8192, "file_size": "1G", "disk": "2G", "files": 200_000, "output": "64M", "wall": "1h",
    }
    policy = with_kernels()
    places = {**policy["fs"], "tmp": "512M", "shm": "64M", "run": "16M"}
    return {**policy, "limits": stock, "fs": places, "syscalls": {"profile": "default"}}


def test_the_recipes_of_the_guides_are_there():
    wanted = {"allowed-tools", "company-mail", "no-delete-below-system", "literal-recipients", "read-only-queries", "ten-calls"}
    wanted |= {"execute-code", "subprocess-sandbox", "safe-shell", "monitor-execution", "run-code"}
    assert wanted <= set(RECIPES)
    page = (BOOK / "README.md").read_text()
    assert all(f"({name}/recipe.py)" in page for name in RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe(recipe):
    done = subprocess.run([python_of(recipe), str(BOOK / recipe / "recipe.py")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "naive check passes: " in done.stdout and done.stdout.count("held: ") >= 3, done.stdout


@pytest.mark.skipif(not E2B.exists(), reason="no client of E2B's (`scripts/e2b`)")
def test_the_guides_lines_for_e2b_run_as_they_are(house):
    python_of("run-code")
    policy = house / "kernels.json"
    policy.write_text(json.dumps(with_kernels()))
    recipe = house / "recipe.toml"
    recipe.write_text(f'policy = ["{policy}"]\n')
    built = subprocess.run([product(), "template", "build", "code-interpreter-v1", "-f", str(recipe)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    ceiling = house / "ceiling.json"
    ceiling.write_text(json.dumps(at_most()))
    with served(of_key=("-p", str(ceiling))) as (_, where):
        env = {**os.environ, "E2B_API_URL": where["url"], "E2B_SANDBOX_URL": where["url"], "E2B_API_KEY": where["key"]}
        done = subprocess.run([str(E2B), str(BOOK / "run-code" / "guide.py")], capture_output=True, text=True, timeout=120, env=env)
    assert done.stdout == "2\n", done.stdout + done.stderr
