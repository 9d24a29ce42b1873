"""Docker's own Python client against `fumehood serve --docker-socket`, as guides to sandboxes use it.

usage: cases.py IMAGE     (a Python that has docker; DOCKER_HOST is set)
"""

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import docker
import requests
from docker.errors import APIError, ContainerError, ImageNotFound, NotFound
from docker.types import Mount, Ulimit

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2b"))
from harness import Skip, case, main, refuses  # noqa: E402

IMAGE = sys.argv[1]
# The harness takes the names of cases from behind three words.
sys.argv[2:2] = ["", ""]


class Shared:
    def __init__(self, timeout):
        self.client = docker.from_env(timeout=timeout)
        # One that a case started in place of the first.
        self.server = None

    def run(self, command, **limits):
        return self.client.containers.run(IMAGE, command, **limits)

    def kill(self):
        for container in self.client.containers.list(all=True):
            container.remove(force=True)
        if self.server:
            self.server.terminate()
            self.server.wait()


def python(code):
    return ["python3", "-c", code]


def tar_of(**files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(name.replace("__", "."))
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


@case
def versions_are_negotiated(box):
    assert box.client.ping()
    version = box.client.version()
    assert version["Os"] == "linux" and box.client.api._version == version["ApiVersion"]
    assert box.client.info()["OSType"] == "linux"
    old = docker.DockerClient(base_url=os.environ["DOCKER_HOST"], version="1.24")
    assert old.ping() and isinstance(old.containers.list(), list)
    new = docker.DockerClient(base_url=os.environ["DOCKER_HOST"], version="1.99")
    refuses(APIError, new.ping, "too new")


@case
def the_guides_first_snippet(box):
    client = docker.from_env()
    output = client.containers.run(
        IMAGE,
        ["python3", "-c", "print('Hello from sandbox')"],
        mem_limit="256m",
        memswap_limit="256m",
        cpu_period=100000,
        cpu_quota=50000,
        pids_limit=64,
        network_disabled=True,
        read_only=True,
        tmpfs={"/tmp": "size=64m,noexec"},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        user="1000:1000",
        remove=True,
        stdout=True,
        stderr=True,
    )
    assert output == b"Hello from sandbox\n", output


@case
def a_detached_program_is_waited_for_and_removed(box):
    container = box.run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), detach=True)
    assert container.wait(timeout=60)["StatusCode"] == 3
    container.reload()
    state = container.attrs["State"]
    assert container.status == "exited" and state["ExitCode"] == 3 and not state["OOMKilled"], state
    assert container.logs(stdout=True, stderr=False) == b"out\n"
    assert container.logs(stdout=False, stderr=True) == b"err\n"
    assert container.logs(tail=1, stderr=False) == b"out\n"
    assert b"T" in container.logs(timestamps=True, stderr=False)
    container.remove()
    refuses(NotFound, lambda: box.client.containers.get(container.id), "No such container")


@case
def what_fails_says_so(box):
    error = refuses(ContainerError, lambda: box.run(python("import sys; sys.exit('broken')"), remove=True), "broken")
    assert error.exit_status == 1
    refuses(APIError, lambda: box.run(["no-such-program"], remove=True), "no-such-program")


@case
def a_start_that_fails_ends_the_wait_for_its_removal(box):
    for program, words in {"no-such-program": "executable file not found", "/etc/passwd": "permission denied"}.items():
        container = box.client.containers.create(IMAGE, [program], auto_remove=True)
        waits = threading.Thread(target=lambda: container.wait(timeout=60, condition="removed"), daemon=True)
        waits.start()
        error = refuses(APIError, container.start, words)
        assert error.status_code == 400, error
        waits.join(60)
        assert not waits.is_alive()
        refuses(NotFound, lambda: box.client.containers.get(container.id), "No such container")
    # One that is not to remove itself stays, and says why.
    container = box.client.containers.create(IMAGE, ["no-such-program"])
    refuses(APIError, container.start, "no-such-program")
    container.reload()
    assert (container.status, container.attrs["State"]["ExitCode"]) == ("created", 127), container.attrs["State"]
    container.remove()


