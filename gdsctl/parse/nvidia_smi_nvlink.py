"""`nvidia-smi nvlink -s` (and `-p`, `-R`, which name the far ends): the NVLinks of each GPU.

    GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-5f1c...)
             Link 0: 25.781 GB/s
             Link 1: <inactive>
             Link 2: Remote Device 00000000:0B:00.0: Link 3

A GPU without links has a sentence in place of them. Outputs of several options may follow each other: they are joined.
"""

from __future__ import annotations

import re

from gdsctl.errors import InputError
from gdsctl.model.pci import canonical_address
from gdsctl.parse import pasted
from gdsctl.record import Record, Warned


class NvlinkStatus(Record, frozen=True, kw_only=True):
    """One link. `active` None: not told; `gbs`: GB/s in one direction, as printed; `remote`: PCI address of the far end."""

    link: int
    active: bool | None = None
    gbs: float | None = None
    remote: str | None = None


class NvlinkGpu(Record, frozen=True, kw_only=True):
    """`index` is NVML's. `links` None: the text does not tell; empty: the GPU has none, or none is up."""

    index: int
    name: str | None = None
    uuid: str | None = None
    links: tuple[NvlinkStatus, ...] | None = None


class NvidiaSmiNvlink(Record, frozen=True, kw_only=True):
    gpus: tuple[NvlinkGpu, ...]
    warnings: tuple[Warned, ...] = ()


_LINE_LIMIT = 1024
_GPU = re.compile(r"\s*GPU (\d{1,4}):\s?(.*)", re.ASCII)
_UUID = re.compile(r"\(UUID: ((?:GPU|MIG)-[^\s()]{1,64})\)")
_LINK = re.compile(r"\s*Link (\d{1,3}): ?(.*?)\s*", re.ASCII)
_RATE = re.compile(r"(\d{1,4}(?:\.\d{1,4})?) GB/s", re.ASCII)
_REMOTE = re.compile(r"(?:Remote Device )?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])(?:: Link \d{1,3})?")
_NONE = re.compile(r"not support|does not have|not have or support|links are in-?active", re.IGNORECASE)
_MOST_WARNINGS = 100


def parse(text: str) -> NvidiaSmiNvlink:
    """Raises InputError where no GPU is followed by a link or by the sentence that it has none."""
    gpus: dict[int, NvlinkGpu] = {}
    links: dict[int, dict[int, dict[str, object]]] = {}
    warnings: list[Warned] = []
    current: int | None = None
    for number, raw in enumerate(pasted.lines(text), 1):
        line = raw[:_LINE_LIMIT]
        if header := _GPU.fullmatch(line):
            current = int(header[1])
            uuid = _UUID.search(header[2])
            name = header[2].partition("(UUID")[0].strip()
            gpus.setdefault(current, NvlinkGpu(index=current, name=name or None, uuid=uuid[1] if uuid else None))
        if _NONE.search(line):
            if current is not None:
                links.setdefault(current, {})
        elif (found := _LINK.fullmatch(line)) and current is not None:
            link = links.setdefault(current, {}).setdefault(int(found[1]), {})
            if not _read(found[2], link) and len(warnings) < _MOST_WARNINGS:
                warnings.append(Warned(line=number, message=f"not the state of a link: {found[2][:40]}"))
        elif line.strip() and not header and len(warnings) < _MOST_WARNINGS:
            warnings.append(Warned(line=number, message=f"not read: {line.strip()[:40]}"))
    if not links:
        raise InputError("not nvidia-smi nvlink output: no GPU with its links", line=1)
    return NvidiaSmiNvlink(
        gpus=tuple(_with(gpu, links.get(index)) for index, gpu in gpus.items()), warnings=tuple(warnings)
    )


def _read(state: str, link: dict[str, object]) -> bool:
    if rate := _RATE.fullmatch(state):
        link |= {"active": True, "gbs": float(rate[1])}
    elif state.lower() in ("<inactive>", "inactive"):
        link["active"] = False
    elif remote := _REMOTE.fullmatch(state):
        link["remote"] = canonical_address(remote[1])
    else:
        return False
    return True


def _with(gpu: NvlinkGpu, links: dict[int, dict[str, object]] | None) -> NvlinkGpu:
    if links is None:
        return gpu
    told = tuple(NvlinkStatus(link=link, **facts) for link, facts in sorted(links.items()))  # type: ignore[arg-type]  # fields of the record
    return NvlinkGpu(index=gpu.index, name=gpu.name, uuid=gpu.uuid, links=told)
