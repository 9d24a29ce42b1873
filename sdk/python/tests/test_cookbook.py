"""Each recipe of the cookbook runs as it is printed: its naive check is passed, its gate holds."""

import pathlib
import subprocess
import sys

import pytest

BOOK = pathlib.Path(__file__).resolve().parents[3] / "docs" / "cookbook"
RECIPES = sorted(path.parent.name for path in BOOK.glob("*/recipe.py"))


def test_the_recipes_of_the_guides_are_there():
    wanted = {"allowed-tools", "company-mail", "no-delete-below-system", "literal-recipients", "read-only-queries", "ten-calls"}
    wanted |= {"execute-code", "subprocess-sandbox", "safe-shell", "monitor-execution"}
    assert wanted <= set(RECIPES)
    page = (BOOK / "README.md").read_text()
    assert all(f"({name}/recipe.py)" in page for name in RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe(recipe):
    done = subprocess.run([sys.executable, str(BOOK / recipe / "recipe.py")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "naive check passes: " in done.stdout and done.stdout.count("held: ") >= 3, done.stdout
