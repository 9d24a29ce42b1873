"""`safe_shell`: a list of allowed commands, as guides have it, and a sandbox in which it need not be right."""

import pathlib
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import passes_naive, shown

from fumehood import RunResult, run

ALLOWED = {"ls", "cat", "find", "grep", "sort", "git", "tar", "echo"}
BLOCKED = ("rm", ";", "&&", "||", "|", "`", "$(", ">", "sudo", "curl", "wget")


def safe_shell(command: str, cwd: str) -> str:
    """As guides have it: the first word is allowed, and no bad word is in it."""
    if shlex.split(command)[0] not in ALLOWED or any(word in command for word in BLOCKED):
        return "denied"
    done = subprocess.run(command, shell=True, cwd=cwd, capture_output=True, text=True, timeout=20)
    return done.stdout + done.stderr


def shell(command: str, cwd: str) -> RunResult:
    """The same with Fumehood: any command, on a copy of the folder; what it changed waits for you."""
    return run(command, language="bash", policy="strict", workspace=f"{cwd}:copy", timeout=20)


with tempfile.TemporaryDirectory() as place:
    work, other = pathlib.Path(place, "work"), pathlib.Path(place, "other")
    work.mkdir()
    other.mkdir()
    (work / "notes.txt").write_text("b\na\n")
    (other / "key").write_text("PRIVATE KEY")
    mark = other / "mark"
    STEALS = f"grep -r PRIVATE {other}"
    FINDS = "find . -name notes.txt -delete"
    RUNS = f"tar cf /dev/null notes.txt --checkpoint=1 --checkpoint-action=exec='touch {mark}'"
    SORTS = f"sort -o {other}/key notes.txt"

    passes_naive("an allowed program that reads elsewhere", "PRIVATE KEY" in safe_shell(STEALS, str(work)))
    safe_shell(RUNS, str(work))
    passes_naive("an allowed program that runs another", mark.exists())
    mark.unlink()
    safe_shell(SORTS, str(work))
    passes_naive("an allowed program that writes elsewhere", (other / "key").read_text() == "a\nb\n")
    (other / "key").write_text("PRIVATE KEY")
    safe_shell(FINDS, str(work))
    passes_naive("an allowed program that deletes", not (work / "notes.txt").exists())
    (work / "notes.txt").write_text("b\na\n")

    shown("what lies elsewhere is not there", "PRIVATE KEY" not in shell(STEALS, str(work)).stdout)
    shell(RUNS, str(work))
    shown("what it runs is in the sandbox too", not mark.exists())
    shell(SORTS, str(work))
    shown("nothing is written elsewhere", (other / "key").read_text() == "PRIVATE KEY")
    done = shell(FINDS, str(work))
    shown("a deletion waits for you", (work / "notes.txt").exists() and [(one.path, one.change) for one in done.changes] == [("notes.txt", "removed")])
    shown("pipes and lists need no denial", shell("sort notes.txt | head -n 1 && echo ok", str(work)).stdout == "a\nok\n")
