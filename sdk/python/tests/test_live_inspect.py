"""inspect_ai's own checks of a sandbox, all of them, against the product itself."""

import asyncio
import importlib.util

import pytest

from test_live_real import can_live

if importlib.util.find_spec("inspect_ai") is None:
    pytest.skip("inspect_ai is not installed", allow_module_level=True)
if not can_live():
    pytest.skip("this fumehood has no live sandboxes", allow_module_level=True)

from inspect_ai.util import SandboxUserUnsupportedError, sandbox  # noqa: E402,F401
from inspect_ai.util._sandbox import self_check  # noqa: E402
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv  # noqa: E402

from fumehood import Sandbox  # noqa: E402
from fumehood.inspect_ai import FumehoodSandboxEnvironment  # noqa: E402

CHECKS = sorted(name for name in dir(self_check) if name.startswith("test_"))

#: A sandbox has one user. The check makes a second one as root, and has no word for a sandbox that cannot.
ONE_USER = {"test_exec_as_user"}


async def with_environment(work):
    made = await FumehoodSandboxEnvironment.sample_init("check", None, {})
    try:
        await work(made["default"])
    finally:
        await FumehoodSandboxEnvironment.sample_cleanup("check", None, made, False)


def test_all_checks_are_there():
    assert len(CHECKS) >= 40


@pytest.mark.parametrize("check", CHECKS)
def test_self_check(check):
    if check in ONE_USER:
        with pytest.raises(SandboxUserUnsupportedError):
            asyncio.run(with_environment(getattr(self_check, check)))
    else:
        asyncio.run(with_environment(getattr(self_check, check)))


def test_it_is_found_by_its_name_and_leaves_nothing():
    assert registry_find_sandboxenv("fumehood") is FumehoodSandboxEnvironment

    async def left():
        await FumehoodSandboxEnvironment.sample_init("check", "strict", {})
        assert len(Sandbox.list()) == 1
        await FumehoodSandboxEnvironment.cli_cleanup(None)

    asyncio.run(left())
    assert Sandbox.list() == []
