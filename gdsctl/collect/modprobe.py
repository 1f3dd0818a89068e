"""Files of modprobe.d."""

from __future__ import annotations

from gdsctl.collect.reader import Reader
from gdsctl.parse import modprobe_d
from gdsctl.source.base import Missing


def texts(reader: Reader) -> tuple[list[tuple[str, str]], tuple[str, Missing] | None]:
    """The files as (path, text), and the folder of which one that may decide was not read, with the reason."""
    found: list[tuple[str, str]] = []
    for folder in modprobe_d.FOLDERS:
        names = reader.source.names(folder)
        why = names if isinstance(names, Missing) else None
        for name in () if isinstance(names, Missing) else names:
            text = reader.text(f"{folder}/{name}") if name.endswith(".conf") else ""
            if isinstance(text, Missing):
                why = text
            elif text:
                found.append((f"{folder}/{name}", text))
        # Of the five folders only /etc's is written by operators; the others may be left out of a capture.
        if why and why.status != "absent" and (why.status != "not_captured" or folder == modprobe_d.FOLDERS[0]):
            return found, (folder, why)
    return found, None
