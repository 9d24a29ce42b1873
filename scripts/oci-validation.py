"""Part of `scripts/oci-validation`: runs the suite's tests, and compares what they say with `KNOWN`. usage: SUITE WORK PROGRAM [TEST...]"""
import concurrent.futures, json, os, pathlib, re, signal, subprocess, sys

# Seconds for one test. Most wait a second or two, some for the end of a container.
LIMIT = 60
AT_ONCE = 6

# What the suite calls. Its documents have a root that is written to, capabilities, no `noNewPrivileges`, and a list of calls from before
# close_range(2): they become what an engine writes for `--read-only --cap-drop all --security-opt no-new-privileges`, and the suite
# holds against that what it finds inside. A name that is no capability stays, for it is to be refused. The tree can be read, as an engine's.
RUNTIME = """#!/usr/bin/python3
import json, os, subprocess, sys
words = sys.argv[1:]
if words[0] == "create":
    bundle = words[words.index("--bundle") + 1] if "--bundle" in words else "."
    subprocess.run(["chmod", "-R", "a+rX", bundle], check=True)
    with open(bundle + "/config.json") as file:
        document = json.load(file)
    document.get("root", {})["readonly"] = True
    process = document.get("process", {})
    process["noNewPrivileges"] = True
    process["capabilities"] = {name: [one for one in held if one == "CAP_TEST"] for name, held in process.get("capabilities", {}).items()}
    calls = document.get("linux", {}).get("seccomp") or {}
    if calls.get("defaultAction") == "SCMP_ACT_ERRNO":
        calls["syscalls"].append({"names": ["close_range"], "action": "SCMP_ACT_ALLOW"})
    with open(bundle + "/config.json", "w") as file:
        json.dump(document, file)
runtime = os.environ["OCI_RUNTIME"].split() + ["--log", os.environ["OCI_LOG"], "--log-format", "json"]
os.execvp(runtime[0], runtime + words)
"""


# What they find that the specification would have otherwise, and why: `TEST: WHAT`, `*` for any test. A number is N. `refused:` is the
# field by whose name a container was refused.
KNOWN = """
# Nothing of /sys is shown. The rest of these is there: /dev lies in the sandbox's root, which is in memory, and the source of a place in
# memory is no other's name.
*: not ok: mounts[N] (/sys) found
*: not ok: mounts[N] (/dev) found
*: not ok: mounts[N] (/dev/shm) found
# A test that says those of a container once more, by its own name.
hostname: not ok: check hostname ""
hostname: not ok: check hostname "hostname-specific"
linux_rootfs_propagation: not ok: check root propagation: private
linux_rootfs_propagation: not ok: check root propagation: slave

# Its programs write to their root, which is read-only; the same by runc.
killsig: not ok: `kill` operation MUST send the specified signal to the container process
start: not ok: `start` operation MUST run the user-specified program as specified by `process`
start: not ok: attempting to `start` a container that is not `created` MUST have no effect on the container
# It kills a container that has ended, and wants no error; the same by runc.
pidfile: not ok: create with '--pid-file' option works
# One that was created and not started is deleted; the same by runc.
delete: not ok: attempting to `delete` a container that is not `stopped` MUST generate an error
delete: not ok: attempting to `delete` a container that is not `stopped` MUST have no effect on the container

# Held, and looked for in another place: limits are those of a group below the engine's. Devices are an upper bound (not so by runc either).
delete_resources: not ok: get pids cgroup data
linux_cgroups_pids: not ok: get pids cgroup data
linux_cgroups_devices: not ok: devices c N:N rwm is set correctly
# Fewer rights than were asked for: no further groups.
process_user: not ok: has expected additional group ID N

# Wanted by the test: no such limit, capability, version.
process_rlimits_fail: refused: process.rlimits[N].type
process_capabilities_fail: refused: process.capabilities.bounding
misc_props: refused: ociVersion
# What is not known could have been a wish: the specification would have it passed over.
misc_props: refused: unknown
misc_props: not ok: runtimes that are reading or processing this configuration file MUST NOT generate an error if they encounter an unknown property

# Fields that are not held.
config_updates_without_affect: refused: process.oomScoreAdj
process_oom_score_adj: refused: process.oomScoreAdj
process_rlimits: refused: process.rlimits[N].type
# No program of the host is run for a container.
hooks: refused: hooks
hooks_stdin: refused: hooks
hooks_stdin: not ok: the state of the container MUST be passed to "poststart" hook over stdin
hooks_stdin: not ok: the state of the container MUST be passed to "poststop" hook over stdin
hooks_stdin: not ok: the state of the container MUST be passed to "prestart" hook over stdin
poststart: refused: hooks
poststart_fail: refused: hooks
poststop: refused: hooks
poststop_fail: refused: hooks
prestart: refused: hooks
prestart_fail: refused: hooks
# A container without a program is refused when it is created, not when it is started.
start: refused: process.args
# Namespaces are the container's own, and ids are not the engine's to map.
linux_ns_itype: refused: linux.namespaces
linux_ns_nopath: refused: linux.uidMappings
linux_ns_path: refused: linux.namespaces[N].path
linux_ns_path: not ok: set ipc namespace by path
linux_ns_path: not ok: set mnt namespace by path
linux_ns_path: not ok: set net namespace by path
linux_ns_path: not ok: set pid namespace by path
linux_ns_path: not ok: set uts namespace by path
linux_ns_path_type: refused: linux.namespaces[N].path
linux_ns_path_type: refused: linux.namespaces[N].type
linux_uid_mappings: refused: linux.uidMappings
# Mounts, devices, labels, settings.
linux_devices: refused: linux.devices[N].path
linux_masked_paths: refused: linux.maskedPaths
linux_mount_label: refused: linux.mountLabel
linux_process_apparmor_profile: refused: process.label
linux_readonly_paths: refused: linux.readonlyPaths
linux_rootfs_propagation: refused: linux.rootfsPropagation
linux_sysctl: refused: linux.sysctl
mounts: refused: mounts[N].destination
# Resources, and groups that are no absolute path.
linux_cgroups_blkio: refused: linux.resources.blockIO
linux_cgroups_cpus: refused: linux.resources.cpu.mems
linux_cgroups_hugetlb: refused: linux.resources.hugepageLimits
linux_cgroups_memory: refused: linux.resources.memory.reservation
linux_cgroups_network: refused: linux.resources.network
linux_cgroups_relative_blkio: refused: linux.cgroupsPath
linux_cgroups_relative_cpus: refused: linux.cgroupsPath
linux_cgroups_relative_devices: refused: linux.cgroupsPath
linux_cgroups_relative_hugetlb: refused: linux.cgroupsPath
linux_cgroups_relative_memory: refused: linux.cgroupsPath
linux_cgroups_relative_network: refused: linux.cgroupsPath
linux_cgroups_relative_pids: refused: linux.cgroupsPath
"""


