"""GPUDirect Storage in user space: libcufile, gdscheck's report, cufile.json, the udev rule for md arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from gdsctl.collect import cufile_log, cufile_paths, gpfs
from gdsctl.collect.cufile_paths import standing
from gdsctl.collect.reader import Reader
from gdsctl.model.devices import Mount
from gdsctl.model.shell import quoted
from gdsctl.model.software import CufileConfig, Gds
from gdsctl.parse import late
from gdsctl.source.base import Missing

if TYPE_CHECKING:
    from gdsctl.parse.gdscheck import Gdscheck

CUFILE_JSON = "/etc/cufile.json"
ENV_PATH = "CUFILE_ENV_PATH_JSON"

_TARGETS = ("x86_64-linux", "sbsa-linux")
_SYSTEM_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
)
_TOOLKIT = re.compile(r"cuda(?:-(\d+)(?:\.(\d+))?)?")
_LIBRARY = re.compile(r"libcufile\.so\.(\d+\.\d+\.\d+)")
_RELEASE = re.compile(r"\d+\.\d+(?:\.\d+)?")

# An earlier folder's file hides the same name in a later one: udev(7).
_RULES = (
    "/etc/udev/rules.d",
    "/run/udev/rules.d",
    "/usr/local/lib/udev/rules.d",
    "/usr/lib/udev/rules.d",
    "/lib/udev/rules.d",
)
_MD_RULES = re.compile(r"\S*(?:md|raid)\S*\.rules")
_MD_IMPORT = re.compile(r'[^#]*IMPORT\{program\}=+\s*"[^"]*\bmdadm\s[^"]*--detail\b')
_LONGEST_RULE = 4096


def collect(reader: Reader, mounted: tuple[Mount, ...] = ()) -> Gds:
    """Libcufile as a process started without further settings would find it, and what it would read.

    A library inside a Python environment or a container image is not looked for, so that "not found" is a gap.
    """
    report: Gdscheck | Missing = reader.printed("gdscheck", late("gdscheck"))
    path = _library(reader)
    version = _version(reader, path, report)
    if path is None:
        reader.gap(
            "gds", "libcufile", "absent", detail="not in CUDA's or the system's folders", settle_with="ldconfig -p"
        )
    if version is None:
        reader.gap("gds", "version", "absent", detail="no libcufile found", settle_with="gdscheck -v")
    if isinstance(report, Missing):
        reader.gap("gds", "gdscheck", report, settle_with="/usr/local/cuda/gds/tools/gdscheck -p")
    config = _config(reader, report, mounted)
    return Gds(
        version=version,
        libcufile=path,
        gdscheck=None if isinstance(report, Missing) else msgspec.to_builtins(report),
        cufile_config=config,
        last_run=cufile_log.collect(reader, config),
        udev_rule_md=_udev_rule_md(reader),
        gpfs_verbs_ports=_verbs_ports(reader),
    )


def _library(reader: Reader) -> str | None:
    """The file behind libcufile: of /usr/local/cuda, else of the newest toolkit, else of the system's folders."""
    toolkits = reader.source.names("/usr/local")
    names = [] if isinstance(toolkits, Missing) else [name for name in toolkits if _TOOLKIT.fullmatch(name)]
    names.sort(key=_newest_first)
    folders = [f"/usr/local/{name}/targets/{target}/lib" for name in names for target in _TARGETS]
    folders += [f"/usr/local/{name}/lib64" for name in names]
    for folder in (*folders, *_SYSTEM_FOLDERS):
        files = reader.source.names(folder)
        if isinstance(files, Missing):
            continue
        versions = [name for name in files if _LIBRARY.fullmatch(name)]
        if versions:
            linked = reader.source.real(f"{folder}/libcufile.so.0")
            if not isinstance(linked, Missing) and _LIBRARY.fullmatch(linked.rpartition("/")[2]):
                return linked
            return f"{folder}/{max(versions, key=_numbers)}"
    return None


def _newest_first(name: str) -> tuple[bool, list[int]]:
    match = _TOOLKIT.fullmatch(name)
    parts = match.groups() if match else ()
    return name != "cuda", [-int(part or 0) for part in parts]


