from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View, gpu_key
from gdsctl.data.host_bridges import RdmaChipset, rdma_chipset
from gdsctl.model.devices import Gpu, Nic
from gdsctl.model.judgement import Remedy

_OVERRIDE = "GrdmaPciTopoCheckOverride"
_ALLOWED = "1"


def check(view: View) -> Iterator[Verdict]:
    """The driver asks itself this of dma-buf only, and of no GPU on NVLink-C2C, nor in a guest."""
    if view.node.platform.virtualization not in (None, "none"):
        return
    if (view.node.nvidia_driver.params or {}).get(_OVERRIDE) == _ALLOWED:
        return
    refused = {
        (gpu_key(gpu), storage.mount.target): chipset
        for storage in view.storages
        if storage.takes_user_rdma
        for gpu in view.gpus
        if not gpu.c2c and (chipset := _refusing(view, gpu, view.nics(storage.mount)))
    }
    if not refused:
        return
    scope = Scope(pairs=frozenset(refused))
    chipset = next(iter(refused.values()))
    peer_type = view.config.get("properties.rdma_peer_type")
    if not view.config.known:
        yield Cannot(
            subject=chipset.name,
            fact=f"whether cufile.json chooses dma-buf, which the driver refuses on {chipset.name} without a common switch, is not known",
            settle_with="cat /etc/cufile.json",
            scope=scope,
        )
    elif peer_type == "dmabuf":
        yield Fail(
            subject=chipset.name,
            message=f"on {chipset.name} the driver gives GPU memory to a NIC by dma-buf only below a common switch, and there is none",
            evidence=seen("root port or host bridge", chipset.name, "/sys/bus/pci/devices/*/{vendor,device}")
            + seen("rdma_peer_type", peer_type, "cufile.json"),
            scope=scope,
        )


def _refusing(view: View, gpu: Gpu, nics: tuple[Nic, ...]) -> RdmaChipset | None:
    """The chipset, where no NIC of the mount shares a bridge with the GPU."""
    addresses = [nic.address for nic in nics if nic.address and view.device(nic.address)]
    if not addresses or gpu.address is None or view.device(gpu.address) is None:
        return None
    if any(view.topology.path(gpu.address, address).common for address in addresses):
        return None
    for end in (gpu.address, *addresses):
        bus = view.topology.root_bus(end)
        ports = (view.device(view.topology.root_port(end) or ""), view.topology.first_on_bus(bus) if bus else None)
        for port in ports:
            chipset = rdma_chipset(port.vendor_id, port.device_id) if port else None
            if chipset is not None:
                return chipset
    return None


RULE = Rule(
    id="rdma.no-common-switch",
    severity="error",
    problem="the driver refuses dma-buf between GPU and NIC on this chipset",
    why="NVIDIA's driver takes some root complexes as unable to carry peer-to-peer traffic. There it attaches a NIC to GPU "
    "memory by dma-buf only if both hang below one bridge.",
    look_at=("lspci -tv", "grep GrdmaPciTopoCheckOverride /proc/driver/nvidia/params", "dmesg | grep 'dma-buf attach'"),
    remedy=Remedy(
        text="Use a NIC below the GPU's switch; or set properties.rdma_peer_type to peer_mem with nvidia_peermem. The driver's "
        f"own override, NVreg_{_OVERRIDE}=1, lets bytes through a root complex that may lose them.",
        needs_reboot=False,
        risk="the override is for platforms known to work",
    ),
    not_to_conclude="GPUs on NVLink-C2C are not asked this, nor are guests; nvidia-fs does not use dma-buf.",
    source="open-gpu-kernel-modules kernel-open/nvidia/nv-pci.c, nv_grdma_pci_topology_supported(); nv-dmabuf.c, nv_dma_buf_attach()",
    blocks=("rdma",),
    check=check,
)
