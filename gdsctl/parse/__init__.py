"""Text and bytes to records. Pure functions; nothing here opens a file.

Every module offers `parse(text: str) -> Record`, named after the file or tool whose text it reads, and raises
`InputError` (with the line) where the text is not that tool's output at all.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

# `gdsctl parse KIND` -> module. One row a parser; the module is imported only when asked for.
KINDS: dict[str, str] = {
    "gdscheck": "gdsctl.parse.gdscheck",
    "nvidia-smi-topo": "gdsctl.parse.nvidia_smi_topo",
    "lspci": "gdsctl.parse.lspci",
    "nccl-topo": "gdsctl.parse.nccl_topo",
    "proc-modules": "gdsctl.parse.proc_modules",
    "lsmod": "gdsctl.parse.lsmod",
    "kallsyms": "gdsctl.parse.kallsyms",
    "mounts": "gdsctl.parse.mounts",
    "nvidia-params": "gdsctl.parse.nvidia_params",
    "nvidia-fs-stats": "gdsctl.parse.nvidia_fs_stats",
    "cufile-json": "gdsctl.parse.cufile_json",
    "cufile-log": "gdsctl.parse.cufile_log",
    "kernel-cmdline": "gdsctl.parse.kernel_cmdline",
}


@functools.cache
def late(kind: str) -> Callable[[str], Any]:
    """The parse function of a KIND that imports its module at its first text. For what few nodes have: start-up counts."""

    def parse(text: str) -> Any:
        return parser(kind)(text)

    return parse


def parser(kind: str) -> Callable[..., Any]:
    """The parse function of a KIND; raises KeyError for a kind that does not exist."""
    function: Callable[..., Any] = importlib.import_module(KINDS[kind]).parse
    return function
