"""/sys/class/nvme/nvme*/address: a PCI address, or what a fabrics controller was connected with."""

from __future__ import annotations

from gdsctl.model.pci import canonical_address
from gdsctl.record import Record


class NvmeAddress(Record, frozen=True, kw_only=True):
    """`pci` for the pcie transport, the others for rdma, tcp, fc and loop."""

    pci: str | None = None
    traddr: str | None = None
    trsvcid: str | None = None
    src_addr: str | None = None
    host_traddr: str | None = None
    host_iface: str | None = None


_KEYS = frozenset({"traddr", "trsvcid", "src_addr", "host_traddr", "host_iface"})


def parse(text: str) -> NvmeAddress:
    """Keys that are not known are passed over; no key at all gives Nones."""
    cells = (cell.partition("=") for cell in text.strip().split(","))
    found = {key.strip(): value.strip() for key, _, value in cells if key.strip() in _KEYS and value.strip()}
    return NvmeAddress(pci=canonical_address(text), **found)
