"""The command line: arguments in, exit code out. Each command lives in its own module and imports late."""

from __future__ import annotations

import os
import sys

from gdsctl.errors import GdsctlError


def main(argv: list[str] | None = None) -> None:
    """Run gdsctl and end the process with the documented exit code."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: list[str]) -> int:
    """One invocation; every ending is an exit code and, where it is an error, one line on stderr."""
    try:
        if argv == ["--version"]:
            _print_version()
            return 0
        from gdsctl.cli.app import invoke

        code = invoke(argv)
        sys.stdout.flush()
    except GdsctlError as error:
        _say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except BrokenPipeError:
        _swallow_stdout()
        return 0
    except OSError as error:
        _swallow_stdout()
        _say(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
        return 5
    except Exception as fault:  # noqa: BLE001 -- the last line of defence: no user sees a traceback
        return _fault(fault)
    return code


def _print_version() -> None:
    from gdsctl import __version__

    sys.stdout.write(f"gdsctl {__version__}\n")


def _say(message: str) -> None:
    from gdsctl.render.safe_text import safe

    sys.stderr.write(f"gdsctl: {safe(message)}\n")


def _swallow_stdout() -> None:
    """Standard output takes no more (`| head`, a full disk): keep the interpreter from complaining when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fault(fault: Exception) -> int:
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(fault))
    try:
        descriptor, path = tempfile.mkstemp(prefix="gdsctl-fault-", suffix=".txt")
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
        where = f"the traceback is in {path}"
    except OSError:
        where = f"the traceback could not be saved; it ends with {traceback.format_exception_only(fault)[-1].strip()}"
    _say(f"a fault in gdsctl, please report it: {type(fault).__name__}; {where}")
    return 70
