"""What the cases of `cases.py` and `interpreter.py` share: how they are collected, skipped and counted."""

import sys
import traceback

CASES = []


class Skip(Exception):
    pass


def case(function):
    CASES.append(function)
    return function


def refuses(exception, call, words=""):
    try:
        call()
    except exception as error:
        assert words in str(error), f"{words!r} is not in {error}"
        return error
    raise AssertionError(f"{exception} was expected")


def main(create, package):
    """Runs all cases, or those named behind the keys, each with the same sandbox."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    shared = create(timeout=600)
    wanted = sys.argv[4:]
    for function in CASES:
        if wanted and function.__name__ not in wanted:
            continue
        try:
            function(shared)
            counts["passed"] += 1
        except Skip as why:
            counts["skipped"] += 1
            print(f"skip: {function.__name__}: {why}")
        except Exception:  # noqa: BLE001
            counts["failed"] += 1
            print(f"failed: {function.__name__}\n{traceback.format_exc(limit=-6)}")
    shared.kill()
    print(package + " " + __import__("importlib.metadata").metadata.version(package))
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    sys.exit(counts["failed"] != 0)