def _numbers(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", name)]


def _version(reader: Reader, path: str | None, report: Gdscheck | Missing) -> str | None:
    """Three numbers, as the library's file name has them; CUDA's version.json and gdscheck add a build number."""
    match = _LIBRARY.search(path) if path else None
    if match:
        return match[1]
    raw = reader.source.read("/usr/local/cuda/version.json")
    told = None if isinstance(raw, Missing) else _in_version_json(raw)
    if told is None and not isinstance(report, Missing):
        told = report.gds_release
    release = _RELEASE.match(told or "")
    return release[0] if release else None


def _in_version_json(raw: bytes) -> str | None:
    try:
        packages = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    package = packages.get("libcufile") if isinstance(packages, dict) else None
    version = package.get("version") if isinstance(package, dict) else None
    return version if isinstance(version, str) else None


def _config(reader: Reader, report: Gdscheck | Missing, mounted: tuple[Mount, ...]) -> CufileConfig:
    """The two files that libcufile merges, in its order. A file that is not there is passed over, as it does."""
    env = _environment(reader, report)
    files: list[str] = []
    texts: dict[str, str] = {}
    whole = True
    for path in (CUFILE_JSON, (env or {}).get(ENV_PATH)):
        if not path:
            continue
        text = reader.text(path) if path.startswith("/") else Missing(status="not_captured", detail="a relative path")
        if not isinstance(text, Missing):
            if path not in texts:
                files.append(path)
                texts[path] = text
        elif text.status != "absent":
            whole = False
            reader.gap("gds", "cufile_config/files", text, detail=path, settle_with=f"cat {path}")
    return CufileConfig(
        files=tuple(files) if whole else None,
        env=env or {},
        texts=texts,
        paths=standing(reader, texts.values(), [mount.target for mount in mounted]),
        static_routing=_static_routing(reader, texts.values()),
    )


def _static_routing(reader: Reader, texts: Iterable[str]) -> str | None:
    """Of the files, the later one counts."""
    on, path = None, None
    for text in texts:
        on_here, path_here = cufile_paths.static_routing(text)
        on, path = (on if on_here is None else on_here), (path_here or path)
    if on is not True or path is None:
        return None
    found = reader.text(path)
    if not isinstance(found, Missing):
        return found
    if found.status != "absent":
        reader.gap("gds", "cufile_config/static_routing", found, detail=path, settle_with=f"cat {quoted(path)}")
    return None


def _environment(reader: Reader, report: Gdscheck | Missing) -> dict[str, str] | None:
    """CUFILE_* where gdsctl ran, or failing that where gdscheck did."""
    host = reader.source.ask("host")
    told: Any = host.get("cufile_environment") if isinstance(host, dict) else None
    if isinstance(told, dict):
        return {str(name): str(value) for name, value in told.items()}
    if not isinstance(report, Missing):
        return {name: value for name, value in report.environment.items() if name.startswith("CUFILE_")}
    why = host if isinstance(host, Missing) else Missing(status="absent")
    reader.gap("gds", "cufile_config/env", why, settle_with="env | grep ^CUFILE_")
    return None


def _udev_rule_md(reader: Reader) -> bool | None:
    """Does a rule in force import `mdadm --detail`, which fills the MD_* properties that libcufile reads?"""
    in_force: dict[str, str] = {}
    why: Missing | None = None
    seen_any = False
    for folder in _RULES:
        names = reader.source.names(folder)
        if isinstance(names, Missing):
            why = names if names.status != "absent" else why
            continue
        seen_any = seen_any or not folder.startswith(("/etc", "/run"))
        for name in names:
            if _MD_RULES.fullmatch(name):
                in_force.setdefault(name, folder)
    for name, folder in in_force.items():
        text = reader.text(f"{folder}/{name}")
        if isinstance(text, Missing):
            why = text
        elif any(_MD_IMPORT.match(line) for line in text.splitlines() if len(line) <= _LONGEST_RULE):
            return True
    if seen_any and (why is None or why.status == "not_captured"):
        return False
    reader.gap(
        "gds",
        "udev_rule_md",
        why or Missing(status="absent", detail="no folder of udev rules"),
        settle_with="grep -rn 'mdadm --detail' /usr/lib/udev/rules.d /etc/udev/rules.d",
    )
    return None


def _verbs_ports(reader: Reader) -> tuple[str, ...] | None:
    """None without a gap: Storage Scale is not installed."""
    found = gpfs.verbs_ports(reader)
    if not isinstance(found, Missing):
        return found
    if found.status != "absent":
        reader.gap("gds", "gpfs_verbs_ports", found, detail=gpfs.PATH, settle_with="mmlsconfig verbsPorts")
    return None
