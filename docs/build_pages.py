"""Writes the pages that the program itself knows best: findings.md, cli.md, cufile-keys.md.

python docs/build_pages.py            writes them
python docs/build_pages.py --check    names those that are not current, exit code 1
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
_GENERATED = "<!-- Written by docs/build_pages.py; edit what it reads instead. -->\n"


def findings() -> str:
    """Every rule's story, by id."""
    from gdsctl.assess.rules import explained, explanation

    parts = [
        f"# Findings\n\n{_GENERATED}",
        "`gdsctl explain ID` prints one of these. The id names the problem and is never reused.\n",
        "| id | severity | problem |\n|---|---|---|",
    ]
    stories = [explanation(name) for name in explained()]
    told = [story for story in stories if story is not None]
    parts += [f"| [`{s['id']}`](#{_anchor(s['id'])}) | {_severities(s)} | {_cell(s['problem'])} |" for s in told]
    parts += ["\n".join(_story(story)) for story in told]
    return "\n".join(parts) + "\n"


def _severities(story: dict[str, Any]) -> str:
    """The usual one first."""
    return ", ".join((story["severity"], *story["otherwise"]))


def _story(story: dict[str, Any]) -> Iterator[str]:
    remedy = story["remedy"]
    yield f"\n## {story['id']}\n"
    yield f"*{story['severity']}*: {_text(story['problem'])}.\n"
    for severity, where in story["otherwise"].items():
        yield f"*{severity}* {_text(where)}.\n"
    yield f"{_text(story['why'])}\n"
    yield "Where to look:\n"
    yield _code(story["look_at"])
    yield f"What to change: {_text(remedy.text)}\n"
    if remedy.commands:
        yield _code(remedy.commands)
    traits = [
        "It needs a reboot." if remedy.needs_reboot else "",
        "" if remedy.persistent else "It is lost at the next boot.",
        f"Risk: {_text(remedy.risk)}." if remedy.risk else "",
    ]
    if any(traits):
        yield " ".join(filter(None, traits)) + "\n"
    if story["not_to_conclude"]:
        yield f"What not to conclude: {_text(story['not_to_conclude'])}\n"
    if story["blocks"]:
        yield f"Routes it blocks: {', '.join(story['blocks'])}\n"
    yield f"Source: {_text(story['source'])}"


def cli() -> str:
    """`--help` of every command."""
    parts = [f"# Commands\n\n{_GENERATED}"]
    for words in _commands():
        shown = subprocess.run(
            [sys.executable, "-m", "gdsctl", *words, "--help"],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"},
        )
        parts.append(f"## {' '.join(('gdsctl', *words))}\n\n{_code(shown.stdout.strip().splitlines())}")
    return "\n".join(parts)


def _commands() -> list[tuple[str, ...]]:
    import typer.main

    from gdsctl.cli.app import app

    found: list[tuple[str, ...]] = []
    waiting: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(app))]
    while waiting:
        words, command = waiting.pop(0)
        found.append(words)
        below = getattr(command, "commands", {})
        waiting[:0] = [((*words, name), below[name]) for name in below]
    return found


def cufile_keys() -> str:
    """The table of cufile.json keys."""
    from gdsctl.data.cufile_keys import keys

    rows = [
        f"# Keys of cufile.json\n\n{_GENERATED}",
        "What libcufile 1.11 to 1.20 acts on. Default: of an absent key, in the newest release that has it.\n",
        "| key | type | default | range | releases | meaning |\n|---|---|---|---|---|---|",
    ]
    for key in keys():
        kind = key.type.replace("_", " ") + (f", {key.unit}" if key.unit else "")
        default = f"`{json.dumps(key.defaults[-1].value)}`" if key.defaults else ""
        bounds = _bounds(key.ranges[-1]) if key.ranges else ", ".join(key.values)
        releases = f"{key.since} to {key.until}" if key.until else f"from {key.since}"
        rows.append(f"| `{key.key}` | {kind} | {default} | {_cell(bounds)} | {releases} | {_cell(key.meaning)} |")
    return "\n".join(rows) + "\n"


def _bounds(bounds: Any) -> str:
    parts = (
        f"from {bounds.min}" if bounds.min is not None else "",
        f"to {bounds.max}" if bounds.max is not None else "",
        f"multiples of {bounds.multiple_of}" if bounds.multiple_of else "",
    )
    return " ".join(filter(None, parts))


def _anchor(title: str) -> str:
    return re.sub(r"[^\w-]", "", title.lower())


def _text(text: str) -> str:
    """Words as Markdown text: what looks like a tag or emphasis is meant literally."""
    return re.sub(r"([<>*\[\]])", r"\\\1", text)


def _cell(text: str) -> str:
    return _text(text).replace("|", r"\|")


def _code(lines: Any) -> str:
    return "```\n" + "\n".join(lines) + "\n```\n"


PAGES = {"findings.md": findings, "cli.md": cli, "cufile-keys.md": cufile_keys}


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    stale = []
    for name, build in PAGES.items():
        page = DOCS / name
        text = build()
        if check:
            if not page.exists() or page.read_text("utf-8") != text:
                stale.append(name)
        else:
            page.write_text(text, "utf-8")
    if stale:
        sys.stderr.write(f"not current: {', '.join(stale)}; run python docs/build_pages.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
