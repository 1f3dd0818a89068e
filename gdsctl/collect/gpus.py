"""NVIDIA's GPUs from every source that knows some, joined by PCI address, or by index where none is known."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from gdsctl.collect.reader import Reader
from gdsctl.data import gpus as table
from gdsctl.model.devices import Gpu, NvLink
from gdsctl.model.pci import PciDevice, address_key, canonical_address
from gdsctl.parse import late, nvidia_proc, nvidia_smi_query
from gdsctl.source.base import Missing

if TYPE_CHECKING:
    from gdsctl.parse.gdscheck import Gdscheck
    from gdsctl.parse.nccl_topo import NcclTopo
    from gdsctl.parse.nvidia_smi_topo import NvidiaSmiTopo

NVIDIA = "10de"
AMD = "1002"
GPU_CLASSES = ("0300", "0302")  # VGA and 3D controllers; an NVSwitch is 0680, a GPU's audio function 0403
OTHER_CLASSES = ("0302", "0b40", "1200")  # 3D controllers, co-processors, processing accelerators of other makers
AMD_CLASSES = ("0380",)  # display controllers without VGA: how AMD's Instinct shows itself, but also small graphics
SWITCH_CLASS = "0680"  # an NVSwitch
MAX_NVLINKS = 18  # of a Hopper or Blackwell GPU, the most so far

_NVLINKS = re.compile(r"NV(\d+)")
_GPU_ROW = re.compile(r"GPU(\d+)")
_FIELDS = ("name", "uuid", "memory_bytes", "bar1_bytes", "compute_capability", "c2c")
_ASK = "nvidia-smi -q"

Facts = dict[str, Any]


class _NvmlLink(msgspec.Struct):
    """`remote_pci`: PCI address of what the link goes to, or "switch"."""

    active: bool = True
    version: int | None = None
    remote_pci: str | None = None


class _NvmlGpu(msgspec.Struct):
    pci_address: str | None = None
    index: int | None = None
    name: str | None = None
    uuid: str | None = None
    memory_bytes: int | None = None
    bar1_bytes: int | None = None
    compute_capability: str | None = None
    c2c: bool | None = None
    nvlinks: list[_NvmlLink] | None = None


class _Nvml(msgspec.Struct):
    """What is used of the answer `nvml`; further fields are passed over."""

    gpus: list[_NvmlGpu] = []


def collect(reader: Reader, pci: tuple[PciDevice, ...]) -> tuple[Gpu, ...]:
    """All GPUs by index. NVML's index where NVML or nvidia-smi tells it, else the order of PCI addresses.

    CUDA numbers them that way only with CUDA_DEVICE_ORDER=PCI_BUS_ID, so an index is no more than a name here.
    """
    nvml = _ask_nvml(reader)
    functions = {device.address: device for device in pci if _is_gpu(device)}
    facts: dict[str, Facts] = {address: {} for address in functions}
    _from_nvml(facts, nvml)
    _from_nvidia_smi(facts, reader)
    _from_driver(facts, reader)
    _from_nccl(facts, reader)
    rows = _numbered(facts)
    _from_gdscheck(rows, reader, joined=bool(facts))
    if not rows or any(row.get("nvlinks") is None for row in rows.values()):
        _count_links(rows, reader, joined=bool(facts))
    topo: NvidiaSmiTopo | Missing = reader.printed("nvidia-smi-topo", late("nvidia-smi-topo"))
    if not isinstance(topo, Missing):
        _from_topo(rows, topo, joined=bool(facts))
    _from_counts(rows, switched=any(map(_is_nvswitch, pci)))
    if not rows and any(gap.section == "pci" and gap.field == "devices" for gap in reader.gaps):
        reader.gap(
            "gpus", "", "absent", detail="neither a PCI function nor a tool of NVIDIA's", settle_with="nvidia-smi -L"
        )
    why = nvml if isinstance(nvml, Missing) else Missing(status="absent", detail="NVML does not tell it")
    return tuple(
        _gpu(reader, index, row, functions.get(row.get("address") or ""), why) for index, row in sorted(rows.items())
    )


def smi_topo(reader: Reader) -> dict[str, Any] | None:
    """The matrix of `nvidia-smi topo -m` as plain values, None where it was not to be had."""
    topo: NvidiaSmiTopo | Missing = reader.printed("nvidia-smi-topo", late("nvidia-smi-topo"))
    return None if isinstance(topo, Missing) else msgspec.to_builtins(topo)


def _is_gpu(device: PciDevice) -> bool:
    class_ = device.class_ or ""
    if device.vendor_id == NVIDIA:
        return class_.startswith(GPU_CLASSES)
    return class_.startswith(OTHER_CLASSES) or (device.vendor_id == AMD and class_.startswith(AMD_CLASSES))


def _is_foreign(device: PciDevice | None) -> bool:
    return device is not None and device.vendor_id not in (None, NVIDIA)


def _add(facts: dict[str, Facts], address: object, more: Facts) -> None:
    """New facts of one GPU; what an earlier source said stays."""
    canonical = canonical_address(address) if isinstance(address, str) else None
    if canonical is None:
        return
    known = facts.setdefault(canonical, {})
    for field, value in more.items():
        if value is not None and known.get(field) is None:
            known[field] = value


def _ask_nvml(reader: Reader) -> _Nvml | Missing:
    answer = reader.source.ask("nvml")
    if isinstance(answer, Missing):
        return answer
    try:
        return msgspec.convert(answer, _Nvml)
    except msgspec.ValidationError as error:
        return Missing(status="error", detail=f"nvml: {error}")


def _from_nvml(facts: dict[str, Facts], nvml: _Nvml | Missing) -> None:
    for row in () if isinstance(nvml, Missing) else nvml.gpus:
        told = {field: getattr(row, field) for field in ("index", *_FIELDS)}
        links = None if row.nvlinks is None else [msgspec.structs.asdict(link) for link in row.nvlinks]
        _add(facts, row.pci_address, told | {"nvlinks": links, "told_links": links is not None or None})


def _from_nvidia_smi(facts: dict[str, Facts], reader: Reader) -> None:
    query = reader.printed("nvidia-smi-query", nvidia_smi_query.parse)
    if isinstance(query, Missing):
        return
    for row in query.gpus:
        more = {field: getattr(row, field) for field in ("index", "name", "uuid", "memory_bytes", "compute_capability")}
        _add(facts, row.pci_address, more)


def _from_driver(facts: dict[str, Facts], reader: Reader) -> None:
    names = reader.source.names("/proc/driver/nvidia/gpus")
    for name in () if isinstance(names, Missing) else names:
        row = reader.parsed(f"/proc/driver/nvidia/gpus/{name}/information", nvidia_proc.parse_gpu_information)
        if not isinstance(row, Missing):
            _add(facts, name, {"name": row.model, "uuid": row.uuid})


def _from_nccl(facts: dict[str, Facts], reader: Reader) -> None:
    """A topology file of NCCL: its `dev` is NVML's index (src/graph/xml.cc), its `sm` the compute capability times ten."""
    topo: NcclTopo | Missing = reader.printed("nccl-topo", late("nccl-topo"))
    if isinstance(topo, Missing):
        return
    links: dict[str, list[Facts]] = {}
    for link in topo.nvlinks:
        count = min(link.count, MAX_NVLINKS)
        for end, other in ((link.a, link.b), (link.b, link.a)):
            links.setdefault(end, []).extend([{"remote_pci": other}] * count)
    for gpu in topo.gpus:
        nvidia = gpu.gcn is None and gpu.sm is not None
        _add(
            facts,
            gpu.address,
            {
                "index": gpu.index,
                "compute_capability": f"{gpu.sm // 10}.{gpu.sm % 10}" if nvidia and gpu.sm else None,
                "nvlinks": links.get(gpu.address, []) if gpu.index is not None else None,
                "told_links": True if gpu.index is not None else None,
                "foreign": True if gpu.gcn is not None else None,
            },
        )