@case
def a_timeout_is_the_callers_and_kill_ends_it(box):
    container = box.run(["sleep", "300"], detach=True)
    refuses((requests.exceptions.ConnectionError, requests.exceptions.ReadTimeout), lambda: container.wait(timeout=1))
    container.kill()
    assert container.wait(timeout=60)["StatusCode"] == 137
    refuses(APIError, container.kill, "not running")
    container.remove(force=True)


@case
def stop_asks_first(box):
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('ready', flush=True); time.sleep(300)"
    container = box.run(python(code), detach=True)
    for line in container.logs(stream=True, follow=True):
        assert line.startswith(b"ready"), line
        break
    container.stop(timeout=30)
    assert container.wait()["StatusCode"] == 7
    container.remove()


@case
def logs_are_followed(box):
    container = box.run(python("import time\nfor n in range(3): print(n, flush=True); time.sleep(0.2)"), detach=True)
    assert b"".join(container.logs(stream=True, follow=True)) == b"0\n1\n2\n"
    container.remove(force=True)


@case
def further_programs_run_in_it(box):
    container = box.run(["sleep", "300"], detach=True, environment={"OUTER": "1"}, working_dir="/work")
    code, output = container.exec_run(["sh", "-c", "echo $OUTER $INNER; pwd; exit 4"], environment={"INNER": "2"})
    assert (code, output) == (4, b"1 2\n/work\n"), (code, output)
    code, (out, err) = container.exec_run(["sh", "-c", "echo out; echo err >&2"], demux=True)
    assert (code, out, err) == (0, b"out\n", b"err\n")
    _, stream = container.exec_run(["sh", "-c", "echo a; sleep 0.2; echo b"], stream=True)
    assert b"".join(stream) == b"a\nb\n"
    assert container.exec_run("pwd", workdir="/tmp").output == b"/tmp\n"
    assert container.exec_run("tty", tty=True).output.startswith(b"/dev/")
    assert container.exec_run(["no-such-program"]).exit_code == 127
    code, _ = container.exec_run(["sh", "-c", "echo kept > /work/file"], detach=True)
    refuses(APIError, lambda: container.exec_run("id", privileged=True), "Privileged")
    refuses(APIError, lambda: container.exec_run("id", user="root"), "User")
    typed = container.exec_run(["cat"], stdin=True, socket=True).output
    typed._sock.sendall(b"typed\n")
    typed._sock.shutdown(1)
    assert b"typed\n" in typed.read()
    container.remove(force=True)
    refuses(NotFound, lambda: container.exec_run("id"))


@case
def files_go_in_and_out(box):
    container = box.client.containers.create(IMAGE, python("print(open('/work/in.txt').read())"), working_dir="/work")
    assert container.put_archive("/work", tar_of(in__txt="brought"))
    container.start()
    assert container.wait()["StatusCode"] == 0 and container.logs() == b"brought\n"
    pieces, stat = container.get_archive("/work/in.txt")
    assert stat["name"] == "in.txt" and stat["size"] == 7, stat
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
        assert archive.extractfile("in.txt").read() == b"brought"
    refuses(NotFound, lambda: container.get_archive("/work/none"))
    for path, why in {"/dev/null": "device", "/proc/1/environ": "nothing could be read"}.items():
        refuses(APIError, lambda: container.get_archive(path), why)
    refuses(APIError, lambda: container.put_archive("/usr", tar_of(bad="x")), "read-only")
    container.remove()


@case
def memory_ends_it(box):
    container = box.run(python("b = bytearray(300 << 20); print(len(b))"), mem_limit="64m", memswap_limit="64m", detach=True)
    assert container.wait(timeout=60)["StatusCode"] == 137
    container.reload()
    assert container.attrs["State"]["OOMKilled"], container.attrs["State"]
    container.remove()
    assert b"314572800" in box.run(python("b = bytearray(300 << 20); print(len(b))"), mem_limit="1g", remove=True)


