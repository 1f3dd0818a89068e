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
    owner = {name: nic.rdma_device for nic in view.node.nics for name in (*nic.ipv4, *nic.netdevs)}
    tables = view.config.get("fs.gpfs.mount_table") or {}
    common = view.config.get("fs.gpfs.rdma_dev_addr_list") or view.config.get("properties.rdma_dev_addr_list") or ()
    strays: dict[tuple[str, ...], list[str]] = {}
    for mount in mounts:
        wanted = (tables.get(mount) or {}).get("rdma_dev_addr_list") or common
        found = tuple(name for name in wanted if owner.get(name) and owner[name] not in devices)
        if found:
            strays.setdefault(found, []).append(mount)
    for found, told in strays.items():
        yield Fail(
            subject="verbsPorts",
            message=f"{', '.join(found)} of rdma_dev_addr_list: on a device that verbsPorts does not name",
            evidence=seen("verbsPorts", " ".join(ports), "mmlsconfig verbsPorts")
            + seen("devices", ", ".join(f"{name} on {owner[name]}" for name in found), "cufile.json, sysfs"),
            scope=Scope(mounts=frozenset(told)),
        )


RULE = Rule(
    id="gpfs.verbsports-mismatch",
    severity="error",
    problem="rdma_dev_addr_list and Storage Scale's verbsPorts differ",
    why="Storage Scale opens RDMA only on the devices of verbsPorts; I/O over another address fails.",
    look_at=("mmlsconfig verbsPorts", "ip -4 addr", "ibdev2netdev"),
    remedy=Remedy(
        text="Name the same devices in both: mmchconfig verbsPorts=..., and their IPv4 addresses in cufile.json.",
        risk="verbsPorts takes effect when Storage Scale is started anew on the node",
    ),
    source="IBM Storage Scale documentation, GPUDirect Storage; GDS Troubleshooting Guide, 'IBM Spectrum Scale'",
    blocks=("rdma",),
    check=check,
)