def _numbered(facts: dict[str, Facts]) -> dict[int, Facts]:
    """Rows by index; GPUs that no tool numbers (excluded, given to a guest) follow in PCI order."""
    rows: dict[int, Facts] = {}
    rest: list[Facts] = []
    for address in sorted(facts, key=address_key):
        row = facts[address] | {"address": address}
        index = row.get("index")
        if isinstance(index, int) and index not in rows:
            rows[index] = row
        else:
            rest.append(row)
    free = max(rows, default=-1) + 1
    return rows | {free + position: row for position, row in enumerate(rest)}


def _from_gdscheck(rows: dict[int, Facts], reader: Reader, *, joined: bool) -> None:
    """Gdscheck's GPU lines. It counts as CUDA does, so on a node with known addresses only what all share is taken."""
    report: Gdscheck | Missing = reader.printed("gdscheck", late("gdscheck"))
    if isinstance(report, Missing) or not report.gpus:
        return
    told = [{"name": g.name, "bar1_bytes": g.bar1_mib << 20 if g.bar1_mib is not None else None} for g in report.gpus]
    if not joined:
        for gpu, more in zip(report.gpus, told, strict=True):
            rows.setdefault(gpu.index, {"address": None}).update(more)
    elif len(told) == len(rows) and all(more == told[0] for more in told):
        for row in rows.values():
            row.update({field: value for field, value in told[0].items() if row.get(field) is None})


def _from_topo(rows: dict[int, Facts], topo: NvidiaSmiTopo, *, joined: bool) -> None:
    """NVLinks of the matrix, whose GPU numbers are NVML's."""
    names = [name for name in topo.devices if _GPU_ROW.fullmatch(name)]
    indexes = {name: int(name.removeprefix("GPU")) for name in names}
    if not joined:
        for index in indexes.values():
            rows.setdefault(index, {"address": None})
    if set(indexes.values()) != set(rows):
        return  # other GPUs than those known: whose links these are is not certain
    for name, index in indexes.items():
        row = rows[index]
        cells = {peer: topo.matrix.get(name, {}).get(peer) for peer in names if peer != name}
        if row.get("nvlinks") is None and None not in cells.values():
            row["told_links"] = True
            counts = {
                peer: int(match[1]) for peer, cell in cells.items() if cell and (match := _NVLINKS.fullmatch(cell))
            }
            row["nvlinks"] = _shown_links(row, counts, {peer: rows[indexes[peer]] for peer in counts})


