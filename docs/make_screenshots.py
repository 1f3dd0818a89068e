"""Runs real commands on the shipped examples in a terminal of fixed size and draws what they print as SVG.

    python docs/make_screenshots.py            writes docs/*.svg
    python docs/make_screenshots.py --check    names pictures whose words are not current, exit code 1

Only the words are compared: fonts, colours and measures come from the release of rich that drew them.
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

DOCS = Path(__file__).resolve().parent
_COLUMNS = 100
PICTURES = {
    "inspect.svg": ("gdsctl", "inspect", "--snapshot", "example:nvme-unpatched"),
}


def printed(command: tuple[str, ...]) -> str:
    """What the command writes to a terminal, escape sequences and all."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, _COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        env=environment,
    )
    os.close(theirs)
    chunks = []
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # Linux answers EIO when the last writer is gone
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(ours)
    if process.wait():
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return b"".join(chunks).decode().replace("\r\n", "\n")


def picture(command: tuple[str, ...], name: str) -> str:
    import io

    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(printed(command)), overflow="ignore", no_wrap=True, crop=False)
    return console.export_svg(title=" ".join(command), unique_id=name.removesuffix(".svg"))


def words(svg: str) -> str:
    """The text of a picture, blanks folded."""
    cells = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return " ".join(html.unescape(" ".join(cells)).split())


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    stale = []
    for name, command in PICTURES.items():
        place = DOCS / name
        svg = picture(command, name)
        if not check:
            place.write_text(svg, "utf-8")
        elif not place.exists() or words(place.read_text("utf-8")) != words(svg):
            stale.append(name)
    if stale:
        sys.stderr.write(f"not current: {', '.join(stale)}; run python docs/make_screenshots.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
