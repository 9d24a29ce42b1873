"""Cases of our own for templates that E2B's released Python clients build, against a running `fumehood serve`.

usage: builds.py URL KEY OTHER_KEY     (a Python that has e2b installed)
Prints one line for each case that failed, and at the end `N passed, N failed, N skipped`.
"""

import os
import sys
import tempfile

from harness import Skip, case, main, refuses

URL, KEY, OTHER = sys.argv[1:4]
NEEDS_NO_TEMPLATE = True
os.environ.update(E2B_API_URL=URL, E2B_SANDBOX_URL=URL, E2B_API_KEY=KEY)

import e2b  # noqa: E402
from e2b import Sandbox  # noqa: E402


def create(**more):
    return Sandbox.create(timeout=more.pop("timeout", 120), **more)


def built(template, name, **more):
    """Builds a template; what was said meanwhile."""
    said = []
    done = e2b.Template.build(template, name, on_build_logs=said.append, **more)
    return done, [str(entry.message) for entry in said]


def template_of(folder):
    with open(os.path.join(folder, "app.py"), "w") as app:
        app.write("import http.server as h\nh.test(h.SimpleHTTPRequestHandler, port=8321, bind='127.0.0.1')\n")
    os.makedirs(os.path.join(folder, "data", "in"), exist_ok=True)
    for name in ("a.txt", "in/b.txt"):
        with open(os.path.join(folder, "data", name), "w") as file:
            file.write(name)
    return e2b.Template(file_context_path=folder)


@case
def a_template_is_built_and_sandboxes_begin_as_it(_):
    with tempfile.TemporaryDirectory() as folder:
        steps = (
            template_of(folder)
            .from_template("base")
            .copy("app.py", "app.py")
            .copy("data", "/srv/data")
            .run_cmd("cat /srv/data/in/b.txt > /srv/data/made; test -n \"$BASH_VERSION\"")
            .set_envs({"TEAM": "research"})
            .set_workdir("/srv/data")
            .set_user("user")
            .run_cmd("echo $TEAM $PWD > ~/said")
            .set_start_cmd("cd ~ && python3 app.py", e2b.wait_for_timeout(1000))
        )
        name = f"cases-{os.getpid()}"
        done, said = built(steps, name)
        assert any("b.txt" in line or "RUN cat" in line for line in said), said
        # Nothing is sent and nothing is done that was before; what is forced is.
        again, said = built(steps, name)
        assert again.template_id == done.template_id and again.build_id != done.build_id
        assert any(line.startswith("cached: RUN cat") for line in said), said
        _, said = built(steps, name, skip_cache=True)
        assert not any(line.startswith("cached: ") for line in said), said
    box = create(template=name)
    try:
        assert box.commands.run("cat made a.txt ~/said; echo $TEAM; pwd").stdout == (
            "in/b.txta.txtresearch /srv/data\nresearch\n/srv/data\n"
        )
        asked = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8321').status)"
        assert box.commands.run(f'python3 -c "{asked}"').stdout == "200\n"
        assert box.get_info().template_id == done.template_id
    finally:
        box.kill()
    assert e2b.Template.exists(name) and not e2b.Template.exists(f"{name}-not")
    # Another key neither sees nor uses it.
    refuses(e2b.SandboxException, lambda: create(template=name, api_key=OTHER), "there is no template")
    assert not e2b.Template.exists(name, api_key=OTHER)


@case
def a_package_is_installed_while_a_template_is_built(_):
    name = f"packages-{os.getpid()}"
    steps = e2b.Template().from_base_image().pip_install("six").run_cmd("python3 -c 'import six'")
    try:
        built(steps, name)
    except Exception as error:
        if "pip: command not found" in str(error) or "No matching distribution" in str(error):
            raise Skip(f"no pip, or no registry, here: {error}") from error
        raise
    box = create(template=name)
    try:
        assert "six" in box.commands.run("python3 -c 'import six; print(six.__name__)'").stdout
        # What the build could reach its sandboxes cannot.
        refuses(e2b.CommandExitException, lambda: box.commands.run("pip download six -d /tmp/x -q --retries 0"))
    finally:
        box.kill()


@case
def steps_of_before_are_taken_to_the_first_that_is_another_or_forced(_):
    name = f"again-{os.getpid()}"

    def steps(last):
        return e2b.Template().from_template("base").run_cmd("date +%s%N > ~/one").run_cmd("date +%s%N > ~/two").run_cmd(last)

    def cached(template, **more):
        return [line for line in built(template, name, **more)[1] if line.startswith("cached: ")]

    assert cached(steps("true")) == []
    assert len(cached(steps("true"))) == 3
    assert len(cached(steps("echo another"))) == 2
    forced = e2b.Template().from_template("base").run_cmd("date +%s%N > ~/one").skip_cache().run_cmd("date +%s%N > ~/two")
    assert len(cached(forced)) == 1
    # Of another key nothing is taken.
    assert cached(steps("true"), api_key=OTHER) == []


@case
def files_are_sent_again_where_they_are_to_be(_):
    name = f"sent-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:

        def steps(**more):
            return template_of(folder).from_template("base").copy("data", "/srv/data", **more).run_cmd("true")

        first, said = built(steps(), name)
        assert any("Uploaded" in line for line in said), said
        _, said = built(steps(), name)
        assert any("Skipping upload" in line for line in said) and any(line.startswith("cached: COPY") for line in said), said
        _, said = built(steps(force_upload=True), name)
        assert any("Uploaded" in line for line in said) and not any(line.startswith("cached: ") for line in said), said


@case
def a_template_begins_as_an_image_of_the_list_of_its_key(_):
    key = os.environ.get("E2B_TEST_IMAGES")
    if not key:
        raise Skip("no busybox here to make an image of")
    name = f"image-{os.getpid()}"
    steps = e2b.Template().from_image("cases/tiny:1").run_cmd("cat /marker > ~/made")
    _, said = built(steps, name, api_key=key)
    assert any("listed:cases/tiny:1@sha256:" in line for line in said), said
    box = create(template=name, api_key=key)
    try:
        assert box.commands.run("cat /marker ~/made; test -e /usr/bin/env || echo alone").stdout == "tiny\ntiny\nalone\n"
    finally:
        box.kill()
    other = e2b.Template().from_image("cases/other:1").run_cmd("true")
    refuses(Exception, lambda: built(other, name, api_key=key), "--images")
    refuses(Exception, lambda: built(steps, name), "--images")


@case
def a_build_that_fails_says_its_step(_):
    steps = e2b.Template().from_template("base").run_cmd("true").run_cmd("echo because of this >&2; exit 3")
    error = refuses(e2b.BuildException, lambda: built(steps, f"fails-{os.getpid()}"), "because of this")
    assert "exit" in str(error) or "3" in str(error), error
    missing = e2b.Template().from_image("registry.test/nosuch:1").run_cmd("true")
    refuses(Exception, lambda: built(missing, f"missing-{os.getpid()}"), "--images")
    unknown = e2b.Template().from_template("base").set_envs({"NOT A NAME": "x"})
    refuses(e2b.BuildException, lambda: built(unknown, f"unknown-{os.getpid()}"), "NOT A NAME")
    beyond = e2b.Template().from_template("base").set_workdir("/etc/x")
    refuses(Exception, lambda: built(beyond, f"beyond-{os.getpid()}"), "/etc/x")


main(create, "e2b")
