# ruff: noqa: UP031 - fixed-width hexadecimal columns read best as one format
# mypy: disable-error-code="type-arg,no-untyped-def,no-untyped-call,no-any-return"
# A tree is a nested mapping of anything; types would say Any everywhere.
"""Write a pretend /sys (and the few /proc files) of a GPU node, for `oracle.py --root`.

    fakesys.py DIR          writes the sample below into DIR
    build(DIR, tree)        writes any other; a tree is a nested mapping of PCI functions:

    {"0000:15:01.0": bridge(numa=0, below={"0000:16:00.0": bridge(below={...})})}

Only what libcufile was seen to read is written.
"""

from __future__ import annotations

import sys
from pathlib import Path

CLASSES = {"bridge": "0x060400", "gpu": "0x030200", "nvme": "0x010802", "ib": "0x020700", "eth": "0x020000"}
IDS = {
    "bridge": ("0x1000", "0xc030"),
    "gpu": ("0x10de", "0x2330"),
    "nvme": ("0x144d", "0xa824"),
    "ib": ("0x15b3", "0x1021"),
    "eth": ("0x15b3", "0x1021"),
}
DRIVERS = {"bridge": "pcieport", "gpu": "nvidia", "nvme": "nvme", "ib": "mlx5_core", "eth": "mlx5_core"}


def bridge(below=None, **more):
    return {"kind": "bridge", "below": below or {}, **more}


def leaf(kind, **more):
    return {"kind": kind, **more}


