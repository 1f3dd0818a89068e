"""What the IOMMU does to PCI functions, from the strongest evidence to the weakest.

1. `/sys/kernel/iommu_groups/*/type` of each function's own group (Linux, Documentation/ABI/testing/
   sysfs-kernel-iommu_groups); a group alone does not mean translation.
2. `/sys/class/iommu`: units that a driver runs.
3. The command line. An empty one does not mean off: build options decide then.
4. Where none of these was captured, gdscheck's report: it looks whether the GPUs have an IOMMU, and cannot tell
   passthrough from translation.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from gdsctl.collect.reader import Reader
from gdsctl.errors import InputError
from gdsctl.model.pci import PciDevice
from gdsctl.model.software import Iommu, IommuGroup, Platform
from gdsctl.parse import kernel_cmdline, late
from gdsctl.source.base import Missing

if TYPE_CHECKING:
    from gdsctl.parse.gdscheck import Gdscheck

_GROUPS = "/sys/kernel/iommu_groups"
_UNITS = "/sys/class/iommu"
_SETTLE = "cat /sys/kernel/iommu_groups/*/type"

_TRANSLATED = frozenset({"DMA", "DMA-FQ"})
_MATTERING = ("0108", "02", "0300", "0302", "12")  # drives, networks, GPUs: whose DMA is at stake

State = Literal["off", "passthrough", "translated"]


def collect(reader: Reader, pci: tuple[PciDevice, ...], platform: Platform) -> Iommu:
    """The node's state is that of its GPUs, NICs and drives; where they differ, translated, and the evidence says so."""
    names = reader.source.names(_GROUPS)
    units = reader.source.names(_UNITS)
    running = () if isinstance(units, Missing) else tuple(units)
    groups = () if isinstance(names, Missing) else _groups(reader, names, pci)
    evidence: list[str] = []
    state = _from_groups(groups, pci, evidence)
    if not isinstance(units, Missing) and units:
        evidence.append(f"{_UNITS}: {', '.join(units)}")
    told = _from_cmdline(platform, evidence)
    if state is None and not groups:
        really = reader.source.info.kind in ("live", "snapshot")  # a bare tree may have lost its empty folders
        none = names == () or (really and isinstance(names, Missing) and names.status == "absent")
        if none and (units == () or isinstance(units, Missing)):
            evidence.insert(0, f"{_GROUPS}: no groups")
            state = "off"
        elif told == "off" and (isinstance(units, Missing) or not units):
            state = "off"
    elif state is None and told == "passthrough":
        state = "passthrough"
    if state is None and all(isinstance(seen, Missing) and seen.status == "not_captured" for seen in (names, units)):
        state = _from_gdscheck(reader, evidence) if told is None else None
    if state is None:
        why = names if isinstance(names, Missing) else Missing(status="absent", detail="no group tells its type")
        reader.gap("iommu", "state", why, detail=_GROUPS, settle_with=_SETTLE)
        return Iommu(state="unknown", evidence=tuple(evidence), groups=groups, units=running)
    return Iommu(state=state, evidence=tuple(evidence), groups=groups, units=running)


def _from_gdscheck(reader: Reader, evidence: list[str]) -> Literal["off"] | None:
    """`IOMMU: disabled` means off; the other word, `Pass-through or enabled`, leaves open which."""
    report: Gdscheck | Missing = reader.printed("gdscheck", late("gdscheck"))
    if isinstance(report, Missing):
        return None
    words = [report.platform_info.iommu] if report.platform_info.iommu else [gpu.iommu for gpu in report.gpus]
    told = dict.fromkeys(word for word in words if word)
    evidence += [f"gdscheck: IOMMU: {word}" for word in told]
    return "off" if {word.lower() for word in told} == {"disabled"} else None


def _groups(reader: Reader, names: tuple[str, ...], pci: tuple[PciDevice, ...]) -> tuple[IommuGroup, ...]:
    members: dict[str, list[str]] = {}
    for device in pci:
        if device.iommu_group is not None:
            members.setdefault(device.iommu_group, []).append(device.address)
    groups = []
    for name in sorted(names, key=lambda name: (len(name), name)):
        devices = members.get(name)
        if devices is None:  # no PCI function, or one whose link was not captured
            listed = reader.source.names(f"{_GROUPS}/{name}/devices")
            devices = [] if isinstance(listed, Missing) else list(listed)
        groups.append(IommuGroup(id=name, type=reader.value(f"{_GROUPS}/{name}/type") or None, devices=tuple(devices)))
    return tuple(groups)


def _from_groups(groups: tuple[IommuGroup, ...], pci: tuple[PciDevice, ...], evidence: list[str]) -> State | None:
    classes = {device.address: device.class_ or "" for device in pci}
    mattering = [g for g in groups if any(classes.get(device, "").startswith(_MATTERING) for device in g.devices)]
    counted = Counter(group.type for group in (mattering or groups) if group.type)
    if not counted:
        return None
    shown = ", ".join(f"{kind} {count}" for kind, count in counted.most_common())
    whose = "groups of GPUs, NICs and drives" if mattering else "groups"
    evidence.append(f"{_GROUPS}/*/type, {whose}: {shown}")
    if not _TRANSLATED.isdisjoint(counted):
        return "translated"
    return "passthrough" if "identity" in counted else None


def _from_cmdline(platform: Platform, evidence: list[str]) -> State | None:
    """What the parameters ask for.

    Each driver listens to its own switch, and `iommu=` is of x86 (Linux, admin-guide/kernel-parameters).
    """
    if platform.cmdline is None:
        return None
    try:
        iommu = kernel_cmdline.parse(platform.cmdline).iommu
    except InputError:
        return None
    words = {
        "intel_iommu": iommu.intel_iommu,
        "amd_iommu": iommu.amd_iommu,
        "iommu": iommu.iommu,
        "iommu.passthrough": iommu.passthrough,
        "iommu.strict": iommu.strict,
    }
    shown = " ".join(f"{name}={value}" for name, value in words.items() if value is not None)
    evidence.append(f"/proc/cmdline: {shown or 'no IOMMU parameter, which leaves it to the build'}")
    x86 = platform.arch in (None, "x86_64", "i686")
    vendor = platform.cpu_vendor if platform.virtualization == "none" else None  # QEMU puts Intel's beside any CPU
    switches = [iommu.iommu]
    switches += [iommu.intel_iommu] if vendor in (None, "GenuineIntel") else []
    switches += [iommu.amd_iommu] if vendor in (None, "AuthenticAMD", "HygonGenuine") else []
    if x86 and "off" in switches:
        return "off"
    if (x86 and iommu.iommu == "pt") or iommu.passthrough in ("1", "y", "on"):
        return "passthrough"
    return None
