"""For every rule: a node that raises it, a near miss, and a node on which it cannot tell. One row a case.

`raised` names the subject and the pairs it covers. `unsure` expects a Cannot on the pairs named. `silent` is for rules
that say nothing where they do not know, since no route hangs on them or another rule tells; it says why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from gdsctl.data.filesystems import BackingKind
from gdsctl.model.cufile_run import CufileRun
from gdsctl.model.devices import Backing, Block, Mount
from gdsctl.model.node import Node
from gdsctl.model.pci import Acs
from gdsctl.model.software import Module, NvfsHook
from tests.assess.rules.nodes import (
    DISK,
    GONE,
    GPU0,
    GPU1,
    NFS,
    NIC,
    NVME,
    P2PDMA_JSON,
    PORT0,
    across_host_bridges,
    but,
    cufile,
    function,
    healthy,
    log,
    mounted,
    network,
    on_array,
    redirecting,
    unread,
)

Pairs = frozenset[tuple[str, str]]


class Case(NamedTuple):
    """`on`: pairs covered, None for all; `note`: why a rule is silent, or what the near miss is."""

    rule: str
    kind: Literal["raised", "near miss", "unsure", "silent"]
    node: Node
    subject: str = ""
    on: Pairs | None = None
    note: str = ""
    severity: str | None = None
    blocks: tuple[str, ...] | None = None


CASES: list[Case] = []


def raised(
    rule: str,
    node: Node,
    subject: str,
    on: Pairs | None = None,
    *,
    severity: str | None = None,
    blocks: tuple[str, ...] | None = None,
) -> None:
    CASES.append(Case(rule, "raised", node, subject, on, severity=severity, blocks=blocks))


def near_miss(rule: str, node: Node, note: str = "") -> None:
    CASES.append(Case(rule, "near miss", node, note=note))


def unsure(rule: str, node: Node, on: Pairs | None = None, *, blocks: tuple[str, ...] | None = None) -> None:
    CASES.append(Case(rule, "unsure", node, on=on, blocks=blocks))


def silent(rule: str, node: Node, note: str) -> None:
    CASES.append(Case(rule, "silent", node, note=note))


def on(*mounts: str, gpus: tuple[str, ...] = (GPU0, GPU1)) -> Pairs:
    return frozenset((gpu, mount) for gpu in gpus for mount in mounts)


NOTHING_HANGS = "no route hangs on it"
ALL = on(NVME, NFS)
FS, P2P = healthy(), healthy(p2pdma=True)
IN_DOCKER = but(FS, {"container.kind": "docker", "container.has_gpu_nodes": True, "container.has_sysfs": True})
TESLA = {"name": "Tesla M60", "compute_capability": None}


def fs(changes: Mapping[str, object]) -> Node:
    return but(FS, changes)


def p2p(changes: Mapping[str, object]) -> Node:
    return but(P2P, changes)


def gpu0(node: Node, **changes: object) -> Node:
    return but(node, {f"gpus.0.{field}": value for field, value in changes.items()})


def on_disk(target: str, fstype: str, device: str | None, kind: BackingKind, **backing: Any) -> Mount:
    return Mount(
        target=target, source=f"/dev/{device}", fstype=fstype, device=device, backing=Backing(kind=kind, **backing)
    )


# --- ACS --------------------------------------------------------------------------------------------------------------

ASKED = but(redirecting(FS, PORT0), {"platform.cmdline": "ro pci=disable_acs_redir=pci:0:0"})
raised("acs.cmdline-not-effective", ASKED, PORT0)
raised(
    "acs.cmdline-not-effective",
    but(ASKED, {"platform.cmdline": f"ro pci=noaer,config_acs=xx000x0@{PORT0}"}),
    PORT0,
)
near_miss(
    "acs.cmdline-not-effective",
    but(ASKED, {"platform.cmdline": f"ro pci=disable_acs_redir={DISK}"}),
    "another port was named",
)
near_miss(
    "acs.cmdline-not-effective",
    but(ASKED, {"platform.cmdline": f"ro pci=config_acs=xx1xxxx@{PORT0}"}),
    "direct translation was asked for, not redirection off",
)
silent("acs.cmdline-not-effective", but(ASKED, {"platform.cmdline": None}), NOTHING_HANGS)

raised(
    "acs.redirect-on-path",
    redirecting(FS, PORT0),
    PORT0,
    on(NVME, NFS, gpus=(GPU0,)),
    severity="warning",
    blocks=(),
)
BEHIND_A_STRANGER = but(redirecting(P2P, PORT0), {"pci.devices.0.device_id": "1237"})  # i440FX, on no list
raised(
    "acs.redirect-on-path",
    BEHIND_A_STRANGER,
    PORT0,
    on(NVME, NFS, gpus=(GPU0,)),
    severity="error",
    blocks=("p2pdma",),
)
near_miss(
    "acs.redirect-on-path",
    fs({f"{function(PORT0)}.acs": Acs(state="enabled", enabled=("SrcValid",), redirects=False)}),
    "SrcValid alone redirects nothing",
)
near_miss("acs.redirect-on-path", but(redirecting(FS, PORT0), {"gpus": FS.gpus[1:]}), "not on the path of a GPU")
raised(
    "acs.redirect-on-path",
    but(redirecting(FS, PORT0), {"mounts": ()}),
    PORT0,
    frozenset(),
    severity="warning",
    blocks=(),
)
near_miss(
    "acs.redirect-on-path", but(redirecting(FS, PORT0), {"mounts": (), "gpus": FS.gpus[1:]}), "nor without a mount"
)
UNREAD_ACS = {f"{function(PORT0)}.acs": Acs()}
silent("acs.redirect-on-path", p2p(UNREAD_ACS), "kernel.p2pdma-host-bridge holds the route open")

raised("acs.unreadable", fs(UNREAD_ACS), "ACS", severity="info")
raised("acs.unreadable", p2p(UNREAD_ACS), "ACS", severity="warning")
near_miss("acs.unreadable", but(across_host_bridges(FS), {"pci.devices.1.acs": Acs()}), "they meet at no switch anyhow")
silent("acs.unreadable", fs({"pci.devices": ()}), "without a tree there is no path to speak of")

# --- containers -------------------------------------------------------------------------------------------------------

NO_JSON = but(
    IN_DOCKER, {"container.has_cufile_json": False, "gds.cufile_config.files": (), "gds.cufile_config.texts": {}}
)
raised("container.no-cufile-json", NO_JSON, "/etc/cufile.json")
near_miss("container.no-cufile-json", but(NO_JSON, {"container.kind": "none"}), "a host without the file")
near_miss(
    "container.no-cufile-json",
    but(NO_JSON, {"gds.cufile_config.files": ("/app/cufile.json",)}),
    "CUFILE_ENV_PATH_JSON names one in the container",
)
silent("container.no-cufile-json", but(NO_JSON, {"gds.cufile_config.files": None}), NOTHING_HANGS)

NO_DEVICE = {"nvidia_fs.device_nodes": ()}
raised("container.no-nvidia-fs-device", but(IN_DOCKER, NO_DEVICE), "/dev/nvidia-fs*", severity="critical")
near_miss("container.no-nvidia-fs-device", fs(NO_DEVICE), "on a host nvidia-fs.no-device-node tells it")
near_miss("container.no-nvidia-fs-device", but(IN_DOCKER, NO_DEVICE | {"nvidia_fs.loaded": False}))
silent(
    "container.no-nvidia-fs-device",
    but(IN_DOCKER, {"nvidia_fs.device_nodes": None}),
    "nvidia-fs.no-device-node cannot tell, and holds the route open",
)

raised(
    "container.no-nvidia-fs-device",
    but(IN_DOCKER, {"container.nvidia_fs_nodes": 16}),
    "/dev/nvidia-fs*",
    severity="critical",
)
near_miss("container.no-nvidia-fs-device", but(IN_DOCKER, {"container.nvidia_fs_nodes": 1}), "max_devices=1")

raised("container.no-gpu", but(IN_DOCKER, {"container.has_gpu_nodes": False}), "/dev/nvidia*", severity="error")
near_miss("container.no-gpu", fs({"container.has_gpu_nodes": False}), "a host without the driver is another story")
unsure("container.no-gpu", but(IN_DOCKER, {"container.has_gpu_nodes": None}), blocks=())

raised("container.no-sysfs", but(IN_DOCKER, {"container.has_sysfs": False}), "/sys", severity="error")
near_miss("container.no-sysfs", fs({"container.has_sysfs": False}), "a host has one")
unsure("container.no-sysfs", but(IN_DOCKER, {"container.has_sysfs": None}), blocks=())

OVERLAY = Mount(target="/", source="overlay", fstype="overlay", backing=Backing(kind="overlay"))
raised("container.no-data-volume", but(IN_DOCKER, {"mounts": (OVERLAY,)}), "volumes", severity="error")
raised(
    "container.no-data-volume",
    but(IN_DOCKER, {"mounts": (OVERLAY, Mount(target="/x", fstype="tmpfs", backing=Backing(kind="tmpfs")))}),
    "volumes",
)
near_miss("container.no-data-volume", but(IN_DOCKER, {"mounts": (OVERLAY, *FS.mounts)}), "an overlay at / is normal")
near_miss("container.no-data-volume", fs({"mounts": (OVERLAY,)}), "a node without disks")
unsure(
    "container.no-data-volume",
    unread(but(IN_DOCKER, {"mounts": (OVERLAY,)}), "mounts", ""),
    blocks=(),
)

RDMA_FROM_USER_SPACE = mounted(IN_DOCKER, Mount(target="/weka", fstype="wekafs", backing=Backing(kind="wekafs")))
raised(
    "container.no-rdma-device", but(RDMA_FROM_USER_SPACE, {"container.rdma_nodes": ()}), "/dev/infiniband", on("/weka")
)
raised(
    "container.no-rdma-device",
    but(RDMA_FROM_USER_SPACE, {"container.rdma_nodes": ("rdma_cm",)}),
    "/dev/infiniband",
    on("/weka"),
)
near_miss("container.no-rdma-device", but(IN_DOCKER, {"container.rdma_nodes": ()}), "the kernel does RDMA for NFS")
near_miss("container.no-rdma-device", but(RDMA_FROM_USER_SPACE, {"container.rdma_nodes": ("rdma_cm", "uverbs0")}))
unsure("container.no-rdma-device", but(RDMA_FROM_USER_SPACE, {"container.rdma_nodes": None}), on("/weka"))

UNLIMITED = 2**63 - 1
LIMITED = {"container.memlock_bytes": 8 << 20, "container.ipc_lock": False}
raised("container.memlock-limited", but(RDMA_FROM_USER_SPACE, LIMITED), "memlock", on("/weka"), severity="warning")
near_miss("container.memlock-limited", but(IN_DOCKER, LIMITED), "local NVMe does not hang on it")
near_miss("container.memlock-limited", but(RDMA_FROM_USER_SPACE, LIMITED | {"container.memlock_bytes": UNLIMITED}))
near_miss(
    "container.memlock-limited", but(RDMA_FROM_USER_SPACE, LIMITED | {"container.ipc_lock": True}), "CAP_IPC_LOCK"
)
unsure("container.memlock-limited", but(RDMA_FROM_USER_SPACE, LIMITED | {"container.memlock_bytes": None}), on("/weka"))
unsure("container.memlock-limited", but(RDMA_FROM_USER_SPACE, LIMITED | {"container.ipc_lock": None}), on("/weka"))

raised(
    "container.own-network",
    but(RDMA_FROM_USER_SPACE, {"container.host_network": False}),
    "network",
    on("/weka"),
    severity="error",
)
near_miss("container.own-network", but(RDMA_FROM_USER_SPACE, {"container.host_network": True}))
near_miss("container.own-network", but(IN_DOCKER, {"container.host_network": False}), "the kernel does RDMA for NFS")
near_miss("container.own-network", RDMA_FROM_USER_SPACE, "from inside its own interfaces are seen")
unsure("container.own-network", unread(RDMA_FROM_USER_SPACE, "container", "host_network"), on("/weka"))

raised("container.io-uring-refused", but(IN_DOCKER, {"container.io_uring": False}), "io_uring", severity="info")
near_miss("container.io-uring-refused", but(IN_DOCKER, {"container.io_uring": True}))
silent("container.io-uring-refused", but(IN_DOCKER, {"container.io_uring": None}), NOTHING_HANGS)

SKIPPED = but(
    P2P,
    {
        "container.kind": "docker",
        "container.toolkit_gds": True,
        "container.nvidia_fs_nodes": 0,
        "container.has_udev_db": False,
        "container.has_cufile_json": False,
    },
)
raised("container.toolkit-skips-mounts", SKIPPED, "NVIDIA_GDS", severity="error")
raised(
    "container.toolkit-skips-mounts",
    but(SKIPPED, {"container.nvidia_fs_nodes": None, "nvidia_fs.loaded": False}),
    "NVIDIA_GDS",
)
near_miss("container.toolkit-skips-mounts", but(SKIPPED, {"container.nvidia_fs_nodes": 16}), "a node with nvidia-fs")
near_miss(
    "container.toolkit-skips-mounts",
    but(SKIPPED, {"container.has_udev_db": True, "container.has_cufile_json": True}),
    "both are mounted otherwise",
)
near_miss("container.toolkit-skips-mounts", but(SKIPPED, {"container.toolkit_gds": False}), "nobody asked it")
silent(
    "container.toolkit-skips-mounts",
    but(SKIPPED, {"container.nvidia_fs_nodes": None}),
    "container.no-udev and container.no-cufile-json tell what is missing; this one only says why",
)
unsure(
    "container.no-cufile-json",
    but(IN_DOCKER, {"container.has_cufile_json": None, "gds.cufile_config.files": None}),
)

raised("container.no-udev", but(IN_DOCKER, {"container.has_udev_db": False}), "/run/udev", on(NVME))
raised("container.no-udev", fs({"container.has_udev_db": False}), "/run/udev", on(NVME))
near_miss(
    "container.no-udev",
    but(IN_DOCKER, {"container.has_udev_db": False, "mounts": FS.mounts[1:]}),
    "NFS has no device that udev could know",
)
unsure(
    "container.no-udev",
    but(IN_DOCKER, {"container.has_udev_db": None}),
    on(NVME),
    blocks=("nvidia-fs", "p2pdma", "c2c"),
)

# --- cufile.json: lint's own tests hold the details -------------------------------------------------------------------


def configured(rule: str, wrong: object, right: object, subject: str, **more: Any) -> None:
    """A file that raises a rule, one that does not, and none at all."""
    raised(rule, cufile(FS, wrong), subject, **more)
    near_miss(rule, cufile(FS, right))
    silent(rule, cufile(FS, None), "a file that was not read has no faults to name")


def prop(**values: object) -> dict[str, object]:
    return {"properties": values}


DEADLY = ("nvidia-fs", "p2pdma", "c2c", "rdma", "compat")
SIZE = "/properties/max_direct_io_size_kb"
configured("cufile.alignment", prop(max_direct_io_size_kb=1100), prop(max_direct_io_size_kb=1088), SIZE, blocks=DEADLY)
configured(
    "cufile.compat-forbidden",
    prop(allow_compat_mode=False),
    prop(allow_compat_mode=True),
    "properties.allow_compat_mode",
)
configured(
    "cufile.compat-forced", prop(force_compat_mode=True), prop(force_compat_mode=False), "properties.force_compat_mode"
)
configured(
    "cufile.compat-hides-failure",
    prop(use_pci_p2pdma=True),
    prop(use_pci_p2pdma=True, allow_compat_mode=False),
    "/properties/use_pci_p2pdma",
)
configured("cufile.dead-key", {"blacklist": {"drivers": []}}, {"denylist": {"drivers": []}}, "/blacklist")
configured(
    "cufile.denylisted",
    {"denylist": {"drivers": ["nvme"]}},
    {"denylist": {"drivers": ["scsi_mod"]}},
    "denylist.drivers",
    on=on(NVME),
)
raised("cufile.denylisted", cufile(FS, {"denylist": {"mounts": [NFS]}}), "denylist.mounts", on(NFS))
raised("cufile.denylisted", cufile(FS, {"denylist": {"filesystems": ["nfs"]}}), "denylist.filesystems", on(NFS))
raised("cufile.denylisted", cufile(FS, {"denylist": {"devices": ["/dev/nvme0n1"]}}), "denylist.devices", on(NVME))
raised("cufile.env-boolean", cufile(FS, {}, env={"CUFILE_FORCE_COMPAT_MODE": "1"}), "CUFILE_FORCE_COMPAT_MODE")
near_miss("cufile.env-boolean", cufile(FS, {}, env={"CUFILE_FORCE_COMPAT_MODE": "false"}))
silent("cufile.env-boolean", cufile(FS, None), NOTHING_HANGS)
raised("cufile.env-missing", cufile(FS, {}, env={"CUFILE_ENV_PATH_JSON": "/gone.json"}), "CUFILE_ENV_PATH_JSON")
near_miss("cufile.env-missing", cufile(FS, {}, env={"CUFILE_ENV_PATH_JSON": "/etc/cufile.json"}))
silent("cufile.env-missing", cufile(FS, None, env={"CUFILE_ENV_PATH_JSON": "/gone.json"}), NOTHING_HANGS)
configured(
    "cufile.key-newer-than-library",
    prop(rdma_io_retry_count=3),  # came with 1.18, the node has 1.15
    prop(use_pci_p2pdma=False),
    "/properties/rdma_io_retry_count",
)
configured(
    "cufile.label-not-key", prop(use_compat_mode=True), prop(allow_compat_mode=True), "/properties/use_compat_mode"
)
TABLE = {NFS: {"rdma_dev_addr_list": ["10.0.0.1"]}}
configured(
    "cufile.address-lists",
    {"fs": {"nfs": {"mount_table": TABLE, "rdma_dev_addr_list": ["10.0.0.1"]}}},
    {"fs": {"nfs": {"mount_table": TABLE}}, "properties": {"rdma_dev_addr_list": ["10.0.0.1"]}},
    "/fs/nfs/mount_table",
)
ROUTED = cufile(
    fs({"gds.version": "1.20.0"}),
    {"miscellaneous": {"enable_static_routing": True, "static_routing_filepath": "/etc/topology.json"}},
)
DEVICES: dict[str, dict[str, Any]] = {
    address: {"bdf": address, "type": kind, "socket": 0, "numa_node": 0, "pcie_group": 0}
    for address, kind in ((GPU0, "GPU"), (GPU1, "GPU"), (NIC, "NET"))
}
for one_gpu in (GPU0, GPU1):
    DEVICES[one_gpu]["preferences"] = [{"order": 1, "devices": [NIC]}]
UNFILLED = {**DEVICES, NIC: {**DEVICES[NIC], "socket": -1}}
ROUTING_FILE = "gds.cufile_config.static_routing"
raised("cufile.static-routing", but(ROUTED, {ROUTING_FILE: json.dumps(UNFILLED)}), f"/{NIC}/socket", severity="error")
raised(
    "cufile.static-routing",
    but(ROUTED, {ROUTING_FILE: json.dumps({**DEVICES, "x": 1})}),
    "/x",
    severity="critical",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma", "compat"),
)
near_miss("cufile.static-routing", but(ROUTED, {ROUTING_FILE: json.dumps(DEVICES)}))
near_miss("cufile.static-routing", but(FS, {ROUTING_FILE: json.dumps(UNFILLED)}), "the file is not switched on")
NO_LIST = fs({"platform.module_list": False})
raised("kernel.no-module-list", NO_LIST, "/proc/modules", severity="critical", blocks=DEADLY)
near_miss("kernel.no-module-list", fs({"platform.module_list": True, "platform.kernel_config": {}}))
near_miss(
    "kernel.no-module-list",
    but(NO_LIST, {"gpus": (), "pci.devices": tuple(d for d in FS.pci.devices if d.vendor_id != "10de")}),
    "no GPU, so nobody opens cuFile",
)
unsure("kernel.no-module-list", unread(fs({"platform.module_list": None}), "platform", "module_list"), blocks=DEADLY)
silent("kernel.no-module-list", fs({"platform.module_list": None}), "a file that every kernel with modules has")
silent("cufile.static-routing", ROUTED, "a file that was not read has no faults to name")
configured(
    "cufile.denylist-name",
    {"denylist": {"drivers": ["nvme-rdma"]}},
    {"denylist": {"drivers": ["nvme_rdma"], "filesystems": ["lustre"]}},
    "/denylist/drivers/0",
)
configured("cufile.log-name", {"logging": {"dir": "/"}}, {"logging": {"level": "INFO"}}, "/logging/dir")
configured(
    "cufile.missing-path",
    {"denylist": {"devices": ["/dev/nvme9n1"]}},
    {"denylist": {"devices": ["/dev/nvme0n1"]}},
    "/denylist/devices/0",
    blocks=DEADLY,
)
SCRATCH = cufile(FS, {"denylist": {"mounts": ["/mnt/scratch"]}})
unsure("cufile.missing-path", SCRATCH, blocks=DEADLY)
unsure("cufile.missing-path", cufile(FS, {"logging": {"dir": "/var/log/cufile"}}), blocks=DEADLY)
near_miss("cufile.missing-path", but(SCRATCH, {"gds.cufile_config.paths": {"/mnt/scratch": True}}), "somebody looked")
near_miss(
    "cufile.missing-path", cufile(FS, {"denylist": {"mounts": [f"{NFS}/", "/mnt"]}}), "a mount, and what is above"
)
raised("cufile.missing-path", but(SCRATCH, {"gds.cufile_config.paths": {"/mnt/scratch": False}}), "/denylist/mounts/0")
configured(
    "cufile.range",
    {"execution": {"max_io_threads": 33}},
    {"execution": {"max_io_threads": 32}},
    "/execution/max_io_threads",
)
configured(
    "cufile.slab-lengths",
    prop(posix_pool_slab_size_kb=[4, 1024], posix_pool_slab_count=[8]),
    prop(posix_pool_slab_size_kb=[4, 1024], posix_pool_slab_count=[8, 8]),
    "/properties/posix_pool_slab_count",
)
configured("cufile.syntax", '{"properties": {},}', '{"properties": {}}', "/etc/cufile.json", blocks=DEADLY)
configured(
    "cufile.type",
    prop(allow_compat_mode="true"),
    prop(allow_compat_mode=True),
    "/properties/allow_compat_mode",
    blocks=DEADLY,
)
configured(
    "cufile.unknown-key", prop(alow_compat_mode=True), prop(allow_compat_mode=True), "/properties/alow_compat_mode"
)
configured(
    "cufile.wrong-section",
    {"fs": {"block": {"nvme": {"use_pci_p2pdma": True}}}},
    {"fs": {"nfs": {"rdma_dev_addr_list": ["10.0.0.1"]}}},
    "/fs/block/nvme/use_pci_p2pdma",
)


def told(*meanings: str) -> dict[str, object]:
    counts = dict.fromkeys(meanings, 1)
    run = CufileRun(
        pid=4711, first="2026-12-02T09:05:11.007", last="2026-12-02T09:05:12.000", lines=2, levels={}, meanings=counts
    )
    return {"gds.last_run": run}


raised("cufile.log-tells", fs(told("nvme-not-registered", "compat-mode")), "cufile.log", severity="info")
near_miss("cufile.log-tells", fs(told("p2pdma-mode")), "it went direct")
silent("cufile.log-tells", FS, NOTHING_HANGS)

# --- driver -----------------------------------------------------------------------------------------------------------

UNLOADED = {"nvidia_driver.version": None, "modules.nvidia.loaded": False}
raised("driver.not-loaded", fs(UNLOADED), "nvidia")
near_miss("driver.not-loaded", fs({"modules.nvidia.loaded": None}), "its version is told, so it runs")
unsure("driver.not-loaded", fs({"nvidia_driver.version": None, "modules.nvidia": GONE}))

STATIC = {"RMForceStaticBar1": "1"}
raised("driver.pending-reboot", fs({"nvidia_driver.modprobe_registry_dwords": STATIC}), "nvidia")
near_miss(
    "driver.pending-reboot",
    fs(
        {
            "nvidia_driver.modprobe_registry_dwords": STATIC,
            "nvidia_driver.registry_dwords": {"RMForceStaticBar1": "0x1"},
        }
    ),
    "1 and 0x1 are one number",
)
near_miss(
    "driver.pending-reboot",
    but(P2P, {"nvidia_driver.modprobe_registry_dwords": {}, "container.kind": "docker"}),
    "the image's modprobe.d is not the host's",
)
silent("driver.pending-reboot", fs({"nvidia_driver.modprobe_registry_dwords": None}), NOTHING_HANGS)

PROPRIETARY: dict[str, object] = {"nvidia_driver.kind": "proprietary"}
raised("driver.proprietary", fs(PROPRIETARY), "nvidia", severity="error")
raised("driver.proprietary", fs(PROPRIETARY | {"nvidia_fs.version": "2.17.3"}), "nvidia", severity="warning")
near_miss("driver.proprietary", fs(UNLOADED | {"nvidia_driver.kind": "unknown"}), "no driver, so no kind")
unsure("driver.proprietary", p2p({"nvidia_driver.kind": "unknown"}), blocks=("p2pdma", "c2c"))
unsure("driver.proprietary", p2p({"nvidia_driver.kind": "unknown", "nvidia_driver.version": None}))

raised("driver.refcount-bug-kernel", p2p({"platform.kernel": "6.17.0-5-generic"}), "nvidia", on(NVME))
near_miss(
    "driver.refcount-bug-kernel",
    p2p({"platform.kernel": "6.17.0-5-generic", "nvidia_driver.version": "595.71.05"}),
    "the driver has the fix",
)
near_miss("driver.refcount-bug-kernel", p2p({"platform.kernel": "6.14.0"}), "the kernel is older")
silent("driver.refcount-bug-kernel", p2p({"platform.kernel": None}), NOTHING_HANGS)

raised(
    "driver.registry-key-conflict",
    fs({"nvidia_driver.registry_dwords": {"RmForceStaticBar1": "1"}}),
    "RmForceStaticBar1",
)
raised(
    "driver.registry-key-conflict",
    p2p({"nvidia_driver.registry_dwords.RmForceDisableIomapWC": "0"}),
    "RmForceDisableIomapWC",
)
raised(
    "driver.registry-key-conflict",
    p2p({"nvidia_driver.modprobe_files": {"/etc/modprobe.d/a.conf:3": "/etc/modprobe.d/a.conf"}}),
    "NVreg_RegistryDwords",
)
near_miss(
    "driver.registry-key-conflict",
    p2p({"nvidia_driver.registry_dwords.RMForceStaticBar1": "2"}),
    "2 lets the driver decide",
)
near_miss(
    "driver.registry-key-conflict",
    p2p({"nvidia_driver.registry_dwords.ForceP2P": "0x11"}),
    "asked of GPUs before Hopper only",
)
silent("driver.registry-key-conflict", p2p({"nvidia_driver.registry_dwords": None}), NOTHING_HANGS)

raised("driver.registry-key-missing", p2p({"nvidia_driver.registry_dwords": STATIC}), "nvidia", on(NVME))
raised(
    "driver.registry-key-missing",
    but(P2P, {f"gpus.{n}.name": "NVIDIA A100-SXM4-80GB" for n in (0, 1)}),
    "nvidia",
    on(NVME),
)
near_miss("driver.registry-key-missing", fs({}), "nvidia-fs does not need them")
near_miss("driver.registry-key-missing", p2p({"nvidia_driver.registry_dwords": {}, "platform.arch": "aarch64"}))
unsure("driver.registry-key-missing", p2p({"nvidia_driver.registry_dwords": None}), on(NVME))
unsure("driver.registry-key-missing", p2p({"platform.arch": None}), on(NVME))

# --- file systems -----------------------------------------------------------------------------------------------------

ON_LVM = mounted(
    but(FS, {"block": (*FS.block, Block(name="dm-0", kind="dm", slaves=("nvme0n1",)), Block(name="dm-1", kind="dm"))}),
    on_disk("/", "ext4", "dm-0", "dm"),
    on_disk("/home", "xfs", "dm-1", "dm"),
)
raised("fs.device-mapper", ON_LVM, "/, /home", on("/", "/home"))
raised(
    "fs.device-mapper",
    fs(
        {
            "block.0.slaves": ("dm-0",),
            "block": (*FS.block, Block(name="dm-0", kind="dm"), Block(name="md0", kind="md", slaves=("dm-0",))),
            "mounts.0.device": "md0",
        }
    ),
    NVME,
    on(NVME),
)
near_miss(
    "fs.device-mapper", fs({"block": (*FS.block, Block(name="dm-0", kind="dm"))}), "a volume that carries no mount"
)
silent(
    "fs.device-mapper",
    fs({"mounts.0.device": None, "mounts.0.backing.kind": "other"}),
    "fs.unsupported holds the route open",
)

raised("fs.ext4-data-ordered", fs({"mounts.0.options": ("rw", "relatime")}), NVME, on(NVME))
near_miss("fs.ext4-data-ordered", fs({"mounts.0.options": ("rw",), "mounts.0.fstype": "xfs"}), "xfs needs no option")
near_miss(
    "fs.ext4-data-ordered",
    fs({"mounts.0.options": ("rw",), "mounts.0.backing": Backing(), "mounts.0.device": "sda1"}),
    "a SATA disk does not go direct anyhow",
)
silent("fs.ext4-data-ordered", fs({"mounts": ()}), "without a mount table there is no route")

RAID5 = on_array(FS, "raid5", members=("nvme0", "nvme1", "nvme2"))
raised("fs.md-level", RAID5, NVME, on(NVME))
raised("fs.md-level", on_array(FS, "raid1"), NVME, on(NVME))
near_miss("fs.md-level", on_array(FS), "RAID0")
near_miss("fs.md-level", but(on_array(FS, "raid10"), {"gds.version": "1.19.0"}), "from 1.19 on")
unsure("fs.md-level", on_array(FS, None), on(NVME))
unsure("fs.md-level", but(on_array(FS, "raid1"), {"gds.version": None}), on(NVME))

raised("fs.md-udev-rule", but(on_array(FS), {"block.1.udev": {"MD_LEVEL": "raid0"}}), "md0", on(NVME))
raised("fs.md-udev-rule", but(on_array(FS), {"block.1.udev": None, "gds.udev_rule_md": False}), "md0", on(NVME))
near_miss("fs.md-udev-rule", but(on_array(FS), {"gds.udev_rule_md": False}), "what udev knows counts, not the rule")
unsure("fs.md-udev-rule", but(on_array(FS), {"block.1.udev": None, "gds.udev_rule_md": None}), on(NVME))

SHM = Mount(target="/dev/shm", fstype="tmpfs", backing=Backing(kind="tmpfs"))
RUN = Mount(target="/run", fstype="tmpfs", backing=Backing(kind="tmpfs"))
ROOT = Mount(target="/", fstype="overlay", backing=Backing(kind="overlay"))
raised("fs.overlay", mounted(FS, ROOT), "/", on("/"))
near_miss("fs.overlay", mounted(FS, SHM))
silent("fs.overlay", fs({"mounts": ()}), "without a mount table there is no route")
raised("fs.tmpfs", mounted(FS, SHM, RUN), "/dev/shm, /run", on("/dev/shm", "/run"), severity="info")
near_miss("fs.tmpfs", mounted(FS, ROOT))
silent("fs.tmpfs", fs({"mounts": ()}), "without a mount table there is no route")

NEW = {"gds.version": "1.17.0"}  # takes tmpfs, overlay and btrfs in compat mode
raised(
    "fs.unsupported",
    mounted(but(FS, NEW), on_disk("/a", "btrfs", "nvme0n1", "nvme"), on_disk("/b", "btrfs", "nvme0n1", "nvme")),
    "/a, /b",
    on("/a", "/b"),
)
raised("fs.unsupported", mounted(but(FS, NEW), on_disk("/boot", "ext4", "sda1", "other")), "/boot", on("/boot"))
raised("fs.unsupported", mounted(but(FS, NEW), network("ceph")), "/mnt/net", on("/mnt/net"))
raised("fs.unsupported", mounted(but(FS, NEW), network("lustre", transport="tcp")), "/mnt/net", on("/mnt/net"))
raised("fs.unsupported", mounted(FS, SHM), "/dev/shm", on("/dev/shm"), blocks=("compat",))  # 1.15 refuses tmpfs
raised("fs.unsupported", on_array(FS, members=("nvme0", "sdb")), NVME, on(NVME))
raised(
    "fs.unsupported",
    mounted(but(FS, NEW), on_disk("/of", "xfs", "nvme9n1", "nvme-of", transport="tcp")),
    "/of",
    on("/of"),
)
near_miss("fs.unsupported", mounted(but(FS, NEW), SHM, ROOT), "told by fs.tmpfs and fs.overlay")
near_miss("fs.unsupported", mounted(but(FS, NEW), network("lustre", transport="rdma")))
near_miss("fs.unsupported", fs({"mounts.1.backing.transport": "tcp"}), "nfs.tcp tells it")
unsure("fs.unsupported", fs({"mounts.0.device": None, "mounts.0.backing": Backing()}), on(NVME))
unsure("fs.unsupported", mounted(FS, network("lustre")), on("/mnt/net"))
unsure("fs.unsupported", mounted(but(FS, {"gds.version": "1.19.1"}), network("panfs")), on("/mnt/net"))
unsure("fs.unsupported", mounted(FS, on_disk("/of", "xfs", "nvme9n1", "nvme-of")), on("/of"))

# --- GPFS, gdscheck ---------------------------------------------------------------------------------------------------

ADDRESSES = {"properties": {"rdma_dev_addr_list": ["10.0.0.1"]}}
GPFS = but(mounted(cufile(FS, ADDRESSES), network("gpfs")), {"modules.nvidia_peermem.loaded": True})
raised("gpfs.verbsports-mismatch", but(GPFS, {"gds.gpfs_verbs_ports": ("mlx5_7/1",)}), "verbsPorts", on("/mnt/net"))
near_miss("gpfs.verbsports-mismatch", but(GPFS, {"gds.gpfs_verbs_ports": ("mlx5_0/1",)}))
silent("gpfs.verbsports-mismatch", GPFS, "no witness ever makes a route over user-space RDMA certain")

CLAIM = {"drivers": {"IBM Spectrum Scale": {"state": "modes", "modes": ["p2pdma"]}}}
raised("gdscheck.false-positive-gpfs", fs({"gds.gdscheck": CLAIM}), "IBM Spectrum Scale")
near_miss(
    "gdscheck.false-positive-gpfs", fs({"gds.gdscheck": {"drivers": {"NVMe": {"state": "modes", "modes": ["p2pdma"]}}}})
)
silent("gdscheck.false-positive-gpfs", FS, NOTHING_HANGS)

# --- GPUs -------------------------------------------------------------------------------------------------------------

raised(
    "gpu.bar1-small", gpu0(FS, bar1_bytes=256 << 20), GPU0, on(NVME, NFS, gpus=(GPU0,)), severity="warning", blocks=()
)
raised(
    "gpu.bar1-small",
    gpu0(P2P, bar1_bytes=64 << 30),
    GPU0,
    on(NVME, NFS, gpus=(GPU0,)),
    severity="error",
    blocks=("p2pdma",),
)
near_miss("gpu.bar1-small", gpu0(FS, bar1_bytes=64 << 30), "nvidia-fs maps what it needs")
near_miss("gpu.bar1-small", gpu0(P2P, bar1_bytes=80 << 30), "just covers the memory")
unsure(
    "gpu.bar1-small",
    but(gpu0(P2P, memory_bytes=None), {"nvidia_driver.registry_dwords.RMForceStaticBar1": "2"}),
    on(NVME, gpus=(GPU0,)),
)
silent("gpu.bar1-small", gpu0(P2P, memory_bytes=None), "with RMForceStaticBar1=1 the GPU would not have come up")

raised(
    "gpu.compute-capability", gpu0(FS, name="Tesla M60", compute_capability="5.2"), GPU0, on(NVME, NFS, gpus=(GPU0,))
)
raised(
    "gpu.compute-capability",
    gpu0(FS, name="Tesla V100-SXM2", compute_capability="7.0"),
    GPU0,
    on(NVME, NFS, gpus=(GPU0,)),
)
near_miss(
    "gpu.compute-capability", but(gpu0(FS, name="Tesla V100-SXM2", compute_capability="7.0"), {"gds.version": "1.14.1"})
)
near_miss("gpu.compute-capability", gpu0(FS, compute_capability=None), "the model tells it")
unsure("gpu.compute-capability", gpu0(FS, **TESLA), on(NVME, NFS, gpus=(GPU0,)))
unsure(
    "gpu.compute-capability",
    gpu0(FS, name="NVIDIA H700", compute_capability=None, kind="unknown", address=None),
    on(NVME, NFS, gpus=("gpu0",)),
)
unsure(
    "gpu.compute-capability",
    but(gpu0(FS, name="Tesla V100-SXM2", compute_capability="7.0"), {"gds.version": None}),
    on(NVME, NFS, gpus=(GPU0,)),
)

raised("gpu.geforce", gpu0(FS, name="NVIDIA GeForce RTX 4090", kind="geforce"), GPU0, on(NVME, NFS, gpus=(GPU0,)))
near_miss("gpu.geforce", gpu0(FS, name="NVIDIA RTX 6000 Ada Generation", kind="workstation", compute_capability="8.9"))
silent(
    "gpu.geforce",
    gpu0(FS, name=None, kind="unknown", compute_capability=None, address=None),
    "gpu.compute-capability holds the route open",
)
raised("gpu.integrated", gpu0(FS, name="NVIDIA GB10", kind="integrated"), GPU0, on(NVME, NFS, gpus=(GPU0,)))
near_miss("gpu.integrated", gpu0(FS, name="NVIDIA GB200", compute_capability="10.0"))
silent(
    "gpu.integrated",
    gpu0(FS, name=None, kind="unknown", compute_capability=None, address=None),
    "gpu.compute-capability holds the route open",
)

# --- IOMMU, kernel ----------------------------------------------------------------------------------------------------

raised("iommu.passthrough", fs({"iommu.state": "passthrough"}), "IOMMU", severity="info")
near_miss("iommu.passthrough", fs({"iommu.state": "passthrough", "platform.arch": "aarch64"}))
silent("iommu.passthrough", fs({"iommu.state": "unknown"}), NOTHING_HANGS)
ACROSS = across_host_bridges(P2P)
FAR = frozenset((gpu.address or "", NVME) for gpu in ACROSS.gpus)
raised("iommu.translated", fs({"iommu.state": "translated"}), "IOMMU", severity="warning", blocks=())
raised(
    "iommu.translated", but(ACROSS, {"iommu.state": "translated"}), "IOMMU", FAR, severity="error", blocks=("p2pdma",)
)
raised("iommu.translated", p2p({"iommu.state": "translated"}), "IOMMU", severity="warning", blocks=())  # below a switch
near_miss("iommu.translated", but(ACROSS, {"iommu.state": "passthrough"}))
near_miss("iommu.translated", fs({"iommu.state": "translated", "platform.arch": "aarch64"}), "stays on, on Grace")
unsure("iommu.translated", but(ACROSS, {"iommu.state": "unknown"}), FAR)
silent("iommu.translated", fs({"iommu.state": "unknown"}), NOTHING_HANGS)

raised("kernel.no-p2pdma", p2p({"platform.symbols": {"pci_p2pdma_add_resource": False}}), "kernel", on(NVME))
raised(
    "kernel.no-p2pdma",
    p2p({"platform.symbols": None, "platform.kernel_config": {"CONFIG_PCI_P2PDMA": "n"}}),
    "kernel",
    on(NVME),
)
near_miss("kernel.no-p2pdma", fs({"platform.symbols": {"pci_p2pdma_add_resource": False}}), "P2PDMA is not asked for")
near_miss("kernel.no-p2pdma", p2p({"platform.symbols": None}), "the configuration says y")
unsure("kernel.no-p2pdma", p2p({"platform.symbols": None, "platform.kernel_config": None}), on(NVME))
# P2PDMA from user space came with 6.2: the core of 4.20 alone does not do, except where it was carried back.
OLD = {"platform.kernel": "5.15.0-140-generic", "platform.kernel_version": (5, 15, 0), "platform.os_id": "ubuntu"}
CORE = {"pci_p2pdma_add_resource": True, "p2pdma_pgmap_ops": False}
raised("kernel.no-p2pdma", p2p({**OLD, "platform.symbols": CORE}), "kernel", on(NVME))
near_miss(
    "kernel.no-p2pdma", p2p({**OLD, "platform.symbols": {**CORE, "p2pdma_pgmap_ops": True}}), "it was carried back"
)
unsure("kernel.no-p2pdma", p2p({**OLD, "platform.os_id": "rhel", "platform.symbols": CORE}), on(NVME))

STRANGER = across_host_bridges(P2P, bridge="1237")
raised("kernel.p2pdma-host-bridge", STRANGER, "kernel", FAR)
near_miss("kernel.p2pdma-host-bridge", ACROSS, "Ice Lake's host bridge is on the list")
near_miss("kernel.p2pdma-host-bridge", across_host_bridges(FS, bridge="1237"), "nvidia-fs does not ask the list")
near_miss(
    "kernel.p2pdma-host-bridge",
    but(STRANGER, {"platform.cpu_vendor": "AuthenticAMD", "platform.cpu_family": 25}),
    "Zen",
)
unsure("kernel.p2pdma-host-bridge", p2p(UNREAD_ACS), on(NVME, gpus=(GPU0,)))
unsure("kernel.p2pdma-host-bridge", p2p({"nvme.0.address": None}), on(NVME))
unsure("kernel.p2pdma-host-bridge", p2p({"nvme": ()}), on(NVME))

# --- hooks of storage modules -----------------------------------------------------------------------------------------


def hooks(rule: str, hook: str, node: Node, target: str) -> None:
    """The module without hooks, not loaded, patched, and not known. The node has the hook patched."""
    raised(rule, but(node, {f"nvfs_hooks.{hook}": NvfsHook(state="stock")}), hook, on(target))
    raised(rule, but(node, {f"nvfs_hooks.{hook}": NvfsHook(state="not_loaded")}), hook, on(target))
    near_miss(rule, node, "patched")
    near_miss(rule, but(node, {f"nvfs_hooks.{hook}": NvfsHook(state="stock"), "mounts": ()}), "no mount needs it")
    unsure(rule, but(node, {f"nvfs_hooks.{hook}": NvfsHook()}), on(target))
    unsure(rule, but(node, {f"nvfs_hooks.{hook}": GONE}), on(target))


PATCHED = NvfsHook(state="patched")
OVER_FABRIC = fs(
    {
        "nvme.0.transport": "rdma",
        "mounts.0.backing": Backing(kind="nvme-of", nvme=("nvme0",), nics=("mlx5_0",), transport="rdma"),
        "nvfs_hooks.nvme_rdma": PATCHED,
    }
)
hooks("nvme.unpatched", "nvme", FS, NVME)
hooks("nvme-rdma.unpatched", "nvme_rdma", OVER_FABRIC, NVME)
# denying nvme disables NVMeOF in every release as well; denying nvme_rdma leaves drives on PCIe alone
raised("cufile.denylisted", cufile(OVER_FABRIC, {"denylist": {"drivers": ["nvme"]}}), "denylist.drivers", on(NVME))
near_miss("cufile.denylisted", cufile(FS, {"denylist": {"drivers": ["nvme_rdma"]}}))
hooks("rpcrdma.unpatched", "rpcrdma", FS, NFS)
for name, module in (("lustre", "lnet"), ("beegfs", "beegfs"), ("scatefs", "scatefs")):
    hooks(
        f"{module}.unpatched",
        module,
        but(mounted(FS, network(name, transport="rdma")), {f"nvfs_hooks.{module}": PATCHED}),
        "/mnt/net",
    )
near_miss("nvme.unpatched", P2P, "P2PDMA needs no patched nvme")

V1, V2 = "nvme_v1_register_nvfs_dma_ops", "nvme_v2_register_nvfs_dma_ops"
MISMATCHED = NvfsHook(state="patched", symbol=V1, wanted_symbol=V2, registered=False, mismatched=True)
raised("nvme.symbol-mismatch", fs({"nvfs_hooks.nvme": MISMATCHED}), "nvme", on(NVME))
near_miss("nvme.symbol-mismatch", p2p({"nvfs_hooks.nvme.wanted_symbol": V2}), "a stock nvme exports neither")
near_miss("nvme.symbol-mismatch", fs({"nvfs_hooks.nvme.wanted_symbol": None}), "it is registered, so it fits")
unsure("nvme.symbol-mismatch", fs({"nvfs_hooks.nvme": NvfsHook(state="patched", symbol=V1)}), on(NVME))

# --- NFS --------------------------------------------------------------------------------------------------------------


def nfs(*options: str, node: Node = FS) -> Node:
    return but(node, {"mounts.1.options": ("rw", "vers=3", "proto=rdma", *options)})


TWO_NICS = but(
    FS,
    {
        "nics": (FS.nics[0], *but(FS, {"nics.0.rdma_device": "mlx5_1", "nics.0.netdevs": ("ens2",)}).nics),
        "mounts.1.backing.nics": ("mlx5_0", "mlx5_1"),
    },
)
raised("nfs.localports-missing", nfs("nconnect=8", "remoteports=10.0.0.16-10.0.0.17", node=TWO_NICS), NFS, on(NFS))
near_miss(
    "nfs.localports-missing",
    nfs("nconnect=8", "remoteports=10.0.0.16-10.0.0.17", "localports=10.0.0.1-10.0.0.2", node=TWO_NICS),
)
near_miss("nfs.localports-missing", nfs("nconnect=8", "remoteports=10.0.0.16-10.0.0.17"), "one NIC")
silent(
    "nfs.localports-missing",
    but(nfs("remoteports=10.0.0.16-10.0.0.17", node=TWO_NICS), {"mounts.1.backing.nics": ()}),
    NOTHING_HANGS,
)
raised("nfs.nconnect", nfs("nconnect=3", "remoteports=10.0.0.16-10.0.0.17"), NFS, on(NFS))
raised("nfs.nconnect", nfs("remoteports=10.0.0.16-10.0.0.17"), NFS, on(NFS))
near_miss("nfs.nconnect", nfs("nconnect=4", "remoteports=10.0.0.16-10.0.0.17"))
silent("nfs.nconnect", nfs("nconnect=many", "remoteports=10.0.0.16"), NOTHING_HANGS)
raised("nfs.port", nfs("port=2009"), NFS, on(NFS), severity="error")
raised("nfs.port", nfs("port=2049"), NFS, on(NFS), severity="warning")
near_miss("nfs.port", nfs("port=20049"))
near_miss(
    "nfs.port",
    fs({"mounts.1.options": ("proto=tcp", "port=2049"), "mounts.1.backing.transport": "tcp"}),
    "right over TCP",
)
silent("nfs.port", nfs(), NOTHING_HANGS)
raised("nfs.tcp", fs({"mounts.1.backing.transport": "tcp"}), NFS, on(NFS), severity="warning")
near_miss("nfs.tcp", FS)
unsure("nfs.tcp", fs({"mounts.1.backing.transport": None}), on(NFS))
INBOX = fs({"nvfs_hooks.rpcrdma": NvfsHook(state="stock"), "modules.rpcrdma.version": None})
raised("nfs.vast-options-inbox-client", nfs("spread_reads", node=INBOX), NFS, on(NFS))
near_miss("nfs.vast-options-inbox-client", nfs("spread_reads"), "the VAST client's rpcrdma is loaded")
near_miss("nfs.vast-options-inbox-client", nfs("nconnect=8", node=INBOX))
silent(
    "nfs.vast-options-inbox-client",
    nfs("spread_reads", node=fs({"nvfs_hooks.rpcrdma": NvfsHook()})),
    "rpcrdma.unpatched holds the route open",
)

# --- nvidia-fs --------------------------------------------------------------------------------------------------------

raised("nvidia-fs.known-bad-version", fs({"nvidia_fs.version": "2.25.6"}), "nvidia_fs")
near_miss("nvidia-fs.known-bad-version", fs({"nvidia_fs.version": "2.25.7"}))
silent("nvidia-fs.known-bad-version", fs({"nvidia_fs.version": "2.25"}), NOTHING_HANGS)
raised("nvidia-fs.no-device-node", fs(NO_DEVICE), "nvidia_fs", severity="critical", blocks=("nvidia-fs", "compat"))
raised("nvidia-fs.no-device-node", fs(NO_DEVICE | {"gpus": (), "pci.devices": ()}), "nvidia_fs")
near_miss("nvidia-fs.no-device-node", fs(NO_DEVICE | {"nvidia_fs.loaded": False}), "a host without either is harmless")
unsure("nvidia-fs.no-device-node", but(IN_DOCKER, {"nvidia_fs.device_nodes": None}), blocks=("nvidia-fs",))
silent("nvidia-fs.no-device-node", fs({"nvidia_fs.device_nodes": None}), "on a host udev makes them; the gap is listed")
raised("nvidia-fs.not-loaded", fs({"nvidia_fs.loaded": False}), "nvidia_fs", ALL)
raised("nvidia-fs.not-loaded", p2p({"nvidia_fs.loaded": False}), "nvidia_fs", on(NFS))
near_miss(
    "nvidia-fs.not-loaded", p2p({"nvidia_fs.loaded": False, "mounts": P2P.mounts[:1]}), "P2PDMA needs no nvidia_fs"
)
unsure("nvidia-fs.not-loaded", fs({"nvidia_fs.loaded": None}), ALL)

NOT_LOADED: dict[str, object] = {"nvidia_fs.loaded": False, "nvidia_fs.version": None}
GPL = "nvidia_fs: module using GPL-only symbols uses symbols from proprietary module nvidia."
raised("nvidia-fs.proprietary-driver", fs(PROPRIETARY | NOT_LOADED), "nvidia_fs", ALL)
raised("nvidia-fs.proprietary-driver", log(fs(NOT_LOADED | {"nvidia_driver.kind": "unknown"}), GPL), "nvidia_fs", ALL)
near_miss(
    "nvidia-fs.proprietary-driver",
    fs(PROPRIETARY | NOT_LOADED | {"modules.nvidia_fs.version": "2.17.3"}),
    "loads beside it",
)
near_miss("nvidia-fs.proprietary-driver", log(fs(PROPRIETARY), GPL), "it was loaded since")
near_miss("nvidia-fs.proprietary-driver", log(fs(NOT_LOADED), GPL), "the open driver is loaded since")
silent(
    "nvidia-fs.proprietary-driver",
    fs(NOT_LOADED | {"nvidia_driver.kind": "unknown"}),
    "nvidia-fs.not-loaded closes the route",
)
raised("nvidia-fs.stats-disabled", fs({"nvidia_fs.rw_stats_enabled": False}), "nvidia_fs")
near_miss("nvidia-fs.stats-disabled", fs({"nvidia_fs.rw_stats_enabled": False, "nvidia_fs.loaded": False}))
silent("nvidia-fs.stats-disabled", fs({"nvidia_fs.rw_stats_enabled": None}), NOTHING_HANGS)
SYMBOL = "nvidia_fs: disagrees about version of symbol nvidia_p2p_dma_unmap_pages"
raised("nvidia-fs.symbol-version", log(fs(NOT_LOADED), SYMBOL), "nvidia_fs")
raised(
    "nvidia-fs.symbol-version",
    log(fs(NOT_LOADED), "nvidia_fs: Unknown symbol nvidia_p2p_put_pages (err -2)"),
    "nvidia_fs",
)
raised(
    "nvidia-fs.symbol-version",
    log(fs(NOT_LOADED), "nvidia_fs: no symbol version for nvidia_p2p_get_pages"),
    "nvidia_fs",
)
near_miss("nvidia-fs.symbol-version", log(FS, SYMBOL), "it was loaded since")
near_miss("nvidia-fs.symbol-version", log(fs(NOT_LOADED), GPL))
silent(
    "nvidia-fs.symbol-version", fs(NOT_LOADED | {"platform.kernel_log": None}), "nvidia-fs.not-loaded closes the route"
)
raised("nvidia-fs.version-too-old", fs({"nvidia_fs.version": "2.9.2"}), "nvidia_fs")
near_miss("nvidia-fs.version-too-old", fs({"nvidia_fs.version": "2.12"}))
OLD = {"nvidia_fs.version": "2.4"}
near_miss("nvidia-fs.version-too-old", fs(OLD | {"gds.version": "0.9.1"}), "GDS 0.9 came with nvidia_fs 2.3 and 2.4")
raised("nvidia-fs.version-too-old", fs(OLD | {"gds.version": "1.5.0"}), "nvidia_fs")
raised(
    "nvidia-fs.version-too-old",
    fs({"nvidia_fs.version": "2.12", "gds.gdscheck": {"nvidia_fs_minimum": "2.13"}}),
    "nvidia_fs",
)
near_miss("nvidia-fs.version-too-old", fs({"nvidia_fs.version": "2.11", "gds.gdscheck": {"nvidia_fs_minimum": "2.11"}}))
unsure("nvidia-fs.version-too-old", fs(OLD | {"gds.version": None}), ALL)
silent(
    "nvidia-fs.version-too-old", fs({"nvidia_fs.version": None}), "a hook that is registered was taken by some process"
)

PAGES = "nvidia-fs:nvfs_get_dma:12 Incompatible page table version 0x00010002"
STARTS = "nvidia_fs: Initializing nvfs driver module"
raised("nvidia-fs.page-table-version", log(FS, STARTS, PAGES), "nvidia_fs")
near_miss("nvidia-fs.page-table-version", log(FS, PAGES, STARTS), "of a module that was loaded before")
near_miss("nvidia-fs.page-table-version", log(fs(NOT_LOADED), PAGES), "it is not loaded now")
silent("nvidia-fs.page-table-version", fs({"platform.kernel_log": None}), NOTHING_HANGS)

PINNED = "nvidia-fs:nvfs_pin_gpu_pages:1202 Error ret {} invoking nvidia_p2p_get_pages"
raised("gpu.pinning-refused", log(FS, PINNED.format(-22)), "GPU memory")
raised("gpu.pinning-refused", log(FS, PINNED.format(-12)), "GPU memory")
near_miss("gpu.pinning-refused", log(FS, PINNED.format(-22), STARTS), "of a module that was loaded before")
near_miss("gpu.pinning-refused", log(FS, PINNED.format(-110)), "another error")
near_miss(
    "gpu.pinning-refused",
    log(gpu0(FS, name="NVIDIA GeForce RTX 4090", kind="geforce"), PINNED.format(-22)),
    "gpu.geforce tells it",
)
silent("gpu.pinning-refused", fs({"platform.kernel_log": None}), NOTHING_HANGS)

# --- NVMe -------------------------------------------------------------------------------------------------------------

raised("nvme.integrity-capable", fs({"block.0.integrity": True}), NVME, on(NVME))
near_miss("nvme.integrity-capable", fs({"block.0.integrity": None}), "a kernel without the option has no such file")
unsure("nvme.integrity-capable", unread(fs({"block.0.integrity": None}), "block", "integrity", "nvme0n1"), on(NVME))
raised("nvme.native-multipath", p2p({"nvme.0.multipath": True}), NVME, on(NVME))
near_miss(
    "nvme.native-multipath", p2p({"modules.nvme_core.parameters": {"multipath": "Y"}}), "no head above this drive"
)
near_miss("nvme.native-multipath", fs({"nvme.0.multipath": True}), "nvidia-fs reaches through it")
unsure("nvme.native-multipath", p2p({"nvme.0.multipath": None, "modules.nvme_core.parameters": None}), on(NVME))

# --- P2PDMA -----------------------------------------------------------------------------------------------------------

raised("p2pdma.driver-too-old", p2p({"nvidia_driver.version": "550.54.15"}), "nvidia", on(NVME))
near_miss("p2pdma.driver-too-old", p2p({"nvidia_driver.version": "565.57.01"}))
near_miss("p2pdma.driver-too-old", fs({"nvidia_driver.version": "550.54.15"}))
silent("p2pdma.driver-too-old", p2p({"nvidia_driver.version": None}), "no witness ever makes P2PDMA certain")
RAID_KEYS = {**P2PDMA_JSON, "block": {"nvme": {"use_pci_p2pdma": True}, "raid": {"use_pci_p2pdma": True}}}
P2P_ARRAY = cufile(on_array(P2P), RAID_KEYS)
raised("p2pdma.filesystem-unsupported", P2P_ARRAY, NVME, on(NVME))
raised(
    "p2pdma.filesystem-unsupported",
    cufile(P2P, {**P2PDMA_JSON, "fs": {"nfs": {"use_pci_p2pdma": True}}}),
    NFS,
    on(NFS),
    severity="warning",
)
near_miss("p2pdma.filesystem-unsupported", but(P2P_ARRAY, {"platform.kernel_version": (7, 1, 0)}))
near_miss("p2pdma.filesystem-unsupported", on_array(FS), "P2PDMA is not asked for")
unsure("p2pdma.filesystem-unsupported", but(P2P_ARRAY, {"platform.kernel_version": None}), on(NVME))
unsure(
    "p2pdma.filesystem-unsupported",
    but(P2P_ARRAY, {"platform.kernel_version": (7, 2, 0), "gds.version": None}),
    on(NVME),
)

TURING = {"name": "Tesla T4", "compute_capability": "7.5"}
raised(
    "p2pdma.gpu-unsupported", gpu0(P2P, name="Tesla V100-SXM2", compute_capability="7.0"), GPU0, on(NVME, gpus=(GPU0,))
)
raised(
    "p2pdma.gpu-unsupported", but(P2P, {"platform.arch": "aarch64", "gpus": P2P.gpus[:1]}), GPU0, on(NVME, gpus=(GPU0,))
)
near_miss(
    "p2pdma.gpu-unsupported", gpu0(FS, name="Tesla V100-SXM2", compute_capability="7.0"), "P2PDMA is not asked for"
)
near_miss(
    "p2pdma.gpu-unsupported",
    but(gpu0(P2P, **TURING), {"gds.gdscheck": {"drivers": {"NVMe": {"state": "modes", "modes": ["p2pdma"]}}}}),
    "libcufile's own probe passed",
)
unsure("p2pdma.gpu-unsupported", gpu0(P2P, **TURING), on(NVME, gpus=(GPU0,)))
ON_ARM: dict[str, object] = {
    "platform.arch": "aarch64",
    "gpus.0.c2c": None,
    "gpus.0.name": "NVIDIA X1",
    "gpus.1.c2c": True,
}
unsure("p2pdma.gpu-unsupported", but(p2p(ON_ARM), {f"{function(GPU0)}.device_id": "ffff"}), on(NVME, gpus=(GPU0,)))

raised(
    "p2pdma.half-configured", cufile(P2P, {"properties": {"use_pci_p2pdma": True}}), NVME, on(NVME), severity="error"
)
raised(
    "p2pdma.half-configured",
    fs({"nvidia_driver.registry_dwords": STATIC}),
    "cufile.json",
    severity="warning",
    blocks=(),
)
near_miss(
    "p2pdma.half-configured",
    but(cufile(P2P, {"properties": {"use_pci_p2pdma": True}}), {"gds.version": "1.14.1"}),
    "one key is all before 1.16",
)
near_miss("p2pdma.half-configured", FS)
ONE_KEY = but(cufile(FS, {"block": {"nvme": {"use_pci_p2pdma": True}}}), {"gds.version": "1.16.0"})
raised("p2pdma.half-configured", ONE_KEY, "/block/nvme/use_pci_p2pdma", severity="warning", blocks=())
near_miss("p2pdma.half-configured", but(ONE_KEY, {"gds.version": "1.15.1"}), "a key that the library does not know yet")
unsure("p2pdma.half-configured", cufile(P2P, None), on(NVME))

REFUSAL = "nvme {}: cannot be used for peer-to-peer DMA as the client and provider ({}) do not share an upstream bridge or whitelisted host bridge"
raised("p2pdma.kernel-refused", log(P2P, REFUSAL.format(DISK, GPU0)), DISK, severity="info")
near_miss("p2pdma.kernel-refused", log(P2P, REFUSAL.format("0000:ee:00.0", GPU0)), "a function that is not there")
near_miss(
    "p2pdma.kernel-refused",
    log(but(STRANGER, {}), REFUSAL.format(STRANGER.nvme[0].address, STRANGER.gpus[0].address)),
    "the tree says the same, and kernel.p2pdma-host-bridge tells it",
)
silent("p2pdma.kernel-refused", p2p({"platform.kernel_log": None}), NOTHING_HANGS)

# --- PCI --------------------------------------------------------------------------------------------------------------

raised("pci.cross-root", but(across_host_bridges(FS), {"mounts": FS.mounts[:1]}), NVME, severity="info")
near_miss("pci.cross-root", FS)
silent("pci.cross-root", fs({"pci.devices": ()}), NOTHING_HANGS)
raised(
    "pci.cross-socket", but(across_host_bridges(FS, disk_numa=1), {"mounts": FS.mounts[:1]}), NVME, severity="warning"
)
near_miss("pci.cross-socket", across_host_bridges(FS))
silent("pci.cross-socket", fs({"pci.devices": ()}), NOTHING_HANGS)
raised("pci.link-degraded", fs({f"{function(DISK)}.link.width": 2}), DISK)
raised("pci.link-degraded", fs({f"{function(NIC)}.link.speed_gts": 8.0}), NIC)
raised("pci.link-degraded", fs({f"{function(GPU0)}.link.speed_gts": 8.0}), GPU0)
near_miss("pci.link-degraded", fs({f"{function(GPU0)}.link.speed_gts": 2.5}), "a GPU at rest")
silent("pci.link-degraded", fs({f"{function(DISK)}.link.width": None}), NOTHING_HANGS)
raised("pci.no-numa", fs({f"{function(GPU0)}.numa_node": None}), GPU0)
near_miss(
    "pci.no-numa", fs({f"{function(GPU0)}.numa_node": None, "numa.nodes": FS.numa.nodes[:1]}), "one node, no choice"
)
silent(
    "pci.no-numa", unread(fs({f"{function(GPU0)}.numa_node": None}), "pci/devices", "numa_node", GPU0), NOTHING_HANGS
)

# --- RDMA, routing ----------------------------------------------------------------------------------------------------

WEKA = but(mounted(cufile(FS, ADDRESSES), network("wekafs")), {"modules.nvidia_peermem.loaded": True})
raised("rdma.dev-addr-list-empty", cufile(WEKA, {}), "/etc/cufile.json", on("/mnt/net"), blocks=("rdma",))
raised(
    "rdma.dev-addr-list-empty",
    cufile(FS, {"properties": {"rdma_dynamic_routing": True}}),
    "/properties/rdma_dynamic_routing",
    frozenset(),
    blocks=(),
)
near_miss("rdma.dev-addr-list-empty", WEKA)
near_miss("rdma.dev-addr-list-empty", FS, "for local NVMe and plain NFS the list does not matter")
unsure("rdma.dev-addr-list-empty", cufile(WEKA, None), on("/mnt/net"))
configured(
    "rdma.dev-addr-not-ipv4",
    {"properties": {"rdma_dev_addr_list": ["10.0.0.1/24"]}},
    ADDRESSES,
    "/properties/rdma_dev_addr_list/0",
)
raised(
    "rdma.dev-addr-not-local",
    cufile(FS, {"properties": {"rdma_dev_addr_list": ["10.0.0.16"]}}),
    "/properties/rdma_dev_addr_list/0",
)
near_miss("rdma.dev-addr-not-local", cufile(FS, ADDRESSES))
silent(
    "rdma.dev-addr-not-local",
    unread(cufile(FS, {"properties": {"rdma_dev_addr_list": ["10.0.0.16"]}}), "nics", "ipv4"),
    NOTHING_HANGS,
)
LISTED = cufile(FS, {"properties": {"rdma_dev_addr_list": ["10.0.0.1"]}})
raised("rdma.dev-addr-wrong-nic", but(LISTED, {"nics.0.rdma_device": None}), "/properties/rdma_dev_addr_list/0")
near_miss("rdma.dev-addr-wrong-nic", LISTED)
silent("rdma.dev-addr-wrong-nic", unread(LISTED, "nics", "rdma_device"), NOTHING_HANGS)
raised("rdma.peermem-missing", but(WEKA, {"modules.nvidia_peermem.loaded": False}), "nvidia_peermem", on("/mnt/net"))
DMABUF = {"properties": {"rdma_dev_addr_list": ["10.0.0.1"], "rdma_peer_type": "dmabuf"}}
ALTRA = across_host_bridges(cufile(WEKA, DMABUF), vendor="1def", bridge="e100")
FAR = frozenset((gpu.address or "", "/mnt/net") for gpu in ALTRA.gpus)
raised("rdma.no-common-switch", ALTRA, "Ampere Altra", FAR)
near_miss("rdma.no-common-switch", across_host_bridges(cufile(WEKA, DMABUF)), "another chipset")
near_miss("rdma.no-common-switch", cufile(WEKA, DMABUF), "one switch")
near_miss("rdma.no-common-switch", but(ALTRA, {"platform.virtualization": "kvm"}), "in a guest")
near_miss("rdma.no-common-switch", but(ALTRA, {"gpus.0.c2c": True, "gpus.1.c2c": True}), "over NVLink-C2C")
near_miss(
    "rdma.no-common-switch",
    but(ALTRA, {"nvidia_driver.params": {"GrdmaPciTopoCheckOverride": "1"}}),
    "the driver is told to allow it",
)
unsure("rdma.no-common-switch", cufile(ALTRA, None), FAR)
near_miss("rdma.peermem-missing", but(cufile(WEKA, DMABUF), {"modules.nvidia_peermem.loaded": False}))
near_miss("rdma.peermem-missing", FS, "NFS does not need it")
unsure("rdma.peermem-missing", but(WEKA, {"modules.nvidia_peermem": GONE}), on("/mnt/net"))
unsure("rdma.peermem-missing", but(cufile(WEKA, None), {"modules.nvidia_peermem.loaded": False}), on("/mnt/net"))


def routed(node: Node, *order: str) -> Node:
    more = {"rdma_dynamic_routing_order": list(order)} if order else {}
    return cufile(node, {"properties": {"rdma_dev_addr_list": ["10.0.0.1"], "rdma_dynamic_routing": True, **more}})


APART = across_host_bridges(FS)
FAR_NFS = frozenset((gpu.address or "", NFS) for gpu in APART.gpus)
raised("routing.policy-not-applicable", routed(APART, "GPU_MEM_NVLINKS"), NFS, FAR_NFS, severity="warning")
near_miss("routing.policy-not-applicable", routed(APART, "SYS_MEM"))
near_miss("routing.policy-not-applicable", routed(FS, "GPU_MEM_NVLINKS"), "no GPU is far")
silent("routing.policy-not-applicable", cufile(APART, None), NOTHING_HANGS)
raised("routing.useless", routed(FS), "properties.rdma_dynamic_routing")
raised("routing.useless", routed(but(APART, {"gpus": APART.gpus[:1]})), "properties.rdma_dynamic_routing")
near_miss("routing.useless", routed(APART))
silent("routing.useless", routed(fs({"pci.devices": ()})), NOTHING_HANGS)
CLASH = "failing symbol_get of non-GPLONLY symbol rpcrdma_register_nvfs_dma_ops"
REFUSED = {"nvfs_hooks.rpcrdma.registered": False, "nvidia_fs.registered": ("nvme",)}
raised("rpcrdma.non-gpl-symbol", log(fs(REFUSED), CLASH), "rpcrdma", on(NFS))
near_miss("rpcrdma.non-gpl-symbol", log(FS, CLASH), "it is registered since")
near_miss("rpcrdma.non-gpl-symbol", log(fs(REFUSED), CLASH.replace("rpcrdma", "nvme")))
silent(
    "rpcrdma.non-gpl-symbol",
    fs(REFUSED | {"platform.kernel_log": None}),
    "without a registered hook no route is certain",
)

# --- the rest ---------------------------------------------------------------------------------------------------------

REJECTED = "modprobe: ERROR: could not insert 'nvidia_fs': Key was rejected by service"
raised("secure-boot.unsigned", log(fs({"platform.secure_boot": True}), REJECTED), "Secure Boot")
raised(
    "secure-boot.unsigned",
    log(
        fs(NOT_LOADED | {"platform.secure_boot": None, "modules.nvidia_fs": Module(loaded=False)}),
        "Loading of module with unavailable key is rejected",
    ),
    "Secure Boot",
)
near_miss("secure-boot.unsigned", log(FS, REJECTED), "Secure Boot is off")
near_miss("secure-boot.unsigned", log(fs({"platform.secure_boot": True}), "vboxdrv: Key was rejected by service"))
silent("secure-boot.unsigned", fs({"platform.secure_boot": True, "platform.kernel_log": None}), NOTHING_HANGS)


def matrix(gpu0: str | None, gpu1: str | None, *, nic: str = "mlx5_0") -> dict[str, object]:
    """nvidia-smi's matrix of the two GPUs and the NIC, all of which hang below one switch: PIX."""
    rows = {"GPU0": {"GPU1": "PIX", "NIC0": gpu0}, "GPU1": {"GPU0": "PIX", "NIC0": gpu1}}
    return {"smi_topo": {"devices": ("GPU0", "GPU1", "NIC0"), "matrix": rows, "nic_legend": {"NIC0": nic}}}


