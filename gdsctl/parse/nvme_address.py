"""`/sys/class/nvme/NAME/address` of a fabrics controller: `traddr=10.9.0.1,trsvcid=4420,host_iface=ib0`.

Source: Linux drivers/nvme/host/fabrics.c, nvmf_get_address().
"""

from __future__ import annotations

from gdsctl.record import Record


class NvmeAddress(Record, frozen=True, kw_only=True):
    """`traddr`: where the controller answers; `host_traddr`, `host_iface`: address and netdev of this side, if pinned.

    `src_addr`: the address that the kernel chose (TCP only).
    """

    traddr: str | None = None
    trsvcid: str | None = None
    host_traddr: str | None = None
    host_iface: str | None = None
    src_addr: str | None = None


def parse(text: str) -> NvmeAddress:
    """Unknown keys are passed over; the first of several counts. Never raises."""
    fields: dict[str, str] = {}
    for pair in text.strip().split(","):
        key, _, value = pair.partition("=")
        if value and key in NvmeAddress.__struct_fields__:
            fields.setdefault(key, value)
    return NvmeAddress(**fields)
