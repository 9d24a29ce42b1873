# Imports what it is told, waits for code on stdin, and is `python3 -c CODE` from then on: once. Its end is that one's too: threads
# are waited for, `atexit` is run, what the code holds is let go of, files are flushed. The interpreter alone, and what was imported,
# are not taken apart: after pandas that takes a hundred milliseconds, of use to nobody.


def wait():
    import atexit
    import gc
    import io
    import sys
    import types

    names, sys.argv = sys.argv[1:], ["-c"]
    for name in names:
        __import__(name)
    try:
        from ctypes import PyDLL

        # C's own `exit`: what libraries registered and buffered is theirs to write.
        leave = PyDLL(None).exit
    except Exception:
        leave = sys.exit
    imported = sys.modules.keys() - {"__main__"}
    gc.collect()
    # What is there now is looked through no more.
    gc.freeze()
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    status = 0
    try:
        exec(compile(sys.stdin.buffer.read(), "<code>", "exec"), vars(main))
    except KeyboardInterrupt:
        # Ends by the signal, which the interpreter knows how to do.
        raise
    except SystemExit as asked:
        status = 0 if asked.code is None else asked.code
        if not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except BaseException as error:
        # Without the frame of this file.
        error.__traceback__ = error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    for thing in gc.get_objects():
        # Of a file that something refers to which refers to itself, the collector may close the parts in the wrong order.
        if issubclass(type(thing), io.IOBase):
            try:
                thing.flush()
            except Exception:
                pass
    thing = None
    for name in sys.modules.keys() - imported:
        del sys.modules[name]
    del main
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        # The interpreter says what is wrong.
        leave = sys.exit
    leave(status & 0xFF)


wait()
