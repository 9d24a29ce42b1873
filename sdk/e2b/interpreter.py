"""Cases of our own for E2B's released clients of the code interpreter against a running `fumehood serve`.

usage: interpreter.py URL KEY OTHER_KEY     (a Python that has e2b-code-interpreter installed; the server has the template)
Prints one line for each case that failed, and at the end `N passed, N failed, N skipped`.
"""

import base64
import importlib.metadata
import os
import socket
import sys
import threading
import time

from harness import case, main, refuses

URL, KEY, OTHER = sys.argv[1:4]
VERSION = tuple(map(int, importlib.metadata.version("e2b-code-interpreter").split(".")[:2]))
os.environ.update(E2B_API_URL=URL, E2B_SANDBOX_URL=URL, E2B_API_KEY=KEY)

import e2b  # noqa: E402
from e2b_code_interpreter import Sandbox  # noqa: E402

if VERSION < (2, 9):
    # This generation asks https://49999-ID.DOMAIN whatever E2B_SANDBOX_URL says. A name that leads here and TLS are a proxy's
    # to give; here the name is resolved by ourselves, and there is no TLS.
    def at_its_host(self):
        return f"http://49999-{self.sandbox_id}.localhost:{URL.rpartition(':')[2]}"

    Sandbox._jupyter_url = property(at_its_host)
    resolve = socket.getaddrinfo
    socket.getaddrinfo = lambda host, *more, **named: resolve(
        "127.0.0.1" if str(host).endswith(".localhost") else host, *more, **named
    )


def create(**more):
    return Sandbox.create(timeout=more.pop("timeout", 120), **more)


@case
def the_template_is_the_stock_one(box):
    assert box.get_info().template_id == "code-interpreter-v1", box.get_info()


@case
def state_is_kept_between_calls(box):
    first = box.run_code("x = 41; x += 1")
    assert first.results == [] and first.error is None and first.execution_count >= 1, first
    second = box.run_code("x")
    assert second.text == "42" and second.results[0].is_main_result, second
    assert second.execution_count == first.execution_count + 1


@case
def an_error_is_told_and_the_kernel_lives_on(box):
    failed = box.run_code("kept = 7\n1 / 0")
    assert (failed.error.name, failed.error.value) == ("ZeroDivisionError", "division by zero"), failed.error
    assert "1 / 0" in failed.error.traceback and isinstance(failed.error.traceback, str)
    assert box.run_code("kept").text == "7"
    seen = []
    box.run_code("raise ValueError('no')", on_error=seen.append)
    assert [error.name for error in seen] == ["ValueError"], seen
    assert box.run_code("def f(:").error.name == "SyntaxError"


@case
def output_comes_as_it_is_printed(box):
    seen, times = [], []

    def out(message):
        seen.append((message.line, message.error))
        times.append(time.monotonic())

    code = "import sys, time\nfor i in range(3):\n    print(i, flush=True); time.sleep(0.4)\nprint('err', file=sys.stderr)"
    done = box.run_code(code, on_stdout=out, on_stderr=out)
    assert "".join(line for line, error in seen if not error) == "0\n1\n2\n", seen
    assert "".join(done.logs.stdout) == "0\n1\n2\n" and "".join(done.logs.stderr) == "err\n", done.logs
    assert ("err\n", True) in seen and times[-1] - times[0] > 0.5, (seen, times)


@case
def results_of_display_come_as_they_are_shown(box):
    seen = []
    code = "from IPython.display import display, HTML\ndisplay(HTML('<b>x</b>'))\n'main'"
    done = box.run_code(code, on_result=seen.append)
    assert [result.is_main_result for result in done.results] == [False, True], done.results
    assert done.results[0].html == "<b>x</b>" and done.text == "main" and len(seen) == 2, done.results


@case
def a_figure_is_a_picture_and_a_chart(box):
    code = """import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [4, 5, 6], label="a")
plt.xlabel("time (s)"); plt.title("T")
plt.show()"""
    result = box.run_code(code).results[0]
    assert base64.b64decode(result.png).startswith(b"\x89PNG"), result
    chart = result.chart
    assert chart.type.value == "line" and chart.title == "T" and chart.x_unit == "s", chart
    assert [tuple(point) for point in chart.elements[0].points] == [(1, 4), (2, 5), (3, 6)], chart.elements


@case
def a_table_is_data(box):
    result = box.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})").results[0]
    assert result.data == {"a": [1, 2], "b": ["x", "y"]}, result.data
    assert "<table" in result.html and result.text, result


@case
def code_and_files_share_the_home_folder(box):
    box.files.write("in.txt", "from outside")
    assert box.run_code("print(open('in.txt').read()); open('out.txt', 'w').write('from inside')").logs.stdout
    assert box.files.read("out.txt") == "from inside"
    # The home folder may be a link to where it lies.
    assert box.run_code("import os; os.path.samefile(os.getcwd(), os.environ['HOME'])").text == "True"


