"""The machine below everything: kernel, CPU, firmware, hypervisor, distribution."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from gdsctl.collect.reader import Reader, record_of
from gdsctl.data.limits import numbers
from gdsctl.errors import InputError
from gdsctl.model.software import Platform
from gdsctl.parse import kallsyms, kernel_log, late
from gdsctl.parse.platform_text import CpuInfo, parse_cpuinfo, parse_kernel_config, parse_os_release
from gdsctl.source.base import FILE_LIMIT, Missing, decode

if TYPE_CHECKING:
    from gdsctl.parse.gdscheck import Gdscheck

OPTIONS = (
    "CONFIG_BLK_DEV_INTEGRITY",
    "CONFIG_INTEL_IOMMU_DEFAULT_ON",
    "CONFIG_IOMMU_DEFAULT_DMA_LAZY",
    "CONFIG_IOMMU_DEFAULT_DMA_STRICT",
    "CONFIG_IOMMU_DEFAULT_PASSTHROUGH",
    "CONFIG_KALLSYMS_ALL",
    "CONFIG_MODULES",
    "CONFIG_NVME_MULTIPATH",
    "CONFIG_PCI_P2PDMA",
    "CONFIG_ZONE_DEVICE",
)
"""Options of the kernel that decide whether bytes can go direct; one not set counts as `n`."""

_RELEASE = re.compile(r"Linux version (\S+)")
_DMI = "/sys/class/dmi/id"
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

# Firmware strings by which hypervisors give themselves away; systemd, src/basic/virt.c, dmi_vendor_table.
_DMI_VENDORS = (
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "microsoft"),
    ("Google Compute Engine", "google"),
    ("Apple Virtualization", "apple"),
)
# Makers whose bare-metal machines bear the same names as their guests: there only the CPU's flag tells.
_ALSO_BARE_METAL = frozenset({"amazon", "google", "microsoft", "apple"})
_FLAGS = re.compile(r"^flags\s*:(.*)$", re.MULTILINE)
_LONG_MODE = re.compile(r"^flags\s*:.*\blm\b", re.MULTILINE)
_ARM64 = re.compile(r"^CPU architecture\s*: 8$", re.MULTILINE)
_CPU = re.compile(r"cpu\d+")


def kernel_release(reader: Reader) -> str | None:
    """What `uname -r` prints; where nothing of the kernel's own was captured, as gdscheck tells it."""
    release = reader.value("/proc/sys/kernel/osrelease")
    match = None if release else _RELEASE.match(reader.value("/proc/version") or "")
    release = release or (match[1] if match else None)
    if release is None:
        report: Gdscheck | Missing = reader.printed("gdscheck", late("gdscheck"))
        release = None if isinstance(report, Missing) else report.platform_info.kernel
    return release if release and "/" not in release else None


def collect(reader: Reader) -> Platform:
    """Facts about the platform; each one that could not be had is a gap of the section `platform`."""
    host = reader.source.ask("host")
    answers = {k: v for k, v in host.items() if isinstance(v, str) and v} if isinstance(host, dict) else {}
    release = kernel_release(reader)
    if release is None:
        _gap(reader, "kernel", reader.text("/proc/sys/kernel/osrelease"), "uname -r")
    parts = numbers(release or "")
    version = (parts[0], parts[1], parts[2] if len(parts) > 2 else 0) if len(parts) > 1 else None
    if version is None:
        _gap(reader, "kernel_version", Missing(status="absent", detail="the kernel's release is not known"), "uname -r")
    cmdline = reader.text("/proc/cmdline")
    if isinstance(cmdline, Missing):
        _gap(reader, "cmdline", cmdline, "cat /proc/cmdline")
    cpu = reader.parsed("/proc/cpuinfo", parse_cpuinfo)
    system = reader.parsed("/etc/os-release", parse_os_release)
    if isinstance(system, Missing):
        system = reader.parsed("/usr/lib/os-release", parse_os_release)
    if isinstance(system, Missing):
        _gap(reader, "os_id", system, "cat /etc/os-release")
        _gap(reader, "os_version", system, "cat /etc/os-release")
    arch = _arch(reader, answers, cpu)
    config = _kernel_config(reader, release)
    return Platform(
        hostname=answers.get("hostname") or reader.value("/proc/sys/kernel/hostname") or reader.value("/etc/hostname"),
        kernel=release,
        kernel_version=version,
        arch=arch,
        cmdline=None if isinstance(cmdline, Missing) else cmdline.strip(),
        **_cpu(reader, cpu),
        product=_product(reader),
        virtualization=_virtualization(reader, arch),
        secure_boot=_secure_boot(reader),
        os_id=None if isinstance(system, Missing) else system.id,
        os_version=None if isinstance(system, Missing) else system.version_id,
        kernel_config=config,
        symbols=_symbols(reader),
        module_list=_module_list(reader, config),
        kernel_log=_kernel_log(reader),
    )


