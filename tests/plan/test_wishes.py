"""Every wish for every filesystem: it reaches an artefact or stands on the node, or the plan says that it is not met."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from gdsctl import emit
from gdsctl.assess.assessment import assess
from gdsctl.model.devices import Backing, Mount
from gdsctl.model.node import Node
from gdsctl.plan.desired import Plan, plan
from tests.planned_nodes import changed, example, wanted

NQN = "nqn.2024-01.org.example:kv"
# type, source, kind of backing that the mount table's reader gives it
FILESYSTEMS = {
    "ext4": ("ext4", "/dev/nvme9n1", "other"),
    "xfs": ("xfs", "UUID=0a3407de-014b-458b-b5c1-848e92a327a3", "other"),
    "nfs": ("nfs", "172.16.1.10:/x", "nfs"),
    "lustre over RDMA": ("lustre", "172.16.1.9@o2ib:/fs", "lustre"),
    "lustre over TCP": ("lustre", "172.16.1.9@tcp:/fs", "lustre"),
    "beegfs": ("beegfs", "beegfs_nodev", "beegfs"),
    "stateless weka": ("wekafs", "b0,b1/fs", "wekafs"),
    "weka client": ("wekafs", "fs", "wekafs"),
    "gpfs": ("gpfs", "fs1", "gpfs"),
    "scatefs": ("scatefs", "server:/fs", "network"),
    "panfs": ("panfs", "panfs://realm/fs", "network"),
    "virtiofs": ("virtiofs", "tag", "virtiofs"),
    "ceph": ("ceph", "10.0.0.1:/", "network"),
}
WISHES = {
    "nic": "nics: [mlx5_2]",
    "nics": "nics: [mlx5_2, mlx5_7]",
    "nics of another network": "nics: [mlx5_4, mlx5_6]",
    "rdma": "transport: rdma",
    "tcp": "transport: tcp",
    "vast": "client: vast",
    "kernel": "client: kernel",
    "vips": "vips: 172.16.1.10-172.16.1.13",
    "options": "options: {noatime: true, frobnicate: 7}",
    "subsystem": f"nvme_of: {{nqn: '{NQN}', traddr: 172.16.1.20}}",
}
KINDS = ("mount", "fstab", "systemd-mount", "nvme-connect", "cufile.json", "steps")


def node_of(name: str, *, stands: bool) -> Node:
    node = example("hgx-h100-vast").node
    fstype, source, kind = FILESYSTEMS[name]
    if not stands:
        return node
    backing = msgspec.convert({"kind": kind}, Backing)
    mount = Mount(target="/x", source=source, fstype=fstype, options=("rw",), backing=backing)
    return changed(node, mounts=(*node.mounts, mount))


def reaches(wish: str, node: Node, found: Plan, name: str) -> bool:
    """Does a reader of the files see the wish in them, or the mount's source say it?"""
    written = {kind: emit.EMITTERS[kind].emit(found).content for kind in KINDS}
    text = "\n".join(written.values())
    mounting = written["mount"]
    if wish == "nics" and FILESYSTEMS[name][0] == "nfs":
        return True  # 172.16.1.41 and .42 are those of the server's /24, and the node has no other there
    if "nic" in wish:
        named = [nic for nic in node.nics if (nic.rdma_device or "") in WISHES[wish]]
        assert len(named) == WISHES[wish].count("mlx5")
        # An address or device of each; one list of addresses in cufile.json alone moves no client to its NIC.
        without = text.replace(written["cufile.json"], "")
        return all(any(word in without for word in (*nic.netdevs, *nic.ipv4)) for nic in named)
    if wish == "rdma":
        return "proto=rdma" in mounting or "o2ib" in FILESYSTEMS[name][1] or "--transport=rdma" in text
    return {
        "tcp": "proto=tcp" in mounting or "@tcp" in FILESYSTEMS[name][1],
        "vast": "localports=" in mounting or "remoteports=" in mounting,
        "kernel": FILESYSTEMS[name][0] == "nfs" and "ports=" not in mounting,
        "vips": "remoteports=172.16.1.10-172.16.1.13" in mounting,
        "options": "noatime" in mounting and "frobnicate=7" in mounting,
        "subsystem": NQN in written["nvme-connect"],
    }[wish]


@pytest.mark.parametrize(("name", "wish"), list(itertools.product(FILESYSTEMS, WISHES)))
def test_a_wish_reaches_a_file_or_is_unmet(name: str, wish: str) -> None:
    fstype, source, _ = FILESYSTEMS[name]
    for stands, expect in ((False, "direct"), (True, "any"), (True, "direct-or-routed")):
        node = node_of(name, stands=stands)
        text = f"mounts:\n- {{target: /x, type: {fstype}, source: '{source}', expect: {expect}, {WISHES[wish]}}}\n"
        found = plan(assess(node), wanted(text))
        met = not any("/x" in (unmet.subject, unmet.requirement.partition(":")[2]) for unmet in found.unmet)
        assert not met or reaches(wish, node, found, name), (stands, expect)