def build(
    root: str | Path,
    tree: dict,
    *,
    iommu: bool = False,
    modules: str = "",
    node_count: int = 2,
    driver: str = "580.65.06",
) -> Path:
    root = Path(root)
    sys_ = root / "sys"
    counts = {"nvme": 0, "ib": 0, "eth": 0, "group": 0}

    def put(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.endswith("\n") else text + "\n")

    def link(path: Path, target: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        up = "/".join([".."] * len(path.parent.relative_to(sys_).parts))
        path.symlink_to(f"{up}/{target.relative_to(sys_)}")

    def child(parent: Path, subsystem: str, name: str, extra: str = "") -> Path:
        where = parent / subsystem / name
        put(where / "uevent", extra)
        link(where / "subsystem", sys_ / "class" / subsystem)
        link(where / "device", parent)
        link(sys_ / "class" / subsystem / name, where)
        return where

    def function(parent: Path, bdf: str, what: dict, numa: int) -> None:
        kind = what["kind"]
        numa = what.get("numa", numa)
        where = parent / bdf
        vendor, device = what.get("id", IDS[kind])
        code = CLASSES[kind]
        put(where / "vendor", vendor)
        put(where / "device", device)
        put(where / "class", code)
        put(where / "numa_node", str(numa))
        put(where / "local_cpulist", f"{numa * 32}-{numa * 32 + 31}" if numa >= 0 else "0-63")
        put(where / "current_link_speed", what.get("speed", "32.0 GT/s PCIe"))
        put(where / "current_link_width", str(what.get("width", 4 if kind == "nvme" else 16)))
        put(where / "max_link_speed", what.get("max_speed", "32.0 GT/s PCIe"))
        put(where / "max_link_width", str(what.get("max_width", 4 if kind == "nvme" else 16)))
        bar1 = what.get("bar1_mib", 131072) << 20
        lines = ["0x%016x 0x%016x 0x%016x" % (0xD0000000, 0xD0FFFFFF, 0x40200)]
        lines += [
            "0x%016x 0x%016x 0x%016x" % (0x200000000000, 0x200000000000 + bar1 - 1, 0x14220C)
            if kind == "gpu" and i == 2
            else "0x%016x 0x%016x 0x%016x" % (0, 0, 0)
            for i in range(1, 13)
        ]
        put(where / "resource", "\n".join(lines))
        put(
            where / "uevent",
            f"DRIVER={DRIVERS[kind]}\nPCI_CLASS={code[2:].lstrip('0').upper()}\n"
            f"PCI_ID={vendor[2:].upper()}:{device[2:].upper()}\nPCI_SUBSYS_ID={vendor[2:].upper()}:0001\n"
            f"PCI_SLOT_NAME={bdf}\nMODALIAS=pci:v0000{vendor[2:].upper()}d0000{device[2:].upper()}sv0sd0bc{code[2:4]}sc{code[4:6]}i{code[6:8]}\n",
        )
        if "config" in what:
            (where / "config").write_bytes(what["config"])
        link(where / "subsystem", sys_ / "bus/pci")
        link(where / "driver", sys_ / "bus/pci/drivers" / DRIVERS[kind])
        link(sys_ / "bus/pci/devices" / bdf, where)
        if iommu:
            group = sys_ / "kernel/iommu_groups" / str(counts["group"])
            counts["group"] += 1
            put(group / "type", "DMA")
            (group / "devices").mkdir(parents=True, exist_ok=True)
            link(group / "devices" / bdf, where)
            link(where / "iommu_group", group)
            (sys_ / "devices/virtual/iommu/dmar0").mkdir(parents=True, exist_ok=True)
            link(where / "iommu", sys_ / "devices/virtual/iommu/dmar0")
        if kind == "nvme":
            n = counts["nvme"]
            counts["nvme"] += 1
            control = child(where, "nvme", f"nvme{n}", f"MAJOR=240\nMINOR={n}\nDEVNAME=nvme{n}\nNVME_TRTYPE=pcie\n")
            put(control / "transport", "pcie")
            put(control / "numa_node", str(numa))
            disk = control / f"nvme{n}n1"
            put(disk / "uevent", f"MAJOR=259\nMINOR={n}\nDEVNAME=nvme{n}n1\nDEVTYPE=disk\n")
            put(disk / "dev", f"259:{n}")
            put(disk / "size", "7501476528")
            link(disk / "subsystem", sys_ / "class/block")
            link(disk / "device", control)
            link(sys_ / "class/block" / f"nvme{n}n1", disk)
            link(sys_ / "dev/block" / f"259:{n}", disk)
        if kind in ("ib", "eth"):
            n = counts["ib"] + counts["eth"]
            counts[kind] += 1
            hca = child(where, "infiniband", f"mlx5_{n}")
            put(hca / "node_guid", f"0000:0000:0000:{n:04x}")
            put(hca / "ports/1/state", "4: ACTIVE")
            put(hca / "ports/1/rate", "400 Gb/sec (4X NDR)")
            put(hca / "ports/1/link_layer", "InfiniBand" if kind == "ib" else "Ethernet")
            name = f"ib{n}" if kind == "ib" else f"eth{n}"
            net = child(where, "net", name, f"INTERFACE={name}\nIFINDEX={n + 2}\n")
            put(net / "operstate", "up")
            put(net / "speed", "400000")
        for below, inner in what.get("below", {}).items():
            function(where, below, inner, numa)

    for bdf, what in tree.items():
        host = sys_ / "devices" / f"pci{bdf[:7]}"
        put(host / "uevent", "")
        function(host, bdf, what, what.get("numa", 0))
    for name in ("pci", "nvme", "cpu", "node"):
        (sys_ / "bus" / name / "devices").mkdir(parents=True, exist_ok=True)
    for name in ("block", "nvme", "infiniband", "net"):
        (sys_ / "class" / name).mkdir(parents=True, exist_ok=True)
    for n in range(node_count):
        node = sys_ / "devices/system/node" / f"node{n}"
        put(node / "cpulist", f"{n * 32}-{n * 32 + 31}")
        put(
            node / "cpumap",
            ",".join(["ffffffff" if i == node_count - 1 - n else "00000000" for i in range(node_count)]),
        )
        put(node / "distance", " ".join("10" if i == n else "21" for i in range(node_count)))
        put(node / "meminfo", f"Node {n} MemTotal: 1056000000 kB\nNode {n} MemFree: 1000000000 kB")
        link(sys_ / "bus/node/devices" / f"node{n}", node)
        for cpu in range(n * 32, n * 32 + 32):
            put(sys_ / f"devices/system/cpu/cpu{cpu}/topology/physical_package_id", str(n))
            link(node / f"cpu{cpu}", sys_ / f"devices/system/cpu/cpu{cpu}")
    put(sys_ / "devices/system/node/online", f"0-{node_count - 1}")
    put(sys_ / "devices/system/node/possible", f"0-{node_count - 1}")
    put(sys_ / "devices/virtual/dmi/id/product_name", "ProLiant Sample")
    put(root / "proc/modules", modules or "nvidia 1 1 - Live 0x0\nnvme 1 1 - Live 0x0\nnvidia_peermem 1 0 - Live 0x0\n")
    put(
        root / "proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build",
    )
    return root


# Two sockets. On each: a switch with two GPUs, a NIC and two drives below it; one drive and one NIC at the root.
SAMPLE = {
    "0000:15:01.0": bridge(
        numa=0,
        below={
            "0000:16:00.0": bridge(
                below={
                    "0000:17:00.0": bridge(below={"0000:18:00.0": leaf("gpu")}),
                    "0000:17:01.0": bridge(below={"0000:19:00.0": leaf("gpu")}),
                    "0000:17:02.0": bridge(below={"0000:1a:00.0": leaf("ib")}),
                    "0000:17:03.0": bridge(below={"0000:1b:00.0": leaf("nvme")}),
                    "0000:17:04.0": bridge(below={"0000:1c:00.0": leaf("nvme")}),
                }
            )
        },
    ),
    "0000:40:01.0": bridge(numa=0, below={"0000:41:00.0": leaf("nvme")}),
    "0000:85:01.0": bridge(
        numa=1,
        below={
            "0000:86:00.0": bridge(
                below={
                    "0000:87:00.0": bridge(below={"0000:88:00.0": leaf("gpu")}),
                    "0000:87:01.0": bridge(below={"0000:89:00.0": leaf("gpu")}),
                    "0000:87:02.0": bridge(below={"0000:8a:00.0": leaf("ib")}),
                    "0000:87:03.0": bridge(below={"0000:8b:00.0": leaf("nvme", width=2)}),
                }
            )
        },
    ),
    "0000:c0:01.0": bridge(numa=1, below={"0000:c1:00.0": leaf("eth")}),
}

if __name__ == "__main__":
    print(build(sys.argv[1], SAMPLE))
