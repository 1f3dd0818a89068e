from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.limits import below, limit, older
from gdsctl.model.judgement import Evidence, Remedy


def check(view: View) -> Iterator[Verdict]:
    """The minimum is the library's own: as gdscheck prints it, else that of its release. Before 1.5 none is known."""
    nvfs = view.node.nvidia_fs
    if nvfs.loaded is not True or not nvfs.version:
        return
    printed = (view.node.gds.gdscheck or {}).get("nvidia_fs_minimum")
    if printed:
        minimum, told = str(printed), seen("nvidia_fs minimum version", printed, "gdscheck")
    else:
        minimum, told = limit("nvidia_fs_minimum").value, _release(view)
    if not older(nvfs.version, minimum):
        return
    if not printed and view.version is None:
        yield Cannot(
            subject="nvidia_fs",
            fact=f"nvidia_fs {nvfs.version} is older than libcufile accepts since GDS "
            f"{limit('nvidia_fs_minimum_since').value} ({minimum}); which GDS this is is not known",
            settle_with=view.settle("gds", "version", "gdscheck -v"),
        )
    elif printed or not below(view.version or "", "nvidia_fs_minimum_since"):
        source = nvfs.sources.get("version", "/proc/driver/nvidia-fs/version")
        yield Fail(
            subject="nvidia_fs",
            message=f"nvidia_fs {nvfs.version} is older than libcufile accepts ({minimum})",
            evidence=seen("nvidia_fs version", nvfs.version, source) + told,
        )


def _release(view: View) -> tuple[Evidence, ...]:
    return seen("GDS release", view.version, "libcufile") if view.version else ()


RULE = Rule(
    id="nvidia-fs.version-too-old",
    severity="error",
    problem="nvidia_fs is older than the library accepts",
    why="libcufile refuses an nvidia_fs below its minimum with 5004 (driver version mismatch).",
    look_at=("cat /proc/driver/nvidia-fs/version", "gdscheck -p | head -3"),
    remedy=Remedy(
        text="Update nvidia_fs to the release that belongs to the CUDA toolkit, and load it.",
        commands=("modprobe -r nvidia_fs && modprobe nvidia_fs",),
        risk="unloading fails while a process uses cuFile",
    ),
    not_to_conclude="'libcufile version: 2.12' in gdscheck is the number of the interface, not of the package.",
    source=limit("nvidia_fs_minimum").source,
    blocks=("nvidia-fs",),
    check=check,
)
