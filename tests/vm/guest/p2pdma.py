#!/usr/bin/env python3
"""Run in the guest: what the kernel itself says of peer-to-peer DMA between NVMe drives.

    p2pdma.py OUT.json

Each drive with a published buffer is the provider, each other one the client, by an nvmet namespace with p2pmem: enabling
it makes nvmet ask pci_p2pdma_distance(provider, client, verbose), which fails where the kernel allows no way. OUT:
[{provider, client, allowed, said: [kernel messages]}]. Needs a kernel with CONFIG_PCI_P2PDMA.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

TARGET = Path("/sys/kernel/config/nvmet/subsystems/p2p")


def kernel_log() -> list[str]:
    return subprocess.run(["dmesg", "--notime"], capture_output=True, text=True, check=True).stdout.splitlines()


def ask(provider: str, client: str, disk: str) -> dict[str, object]:
    before = len(kernel_log())
    namespace = TARGET / "namespaces/1"
    (namespace / "device_path").write_text(f"/dev/{disk}")
    (namespace / "p2pmem").write_text(provider)
    try:
        (namespace / "enable").write_text("1")
        allowed = True
        (namespace / "enable").write_text("0")
    except OSError:
        allowed = False
    return {"provider": provider, "client": client, "allowed": allowed, "said": kernel_log()[before:]}


def main() -> None:
    subprocess.run(["modprobe", "nvmet"], check=True)
    if not TARGET.parent.is_dir():
        subprocess.run(["mount", "-t", "configfs", "configfs", "/sys/kernel/config"], check=True)
    TARGET.mkdir()
    (TARGET / "namespaces/1").mkdir()
    drives = {}
    for controller in sorted(Path("/sys/class/nvme").iterdir()):
        address = (controller / "device").resolve().name
        drives[address] = next(name for name in os.listdir(controller) if name.startswith("nvme") and "n" in name[4:])
    providers = [a for a in drives if Path(f"/sys/bus/pci/devices/{a}/p2pmem/size").exists()]
    answers = [ask(p, c, drives[c]) for p in providers for c in sorted(drives) if c != p]
    (TARGET / "namespaces/1").rmdir()
    TARGET.rmdir()
    Path(sys.argv[1]).write_text(json.dumps(answers, indent=1))


main()
