# Runs inside a sandbox, one for each context of the code interpreter: starts one Jupyter kernel and passes its messages on, as
# lines of JSON. Started as `python3 -I -c THIS LANGUAGE`; untrusted like everything in there.
#
# stdin:  {"op": "send", "channel": "shell", "message": {...}} | {"op": "interrupt"}; its end ends the kernel
#         A message's `buffers` are texts in Base64. LANGUAGE `--list`: only {"languages": [...]} is said.
# stdout: {"ready": {"language": ..., "kernel": ..., "pid": ...}} | {"missing": {"what": ...}} | {"failed": ...}
#         {"message": {"channel": "iopub", "header": ..., ...}} | {"dead": {"code": ...}}
import base64, binascii, datetime, json, os, shutil, signal, socket, subprocess, sys, tempfile, threading, time

# Longest text of one `stream` message, characters; a longer one is sent in pieces.
PIECE = 32 * 1024
# Longest line, bytes; what is larger is left out and named.
LONGEST = 12 * 1024 * 1024
# Without the debugger, for which nobody asks and which takes a third of the time of a start; and
# without what lies in the working folder, until the kernel stands.
LAUNCH = (
    "import sys; sys.path[:1] == [''] and sys.path.pop(0); sys.modules['debugpy'] = None; "
    "from ipykernel.kernelapp import launch_new_instance; launch_new_instance()"
)
# So long may a kernel take until it answers, seconds.
START = 60


class Missing(Exception):
    """Something that the template does not have."""


