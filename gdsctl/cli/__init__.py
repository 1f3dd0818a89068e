"""The command line: arguments in, exit code out. Each command lives in its own module and imports late."""

from __future__ import annotations

import io
import os
import signal
import sys

from gdsctl.cli.messages import nowhere, say, swallow
from gdsctl.errors import GdsctlError


def main(argv: list[str] | None = None) -> None:
    """Run gdsctl and end the process with the documented exit code.

    SIGTERM and SIGHUP end it as Ctrl-C does, with everything cleaned up; one that the caller ignores (nohup) stays so.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: list[str]) -> int:
    """One invocation; every ending is an exit code and, where it is an error, one line on stderr."""
    try:
        _prepare_streams()
        if argv == ["--version"]:
            _print_version()
            code = 0
        else:
            from gdsctl.cli.app import invoke

            code = invoke(argv)
        sys.stdout.flush()
    except GdsctlError as error:
        say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BrokenPipeError:
        swallow(sys.stdout)
        return 0
    except OSError as error:
        swallow(sys.stdout)
        say(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
        return 5
    except Exception as fault:  # noqa: BLE001 -- the last line of defence: no user sees a traceback
        if (
            isinstance(fault, MemoryError) or str(fault) == "can't start new thread"
        ):  # a RuntimeError is all Python says
            say(f"the system gives no more: {str(fault) or 'out of memory'}")
            return 5
        return _fault(fault)
    return code


def _print_version() -> None:
    from gdsctl import __version__

    sys.stdout.write(f"gdsctl {__version__}\n")


def _prepare_streams() -> None:
    """Stand-ins for standard streams that the caller closed (`>&-`), or the next file opened would become one of them.

    Reading and writing then fail as on the closed ones (EBADF), for each is an end of a pipe of the other direction;
    what goes to standard error is lost.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = nowhere() if name == "stderr" else _end_of_a_pipe(writing=name == "stdin")
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))  # noqa: SIM115 -- lives as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):  # a locale of ASCII: no sign that it lacks may end a report
        sys.stdout.reconfigure(errors="backslashreplace")


def _end_of_a_pipe(*, writing: bool) -> int:
    ends = os.pipe()
    os.close(ends[not writing])
    return ends[writing]


def _fault(fault: Exception) -> int:
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(fault))
    try:
        descriptor, path = tempfile.mkstemp(prefix="gdsctl-fault-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        where = f"the traceback is in {path}"
    except OSError:
        where = f"the traceback could not be saved; it ends with {traceback.format_exception_only(fault)[-1].strip()}"
    say(f"a fault in gdsctl, please report it: {type(fault).__name__}; {where}")
    return 70