@case
def processes_are_counted(box):
    code = """
import os, sys
made = 0
try:
    for _ in range(100):
        if os.fork() == 0:
            import time; time.sleep(5); os._exit(0)
        made += 1
except OSError:
    print('stopped', flush=True)
print(made < 40)
os.killpg(0, 9)
"""
    container = box.run(python(code), pids_limit=32, detach=True)
    container.wait(timeout=60)
    assert container.logs() == b"stopped\nTrue\n", container.logs()
    container.remove()
    assert b"50" in box.run(python("import os\nfor _ in range(50):\n  if os.fork() == 0: os._exit(0)\nprint(50)"), remove=True)


@case
def the_root_is_read_only_and_tmpfs_is_not(box):
    write = "open('{}', 'w').write('x'); print('written')"
    error = refuses(ContainerError, lambda: box.run(python(write.format("/usr/x")), read_only=True, remove=True))
    assert b"Read-only" in error.stderr or b"denied" in error.stderr, error.stderr
    limits = {"read_only": True, "tmpfs": {"/tmp": "size=16m"}, "remove": True}
    assert box.run(python(write.format("/tmp/x")), **limits) == b"written\n"
    refuses(ContainerError, lambda: box.run(python("open('/tmp/x', 'wb').write(bytes(32 << 20))"), **limits), "No space")
    script = "printf '#!/bin/sh\\necho ran\\n' > /tmp/s; chmod +x /tmp/s; /tmp/s"
    refuses(ContainerError, lambda: box.run(["sh", "-c", script], **limits), "")
    assert box.run(["sh", "-c", script], remove=True) == b"ran\n"


@case
def there_is_no_network(box):
    connect = "import socket; socket.create_connection(('192.0.2.1', 80), 2)"
    for limits in ({"network_disabled": True}, {"network_mode": "none"}, {}):
        refuses(ContainerError, lambda: box.run(python(connect), remove=True, **limits), "")
    loop = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print('own')"
    assert box.run(python(loop), network_mode="none", remove=True) == b"own\n"
    created = box.client.api.create_container(IMAGE, ["true"])
    assert any("network" in warning for warning in created["Warnings"]), created
    box.client.api.remove_container(created["Id"])


@case
def nobody_is_root_and_nothing_is_privileged(box):
    status = "print(open('/proc/self/status').read())"
    text = box.run(python(status), cap_drop=["ALL"], security_opt=["no-new-privileges"], user="1000:1000", remove=True).decode()
    assert "NoNewPrivs:\t1" in text and "CapEff:\t0000000000000000" in text and "Seccomp:\t2" in text, text
    assert "Uid:\t1000\t1000" in text, text
    assert "Uid:\t0" not in box.run(python(status), remove=True).decode()


@case
def folders_are_bound(box):
    with tempfile.TemporaryDirectory() as folder:
        # What root starts does not run as root.
        os.chmod(folder, 0o777)
        with open(f"{folder}/in.txt", "w") as file:
            file.write("given")
        code = "print(open('/workspace/in.txt').read()); open('/workspace/out.txt', 'w').write('made')"
        assert box.run(python(code), volumes={folder: {"bind": "/workspace", "mode": "rw"}}, remove=True) == b"given\n"
        assert open(f"{folder}/out.txt").read() == "made"
        read_only = {folder: {"bind": "/workspace", "mode": "ro"}}
        refuses(ContainerError, lambda: box.run(python(code), volumes=read_only, remove=True), "")
        mount = Mount("/in", folder, type="bind", read_only=True)
        assert box.run(["cat", "/in/in.txt"], mounts=[mount], working_dir="/in", remove=True) == b"given"
    refuses(APIError, lambda: box.run(["true"], volumes={"/var/run/docker.sock": {"bind": "/var/run/docker.sock"}}), "")
    refuses(APIError, lambda: box.run(["true"], volumes={"/": {"bind": "/host", "mode": "ro"}}), "Binds")
    refuses(APIError, lambda: box.run(["true"], volumes={"named": {"bind": "/data", "mode": "rw"}}), "Binds")


