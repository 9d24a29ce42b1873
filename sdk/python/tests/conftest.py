"""A fresh state folder, and the product itself: nothing here stands in for the gate."""

import os
import pathlib
import shutil

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def product() -> str:
    if os.environ.get("FUMEHOOD_BIN"):
        return os.environ["FUMEHOOD_BIN"]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [target / "x86_64-unknown-linux-gnu" / kind / "fumehood" for kind in ("release", "debug")]
    found = next((str(path) for path in built if path.exists()), None) or shutil.which("fumehood")
    assert found, "build the product first: cargo build -p fumehood, or set FUMEHOOD_BIN"
    return found


@pytest.fixture(autouse=True)
def house(tmp_path, monkeypatch):
    monkeypatch.setenv("FUMEHOOD_BIN", product())
    monkeypatch.setenv("FUMEHOOD_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("FUMEHOOD_IN_PRIVATE_MOUNTS", "1")
    return tmp_path


@pytest.fixture(params=["here", "served"])
def there(request, house):
    """Where sandboxes are, as `Sandbox`, `connect` and `list` take it: processes of this machine's own, or those of a server."""
    if request.param == "here":
        yield {}
        return
    from serving import served

    with served() as (_, where):
        yield where


def allow(*names, **more):
    """A policy that allows these tools, and nothing else."""
    return {"tools": {"default": "deny", "tool": [{"name": name, "decision": "allow", "effect": "write", **more} for name in names]}}