raised("topo.disagrees", fs(matrix("SYS", "PIX")), "GPU 0 x mlx5_0", severity="warning")
raised("topo.disagrees", fs(matrix("NODE", "NODE")), "GPU 0 x mlx5_0, GPU 1 x mlx5_0", severity="warning")
raised("topo.disagrees", fs(matrix("PIX", "PXB")), "GPU 1 x mlx5_0", severity="info")
near_miss("topo.disagrees", fs(matrix("PIX", "PIX")), "they agree")
near_miss("topo.disagrees", fs(matrix(None, "PIX")), "a cell that nobody could read")
near_miss("topo.disagrees", fs(matrix("SYS", "SYS", nic="mlx5_7")), "a NIC that the node does not have")
near_miss("topo.disagrees", fs(matrix("SYS", "SYS") | {"gpus": FS.gpus[:1]}), "a matrix of other GPUs")
silent(
    "topo.disagrees",
    fs(matrix("SYS", "SYS") | {"pci.devices": ()}),
    "without the tree there is nothing to hold it against",
)


def pasted(count: int, *, name: str = "NVIDIA H100 80GB HBM3", **report: object) -> dict[str, object]:
    """Outputs put together; gdscheck's has `count` GPUs, lspci's the node's two H100."""
    rows = tuple({"index": index, "name": name} for index in range(count))
    return {"source.kind": "assembled", "gds.gdscheck": {"gpus": rows, "truncated": False} | report}