def _count_links(rows: dict[int, Facts], reader: Reader, *, joined: bool) -> None:
    """How many NVLinks of each GPU are up, by `nvidia-smi nvlink -s`, which does not say where they lead."""
    from gdsctl.parse import nvidia_smi_nvlink  # few nodes come here

    status = reader.printed("nvidia-smi-nvlink", nvidia_smi_nvlink.parse)
    if isinstance(status, Missing):
        return
    for gpu in status.gpus:
        row = rows.get(gpu.index) if joined else rows.setdefault(gpu.index, {"address": None})
        if row is None or (None not in (gpu.uuid, row.get("uuid")) and gpu.uuid != row.get("uuid")):
            continue
        if gpu.links is not None and all(link.active is not None for link in gpu.links):
            row["links_up"] = sum(link.active is True for link in gpu.links)


def _from_counts(rows: dict[int, Facts], *, switched: bool) -> None:
    """Where links lead that only `nvidia-smi nvlink -s` counted: known of none, of two GPUs alone, and beside NVSwitches."""
    up = {index: row["links_up"] for index, row in rows.items() if row.get("links_up")}
    alone = len(up) == 2 and len(set(up.values())) == 1 and all("links_up" in row for row in rows.values())
    for index, row in rows.items():
        if row.get("nvlinks") is not None or "links_up" not in row:
            continue
        count = row["links_up"]
        other = next((peer for peer in up if peer != index), None)
        if not count:
            row["nvlinks"] = []
        elif switched:
            row["nvlinks"] = [{"remote_pci": "switch"}] * count
        elif alone and other is not None:
            row["nvlinks"] = [{"remote_pci": rows[other].get("address") or f"GPU{other}"}] * count
        row["told_links"] = row.get("nvlinks") is not None or None


def _is_nvswitch(device: PciDevice) -> bool:
    return device.vendor_id == NVIDIA and (device.class_ or "").startswith(SWITCH_CLASS)


def _shown_links(row: Facts, counts: dict[str, int], peers: dict[str, Facts]) -> list[Facts]:
    """One entry a link. More links than a GPU has are not one set a peer, but all links to switches, shown per peer."""
    model = table.by_name(row.get("name") or "")
    if sum(counts.values()) > (row.get("links_up") or (model.nvlinks if model else None) or MAX_NVLINKS):
        return [{"remote_pci": "switch"}] * max(counts.values())
    return [
        {"remote_pci": peers[peer].get("address") or peer}
        for peer, count in counts.items()
        for _ in range(min(count, 64))
    ]


def _links(row: Facts) -> tuple[NvLink, ...]:
    counts: Counter[tuple[str, int | None]] = Counter()
    for link in row.get("nvlinks") or ():
        remote = link.get("remote_pci")
        if link.get("active", True) and isinstance(remote, str):
            counts[canonical_address(remote) or remote, link.get("version")] += 1
    return tuple(
        NvLink(peer=peer, count=count, version=version)
        for (peer, version), count in sorted(counts.items(), key=lambda item: (item[0][0], item[0][1] or 0))
    )


def _gpu(reader: Reader, index: int, row: Facts, function: PciDevice | None, why: Missing) -> Gpu:
    model = table.by_name(row.get("name") or "")
    if model is None and function is not None:
        model = table.by_name(function.name or "") or table.by_device_id(function.device_id or "")
    values = {field: row.get(field) for field in _FIELDS}
    if values["bar1_bytes"] is None and function is not None:
        # BAR1 is the framebuffer window, not the second line of `resource`: with a 64-bit BAR0 it is region 2.
        values["bar1_bytes"] = max((bar.size_bytes for bar in function.bars if bar.prefetchable), default=None)
    if values["name"] is None and function is not None:
        values["name"] = function.name
    if model is not None:
        values["compute_capability"] = values["compute_capability"] or model.compute_capability
        if values["c2c"] is None and model.kind not in ("integrated", "vgpu"):
            values["c2c"] = model.c2c
    key = row["address"] or str(index)
    if row.get("foreign") or _is_foreign(function):
        return Gpu(
            index=index,
            address=row["address"],
            name=values["name"],
            bar1_bytes=values["bar1_bytes"],
            nvlinks=_links(row),
            kind="other-accelerator",
        )
    for field in ("address", *_FIELDS):
        if values.get(field, row["address"]) is None:
            reader.gap("gpus", field, why, key=key, settle_with=_ASK)
    links = _links(row)
    if not row.get("told_links"):
        reader.gap("gpus", "nvlinks", why, key=key, settle_with="nvidia-smi topo -m")
    return Gpu(
        index=index,
        address=row["address"],
        nvlinks=links,
        kind=model.kind if model else "unknown",
        **values,
    )
