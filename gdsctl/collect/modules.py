"""Loaded kernel modules, and whether those that decide about GDS are among them."""

from __future__ import annotations

import re

from gdsctl.collect.platform import kernel_release
from gdsctl.collect.reader import Reader
from gdsctl.data.modules import ModuleFacts
from gdsctl.data.modules import modules as table
from gdsctl.model.software import Module, NvidiaFs
from gdsctl.parse import late, proc_modules
from gdsctl.parse.platform_text import ModInfo, parse_modinfo
from gdsctl.parse.proc_modules import LoadedModule
from gdsctl.source.base import Missing

_HEADER = re.compile(r"Module\s+Size\s+Used by")


def collect(reader: Reader, nvidia_fs: NvidiaFs | None = None) -> dict[str, Module]:
    """All modules that the kernel lists, and every module of the table with `loaded` true, false or not known.

    nvidia_fs leaves more traces than its row: where the list was not captured, what they tell holds.
    """
    rows, why = listed(reader)
    built_in = _built_in(reader)
    found = {name: _module(reader, name, row) for name, row in rows.items()}
    for name, facts in table().items():
        traced = nvidia_fs.loaded if nvidia_fs and name == "nvidia_fs" and why is not None else None
        found[name] = _known(reader, facts, rows.get(name), why, built_in=name in built_in, traced=traced)
    return found


def listed(reader: Reader) -> tuple[dict[str, LoadedModule], Missing | None]:
    """The modules that the kernel lists, and why the list is not, or not all, there."""
    found = reader.parsed("/proc/modules", proc_modules.parse)
    part = ""
    # Pasted outputs know lsmod only. It reads the same file: where that was looked for in vain, lsmod adds nothing.
    if isinstance(found, Missing) and found.status == "not_captured":
        output = reader.source.run("lsmod")
        if not isinstance(output, Missing):
            found = reader.printed("lsmod", late("lsmod"))
            part = "" if _HEADER.search(output.stdout) else "lsmod without its header, perhaps not all of it"
    if isinstance(found, Missing):
        return {}, found
    part = "the list of modules is cut off" if found.truncated else part
    return found.modules, Missing(status="error", detail=part) if part else None


def _known(
    reader: Reader,
    facts: ModuleFacts,
    row: LoadedModule | None,
    why: Missing | None,
    *,
    built_in: bool,
    traced: bool | None,
) -> Module:
    """A module of the table; what is missing is written down as gaps, and what a table asks for is read."""
    name = facts.name
    loaded = True if row or built_in else traced if traced is not None else _loaded(reader, facts, why)
    module = _module(reader, name, row, loaded=loaded)
    parameters = _parameters(reader, facts) if loaded else None
    license_, version = _from_file(reader, facts, module) if facts.modinfo else (None, None)
    return Module(
        loaded=loaded,
        version=module.version or version,
        size=module.size,
        license=license_,
        used_by=module.used_by,
        parameters=parameters,
        taint=module.taint,
    )


def _loaded(reader: Reader, facts: ModuleFacts, why: Missing | None) -> bool | None:
    """For a module that is not in the list: built-in code with parameters or a version has its folder in /sys/module."""
    name = facts.name
    stands = reader.source.exists(f"/sys/module/{name}")
    if stands is True:
        return True
    if why is None and (stands is False or not facts.in_tree):
        return False
    # Every kernel has this folder: a tree without it was picked, not copied.
    looked = reader.source.exists("/sys/module") is True
    if why is not None and stands is False and looked and not facts.in_tree:
        return False  # every loadable module has its folder
    reason = why or stands
    if isinstance(reason, Missing):
        reader.gap("modules", "loaded", reason, key=name, settle_with="cat /proc/modules")
    else:  # a built-in module without parameters has no folder
        reader.gap("modules", "loaded", "absent", key=name, detail="no /proc/modules", settle_with="cat /proc/modules")
    return None


def _module(reader: Reader, name: str, row: LoadedModule | None, *, loaded: bool | None = True) -> Module:
    folder = f"/sys/module/{name}"
    return Module(
        loaded=loaded,
        version=reader.value(f"{folder}/version") if loaded else None,
        size=row.size if row else None,
        used_by=row.used_by or () if row else (),
        taint=(row.taint if row and row.taint is not None else reader.value(f"{folder}/taint")) if loaded else None,
    )


def _parameters(reader: Reader, facts: ModuleFacts) -> dict[str, str | None] | None:
    """Those that the table names and the module has; a refused one is None, with a gap."""
    read: dict[str, str | None] = {}
    for parameter in facts.parameters:
        text = reader.text(f"/sys/module/{facts.name}/parameters/{parameter}")
        if not isinstance(text, Missing):
            read[parameter] = text.strip()
        elif text.status != "absent":
            read[parameter] = None
            reader.gap(
                "modules",
                f"parameters/{parameter}",
                text,
                key=facts.name,
                settle_with=f"grep -r . /sys/module/{facts.name}/parameters",
            )
    return read or None


def _from_file(reader: Reader, facts: ModuleFacts, module: Module) -> tuple[str | None, str | None]:
    """(license, version) of the module's file; the loaded module's only where the file is the loaded one's."""
    name = facts.name
    described = reader.printed(str(facts.modinfo), parse_modinfo)
    if isinstance(described, Missing):
        if module.loaded is not False:
            reader.gap("modules", "license", described, key=name, settle_with=f"modinfo -F license {name}")
        return None, None
    running = reader.value(f"/sys/module/{name}/srcversion") if module.loaded else None
    if not _same(described, module, running):
        detail = "the module's file is not the one that is loaded"
        reader.gap("modules", "license", "unsupported", key=name, detail=detail, settle_with="reboot, then look again")
        return None, None
    return described.license, described.version


def _same(described: ModInfo, module: Module, running: str | None) -> bool:
    if running and described.srcversion:
        return running == described.srcversion
    return not (module.version and described.version) or module.version == described.version


def _built_in(reader: Reader) -> frozenset[str]:
    """Names in modules.builtin (`kernel/drivers/nvme/host/nvme-core.ko`), as the kernel writes them."""
    release = kernel_release(reader)
    text = reader.text(f"/lib/modules/{release}/modules.builtin") if release else Missing(status="absent")
    if isinstance(text, Missing):
        return frozenset()
    return frozenset(
        line.rpartition("/")[2].strip().removesuffix(".ko").replace("-", "_") for line in text.splitlines()
    )