EIGHT = {"devices": tuple(f"GPU{index}" for index in range(8)), "matrix": {}, "nic_legend": {}}
raised("source.mixed-machines", fs(pasted(8)), "number of GPUs", severity="warning")
raised("source.mixed-machines", fs(pasted(2) | {"smi_topo": EIGHT}), "number of GPUs")
raised("source.mixed-machines", fs(pasted(2, name="Quadro P400")), "GPU model")
raised("source.mixed-machines", fs(pasted(2, platform_info={"kernel": "4.18.0-1"})), "kernel")
near_miss("source.mixed-machines", fs(pasted(2)), "the same two")
near_miss(
    "source.mixed-machines", fs(pasted(8) | {"source.kind": "live"}), "one machine, where a tool sees a part of it"
)
silent("source.mixed-machines", fs(pasted(1, truncated=True)), "a report cut off does not tell how many there are")
silent("source.mixed-machines", fs(pasted(2, name="GPU of tomorrow")), "a model that no table knows")
silent("source.mixed-machines", fs(pasted(8) | {"pci.devices": ()}), "one list alone")
raised("version.mismatch", fs({"nvidia_fs.version": "2.25.7"}), "nvidia_fs", severity="warning")
raised("version.mismatch", fs({"nvidia_fs.version": "3.0.1"}), "nvidia_fs", severity="error", blocks=("nvidia-fs",))
near_miss("version.mismatch", fs({"nvidia_fs.version": "2.26"}), "the file version has two numbers only")
silent("version.mismatch", fs({"nvidia_fs.version": None}), "a hook that is registered was taken by some process")
