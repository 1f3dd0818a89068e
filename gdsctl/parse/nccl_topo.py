"""NCCL and RCCL topology files (`NCCL_TOPO_DUMP_FILE`, `NCCL_TOPO_FILE`): PCI tree, GPUs, NICs and NVLinks.

Written by NCCL's src/graph/xml.cc. NCCL leaves root ports and switch downstream ports out: a switch is one node, named
after its upstream port, and a device right below a root port hangs off its CPU. ACS is not part of the file.

Read with expat directly and no tree: a document type declaration ends the reading, so there are no entities to expand
and nothing to fetch, and memory grows with what is kept.
"""

from __future__ import annotations

import re
from xml.parsers import expat

from gdsctl.errors import InputError
from gdsctl.model.pci import Link, PciDevice, address_key, canonical_address
from gdsctl.parse import pasted
from gdsctl.record import Record, Warned

_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?) ?GT/s")
_HEX_ID = re.compile(r"(?:0x)?([0-9a-fA-F]{1,6})")
_WHOLE = re.compile(r"-?[0-9]{1,9}")

_SWITCH_CLASS = "0680"  # an NVSwitch as the far end of an NVLink
_GPU_CLASSES = ("0300", "0302", "0380", "1200")
_NIC_CLASSES = ("0200", "0207")
_DEEPEST = 64  # elements; real files stay below 20
_MOST_WARNINGS = 1000


class NcclGpu(Record, frozen=True, kw_only=True):
    """`index`: CUDA or HIP ordinal in the process that wrote the file; None in hand-made files without <gpu>.

    `sm`: compute capability times ten (NVIDIA), number of compute units (AMD, where `gcn` is given).
    """

    address: str
    index: int | None = None
    rank: int | None = None
    sm: int | None = None
    gcn: str | None = None
    gdr: bool | None = None


class NcclNic(Record, frozen=True, kw_only=True):
    """A network port. `address` None: NCCL found no PCI function for it; `rate_gbps`: gigabit/s."""

    address: str | None
    name: str | None = None
    port: int | None = None
    guid: str | None = None
    rate_gbps: float | None = None
    gdr: bool | None = None


class NcclLink(Record, frozen=True, kw_only=True):
    """NVLinks (XGMI on AMD) between two GPUs, or between a GPU and its switches (`b` is "switch")."""

    a: str
    b: str
    count: int


class NcclTopo(Record, frozen=True, kw_only=True):
    """`devices` by address; `numa_node` is that of the <cpu> above.

    A GPU's link is what NVML called current; another device's is the lower of its own and its port's maximum. `truncated`: the document breaks off.
    """

    devices: tuple[PciDevice, ...] = ()
    gpus: tuple[NcclGpu, ...] = ()
    nics: tuple[NcclNic, ...] = ()
    nvlinks: tuple[NcclLink, ...] = ()
    truncated: bool = False
    warnings: tuple[Warned, ...] = ()


class _Refused(Exception):  # noqa: N818  # not an error of the program: carries the reason out of expat's callbacks
    pass


def parse(text: str) -> NcclTopo:
    """Raises InputError where there is no <system> element, and for a DTD or absurd nesting. Broken XML counts up to the break."""
    reader = _Reader()
    document = _document(text)
    try:
        reader.read(document)
    except _Refused as refused:
        raise InputError(str(refused), line=reader.line) from None
    except expat.ExpatError as error:
        if not reader.system:
            raise InputError("not an NCCL topology file: no <system> element", line=error.lineno) from None
        reader.truncated = not reader.ended
        reader.warn(f"the document breaks off here: {expat.ErrorString(error.code)}", error.lineno)
    if not reader.system:
        raise InputError("not an NCCL topology file: no <system> element", line=1)
    return reader.topology()


def _document(text: str) -> str:
    """The text from its first markup on, with as many lines before it as it had."""
    if text.lstrip().startswith(">"):  # quoted in a reply
        text = "\n".join(pasted.lines(text))
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("<"):
        return text.lstrip() if text.lstrip().startswith("<?xml") else text
    start = text.find("<system")
    return "\n" * text.count("\n", 0, start) + text[start:] if start >= 0 else text


