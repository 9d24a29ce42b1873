"""What a Sandbox needs of the command line and of the state folder."""

from __future__ import annotations

import contextlib
import os
import urllib.parse
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._binary import Answer, Policies, clauses, duration, find_program, state_folder
from . import _names
from ._frames import encode_json
from ._http import Server, object_of, part
from ._link import Link
from ._names import Path
from ._results import Record, SandboxInfo, SandboxList, SandboxState, info_of
from ._times import milliseconds
from ._wire import Dial
from .errors import (
    FumehoodError, InvalidArgumentException, Reason, Refused, SandboxNotFoundException, SandboxNotRunningException,
)

class Unsaid(float):
    """A time that nobody said: what a policy says goes before it."""


#: Seconds that a sandbox lives unless something else is said, as in E2B.
TIMEOUT = Unsaid(300.0)
_ID = re.compile(r"[a-z0-9]{20,40}\Z")


#: The template of code interpreters, and the preset that it is made of.
_INTERPRETER, _OF_INTERPRETER = "code-interpreter-v1", "data-analysis"


def _has_interpreter(flags: Sequence[str]) -> bool:
    """Whether that template was built, and no flag asks for another."""
    others = any(flag.startswith(("--template", "--from")) for flag in flags)
    return not others and os.path.exists(os.path.join(state_folder(), "templates", "names", _INTERPRETER))


@contextlib.contextmanager
def create_command(
    policy: Policies | None,
    workspace: str | os.PathLike[str] | None,
    timeout: float | None,
    idle: float | None,
    name: str | None,
    metadata: Mapping[str, str] | None,
    envs: Mapping[str, str] | None,
    template: str | None,
    snapshot: str | None,
    imports: Sequence[str] | None,
    flags: Sequence[str],
    binary: str | os.PathLike[str] | None,
) -> Iterator[list[str]]:
    """The command line of a new sandbox; what it names is there until the end of the block."""
    if policy is None and template is None and snapshot is None:
        # Said, since the command line takes the user's own default where nothing is named.
        policy = "strict"
    if policy == _OF_INTERPRETER and template is None and snapshot is None and _has_interpreter(flags):
        # The preset is this template's own: what it is for is in there.
        template = _INTERPRETER
    unsaid = isinstance(timeout, Unsaid)
    with clauses(policy, workspace, None if unsaid else timeout, envs, flags, keep=True) as arguments:
        command = [find_program(binary), "create", "--json", *arguments]
        command += ["--default-timeout", duration(timeout)] if timeout is not None and unsaid else []
        command += [] if idle is None else ["--idle", duration(idle, "idle")]
        command += [] if name is None else ["--name", name]
        command += [] if template is None else ["--template", template]
        command += [] if snapshot is None else ["--from", snapshot]
        command += [word for name in imports or () for word in ("--import", name)]
        for key, value in (metadata or {}).items():
            command += ["--label", f"{key}={value}"]
        yield command


def server_of(url: str | None, key: str | None, dial: Dial) -> Server | None:
    """The server that is meant, if any."""
    if url is None:
        if key is not None:
            raise InvalidArgumentException("a key without the url of its server", code="invalid")
        return None
    if not key:
        raise InvalidArgumentException("a server asks for a key: `fumehood keys add` there makes one", code="invalid")
    return Server(url, key, dial)


