"""Network adapters of captured machines against ip and rdma, and of machines written down here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl.collect import nics
from gdsctl.collect.reader import Reader
from gdsctl.data.nic_vendors import vendor
from gdsctl.model.pci import PciDevice
from gdsctl.source.opening import open_source

Machine = Callable[..., Reader]
CX7 = PciDevice(address="0000:18:00.0", class_="020700", vendor_id="15b3")
SECOND = PciDevice(address="0000:18:00.1", class_="020000", vendor_id="15b3")
ROUTE = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


@pytest.mark.shared
@pytest.mark.parametrize("name", ["rdma-on", "rdma-612", "switches-on"])
def test_interfaces_as_ip_and_rdma_list_them(shared: Path, name: str) -> None:
    folder = shared / "field/vm" / name
    found = nics.collect(Reader(open_source(str(folder / "root.tar.gz"))), ())
    links = {link["ifname"]: link for link in json.loads((folder / "oracle/ip-addr.json").read_text())}
    on_pci = {nic.netdevs[0]: nic for nic in found if nic.address}
    assert set(on_pci) == set(links) - {"lo"}
    for netdev, nic in on_pci.items():
        assert nic.state == links[netdev]["operstate"].lower()
        assert nic.rate_gbps == (1.0 if nic.state == "up" else None)  # e1000e says 1000, EINVAL when down
        assert (nic.link_layer, nic.vendor) == ("Ethernet", "Intel")
    soft = {nic.rdma_device: nic for nic in found if nic.rdma_device}
    rdma = json.loads(text) if (text := (folder / "oracle/rdma-link.json").read_text().strip()) else []
    assert {(d, n.netdevs, n.state) for d, n in soft.items()} == {
        (link["ifname"], (link["netdev"],), link["state"]) for link in rdma
    }
    assert all(nic.address is None and nic.rate_gbps == 1.0 for nic in soft.values())


@pytest.mark.shared
def test_mlx4_of_the_hwloc_tree(shared: Path) -> None:
    """Read by eye: mlx4_0 and ib0 hang on 82:00.0; bridges, VLANs and the virtual scif0 on no function."""
    tree = shared / "field/trees/hwloc-32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2"
    found = {nic.address: nic for nic in nics.collect(Reader(open_source(str(tree))), ())}
    assert (found["0000:82:00.0"].rdma_device, found["0000:82:00.0"].netdevs) == ("mlx4_0", ("ib0",))
    assert found["0000:02:00.3"].netdevs == ("eth1",)
    assert all("br0" not in nic.netdevs for nic in found.values())


def adapter(link: Any, address: str, netdev: str, **values: str) -> dict[str, Any]:
    place = f"/sys/devices/pci0000:17/0000:17:01.0/{address}/net/{netdev}"
    files: dict[str, Any] = {f"/sys/class/net/{netdev}": link(f"../../..{place}")}
    values = {"operstate": "up\n", "speed": "200000\n", "type": "1\n"} | values
    return files | {f"{place}/{name}": value for name, value in values.items()}


def rdma(link: Any, address: str, device: str, *ports: tuple[str, str, str]) -> dict[str, Any]:
    place = f"/sys/devices/pci0000:17/0000:17:01.0/{address}/infiniband/{device}"
    files: dict[str, Any] = {f"/sys/class/infiniband/{device}": link(f"../../..{place}")}
    for number, (state, rate, layer) in enumerate(ports, 1):
        files |= {
            f"{place}/ports/{number}/state": state,
            f"{place}/ports/{number}/rate": rate,
            f"{place}/ports/{number}/link_layer": layer,
        }
    return files


def test_infiniband_port(machine: Machine, link: Any) -> None:
    files = adapter(link, "0000:18:00.0", "ibs1", type="32\n", speed="400000\n")
    files |= rdma(link, "0000:18:00.0", "mlx5_0", ("4: ACTIVE\n", "400 Gb/sec (4X NDR)\n", "InfiniBand\n"))
    (nic,) = nics.collect(machine(files), (CX7,))
    assert (nic.address, nic.netdevs, nic.rdma_device, nic.link_layer) == (
        "0000:18:00.0",
        ("ibs1",),
        "mlx5_0",
        "InfiniBand",
    )
    assert (nic.rate_gbps, nic.state, nic.vendor) == (400.0, "ACTIVE", "Mellanox")


def test_port_that_is_up_speaks_for_a_function_with_two(machine: Machine, link: Any) -> None:
    files = rdma(
        link,
        "0000:18:00.0",
        "mlx4_0",
        ("1: DOWN\n", "40 Gb/sec (4X QDR)\n", "InfiniBand\n"),
        ("4: ACTIVE\n", "10 Gb/sec (1X QDR)\n", "Ethernet\n"),
    )
    (nic,) = nics.collect(machine(files), (CX7,))
    assert (nic.state, nic.rate_gbps, nic.link_layer) == ("ACTIVE", 10.0, "Ethernet")


def test_down_has_no_rate_and_says_so(machine: Machine, link: Any) -> None:
    files = rdma(link, "0000:18:00.0", "mlx5_0", ("1: DOWN\n", "10 Gb/sec (4X SDR)\n", "Ethernet\n"))
    files |= adapter(link, "0000:18:00.0", "ens1", operstate="down\n", speed="-1\n")
    reader = machine(files)
    (nic,) = nics.collect(reader, (CX7,))
    assert (nic.state, nic.rate_gbps) == ("DOWN", None)
    assert [(gap.field, gap.key) for gap in reader.gaps if gap.field == "rate_gbps"] == [("rate_gbps", "0000:18:00.0")]


def test_bond_gives_both_functions_its_address_and_rdma_device(machine: Machine, link: Any) -> None:
    files = adapter(link, "0000:18:00.0", "ens1f0") | adapter(link, "0000:18:00.1", "ens1f1")
    files |= rdma(link, "0000:18:00.0", "mlx5_bond_0", ("4: ACTIVE\n", "200 Gb/sec (2X NDR)\n", "Ethernet\n"))
    files["/sys/class/net/bond0"] = link("../../devices/virtual/net/bond0")
    files["/sys/devices/virtual/net/bond0/bonding/slaves"] = "ens1f0 ens1f1\n"
    files["/sys/class/net/bonding_masters"] = "bond0\n"
    files["/sys/class/net/bond0.7"] = link("../../devices/virtual/net/bond0.7")
    files["/sys/devices/virtual/net/bond0.7/lower_bond0"] = link("../bond0")
    addresses = [
        {"ifname": "bond0", "addr_info": [{"family": "inet", "local": "192.0.2.7", "prefixlen": 24}]},
        {"ifname": "bond0.7", "addr_info": [{"family": "inet", "local": "198.51.100.7", "prefixlen": 24}]},
    ]
    found = nics.collect(machine(files, outputs={"ip-addr": json.dumps(addresses)}), (CX7, SECOND))
    assert [nic.netdevs for nic in found] == [("ens1f0",), ("ens1f1",)]
    for nic in found:
        assert (nic.bond, nic.rdma_device, nic.ipv4) == ("bond0", "mlx5_bond_0", ("192.0.2.7", "198.51.100.7"))


def test_addresses_from_the_routing_trie(machine: Machine, link: Any) -> None:
    """192.0.2.7 is on ens1's network alone; 198.51.100.5 fits ens1 and ens2, so it is nobody's for certain."""
    files = adapter(link, "0000:18:00.0", "ens1") | adapter(link, "0000:18:00.1", "ens2")
    files["/proc/net/fib_trie"] = (
        "Local:\n     |-- 192.0.2.7\n        /32 host LOCAL\n     |-- 198.51.100.5\n        /32 host LOCAL\n"
    )
    files["/proc/net/route"] = (
        ROUTE
        + "ens1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        + "ens1\t006433C6\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        + "ens2\t006433C6\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    reader = machine(files)
    found = nics.collect(reader, ())
    assert [nic.ipv4 for nic in found] == [("192.0.2.7",), ()]
    assert [gap.key for gap in reader.gaps if gap.field == "ipv4"] == ["0000:18:00.1"]


def test_function_without_driver_is_still_a_peer(machine: Machine) -> None:
    (nic,) = nics.collect(machine({"/sys/bus/pci": dict}), (CX7,))
    assert (nic.address, nic.netdevs, nic.rdma_device, nic.state) == ("0000:18:00.0", (), None, None)


def test_vendor_names() -> None:
    assert (vendor("15b3"), vendor("abcd"), vendor(None)) == ("Mellanox", "abcd", None)


def test_ibdev2netdev_completes_what_sysfs_does_not_pair(machine: Machine) -> None:
    printed = {"ibdev2netdev": "mlx5_0 port 1 ==> ibs1 (Up)\nmlx5_1 port 1 ==> ens2 (Down)\n"}
    alone = nics.collect(machine({"sys/class/net": dict}, outputs=printed), ())
    assert [(nic.rdma_device, nic.netdevs, nic.state, nic.address) for nic in alone] == [
        ("mlx5_0", ("ibs1",), "Up", None),
        ("mlx5_1", ("ens2",), "Down", None),
    ]
    assert nics.collect(machine({"sys/class/net": dict}, outputs={"ibdev2netdev": "command not found"}), ()) == ()
