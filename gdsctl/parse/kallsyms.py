"""/proc/kallsyms, whole or through grep: which symbols that decide about GDS does the running kernel have?

Addresses may be zero (kptr_restrict). Layout: Linux, kernel/kallsyms.c, s_show().
"""

from __future__ import annotations

import functools
import re

from gdsctl.data.nvfs_hooks import symbols
from gdsctl.errors import InputError
from gdsctl.parse import pasted
from gdsctl.record import Record, Warned

_LINE = re.compile(r"(?:[0-9a-fA-F]{8,16}|\(null\)|\(ptrval\)) [A-Za-z?] \S+(?:[ \t]+\[[^\]\s]+\])?[ \t\r]*")
_HEAD = 50


class P2pdmaSymbols(Record, frozen=True, kw_only=True):
    """None where the symbol was not seen and the text is cut off.

    libcufile looks for `pci_p2pdma_add_resource`, NVIDIA's guide for `p2pdma_pgmap_ops`; the latter is data and stands
    in kallsyms only with CONFIG_KALLSYMS_ALL.
    """

    pci_p2pdma_add_resource: bool | None
    p2pdma_pgmap_ops: bool | None


class Kallsyms(Record, frozen=True, kw_only=True):
    """`nvfs_hooks`: the register and unregister symbols that are there -> module that has them, None for the kernel
    itself. `count`: lines with a symbol.
    """

    nvfs_hooks: dict[str, str | None]
    p2pdma: P2pdmaSymbols
    count: int
    truncated: bool = False
    warnings: tuple[Warned, ...] = ()


@functools.cache
def _wanted() -> re.Pattern[str]:
    names = "|".join(sorted((*symbols(), "pci_p2pdma_add_resource", "p2pdma_pgmap_ops")))
    return re.compile(rf" [A-Za-z?] ({names})(?:[ \t]+\[([^\]\s]+)\])?[ \t\r]*(?![^\n])")


def parse(text: str) -> Kallsyms:
    """Exact names only: `__ksymtab_X`, `__pfx_X` and `X.cold` are not X."""
    head = [line for line in text[:20_000].split("\n")[:_HEAD] if line.strip()]
    if not any(_LINE.fullmatch(line) for line in head):
        text = "\n".join(line.strip() for line in pasted.lines(text))
    body = text.rstrip("\n \t\r")
    last = body[body.rfind("\n") + 1 :]
    found: dict[str, str | None] = {}
    # Nothing of interest lacks one of these words, and a substring search costs a tenth of a regular expression.
    for word in ("register_nvfs_dma_ops", "register_dma_scsi_ops", "p2pdma_"):
        at = body.find(word)
        while at != -1:
            start = body.rfind("\n", max(0, at - 200), at) + 1
            stop = body.find("\n", at)
            stop = len(body) if stop == -1 else stop
            match = _wanted().search(body, start, min(stop, at + 400))
            if match is not None and _LINE.fullmatch(body, start, stop):
                found.setdefault(match[1], match[2])
            at = body.find(word, stop)

    truncated = bool(last) and _LINE.fullmatch(last[:1000]) is None
    warnings: list[Warned] = []
    count = body.count("\n") + 1 if body else 0
    if truncated:
        warnings.append(Warned(line=count, message="not a line of /proc/kallsyms"))
        count -= 1
    if not found and not any(_LINE.fullmatch(line) for line in body[:20_000].split("\n")[:_HEAD]):
        raise InputError("not the text of /proc/kallsyms", line=1)
    absent = None if truncated else False
    return Kallsyms(
        nvfs_hooks={name: found[name] for name in symbols() if name in found},
        p2pdma=P2pdmaSymbols(
            pci_p2pdma_add_resource="pci_p2pdma_add_resource" in found or absent,
            p2pdma_pgmap_ops="p2pdma_pgmap_ops" in found or absent,
        ),
        count=count,
        truncated=truncated,
        warnings=tuple(warnings),
    )