def text_of(value):
    """Times as every reader of JSON takes them."""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class Lines:
    """Stdin and stdout, out of the reach of whatever prints by mistake."""

    def __init__(self):
        self.out = os.dup(1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        self.read = os.dup(0)
        os.dup2(nowhere, 0)
        self.buffer = b""

    def put(self, value):
        data = json.dumps(value, default=text_of, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        view = memoryview(data)
        while view:
            view = view[os.write(self.out, view):]

    def take(self):
        """Whole lines that are there now; None at the end."""
        data = os.read(self.read, 65536)
        if not data:
            return None
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]


def command_of(language):
    """The kernel's name, its command line, what it wants in its environment, and how it is interrupted."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager
    except ImportError:
        raise Missing("jupyter_client") from None
    if language == "python":
        try:
            import ipykernel  # noqa: F401
        except ImportError:
            raise Missing("ipykernel") from None
        options = [
            "--InteractiveShell.colors=NoColor",
            "--PlainTextFormatter.max_seq_length=0",
            "--HistoryManager.enabled=False",
        ]
        return "python3", [sys.executable, "-c", LAUNCH, "-f", "{connection_file}", *options], {}, "signal"
    for name, found in sorted(KernelSpecManager().get_all_specs().items()):
        spec = found["spec"]
        if spec.get("language", "").lower() == language:
            argv = [sys.executable if word in ("python", "python3") else word for word in spec["argv"]]
            return name, argv, spec.get("env") or {}, spec.get("interrupt_mode") or "signal"
    if language == "bash":
        try:
            import bash_kernel  # noqa: F401
        except ImportError:
            raise Missing("bash_kernel") from None
        return "bash", [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"], {"PS1": "$"}, "signal"
    raise Missing("a Jupyter kernel for " + language)


def languages():
    """For which languages there are kernels."""
    from importlib.util import find_spec

    if not all(find_spec(name) for name in ("jupyter_client", "zmq")):
        return []
    from jupyter_client.kernelspec import KernelSpecManager

    found = {spec["spec"].get("language", "").lower() for spec in KernelSpecManager().get_all_specs().values()}
    found.discard("python")
    found |= {language for language, package in [("python", "ipykernel"), ("bash", "bash_kernel")] if find_spec(package)}
    # These have a kernel of their own, or none.
    return sorted(found - {"", "javascript", "typescript"})


def connection(folder):
    """How to reach the kernel: by unix sockets, which nobody else can reach, or else over loopback."""
    names = ["shell_port", "iopub_port", "stdin_port", "control_port", "hb_port"]
    held = []
    try:
        for _ in names:
            probe = socket.socket(socket.AF_INET)
            held.append(probe)
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in held]
    except OSError:
        # ipykernel opens one for the output of child processes, however it is reached itself.
        raise RuntimeError(
            'a kernel needs loopback, and the policy of the sandbox has none: set net.mode = "loopback", which lets nothing out'
        ) from None
    finally:
        for probe in held:
            probe.close()
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(os.path.join(folder, "probe"))
        return {"transport": "ipc", "ip": os.path.join(folder, "k"), **{name: at for at, name in enumerate(names, 1)}}
    except OSError:
        return {"transport": "tcp", "ip": "127.0.0.1", **dict(zip(names, ports))}


class Kernel:
    def __init__(self, language):
        self.folder = tempfile.mkdtemp(prefix="kernel-")
        try:
            self.name, argv, env, self.interrupt_mode = command_of(language)
            self.start(argv, env)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def start(self, argv, env):
        import zmq
        from jupyter_client.session import Session

        self.info = connection(self.folder)
        key = os.urandom(32).hex()
        file = os.path.join(self.folder, "connection.json")
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump({**self.info, "key": key, "signature_scheme": "hmac-sha256", "kernel_name": self.name}, out)
        self.session = Session(key=key.encode(), username="fumehood")
        # Digests of messages seen are kept against replays over a network; here there is none.
        self.session.digest_history_size = 1024
        argv = [word.replace("{connection_file}", file) for word in argv]
        # A kernel of its own process group: an interrupt reaches what it started, and not us.
        self.log = open(os.path.join(self.folder, "log"), "w+b")
        environment = {**os.environ, **env, "JPY_PARENT_PID": str(os.getpid()), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        if environment.get("MPLBACKEND", "Agg").lower() == "agg":
            environment["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log, env=environment, start_new_session=True
        )
        self.ended, tell = os.pipe()
        threading.Thread(target=lambda: (self.process.wait(), os.close(tell)), daemon=True).start()
        context = zmq.Context()
        self.sockets = {}
        for channel, kind in [("shell", zmq.DEALER), ("control", zmq.DEALER), ("stdin", zmq.DEALER), ("iopub", zmq.SUB)]:
            made = context.socket(kind)
            made.setsockopt(zmq.LINGER, 0)
            made.setsockopt(zmq.RECONNECT_IVL, 20)
            made.setsockopt(zmq.RCVHWM, 0)
            if kind == zmq.SUB:
                made.setsockopt(zmq.SUBSCRIBE, b"")
            else:
                made.setsockopt(zmq.IDENTITY, self.session.bsession)
            port = self.info[channel + "_port"]
            made.connect("ipc://%s-%d" % (self.info["ip"], port) if self.info["transport"] == "ipc" else "tcp://127.0.0.1:%d" % port)
            self.sockets[channel] = made
        self.poller = zmq.Poller()
        for made in self.sockets.values():
            self.poller.register(made, zmq.POLLIN)
        self.poller.register(self.ended, zmq.POLLIN)
        self.wait()

    def wait(self):
        """Until it answers, and its publications come through."""
        deadline = time.monotonic() + START
        answered = heard = False
        asked = 0.0
        while not (answered and heard):
            now = time.monotonic()
            if now > deadline:
                self.kill()
                raise RuntimeError("the kernel did not answer within %d s" % START)
            if now - asked > 0.5:
                self.session.send(self.sockets["shell"], "kernel_info_request")
                asked = now
            for channel, message in self.messages(100):
                if channel is None:
                    raise RuntimeError("the kernel ended while it started: " + self.last_words())
                answered |= message["header"]["msg_type"] == "kernel_info_reply"
                heard |= channel == "iopub"

    def last_words(self):
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 2000))
        return self.log.read().decode("utf-8", "replace").strip() or "it said nothing"

    def messages(self, timeout, also=None):
        """What came in; replies before publications. (None, None): it has ended."""
        import zmq

        ready = dict(self.poller.poll(timeout))
        for channel, made in self.sockets.items():
            if made not in ready:
                continue
            for _ in range(64):
                try:
                    idents, parts = self.session.feed_identities(made.recv_multipart(zmq.NOBLOCK, copy=True))
                    message = self.session.deserialize(parts, content=True)
                except zmq.Again:
                    break
                except Exception:
                    # A message that nobody can read is no message.
                    continue
                yield channel, message
        if also is not None and also in ready:
            yield "us", None
        if self.ended in ready:
            yield None, None

    def send(self, channel, message):
        message["header"].setdefault("date", datetime.datetime.now(datetime.timezone.utc).isoformat())
        message.setdefault("parent_header", {})
        message.setdefault("metadata", {})
        message["buffers"] = [base64.b64decode(buffer) for buffer in message.get("buffers", [])]
        self.session.send(self.sockets[channel], message)

    def interrupt(self):
        if self.interrupt_mode == "message":
            self.session.send(self.sockets["control"], "interrupt_request")
        else:
            self.signal(signal.SIGINT)

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except OSError:
            pass

    def kill(self):
        self.signal(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def cut(text, longest):
    return text if len(text) <= longest else text[:longest] + "\n[fumehood: %d characters were cut here]" % (len(text) - longest)


def pieces(message):
    """A message as it can be sent: long streams in parts, and nothing that is too large."""
    kind, content = message["header"]["msg_type"], message["content"]
    plain = {name: message[name] for name in ("header", "parent_header", "metadata", "content")}
    buffers = message.get("buffers") or []
    if buffers and sum(map(len, buffers)) <= LONGEST // 2:
        plain["buffers"] = [base64.b64encode(buffer).decode() for buffer in buffers]
    if kind == "stream" and len(content.get("text", "")) > PIECE:
        text = content["text"]
        for at in range(0, len(text), PIECE):
            yield {**plain, "content": {**content, "text": text[at:at + PIECE]}}
        return
    size = len(json.dumps(content, default=text_of))
    if size <= LONGEST:
        yield plain
        return
    said = "[fumehood: %d bytes were left out here: more than a message may have]" % size
    if "data" in content:
        content = {**content, "data": {"text/plain": said}}
    elif "traceback" in content:
        text = [cut(line, 65536) for line in content["traceback"][-20:]]
        content = {**content, "evalue": cut(str(content.get("evalue", "")), 65536), "traceback": text}
    else:
        content = {name: value for name, value in content.items() if name in ("status", "execution_count", "ename")}
    yield {**plain, "content": content}


def obey(kernel, asked):
    if asked["op"] == "send":
        try:
            kernel.send(asked["channel"], asked["message"])
        except (KeyError, TypeError, AttributeError, ValueError, binascii.Error):
            # It is no message, and no kernel would answer it.
            return
    elif asked["op"] == "interrupt":
        kernel.interrupt()


def serve(kernel, lines):
    import zmq

    kernel.poller.register(lines.read, zmq.POLLIN)
    while True:
        for channel, message in kernel.messages(None, lines.read):
            if channel is None:
                lines.put({"dead": {"code": kernel.process.returncode}})
                return
            if channel == "us":
                asked = lines.take()
                if asked is None:
                    return
                for one in asked:
                    obey(kernel, one)
                continue
            for piece in pieces(message):
                lines.put({"message": {"channel": channel, **piece}})


def main():
    lines = Lines()
    if sys.argv[1] == "--list":
        lines.put({"languages": languages()})
        return
    try:
        kernel = Kernel(sys.argv[1])
    except Missing as error:
        lines.put({"missing": {"what": cut(str(error), 200)}})
        return
    except ImportError as error:
        lines.put({"missing": {"what": error.name or str(error)}})
        return
    except Exception as error:
        lines.put({"failed": cut("%s" % error, 4000)})
        return
    try:
        lines.put({"ready": {"language": sys.argv[1], "kernel": kernel.name, "pid": kernel.process.pid}})
        serve(kernel, lines)
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    finally:
        kernel.kill()


main()