def plain(text):
    """Without what is another at each run."""
    text = re.sub(r"(bounding|effective|inheritable|permitted|ambient) capability CAP_\w+", "capability", text)
    return re.sub(r"\d+", "N", text).strip()


def said(suite, work, runtime, test):
    """What a test finds against the runtime, and the fields that refused one of its containers."""
    folder = work / "tests" / test
    folder.mkdir(parents=True)
    (folder / "runtime").write_text(RUNTIME)
    (folder / "runtime").chmod(0o755)
    log = folder / "log"
    env = {**os.environ, "RUNTIME": str(folder / "runtime"), "OCI_RUNTIME": runtime, "OCI_LOG": str(log), "TMPDIR": str(folder)}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen([suite / "tests" / test], cwd=suite, env=env, text=True, errors="replace", start_new_session=True, **pipes)
    try:
        out, err = child.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return {f"no end within {LIMIT} s"}
    lines = set()
    # What was found inside is a string of what was found outside.
    for found in re.findall(r"not ok \d+ - (.*)$", out.replace("\\n", "\n").replace('\\"', '"'), re.M):
        if "# TODO" not in found:
            lines.add(f"not ok: {plain(found)}")
    for record in log.read_text().splitlines() if log.exists() else []:
        refused = re.match("nothing was run: `([^`]*)` (?:cannot be had|=)", json.loads(record)["msg"])
        if refused:
            lines.add(f"refused: {plain(refused[1])}")
    if any(line.startswith("refused: ") for line in lines):
        return {line for line in lines if not line.startswith("not ok: ") or not line.endswith("exit status N")}
    if child.returncode:
        lines.add(f"exit {child.returncode}: {plain((err.strip().splitlines() or [''])[-1])}")
    return lines


def listed():
    """For each test, or `*` for any, what it is known to say."""
    known = {}
    for line in KNOWN.splitlines():
        if line and not line.startswith("#"):
            test, _, what = line.partition(": ")
            known.setdefault(test, set()).add(what)
    return known


def compared(told, whole):
    """Prints how the tests stand to the list; how many do not stand as it has them."""
    known, failed, kinds = listed(), 0, {"as the specification has it": 0, "refused by a field's name": 0, "told otherwise": 0}
    anywhere = known.pop("*")
    for test, lines in told.items():
        own = lines - anywhere
        refused = any(line.startswith("refused: ") for line in own)
        kinds["refused by a field's name" if refused else "told otherwise" if own else "as the specification has it"] += 1
        differs = own ^ known.get(test, set())
        failed += bool(differs)
        for line in sorted(differs):
            print(f"FAILED {test}: {line}: {'not among what is known' if line in own else 'known, and not so'}")
    idle = anywhere.difference(*told.values()) if whole else set()
    for line in sorted(idle):
        print(f"FAILED {line}: known, and said by no test")
    print(f"{len(told)} tests: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items()))
    print(f"{len(told) - failed} passed, {failed + len(idle)} failed", end="")
    return failed + len(idle)


def main():
    suite, work, runtime, *chosen = sys.argv[1:]
    suite, work = pathlib.Path(suite), pathlib.Path(work)
    other = runtime == "--by"
    runtime = chosen.pop(0) if other else f"{os.path.realpath(runtime)} oci --root {work}/containers"
    tests = sorted(path.name for path in (suite / "tests").iterdir() if not chosen or path.name in chosen)
    # By another one it would mount in our namespace, and clean up what it finds there.
    tests = [test for test in tests if not other or test != "linux_ns_itype"]
    groups = [test for test in tests if "cgroups" in test or "resources" in test]
    skipped = 0
    if groups and not os.path.isdir("/sys/fs/cgroup/pids"):
        print(f"skip: OCI's runtime validation: {', '.join(groups)}: they know control groups v1 alone")
        tests, skipped, groups = [test for test in tests if test not in groups], len(groups), []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = {test: pool.submit(said, suite, work, runtime, test) for test in tests if test not in groups}
        # Their groups have the same names.
        told = {test: said(suite, work, runtime, test) for test in groups}
        told.update((test, job.result()) for test, job in jobs.items())
    if other:
        print("\n".join(f"{test}: {line}" for test in tests for line in sorted(told[test]) or ["passed"]))
        return 0
    failed = compared(told, not chosen)
    print(f", {skipped} skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