@case
def limits_of_processes_hold(box):
    limits = "import resource as r, os; print(r.getrlimit(r.RLIMIT_NOFILE)[0], r.getrlimit(r.RLIMIT_CORE)[1] < 2, len(os.sched_getaffinity(0)))"
    ulimits = [Ulimit(name="nofile", soft=64, hard=64), Ulimit(name="core", soft=0, hard=0)]
    assert box.run(python(limits), ulimits=ulimits, cpuset_cpus="0", nano_cpus=500_000_000, remove=True) == b"64 True 1\n"
    # With the least that is taken a program starts, and has its terminal and its input.
    least = [Ulimit(name="nofile", soft=16, hard=16)]
    assert box.run(["sh", "-c", "ulimit -n"], ulimits=least, tty=True, stdin_open=True, remove=True).split() == [b"16"]
    refuses(APIError, lambda: box.run(["true"], ulimits=[Ulimit(name="nofile", soft=15, hard=15)]), "Ulimits")
    assert box.run(["df", "-k", "/dev/shm"], shm_size="8m", remove=True).split()[-5] == b"8192"


@case
def a_program_is_paused(box):
    container = box.run(["sleep", "300"], detach=True)
    container.pause()
    container.reload()
    assert container.status == "paused"
    refuses(APIError, lambda: container.exec_run("true"), "")
    container.unpause()
    assert container.exec_run("true").exit_code == 0
    container.pause()
    container.kill()
    assert container.wait(timeout=60)["StatusCode"] == 137
    container.remove()


@case
def what_is_paused_is_stopped_as_by_docker(box):
    container = box.run(["sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.1; done"], detach=True)
    container.exec_run(["sleep", "0.5"])
    container.pause()
    # Its files are read by an agent that stands still too.
    refuses(APIError, lambda: container.get_archive("/tmp"), "paused")
    container.stop(timeout=30)
    assert container.wait(timeout=60)["StatusCode"] == 5
    container.remove()


@case
def a_container_whose_sandbox_has_ended_is_dead(box):
    container = box.client.containers.create(IMAGE, ["true"], name="over")
    sandbox = container.attrs["Fumehood"]["Sandbox"]
    subprocess.run([os.environ["FUMEHOOD_PROGRAM"], "kill", sandbox], check=True, capture_output=True)
    container.reload()
    state = container.attrs["State"]
    assert (container.status, state["Dead"], state["Running"]) == ("dead", True, False), state
    assert "ended" in state["Error"], state
    found = box.client.containers.list(all=True, filters={"status": "dead"})
    assert [one.name for one in found] == ["over"]
    refuses(APIError, container.start, "remove it, and create another")
    container.remove()
    assert box.client.containers.list(all=True, filters={"name": "over"}) == []


@case
def containers_are_listed_and_named(box):
    container = box.run(["sleep", "300"], detach=True, name="one", labels={"team": "a"}, hostname="inside", init=True)
    assert [found.name for found in box.client.containers.list(filters={"label": "team=a"})] == ["one"]
    assert box.client.containers.get("one").id == container.id
    assert box.client.containers.get(container.id[:12]).short_id == container.short_id
    assert box.client.containers.list(filters={"label": "team=b"}) == []
    refuses(APIError, lambda: box.client.containers.create(IMAGE, ["true"], name="one"), "already in use")
    assert container.exec_run(python("import socket; print(socket.gethostname())")).output == b"inside\n"
    assert any("sleep" in " ".join(row) for row in container.top()["Processes"])
    stats = container.stats(stream=False)
    assert stats["cpu_stats"]["cpu_usage"]["total_usage"] > 0 and stats["memory_stats"]["usage"] > 0, stats
    assert next(container.stats(stream=True, decode=True))["name"] == "/one"
    refuses(APIError, container.remove, "running")
    container.remove(force=True)
    assert box.client.containers.list(all=True, filters={"name": "one"}) == []


@case
def what_removes_itself_is_gone(box):
    container = box.run(["true"], detach=True, remove=True)
    for _ in range(100):
        # Between the list and the look at each it may go.
        if not box.client.containers.list(all=True, filters={"id": container.id}, ignore_removed=True):
            return
        time.sleep(0.1)
    raise AssertionError("it is still there")


