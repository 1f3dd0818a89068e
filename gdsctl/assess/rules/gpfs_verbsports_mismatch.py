from __future__ import annotations

import re
from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    """Every address of rdma_dev_addr_list must sit on a device of Storage Scale's verbsPorts."""
    ports = view.node.gds.gpfs_verbs_ports
    mounts = [s.mount.target for s in view.storages if s.mount.backing.kind == "gpfs"]
    if not ports or not mounts:
        return
    devices = {re.split(r"[/:]", port)[0] for port in ports}
    wanted = view.config.get("fs.gpfs.rdma_dev_addr_list") or view.config.get("properties.rdma_dev_addr_list") or ()
    owner = {address: nic.rdma_device for nic in view.node.nics for address in nic.ipv4}
    strays = [address for address in wanted if owner.get(address) and owner[address] not in devices]
    if strays:
        yield Fail(
            subject="verbsPorts",
            message=f"{', '.join(strays)} are on devices that verbsPorts does not name",
            evidence=seen("verbsPorts", " ".join(ports), "mmlsconfig verbsPorts")
            + seen("rdma_dev_addr_list", " ".join(wanted), "cufile.json"),
            scope=Scope(mounts=frozenset(mounts)),
        )


RULE = Rule(
    id="gpfs.verbsports-mismatch",
    severity="error",
    problem="rdma_dev_addr_list and Storage Scale's verbsPorts differ",
    why="Storage Scale opens RDMA only on the devices of verbsPorts; I/O over another address fails.",
    look_at=("mmlsconfig verbsPorts", "ip -4 addr", "ibdev2netdev"),
    remedy=Remedy(
        text="Name the same devices in both: mmchconfig verbsPorts=..., and their IPv4 addresses in cufile.json."
    ),
    source="IBM Storage Scale documentation, GPUDirect Storage; GDS Troubleshooting Guide, 'IBM Spectrum Scale'",
    check=check,
)