def _gap(reader: Reader, field: str, why: object, settle_with: str) -> None:
    reason = why if isinstance(why, Missing) else Missing(status="error", detail="the text does not say")
    reader.gap("platform", field, reason, settle_with=settle_with)


def _arch(reader: Reader, answers: dict[str, str], cpu: CpuInfo | Missing) -> str | None:
    """As `uname -m`; /proc/cpuinfo names a vendor on x86 and an implementer on Arm."""
    machine = answers.get("machine") or reader.value("/proc/sys/kernel/arch")
    if machine:
        return machine
    text = reader.text("/proc/cpuinfo")
    if not isinstance(cpu, Missing) and cpu.vendor in ("GenuineIntel", "AuthenticAMD", "HygonGenuine"):
        return "x86_64" if _LONG_MODE.search(text if isinstance(text, str) else "") else "i686"
    if not isinstance(text, Missing) and _ARM64.search(text):
        return "aarch64"
    report: Gdscheck | Missing = reader.printed("gdscheck", late("gdscheck"))
    if not isinstance(report, Missing) and report.platform in ("x86_64", "aarch64"):
        return report.platform
    _gap(reader, "arch", text, "uname -m")
    return None


def _cpu(reader: Reader, cpu: CpuInfo | Missing) -> dict[str, Any]:
    packages = _packages(reader)
    facts: dict[str, Any] = {"cpu_vendor": None, "cpu_model": None, "cpu_family": None, "sockets": packages}
    if not isinstance(cpu, Missing):
        facts |= {"cpu_vendor": cpu.vendor, "cpu_model": cpu.model_name, "cpu_family": cpu.family}
        facts["sockets"] = packages or cpu.sockets
    for field, value in facts.items():
        if value is None:
            _gap(reader, field, cpu, "lscpu")
    return facts


def _packages(reader: Reader) -> int | None:
    """Sockets by the CPUs' physical_package_id, where every CPU that runs has one (-1: the firmware does not say)."""
    folder = "/sys/devices/system/cpu"
    names = reader.source.names(folder)
    cpus = [] if isinstance(names, Missing) else [name for name in names if _CPU.fullmatch(name)]
    ids = {reader.value(f"{folder}/{cpu}/topology/physical_package_id") for cpu in cpus} - {None}
    return None if not ids or "-1" in ids else len(ids)


def _product(reader: Reader) -> str | None:
    """`VENDOR PRODUCT` of the firmware's DMI tables; boards without them are named by the device tree."""
    vendor, name = (reader.text(f"{_DMI}/{file}") for file in ("sys_vendor", "product_name"))
    parts = [part.strip() for part in (vendor, name) if not isinstance(part, Missing) and part.strip()]
    model = reader.value("/proc/device-tree/model")
    if not parts and model:
        parts = [model.rstrip("\0")]
    if not parts:
        report: Gdscheck | Missing = reader.printed("gdscheck", late("gdscheck"))
        if not isinstance(report, Missing) and report.platform_info.product:
            return report.platform_info.product
        _gap(reader, "product", name, f"cat {_DMI}/product_name")
        return None
    return parts[-1] if len(parts) == 2 and parts[1].startswith(parts[0]) else " ".join(parts)


def _virtualization(reader: Reader, arch: str | None) -> str | None:
    """Which hypervisor, or `none`: an x86 CPU says whether there is one, other machines only by their firmware."""
    hypervisor = reader.value("/sys/hypervisor/type")
    if hypervisor:
        dom0 = "control_d" in (reader.value("/proc/xen/capabilities") or "")
        return "none" if hypervisor == "xen" and dom0 else hypervisor
    told = [reader.value(f"{_DMI}/{file}") for file in ("product_name", "sys_vendor", "board_vendor", "bios_vendor")]
    by_firmware = next((kind for text in told for sign, kind in _DMI_VENDORS if text and _named(sign, text)), None)
    if told[1] == "Microsoft Corporation" and told[0] == "Virtual Machine":
        by_firmware = "microsoft"  # Surface hardware bears the same vendor
    flags = _FLAGS.search(reader.value("/proc/cpuinfo") or "")
    if flags:
        inside = "hypervisor" in flags[1].split()
        if not inside and by_firmware not in _ALSO_BARE_METAL:  # guests with GPUs are often told to hide the flag
            return by_firmware or "none"
        return (by_firmware or "unknown") if inside else "none"
    if by_firmware:
        # EC2 and others put their name on bare-metal instances as well; on x86 the flag above has decided.
        return by_firmware if by_firmware != "amazon" or ".metal" not in (told[0] or "") else "none"
    if arch == "aarch64" and told[0]:
        return "none"
    _gap(reader, "virtualization", reader.text(f"{_DMI}/sys_vendor"), "systemd-detect-virt")
    return None