@case
def an_image_that_is_missing_is_named(box):
    refuses(ImageNotFound, lambda: box.client.images.get("no/such:image"), "No such image")
    # No registry is reached: what is asked for is the pull, and its failure is told.
    refuses(APIError, lambda: box.client.containers.run("127.0.0.1:9/none:1", ["true"]), "")


@case
def images_are_listed_built_and_removed(box):
    image = box.client.images.get(IMAGE)
    assert any(IMAGE in tag for tag in image.tags) and image.attrs["Os"] == "linux"
    assert box.client.images.list(name=IMAGE.split(":")[0])
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/Dockerfile", "w") as file:
            file.write(f"FROM {IMAGE}\nARG WORD=none\nWORKDIR /app\nCOPY say.py .\nRUN echo $WORD > word\nCMD [\"python3\", \"say.py\"]\n")
        with open(f"{folder}/say.py", "w") as file:
            file.write("print(open('/app/word').read())")
        made, lines = box.client.images.build(path=folder, tag="made:1", rm=True, buildargs={"WORD": "told"})
        assert any("RUN" in line.get("stream", "") for line in lines)
        assert box.client.containers.run("made:1", remove=True) == b"told\n\n", made
        with open(f"{folder}/Dockerfile", "w") as file:
            file.write(f"FROM {IMAGE}\nHEALTHCHECK CMD true\n")
        refuses(docker.errors.BuildError, lambda: box.client.images.build(path=folder, tag="made:2"), "HEALTHCHECK")
        refuses(APIError, lambda: box.client.images.build(path=folder, tag="made:2", network_mode="host"), "networkmode")
    box.client.images.remove("made:1")
    refuses(ImageNotFound, lambda: box.client.images.get("made:1"))


@case
def a_value_that_no_arg_takes_is_told(box):
    recipe = io.BytesIO(f"FROM {IMAGE}\nARG WHO\nENV A=$WHO\n".encode())
    _, lines = box.client.images.build(fileobj=recipe, tag="given:1", buildargs={"WHO": "you", "WH0": "x"})
    said = "".join(line.get("stream", "") for line in lines)
    assert "no ARG takes the value of: WH0" in said, said
    box.client.images.remove("given:1")


@case
def what_widens_is_refused_by_its_name(box):
    for field, wish in {
        "Privileged": {"privileged": True},
        "CapAdd": {"cap_add": ["SYS_ADMIN"]},
        "PidMode": {"pid_mode": "host"},
        "IpcMode": {"ipc_mode": "host"},
        "NetworkMode": {"network_mode": "host"},
        "UsernsMode": {"userns_mode": "host"},
        "Devices": {"devices": ["/dev/kvm:/dev/kvm:rwm"]},
        "SecurityOpt": {"security_opt": ["seccomp=unconfined"]},
        "OomKillDisable": {"oom_kill_disable": True},
        "PortBindings": {"ports": {"8888/tcp": 8888}},
        "MemorySwap": {"mem_limit": "64m", "memswap_limit": "128m"},
        "RestartPolicy": {"restart_policy": {"Name": "always"}},
        "User": {"user": "root"},
        "Sysctls": {"sysctls": {"net.core.somaxconn": "9"}},
        "Dns": {"dns": ["8.8.8.8"]},
    }.items():
        error = refuses(APIError, lambda: box.client.containers.create(IMAGE, ["true"], **wish), field)
        assert error.status_code == 400, error
    refuses(APIError, lambda: box.client.networks.list(), "does not serve")


