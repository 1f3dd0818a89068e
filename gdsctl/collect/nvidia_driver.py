"""The NVIDIA kernel driver: which one runs, with what options, and what modprobe would give it next time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gdsctl.collect import modprobe, modules
from gdsctl.collect.reader import Reader
from gdsctl.model.software import NvidiaDriver
from gdsctl.parse import kernel_cmdline, late, modprobe_d, nvidia_params, nvidia_proc, nvidia_smi_query
from gdsctl.parse.nvidia_params import parse_registry_dwords
from gdsctl.parse.platform_text import parse_modinfo
from gdsctl.source.base import Missing

if TYPE_CHECKING:
    from gdsctl.parse.gdscheck import Gdscheck

_VERSION = "/proc/driver/nvidia/version"
_PARAMS = "/proc/driver/nvidia/params"
_OPTION = "NVreg_RegistryDwords"

Kind = Literal["open", "proprietary", "unknown"]

# `Nvidia Driver Info Status: ...`; the second line stands beside the closed kernel modules. libcufile, observed.
_GDSCHECK_KINDS: tuple[tuple[str, Kind], ...] = (
    ("Nvidia Open Driver Installed", "open"),
    ("Supported only on (nvidia-fs version <= 2.17.4)", "proprietary"),
)


def collect(reader: Reader) -> NvidiaDriver:
    """Without a gap a None means that the driver is not loaded, so that there is nothing to know."""
    running = reader.parsed(_VERSION, nvidia_proc.parse_version)
    loaded = _loaded(reader, running)
    sources: dict[str, str] = {}
    version = _version(reader, running, sources)
    kind = _kind(reader, running, sources)
    params = reader.parsed(_PARAMS, nvidia_params.parse)
    if not isinstance(params, Missing):
        sources |= {"params": _PARAMS, "registry_dwords": _PARAMS}
    if loaded is not False:
        why = running if isinstance(running, Missing) else Missing(status="error", detail=f"{_VERSION} does not say")
        if version is None:
            reader.gap("nvidia_driver", "version", why, settle_with=f"cat {_VERSION}")
        if kind == "unknown":
            reader.gap("nvidia_driver", "kind", why, settle_with=f"cat {_VERSION}")
        if isinstance(params, Missing):
            for field in ("params", "registry_dwords"):
                reader.gap("nvidia_driver", field, params, settle_with=f"cat {_PARAMS}")
    dwords, files = _at_next_load(reader)
    return NvidiaDriver(
        version=version,
        kind=kind,
        params=None if isinstance(params, Missing) else params.params,
        registry_dwords=None if isinstance(params, Missing) else params.registry_dwords,
        modprobe_registry_dwords=dwords,
        modprobe_files=files,
        sources=sources,
    )


def _loaded(reader: Reader, running: object) -> bool | None:
    """False only where /proc or /sys was looked into and shows no driver."""
    if not isinstance(running, Missing):
        return True
    stands = reader.source.exists("/sys/module/nvidia")
    if stands is True:
        return True
    # Every kernel has these two folders: where neither stands nobody looked.
    looked = (stands is False and reader.source.exists("/sys/module") is True) or (
        running.status == "absent" and reader.source.exists("/proc/driver") is True
    )
    rows, why = modules.listed(reader)
    return False if looked or (why is None and "nvidia" not in rows) else None


def _version(reader: Reader, running: nvidia_proc.NvidiaVersion | Missing, sources: dict[str, str]) -> str | None:
    if not isinstance(running, Missing) and running.version:
        sources["version"] = _VERSION
        return running.version
    if version := reader.value("/sys/module/nvidia/version"):
        sources["version"] = "/sys/module/nvidia/version"
        return version
    nvml = reader.source.ask("nvml")
    if isinstance(nvml, dict) and isinstance(nvml.get("driver_version"), str):
        sources["version"] = "NVML"
        return str(nvml["driver_version"])
    query = reader.printed("nvidia-smi-query", nvidia_smi_query.parse)
    told = {gpu.driver_version for gpu in query.gpus} - {None} if not isinstance(query, Missing) else set()
    if len(told) == 1:
        sources["version"] = "nvidia-smi"
        return told.pop()
    return None


def _kind(reader: Reader, running: nvidia_proc.NvidiaVersion | Missing, sources: dict[str, str]) -> Kind:
    """The running driver's own word, then its taint (a module that is not GPL-compatible has P), then its file's licence.

    Where the first was not captured, gdscheck's word on it comes last.
    """
    if not isinstance(running, Missing) and running.kind != "unknown":
        sources["kind"] = _VERSION
        return running.kind
    taint = reader.value("/sys/module/nvidia/taint")
    if taint:
        sources["kind"] = "/sys/module/nvidia/taint"
        return "proprietary" if "P" in taint else "open"
    described = reader.printed("modinfo-nvidia", parse_modinfo)
    if not isinstance(described, Missing) and described.license:
        sources["kind"] = "modinfo nvidia"
        return "open" if "GPL" in described.license else "proprietary"
    if not isinstance(running, Missing) or running.status != "not_captured":
        return "unknown"
    report: Gdscheck | Missing = reader.printed("gdscheck", late("gdscheck"))
    told = "" if isinstance(report, Missing) else report.platform_info.nvidia_driver_status or ""
    kind: Kind = next((kind for words, kind in _GDSCHECK_KINDS if words in told), "unknown")
    if kind != "unknown":
        sources["kind"] = "gdscheck"
    return kind


def _at_next_load(reader: Reader) -> tuple[dict[str, str] | None, dict[str, str] | None]:
    """What modprobe would pass, as (registry keys, key -> its file); None where a file that may decide was not read.

    NVreg_RegistryDwords is one text, and the last line's replaces the others': a line that is lost stands among the
    files under its place, `FILE:LINE`.
    """
    texts, unread = modprobe.texts(reader)
    if unread is not None:
        folder, why = unread
        for field in ("modprobe_registry_dwords", "modprobe_files"):
            reader.gap("nvidia_driver", field, why, detail=folder, settle_with=f"grep -rs {_OPTION} {folder}")
        return None, None
    merged = modprobe_d.merge_options(texts)
    lines = [s for module, name, s in merged.overridden if (module, name) == ("nvidia", _OPTION)]
    lines += [s for name, s in merged.options.get("nvidia", {}).items() if name == _OPTION]
    given = [(s.value or "", s.path, f"{s.path}:{s.line}") for s in lines] + _on_cmdline(reader)
    if not given:
        return {}, {}
    dwords = parse_registry_dwords(given[-1][0])
    files = {place: path for _, path, place in given[:-1]}  # each whole line of theirs is lost
    return dwords, files | dict.fromkeys(dwords, given[-1][1])


def _on_cmdline(reader: Reader) -> list[tuple[str, str, str]]:
    """`nvidia.NVreg_RegistryDwords=...` as (text, file, place).

    modprobe adds it after its files' options, and the last one holds: modprobe(8).
    """
    cmdline = reader.parsed("/proc/cmdline", kernel_cmdline.parse)
    if isinstance(cmdline, Missing):
        return []
    values = [p.value for p in cmdline.parameters if p.name == f"nvidia.{_OPTION}" and p.value is not None]
    return [(value, "/proc/cmdline", f"/proc/cmdline:{number}") for number, value in enumerate(values, 1)]
