"""Small trees drawn by hand."""

from __future__ import annotations

from gdsctl.model.pci import PciDevice
from gdsctl.parse.pci_config import VirtualFunctions
from gdsctl.parse.pci_tree import place


def bridge(address: str, secondary: int | None, subordinate: int | None = None, class_: str = "060400") -> PciDevice:
    return PciDevice(address=address, class_=class_, secondary_bus=secondary, subordinate_bus=subordinate or secondary)


def disk(address: str) -> PciDevice:
    return PciDevice(address=address, class_="010802")


def placed(*devices: PciDevice) -> dict[str, PciDevice]:
    return {device.address: device for device in place(devices)[0]}


def test_domains_do_not_mix() -> None:
    at = placed(bridge("0000:00:01.0", 1), disk("0000:01:00.0"), disk("0001:01:00.0"), disk("10000:01:00.0"))
    assert at["0000:01:00.0"].parent == "0000:00:01.0"
    assert at["0001:01:00.0"].parent is None
    assert list(at)[-1] == "10000:01:00.0"


def test_a_bus_that_no_bridge_claims_is_a_root_bus_where_a_host_bridge_stands_on_it() -> None:
    host = PciDevice(address="0000:80:00.0", class_="060000")
    at = placed(host, disk("0000:80:01.0"), disk("0004:05:00.0"), disk("0004:06:00.0"), disk("0005:00:00.0"))
    assert at["0000:80:01.0"].root_bus == "0000:80"
    assert at["0005:00:00.0"].root_bus == "0005:00"
    # Somebody listed the two endpoints only: what is above them, the same bridge or two, nobody knows.
    assert (at["0004:05:00.0"].root_bus, at["0004:06:00.0"].root_bus) == (None, None)


def test_two_bridges_to_one_bus_leave_the_parent_unknown() -> None:
    devices, notes = place([bridge("0000:00:01.0", 1), bridge("0000:00:02.0", 1), disk("0000:01:00.0")])
    assert devices[-1].parent is None
    assert "0000:01" in notes[0]


def test_a_bridge_that_leads_nowhere_is_no_parent_of_its_own_bus() -> None:
    at = placed(bridge("0000:00:01.0", 0), disk("0000:00:02.0"))
    assert at["0000:00:02.0"].parent is None
    assert at["0000:00:02.0"].root_bus == "0000:00"


def test_a_missing_downstream_port_leaves_the_parent_unknown_but_not_the_root_bus() -> None:
    # Upstream port 01:00.0 leads to buses 2-4; of its downstream ports 02:00.0 (bus 3) and 02:01.0 (bus 4) one is lost.
    at = placed(
        bridge("0000:00:01.0", 1, 4), bridge("0000:01:00.0", 2, 4), bridge("0000:02:00.0", 3), disk("0000:04:00.0")
    )
    assert (at["0000:04:00.0"].parent, at["0000:04:00.0"].root_bus) == (None, "0000:00")
    assert (at["0000:01:00.0"].kind, at["0000:02:00.0"].kind) == ("upstream_port", "downstream_port")


def test_subtractive_decode_is_a_conventional_bridge() -> None:
    at = placed(bridge("0000:00:1e.0", 1, class_="060401"))
    assert at["0000:00:1e.0"].kind == "pci_bridge"


def test_a_known_kind_is_kept_and_not_marked_as_inferred() -> None:
    known = PciDevice(address="0000:00:01.0", class_="060400", secondary_bus=1, subordinate_bus=1, kind="pci_bridge")
    (device,), _ = place([known])
    assert (device.kind, device.kind_inferred) == ("pci_bridge", False)


def test_absurd_virtual_function_counts_end() -> None:
    devices = [disk(f"0000:00:{slot:02x}.0") for slot in range(32)]
    numbers = {device.address: VirtualFunctions(count=0xFFFF, offset=1, stride=0xFFFF) for device in devices}
    assert len(place(devices, numbers)[0]) == 32