def _named(sign: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(sign)}", text) is not None


def _secure_boot(reader: Reader) -> bool | None:
    """Byte 4 of the EFI variable, after its attributes. A kernel not booted by EFI has no /sys/firmware/efi."""
    raw = reader.source.read(_SECURE_BOOT)
    if not isinstance(raw, Missing):
        if len(raw) == 5:
            return raw[4] == 1
        _gap(reader, "secure_boot", raw, "mokutil --sb-state")
        return None
    # Containers see an empty /sys/firmware, and an efivars folder is empty where the file system is not mounted.
    # ACPI or a device tree stand on every machine: a listing without either was picked, not copied.
    firmware = reader.source.names("/sys/firmware")
    variables = reader.source.names("/sys/firmware/efi/efivars")
    if not isinstance(firmware, Missing) and {"acpi", "devicetree"} & {*firmware} and "efi" not in firmware:
        return False
    if raw.status == "absent" and not isinstance(variables, Missing) and variables:
        return False
    _gap(reader, "secure_boot", raw, "mokutil --sb-state")
    return None


def _kernel_config(reader: Reader, release: str | None) -> dict[str, str] | None:
    places = [f"/boot/config-{release}", f"/lib/modules/{release}/build/.config", f"/lib/modules/{release}/config"]
    why: Missing = Missing(status="absent", detail="the kernel's release is not known")
    packed = reader.source.read("/proc/config.gz")
    texts = [_unpacked(packed) if not isinstance(packed, Missing) else packed]
    for text in [*texts, *(reader.text(path) for path in (places if release else ()))]:
        if isinstance(text, Missing):
            why = text if why.status in ("absent", "not_captured") else why
            continue
        try:
            options = record_of(parse_kernel_config, text)
        except InputError as error:
            why = Missing(status="error", detail=str(error))
            continue
        return {name: options.get(name, "n") for name in OPTIONS}
    _gap(reader, "kernel_config", why, "zgrep CONFIG_PCI_P2PDMA /proc/config.gz /boot/config-$(uname -r)")
    return None


def _module_list(reader: Reader, config: dict[str, str] | None) -> bool | None:
    """A tree without the file was picked, not copied, unless its kernel cannot have one; lsmod prints that file."""
    found = reader.source.read("/proc/modules")
    if not isinstance(found, Missing):
        return True
    if found.status == "not_captured" and not isinstance(reader.source.run("lsmod"), Missing):
        return True
    copied = isinstance(reader.source.ask("host"), dict)  # which gdsctl alone asks, of the running machine
    picked = not copied and (config or {}).get("CONFIG_MODULES") != "n"
    if found.status == "absent" and not picked:
        return False
    _gap(reader, "module_list", found, "head -n 1 /proc/modules")
    return None


def _unpacked(packed: bytes) -> str | Missing:
    """A gzip member, at most FILE_LIMIT bytes of it."""
    try:
        unpacked = zlib.decompressobj(wbits=31).decompress(packed, FILE_LIMIT)
    except zlib.error as error:
        return Missing(status="error", detail=f"/proc/config.gz: {error}")
    return decode(unpacked)


def _symbols(reader: Reader) -> dict[str, bool | None] | None:
    found = reader.parsed("/proc/kallsyms", kallsyms.parse)
    if isinstance(found, Missing):
        _gap(reader, "symbols", found, "grep pci_p2pdma_add_resource /proc/kallsyms")
        return None
    told: dict[str, bool | None] = msgspec.to_builtins(found.p2pdma)
    for name, value in told.items():
        if value is None:
            _gap(reader, f"symbols/{name}", Missing(status="error", detail="cut off"), f"grep {name} /proc/kallsyms")
    return told


def _kernel_log(reader: Reader) -> tuple[str, ...] | None:
    """The lines that explain a broken path, oldest first, each once."""
    log = reader.printed("dmesg", kernel_log.parse)
    if isinstance(log, Missing):
        denied = "ermission denied" in log.detail or "not permitted" in log.detail
        why = Missing(status="denied", detail=log.detail) if denied else log
        _gap(reader, "kernel_log", why, "sudo dmesg")
        return None
    return tuple(dict.fromkeys(event.text for event in log.events))