def order(
    policy: Policies | None,
    workspace: str | os.PathLike[str] | None,
    timeout: float | None,
    idle: float | None,
    name: str | None,
    metadata: Mapping[str, str] | None,
    envs: Mapping[str, str] | None,
    template: str | None,
    snapshot: str | None,
    imports: Sequence[str] | None,
    flags: Sequence[str],
    binary: object,
) -> dict[str, Any]:
    """The same wish, for a server: it reads no file of this machine."""
    if workspace is not None or flags:
        raise InvalidArgumentException("a server has no folder of this machine, and takes no flags: copy files by `box.files`", code="invalid")
    if policy is not None and not isinstance(policy, (str, Mapping)):
        raise InvalidArgumentException("with a server, `policy` is one preset or one mapping", code="invalid")
    for what, seconds in (("timeout", timeout), ("idle", idle)):
        if seconds is not None:
            # As without a server: what is no time is told before anything is asked.
            duration(seconds, what)
    limits = policy.get("limits") if isinstance(policy, Mapping) else None
    if isinstance(timeout, Unsaid) and isinstance(limits, Mapping) and "wall" in limits:
        timeout = None
    labels = None if metadata is None else dict(metadata)
    return {
        "policy": policy, "timeout": timeout, "idle": idle, "name": name, "labels": labels, "template": template, "from": snapshot,
        "imports": None if imports is None else list(imports), "env": None if envs is None else dict(envs),
    }


def _kept_nowhere(error: FumehoodError) -> FumehoodError:
    """The same error; or that what is to begin as another one misses the variables of that one, where that is all that is wrong."""
    if os.path.join(state_folder(), "documents", "fumehood-") not in str(error):
        return error
    reason = Reason(
        id="live/unfit",
        what="the variables (`envs`) that the first sandbox was created with are not there any more",
        where="envs",
        why="they may be keys, so that nothing keeps them, and another sandbox cannot have them",
        fix='give what may be kept in the policy (`{"env": {"set": {...}}}`), and the rest with each command (`commands.run(..., envs=...)`)',
        clause="env.set",
    )
    return Refused([reason])


def created(answer: Answer) -> Mapping[str, Any]:
    """The ``Info`` of a new sandbox."""
    try:
        info = answer.json()
    except FumehoodError as error:
        raise _kept_nowhere(error) from error
    if not isinstance(info, dict) or "id" not in info:
        raise FumehoodError(f"the program ended with {answer.code} and named no sandbox")
    return info


def socket_of(info: Mapping[str, Any]) -> str:
    """Where its supervisor answers."""
    return str(info.get("socket") or os.path.join(state_folder(), "live", str(info["id"]), "socket"))


def direct(word: str) -> str | None:
    """The socket of an id, without asking the program; ``None`` for a name, or where there is none."""
    if not _ID.match(word):
        return None
    path = os.path.join(state_folder(), "live", word, "socket")
    return path if os.path.exists(path) else None


def found(answer: Answer, word: str) -> Mapping[str, Any]:
    """The ``Info`` that ``fumehood info`` gives."""
    try:
        info = answer.json()
    except FumehoodError as error:
        raise SandboxNotFoundException(f"no sandbox `{word}`: {error}", code="not_found") from error
    if not isinstance(info, dict) or "id" not in info:
        raise SandboxNotFoundException(f"no sandbox `{word}`", code="not_found")
    return info


def place_of(answer: Answer, word: str) -> str:
    """Where the supervisor of one answers that ``fumehood info`` knows; raises how it ended where it has."""
    info = found(answer, word)
    if info.get("state") == "ended":
        how = info.get("message") or info.get("reason") or "nobody knows how"
        raise SandboxNotRunningException(f"the sandbox {info['id']} has ended: {how}", code="ended")
    return socket_of(info)


def info_command(word: str, binary: str | os.PathLike[str] | None) -> list[str]:
    return [find_program(binary), "info", word, "--json"]


def listed(answer: Answer) -> SandboxList:
    """What ``fumehood ps`` gives."""
    value = answer.json()
    infos = value.get("sandboxes", ()) if isinstance(value, dict) else value
    return SandboxList(info_of(one) for one in infos)


def ps_command(all_: bool, binary: str | os.PathLike[str] | None) -> list[str]:
    return [find_program(binary), "ps", "--json", *(["-a"] if all_ else [])]


def fork_command(sandbox_id: str, binary: str | os.PathLike[str] | None) -> list[str]:
    return [find_program(binary), "fork", "--json", sandbox_id]


