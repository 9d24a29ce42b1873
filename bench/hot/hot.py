#!/usr/bin/env python3
"""Writes crates/fumehood/hot.ld: the functions of a start, so that the linker lays them side by side.

    just hot

A page of the program that is touched for the first time costs 2.4 us here, and its neighbours, which the kernel maps with
it, as much again when the process ends. Where functions lie by crate, a start touches 75 such places; side by side, a
dozen. Names are kept without what the compiler adds to tell versions apart, so that the list outlives a release; a
function that is not found costs nothing but its place.
"""

import fnmatch
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
POLICIES = HERE.parent / "policies"
RUNS = (
    ["--", "/bin/true"],
    ["--tier", "process", "--", "/bin/true"],
    ["--", "python3", "-c", "print(1)"],
    # With a file that sets all limits, and a grant: as one who means it would.
    *(["-p", f"{POLICIES}/{tier}.toml", "--read", "/usr/share", "--", "/bin/true"] for tier in ("container", "process")),
)
# A name without its hash may stand for every instance of a generic function: such a one keeps its hash, and is found as
# long as neither the compiler nor what it is made of changes.
MOST_INSTANCES, MOST_BYTES = 6, 3000


def lines(*command: str) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def called(binary: str, functions: dict[int, list[str]], scratch: Path) -> list[str]:
    """Names of all functions that the runs call, in the order of their first call."""
    calls = scratch / "calls"
    subprocess.run(["cc", "-O2", "-o", calls, HERE / "calls.c"], check=True)
    (scratch / "addresses").write_text("".join(f"{at:x}\n" for at in functions))
    env = os.environ | {"FUMEHOOD_STATE": str(scratch / "state")}
    found: dict[int, None] = {}
    for run in (RUNS[0], *RUNS):  # the first makes the folders
        out = scratch / "out"
        command = [calls, scratch / "addresses", out, binary, "run", "-q", *run]
        subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
        found.update((int(line, 16), None) for line in out.read_text().split())
    return [name for at in found for name in functions[at]]


def pattern(name: str) -> str:
    for what, instead in ((r"\.llvm\.\d+$", "*"), (r"17h[0-9a-f]{16}E", "17h*E"), (r"Cs[0-9A-Za-z]{8,13}_", "Cs*_")):
        name = re.sub(what, instead, name)
    return name


def members() -> dict[str, str]:
    """The part of the C library in which each of its functions lies."""
    archive = lines("cc", "-print-file-name=libc.a")[0]
    found = {}
    for line in lines("nm", "-A", "--defined-only", archive):
        if part := re.match(r".*?:([^:]+\.o):\S* [TtWiVw] (\S+)", line):
            found.setdefault(part[2], part[1])
    return found


def main() -> None:
    binary = str(Path(sys.argv[1]).resolve())
    functions: dict[int, list[str]] = {}
    sizes: dict[str, int] = {}
    for line in lines("nm", "-S", binary):
        words = line.split()
        if len(words) > 2 and words[-2] in "tTwWi":
            functions.setdefault(int(words[0], 16), []).append(words[-1])
            sizes[words[-1]] = int(words[1], 16) if len(words) == 4 else 0
    with tempfile.TemporaryDirectory() as scratch:
        names = called(binary, functions, Path(scratch))
    library = members()
    parts = dict.fromkeys(library[name] for name in names if name in library)
    kept: dict[str, None] = {}
    for name in names:
        if not name.startswith(("_ZN", "_R")):
            continue
        glob = pattern(name)
        matches = re.compile(fnmatch.translate(glob)).match
        instances = [size for other, size in sizes.items() if matches(other)]
        general = len(instances) > MOST_INSTANCES and sum(instances) > MOST_BYTES
        kept[name if general else glob] = None
    text = ["/* Written by bench/hot/hot.py: what a start runs, in the order of its first call. */"]
    text += ["SECTIONS {", "  .text.run : {"]
    text += [f"    *(.text.{glob})" for glob in kept]
    text += [f"    *libc.a:{part}(.text .text.*)" for part in parts]
    text += ["  }", "} INSERT BEFORE .text;"]
    (HERE.parents[1] / "crates/fumehood/hot.ld").write_text("\n".join(text) + "\n")
    print(f"{len(kept)} functions, {len(parts)} parts of the C library")


if __name__ == "__main__":
    main()
