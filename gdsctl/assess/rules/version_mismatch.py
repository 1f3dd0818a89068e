from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.limits import numbers
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    loaded = numbers(view.node.nvidia_fs.version or "")
    module = view.node.modules.get("nvidia_fs")
    installed = numbers(module.version or "") if module else ()
    if loaded and loaded[0] != 2:
        yield Fail(
            subject="nvidia_fs",
            message=f"nvidia_fs {view.node.nvidia_fs.version} has another major version than libcufile speaks (2)",
            evidence=seen("nvidia_fs", view.node.nvidia_fs.version, "/proc/driver/nvidia-fs/version"),
            severity="error",
            blocks=("nvidia-fs",),
        )
    elif loaded and installed and loaded[: len(installed)] != installed[: len(loaded)]:
        yield Fail(
            subject="nvidia_fs",
            message=f"nvidia_fs {view.node.nvidia_fs.version} is loaded, but {module.version if module else ''} is installed",
            evidence=seen("loaded", view.node.nvidia_fs.version, "/proc/driver/nvidia-fs")
            + seen("installed", module.version if module else "", "modinfo nvidia_fs"),
        )


RULE = Rule(
    id="version.mismatch",
    severity="warning",
    otherwise={"error": "where the loaded module's major version is not libcufile's"},
    problem="loaded and installed versions differ",
    why="A module that was updated without a reload behaves as the old one; libcufile refuses another major version of "
    "nvidia_fs with 5004.",
    look_at=("cat /proc/driver/nvidia-fs/version", "modinfo -F version nvidia_fs"),
    remedy=Remedy(
        text="Reload the module when no process uses cuFile.",
        commands=("modprobe -r nvidia_fs && modprobe nvidia_fs",),
        risk="unloading fails while a process uses cuFile",
    ),
    not_to_conclude="The 2.12 that gdscheck prints as libcufile version is the number of the interface.",
    source="libcufile, error 5004 DRIVER_VERSION_MISMATCH, observed",
    check=check,
)
