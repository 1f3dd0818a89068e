"""Do the storage modules let nvidia-fs in? What each exports, beside what the loaded nvidia-fs asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdsctl.collect.platform import kernel_release
from gdsctl.collect.reader import Reader
from gdsctl.data.limits import numbers
from gdsctl.data.nvfs_hooks import NvfsHookFacts, hooks
from gdsctl.errors import InputError
from gdsctl.model.software import Module, NvfsHook, NvidiaFs
from gdsctl.parse import kallsyms, late
from gdsctl.source.base import Missing

if TYPE_CHECKING:
    from gdsctl.parse.gdscheck import Gdscheck

# nvidia-fs since 2.28.2 registers NVMe by v2 where the block layer has the DMA map iterator, which came with Linux 6.17
# and may be backported: nvidia-fs, configure (blk_rq_dma_map_iter_start) and src/nvfs-dma.c.
_V2_SINCE = (2, 28, 2)
_ITERATOR_SINCE = (6, 17)
_ITERATOR = " T blk_rq_dma_map_iter_start"
_SETTLE = "grep nvfs_dma_ops /proc/kallsyms"


def collect(reader: Reader, modules: dict[str, Module], nvidia_fs: NvidiaFs) -> dict[str, NvfsHook]:
    """One hook for each storage module that nvidia-fs asks symbols of, by its name in /proc/driver/nvidia-fs/modules."""
    text = reader.text("/proc/kallsyms")
    symbols = _symbols(text)
    if not isinstance(symbols, Missing) and symbols.truncated and not symbols.nvfs_hooks:
        symbols = Missing(status="error", detail="/proc/kallsyms is cut off")
    exported = symbols if isinstance(symbols, Missing) else symbols.nvfs_hooks
    wants_v2 = _wants_v2(modules, nvidia_fs, _has_iterator(reader, text))
    served = _served(reader, nvidia_fs)
    return {
        name: _hook(
            reader,
            facts,
            exported,
            modules.get(facts.module),
            nvidia_fs,
            wants_v2=wants_v2,
            served=facts.gdscheck in served,
        )
        for name, facts in hooks().items()
        if facts.register
    }


def _served(reader: Reader, nvidia_fs: NvidiaFs) -> frozenset[str]:
    """Rows of gdscheck's report that nvidia-fs serves, where its own list was not captured.

    libcufile takes the modules that nvidia-fs lists for supported. `Unsupported` has other causes too, so says nothing.
    """
    if nvidia_fs.loaded is not True or nvidia_fs.registered is not None:
        return frozenset()
    if not isinstance(listed := reader.source.read("/proc/driver/nvidia-fs/modules"), Missing) or (
        listed.status != "not_captured"
    ):
        return frozenset()
    report: Gdscheck | Missing = reader.printed("gdscheck", late("gdscheck"))
    rows = {} if isinstance(report, Missing) or not report.nvidia_fs_version else report.drivers
    return frozenset(
        name for name, row in rows.items() if row.state == "supported" or (row.state == "modes" and "nvfs" in row.modes)
    )


def _symbols(text: str | Missing) -> kallsyms.Kallsyms | Missing:
    if isinstance(text, Missing):
        return text
    try:
        return kallsyms.parse(text)
    except InputError as error:
        return Missing(status="error", detail=f"/proc/kallsyms: {error}")


def _hook(
    reader: Reader,
    facts: NvfsHookFacts,
    exported: dict[str, str | None] | Missing,
    module: Module | None,
    nvidia_fs: NvidiaFs,
    *,
    wants_v2: bool | None,
    served: bool,
) -> NvfsHook:
    registered = (True if served else None) if nvidia_fs.registered is None else facts.name in nvidia_fs.registered
    offered = () if isinstance(exported, Missing) else tuple(name for name in facts.register if name in exported)
    whole = tuple(
        register
        for register, unregister in zip(facts.register, facts.unregister, strict=True)
        if register in offered and not isinstance(exported, Missing) and unregister in exported
    )
    wanted = _wanted(facts, whole, registered, wants_v2)
    if wanted is None and nvidia_fs.loaded is not False:
        reader.gap(
            "nvfs_hooks",
            "wanted_symbol",
            "absent",
            key=facts.name,
            detail="depends on nvidia-fs's version and on the kernel's DMA map iterator",
            settle_with="cat /proc/driver/nvidia-fs/stats; grep blk_rq_dma_map_iter_start /proc/kallsyms",
        )
    symbol = wanted if wanted in offered else (offered[-1] if offered else None)
    mismatched = bool(offered) and wanted is not None and wanted not in offered
    if whole or registered:
        return NvfsHook(
            state="patched",
            symbol=symbol,
            wanted_symbol=wanted,
            registered=registered,
            mismatched=mismatched,
            source="gdscheck" if served else None,
        )
    if module is not None and module.loaded is False:
        return NvfsHook(state="not_loaded", wanted_symbol=wanted, registered=registered)
    if isinstance(exported, Missing):
        reader.gap("nvfs_hooks", "state", exported, key=facts.name, detail="/proc/kallsyms", settle_with=_SETTLE)
    elif offered:
        detail = f"{offered[-1]} is there, its unregister twin is not"
        reader.gap("nvfs_hooks", "state", "unsupported", key=facts.name, detail=detail, settle_with=_SETTLE)
    elif module is None or module.loaded is None:
        detail = f"whether {facts.module} is loaded is not known"
        reader.gap("nvfs_hooks", "state", "absent", key=facts.name, detail=detail, settle_with="cat /proc/modules")
    else:
        return NvfsHook(state="stock", wanted_symbol=wanted, registered=registered)
    return NvfsHook(state="unknown", symbol=symbol, wanted_symbol=wanted, registered=registered, mismatched=mismatched)


def _wanted(facts: NvfsHookFacts, whole: tuple[str, ...], registered: bool | None, wants_v2: bool | None) -> str | None:
    if len(facts.register) == 1:
        return facts.register[0]
    if registered and len(whole) == 1:
        return whole[0]  # nvidia-fs took what it had asked for
    return None if wants_v2 is None else facts.register[int(wants_v2)]


def _wants_v2(modules: dict[str, Module], nvidia_fs: NvidiaFs, has_iterator: bool | None) -> bool | None:
    if has_iterator is False:
        return False
    module = modules.get("nvidia_fs")
    version = numbers(nvidia_fs.version or (module.version if module else None) or "")
    if not version:
        return None
    if len(version) < 3 and version == _V2_SINCE[: len(version)]:
        return None  # "2.28" alone may be either side of 2.28.2
    return has_iterator if version >= _V2_SINCE else False


def _has_iterator(reader: Reader, text: str | Missing) -> bool | None:
    """Has the block layer the DMA map iterator? kallsyms tells it exactly, a kernel's version only one way."""
    if numbers(kernel_release(reader) or "") >= _ITERATOR_SINCE:
        return True
    if isinstance(text, Missing):
        return None
    at = text.find(_ITERATOR)
    return at != -1 and text[at + len(_ITERATOR) : at + len(_ITERATOR) + 1] in ("\n", "\t", "\r", " ", "")