class _Reader:
    def __init__(self) -> None:
        self.system = self.ended = self.truncated = False
        self.devices: dict[str, PciDevice] = {}
        self.gpus: list[NcclGpu] = []
        self.nics: list[NcclNic] = []
        self.links: dict[tuple[str, str], int] = {}
        self.told: set[tuple[str, str]] = set()
        self.warnings: list[Warned] = []
        self.stack: list[str] = []
        self.pci: list[str | None] = []  # addresses of the open <pci> elements
        self.numa: int | None = None
        self.switched: dict[str, int] = {}
        self.linked: set[str] = set()
        self.counting = False
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.StartDoctypeDeclHandler = self.refuse

    @property
    def line(self) -> int:
        return self.parser.CurrentLineNumber

    def read(self, document: str) -> None:
        self.parser.Parse(document.encode("utf-8", "replace"), True)

    def refuse(self, *_: object) -> None:
        raise _Refused("a topology file has no document type declaration; entities are not read")

    def warn(self, message: str, line: int | None = None) -> None:
        if len(self.warnings) < _MOST_WARNINGS:
            self.warnings.append(Warned(line=line or self.line, message=message))

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.stack) >= _DEEPEST:
            raise _Refused(f"elements nested deeper than {_DEEPEST}")
        self.stack.append(name)
        if name == "system":
            self.system = True
        elif name == "cpu":
            numa = _whole(attributes.get("numaid"))
            self.numa = numa if numa is not None and numa >= 0 else None
        elif name == "pci":
            self.pci.append(self.add_device(attributes))
        elif name == "gpu":
            self.add_gpu(attributes)
        elif name in ("nvlink", "xgmi"):
            self.add_link(attributes)
        elif name == "net":
            self.add_nic(attributes)

    def end(self, name: str) -> None:
        self.stack.pop()
        if name == "pci":
            self.pci.pop()
        elif name == "cpu":
            self.numa = None
        elif name == "gpu":
            self.counting = False
        elif name == "system":
            self.ended = True

    def add_device(self, attributes: dict[str, str]) -> str | None:
        bus_id = attributes.get("busid", "")
        address = canonical_address(bus_id)
        if address is None:
            self.warn(f"not a PCI address: busid={bus_id[:40]!r}")
            return None
        if address in self.devices:
            self.warn(f"{address} stands twice: the first counts")
            return address
        class_ = _hex(attributes.get("class"), 6)
        speed, width = _SPEED.match(attributes.get("link_speed", "")), _whole(attributes.get("link_width"))
        gts, lanes = float(speed[1]) if speed else None, width if width and width > 0 else None
        gpu = (class_ or "").startswith(_GPU_CLASSES)
        bridge = (class_ or "").startswith("0604")
        self.devices[address] = PciDevice(
            address=address,
            parent=self.pci[-1] if self.pci else None,
            kind="unknown" if class_ is None else "upstream_port" if bridge else "endpoint",
            kind_inferred=class_ is not None,
            class_=class_,
            vendor_id=_id(attributes.get("vendor")),
            device_id=_id(attributes.get("device")),
            subsystem_vendor_id=_id(attributes.get("subsystem_vendor")),
            subsystem_device_id=_id(attributes.get("subsystem_device")),
            numa_node=self.numa,
            link=Link(speed_gts=gts, width=lanes) if gpu else Link(max_speed_gts=gts, max_width=lanes),
        )
        return address

    def add_gpu(self, attributes: dict[str, str]) -> None:
        address = self.pci[-1] if self.pci else None
        if address is None:
            self.warn("a <gpu> outside a <pci>")
            return
        # One GPU may serve several ranks (MLOPart): each repeats the GPU's links.
        self.counting = address not in self.linked
        self.linked.add(address)
        self.gpus.append(
            NcclGpu(
                address=address,
                index=_whole(attributes.get("dev")),
                rank=_whole(attributes.get("rank")),
                sm=_whole(attributes.get("sm")),
                gcn=attributes.get("gcn"),
                gdr=_yes(attributes.get("gdr")),
            )
        )

    def add_link(self, attributes: dict[str, str]) -> None:
        count, address = _whole(attributes.get("count")), self.pci[-1] if self.pci else None
        if address is None or count is None or count < 0:
            self.warn("an NVLink without a GPU or a count")
        elif (_hex(attributes.get("tclass"), 6) or "").startswith(_SWITCH_CLASS):
            if self.counting:
                self.switched[address] = self.switched.get(address, 0) + count
        elif peer := canonical_address(attributes.get("target", "")):
            if self.counting:
                self.add_pair(address, peer, count)
        else:
            self.warn(f"not a PCI address: target={attributes.get('target', '')[:40]!r}")

    def add_pair(self, address: str, peer: str, count: int) -> None:
        # Both GPUs list their links to each other; one that lists a peer twice has that many more.
        pair = (min(address, peer), max(address, peer))
        told = (address, peer)
        if told in self.told:
            self.links[pair] += count
        elif pair not in self.links:
            self.links[pair] = count
        elif self.links[pair] != count:
            self.warn(f"{pair[0]} and {pair[1]} disagree on their links: {self.links[pair]} and {count}")
        self.told.add(told)

    def add_nic(self, attributes: dict[str, str]) -> None:
        speed = _whole(attributes.get("speed"))
        self.nics.append(
            NcclNic(
                address=self.pci[-1] if self.pci else None,
                name=attributes.get("name"),
                port=_whole(attributes.get("port")),
                guid=attributes.get("guid"),
                rate_gbps=speed / 1000 if speed and speed > 0 else None,
                gdr=_yes(attributes.get("gdr")),
            )
        )

    def topology(self) -> NcclTopo:
        """Devices by class fill in where a hand-made file has no <gpu> or <net>."""
        devices = sorted(self.devices.values(), key=lambda device: address_key(device.address))
        known = {gpu.address for gpu in self.gpus} | {nic.address for nic in self.nics}
        rest = [device for device in devices if device.address not in known]
        switched = [NcclLink(a=address, b="switch", count=count) for address, count in self.switched.items()]
        return NcclTopo(
            devices=tuple(devices),
            gpus=(*self.gpus, *(NcclGpu(address=d.address) for d in rest if _is(d, _GPU_CLASSES))),
            nics=(*self.nics, *(NcclNic(address=d.address) for d in rest if _is(d, _NIC_CLASSES))),
            nvlinks=(*(NcclLink(a=a, b=b, count=count) for (a, b), count in self.links.items()), *switched),
            truncated=self.truncated,
            warnings=tuple(self.warnings),
        )


def _is(device: PciDevice, classes: tuple[str, ...]) -> bool:
    return (device.class_ or "").startswith(classes)


def _whole(text: str | None) -> int | None:
    return int(text) if text and _WHOLE.fullmatch(text) else None


def _yes(text: str | None) -> bool | None:
    return {"0": False, "1": True}.get(text or "")


def _hex(text: str | None, digits: int) -> str | None:
    match = _HEX_ID.fullmatch(text or "")
    return match[1].lower().zfill(digits) if match else None


def _id(text: str | None) -> str | None:
    # ffff: a made-up bridge of a hand-made file.
    value = _hex(text, 4)
    return None if value == "ffff" else value