@case
def contexts(box):
    made = box.create_code_context(cwd="/tmp", language="python")
    assert made.language == "python" and made.cwd == "/tmp" and made.id, vars(made)
    box.run_code("only_here = 5", context=made)
    assert box.run_code("only_here", context=made).text == "5"
    assert box.run_code("only_here").error.name == "NameError"
    assert box.run_code("import os; os.getcwd()", context=made).text == "/tmp"
    if hasattr(box, "list_code_contexts"):
        listed = box.list_code_contexts()
        assert made.id == listed[-1].id and {"python", "javascript"} <= {context.language for context in listed[:-1]}, listed
        box.restart_code_context(made)
        assert box.run_code("only_here", context=made).error.name == "NameError"
        box.remove_code_context(made)
        assert made.id not in [context.id for context in box.list_code_contexts()]
    else:
        made.id = "0" * 32
    refuses(e2b.NotFoundException, lambda: box.run_code("1", context=made))


@case
def two_contexts_execute_at_once(box):
    made = box.create_code_context()
    thread = threading.Thread(target=lambda: box.run_code("import time; time.sleep(3)"))
    thread.start()
    time.sleep(0.3)
    begun = time.monotonic()
    assert box.run_code("1 + 1", context=made).text == "2"
    assert time.monotonic() - begun < 2
    thread.join(20)


@case
def bash(box):
    done = box.run_code("X=shell; echo $X; pwd", language="bash")
    assert "".join(done.logs.stdout).startswith("shell\n"), done
    assert "".join(box.run_code("echo again $X", language="bash").logs.stdout) == "again shell\n"


@case
def javascript_and_typescript(box):
    done = box.run_code("const a = 40; console.log('out'); a + 2", language="javascript")
    assert done.text == "42" and done.logs.stdout == ["out\n"], done
    assert box.run_code("import { EOL } from 'os'; await Promise.resolve(a + EOL.length)", language="js").text == "41"
    assert box.run_code("null.x", language="js").error.name == "TypeError"
    done = box.run_code("function sub(x: number, y: number): number { return x - y }\n\nsub(1, 2)", language="ts")
    assert done.text == "-1", done
    made = box.create_code_context(language="typescript", cwd="/tmp")
    assert made.language == "typescript" and box.run_code("process.cwd()", context=made).text == "/tmp"


@case
def the_guides_own_lines(_):
    # As guides print them, but for `create`, which the released client wants.
    sandbox = create()
    try:
        sandbox.run_code("x = 1")
        execution = sandbox.run_code("x+=1; x")
        assert execution.text == "2"
        hostile = sandbox.run_code("import os; os.listdir(os.path.expanduser('~root'))")
        assert hostile.error is not None, "somebody else's home folder was read"
    finally:
        sandbox.kill()


@case
def a_language_that_is_not_there_says_so(box):
    refuses(e2b.SandboxException, lambda: box.run_code("1", language="java"), "java")


@case
def variables_of_one_execution(box):
    code = "import os; os.environ.get('ONCE', 'none')"
    assert box.run_code(code, envs={"ONCE": "it's"}).text == "it's"
    assert box.run_code(code).text == "none"


@case
def variables_of_the_sandbox(_):
    box = create(envs={"ALWAYS": "1 2"})
    try:
        assert box.run_code("import os; os.environ['ALWAYS']").text == "1 2"
    finally:
        box.kill()


@case
def a_timeout_interrupts_and_the_kernel_lives_on(box):
    box.run_code("before = 'kept'")
    begun = time.monotonic()
    refuses(e2b.TimeoutException, lambda: box.run_code("import time\nwhile True: time.sleep(0.1)", timeout=2))
    assert time.monotonic() - begun < 6
    begun = time.monotonic()
    assert box.run_code("before", timeout=20).text == "kept"
    assert time.monotonic() - begun < 10


@case
def what_waits_for_its_turn_is_kept_alive(box):
    thread = threading.Thread(target=lambda: box.run_code("import time; time.sleep(9)"))
    thread.start()
    time.sleep(0.5)
    assert box.run_code("'after'", timeout=30).text == "after"
    thread.join(20)


@case
def much_output(box):
    done = box.run_code("print('x' * 3_000_000)", timeout=60)
    assert sum(map(len, done.logs.stdout)) == 3_000_001, sum(map(len, done.logs.stdout))


@case
def a_kernel_that_dies_is_told_and_replaced(box):
    made = box.create_code_context()
    died = box.run_code("import os; os._exit(3)", context=made)
    assert died.error.name == "UnexpectedEndOfExecution", died.error
    assert box.run_code("1 + 1", context=made).text == "2"


@case
def nothing_outside_is_reached(box):
    code = "import socket; socket.create_connection(('192.0.2.1', 443), 5)"
    assert box.run_code(code).error is not None


@case
def kill_ends_an_execution(_):
    box = create()
    result = []

    def wait():
        try:
            box.run_code("import time; time.sleep(60)")
            result.append("ended")
        except Exception as error:  # noqa: BLE001
            result.append(error)

    box.run_code("1")
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(1)
    box.kill()
    thread.join(20)
    assert type(result[0]) is e2b.TimeoutException and "was killed while" in str(result[0]), result


@case
def another_token_executes_nothing(box):
    import urllib.error
    import urllib.request

    def status(path, **headers):
        headers.update({"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "49999"})
        body = b'{"code": "1"}' if path == "/execute" else None
        try:
            with urllib.request.urlopen(urllib.request.Request(URL + path, body, headers), timeout=20) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    assert status("/execute") == 401 and status("/execute", **{"X-Access-Token": "0" * 64}) == 401
    assert status("/execute", **{"X-Access-Token": box._envd_access_token}) == 200
    assert status("/health") == 200


main(create, "e2b-code-interpreter")
