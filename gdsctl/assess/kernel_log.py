"""The lines of the kernel log that still hold."""

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.view import View
from gdsctl.parse import kernel_log
from gdsctl.parse.kernel_log import KernelEvent

_STARTS = "nvidia-fs-starts"


def events(view: View, *meanings: str) -> Iterator[KernelEvent]:
    """Lines of these meanings, newest first; what nvidia_fs said before it was last loaded is stale and left out."""
    lines = view.node.platform.kernel_log or ()
    found = kernel_log.parse("\n".join(lines)).events
    begun = max((event.line for event in found if event.meaning == _STARTS), default=0)
    for event in reversed(found):
        stale = event.line < begun and (event.module or "").replace("-", "_") == "nvidia_fs"
        if event.meaning in meanings and not stale:
            yield event