@case
def many_at_once(box):
    answers = []
    threads = [threading.Thread(target=lambda n=n: answers.append(box.run(["echo", str(n)], remove=True))) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(answers) == [b"0\n", b"1\n", b"2\n", b"3\n"], answers


@case
def the_command_line_client_works(box):
    if not shutil.which("docker"):
        raise Skip("the program docker is not here (Debian: docker-cli, or docker.io)")

    def cli(*words, **more):
        return subprocess.run(["docker", *words], capture_output=True, text=True, timeout=120, **more)

    ran = cli("run", "--rm", "--network", "none", IMAGE, "echo", "from the command line")
    assert (ran.returncode, ran.stdout) == (0, "from the command line\n"), ran
    assert cli("run", "--rm", IMAGE, "sh", "-c", "exit 5").returncode == 5
    assert cli("run", "--rm", "-i", IMAGE, "cat", input="typed\n").stdout == "typed\n"
    assert cli("run", "--rm", IMAGE, "no-such-program").returncode == 127
    assert cli("run", "-d", "--rm", IMAGE, "/etc/passwd").returncode == 126
    refused = cli("run", "--rm", "--privileged", IMAGE, "true")
    assert refused.returncode == 125 and "HostConfig.Privileged" in refused.stderr, refused
    begun = cli("run", "-d", "--name", "cli", "--memory", "128m", "--cpus", "0.5", IMAGE, "sleep", "300")
    assert begun.returncode == 0, begun
    assert "cli" in cli("ps").stdout and IMAGE in cli("images").stdout + cli("ps").stdout
    assert cli("exec", "cli", "sh", "-c", "echo in; exit 3").returncode == 3
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/file", "w") as file:
            file.write("copied")
        copied = cli("cp", f"{folder}/file", "cli:/tmp/file")
        assert copied.returncode == 0, copied
        assert cli("exec", "cli", "cat", "/tmp/file").stdout == "copied"
        assert cli("cp", "cli:/tmp/file", f"{folder}/back").returncode == 0 and open(f"{folder}/back").read() == "copied"
    assert json.loads(cli("inspect", "cli").stdout)[0]["State"]["Running"]
    assert cli("logs", "cli").returncode == 0 and cli("kill", "cli").returncode == 0 and cli("rm", "cli").returncode == 0


def request(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        try:
            client.sendall(b"GET /_ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return client.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            return b""


@case
def other_users_are_not_answered(box):
    path = os.environ["DOCKER_HOST"].removeprefix("unix://")
    assert os.stat(path).st_mode & 0o777 == 0o600
    if os.getuid() != 0:
        raise Skip("only root can try it as another user")
    os.chmod(os.path.dirname(path), 0o755)
    os.chmod(path, 0o666)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.write(writer, b"answered" if request(path) else b"closed")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 64) == b"closed"
    assert b"200 OK" in request(path)
    os.chmod(path, 0o600)


@case
def a_server_that_is_killed_ends_no_container(box):
    program, pid = os.environ["FUMEHOOD_PROGRAM"], int(os.environ["FUMEHOOD_SERVER"])
    code = "import time\nfor n in range(200): print(n, flush=True); time.sleep(0.05)"
    container = box.run(python(code), detach=True, name="outlives")
    ended = box.run(["sh", "-c", "echo kept; exit 6"], detach=True, name="ended")
    assert ended.wait()["StatusCode"] == 6
    os.kill(pid, 9)
    # As long as it dies it has the lock of its folder. Nobody of us waits for it, so it may stay a zombie.
    for _ in range(500):
        try:
            if open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z":
                break
        except FileNotFoundError:
            break
        time.sleep(0.02)
    path = os.environ["DOCKER_HOST"].removeprefix("unix://")
    words = [program, "serve", "--listen", "127.0.0.1:0", "--docker-socket", path]
    box.server = subprocess.Popen(words, stderr=subprocess.PIPE)
    for _ in range(100):
        try:
            if request(path):
                break
        except OSError:
            pass
        assert box.server.poll() is None, box.server.stderr.read()
        time.sleep(0.1)
    box.client = docker.from_env()
    container, ended = box.client.containers.get("outlives"), box.client.containers.get("ended")
    assert container.status == "running" and ended.status == "exited", (container.status, ended.status)
    assert ended.wait()["StatusCode"] == 6 and ended.logs() == b"kept\n"
    assert container.wait(timeout=60)["StatusCode"] == 0
    assert container.logs().split() == [str(n).encode() for n in range(200)]
    twice = subprocess.run(words[:4] + ["--docker-socket", path + "2"], capture_output=True, text=True, timeout=60)
    assert twice.returncode == 125 and "served already" in twice.stderr, twice


main(Shared, "docker")