def forked(answer: Answer) -> str:
    """The id of the new sandbox."""
    try:
        value = answer.json()
    except FumehoodError as error:
        raise _kept_nowhere(error) from error
    ids = value.get("sandboxes") if isinstance(value, dict) else value
    if not ids:
        raise FumehoodError(f"the program ended with {answer.code} and named no sandbox")
    first = ids[0]
    return str(first["id"] if isinstance(first, dict) else first)


def changes_command(
    verb: str, run: str, files: Sequence[Path] | None, digest: str | None, binary: str | os.PathLike[str] | None
) -> list[str]:
    """``diff``, ``apply`` or ``discard`` of a run."""
    flags = [] if digest is None else ["--digest", digest]
    tail = [] if files is None else ["--", *(os.fsdecode(_names.raw(file)) for file in files)]
    return [find_program(binary), verb, run, "--json", *flags, *tail]


async def changes_of(server: Server, sandbox_id: str, verb: str, files: Sequence[Path] | None, digest: str | None) -> Record:
    """The same of a server's sandbox: its workspace is a folder of the server."""
    at = f"/v1/sandboxes/{part(sandbox_id)}/changes"
    if verb == "diff":
        query = "&".join(f"path={urllib.parse.quote_from_bytes(_names.raw(file), safe='')}" for file in files or ())
        return Record(await server.json("GET", f"{at}?{query}", timeout=None))
    body: dict[str, Any] = {} if files is None else {"paths": [_path_text(file) for file in files]}
    if digest is not None:
        body["digest"] = digest
    answer = await server.ask("POST", f"{at}/{verb}", encode_json(body), timeout=None)
    said = object_of(await answer.whole(None))
    done = said.get("done")
    if not isinstance(done, dict):
        return Record(said)
    # As `apply --json` has it.
    return Record({"schema": 1, "applied": done.get("paths"), **{name: value for name, value in done.items() if name != "paths"}})


def _path_text(file: Path) -> str | dict[str, str]:
    """A path of a workspace in JSON: text, or the digits of its bytes."""
    data = _names.raw(file)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def changed(verb: str, answer: Answer) -> Record:
    """What that says; ``apply`` that applied nothing is an error that names every reason."""
    value = answer.json()
    made = Record(value if isinstance(value, dict) else {"entries": value})
    if verb != "diff" and answer.code != 0:
        said = answer.stderr.decode("utf-8", "replace").strip()
        raise FumehoodError(f"nothing was done by {verb}: {said or answer.stdout.decode('utf-8', 'replace').strip()}", code="conflict")
    return made


def why_not(error: FumehoodError, info: SandboxInfo) -> FumehoodError:
    """The same error, or that the sandbox has ended, whoever said it and how."""
    if info.state is not SandboxState.ENDED:
        return error
    return SandboxNotRunningException(f"the sandbox has ended: {info.message or info.reason}", code="ended")


async def settle(link: Link, timeout: float | None) -> SandboxInfo:
    """What ``connect`` does with a sandbox: a paused one runs again, and it lives ``timeout`` seconds at least."""
    if timeout is not None:
        # Before anything is done to it.
        milliseconds(timeout)
    data = await link.call({"op": "info"})
    if data.get("state") == "paused":
        data = await link.call({"op": "resume"})
    if data.get("state") == "ended":
        raise SandboxNotRunningException(f"the sandbox {data.get('id')} has ended", code="ended")
    if timeout is not None:
        data = await link.call({"op": "timeout", "ms": milliseconds(timeout), "only_later": True})
    return info_of(data)


async def kill(link: Link) -> bool:
    """Ends a sandbox; ``False`` if it had ended already."""
    try:
        if (await link.call({"op": "info"})).get("state") == "ended":
            return False
    except (SandboxNotRunningException, SandboxNotFoundException):
        return False
    try:
        # It answers when nothing is left, which takes as long as it takes.
        await link.call({"op": "kill"}, timeout=None)
    except (SandboxNotRunningException, SandboxNotFoundException):
        pass  # It was gone before it could answer.
    return True
