from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import Storage, View
from gdsctl.data import cufile_keys
from gdsctl.data.filesystems import Capability, Target
from gdsctl.data.limits import numbers
from gdsctl.model.judgement import Remedy

_FIRST = (1, 13)  # the first release that has P2PDMA at all: where it is switched on, nothing older is at work


def check(view: View) -> Iterator[Verdict]:
    if view.p2pdma_wanted is not True or view.gpuless:
        return
    for storage in view.storages:
        if storage.takes_p2pdma:
            yield from _too_old(view, storage)
        elif storage.filesystem is not None and storage.filesystem.cufile_section:
            key = f"fs.{storage.filesystem.cufile_section}.use_pci_p2pdma"
            if view.config.flag(key) is True:
                yield Fail(
                    subject=storage.mount.target,
                    message=f"{key} has no effect: {storage.filesystem.name} has no P2PDMA route",
                    evidence=seen(key, "true", view.config.origin_of(cufile_keys.pointer(key)) or "cufile.json"),
                    scope=Scope(mounts=frozenset({storage.mount.target})),
                    severity="warning",
                )


def _too_old(view: View, storage: Storage) -> Iterator[Verdict]:
    """Targets that need a newer kernel or library than the node has."""
    row, platform = storage.direct, view.node.platform
    if row is None:
        return
    target = storage.mount.target
    scope = Scope(mounts=frozenset({target}))
    needed = ".".join(map(str, row.p2pdma_kernel or ()))
    too_old = p2pdma.kernel_too_old(view, row)
    if too_old is None:
        yield Cannot(
            subject=target,
            fact=f"which kernel this is; P2PDMA to {_label(row)} needs Linux {needed}",
            settle_with="uname -r",
            scope=scope,
        )
    if too_old:
        yield Fail(
            subject=target,
            message=f"P2PDMA to {_label(row)} needs Linux {needed}; this is {platform.kernel}",
            evidence=seen("kernel", platform.kernel or "", "/proc/sys/kernel/osrelease"),
            scope=scope,
        )
    if row.p2pdma_since and numbers(row.p2pdma_since) > _FIRST and view.version is None:
        yield Cannot(
            subject=target,
            fact=f"which GDS release this is; P2PDMA to {_label(row)} came with {row.p2pdma_since}",
            settle_with=view.settle("gds", "version", "gdscheck -v"),
            scope=scope,
        )
    if row.p2pdma_since and view.version and numbers(view.version) < numbers(row.p2pdma_since):
        yield Fail(
            subject=target,
            message=f"P2PDMA to {_label(row)} needs GDS {row.p2pdma_since}; this is {view.version}",
            evidence=seen("GDS", view.version, "libcufile"),
            scope=scope,
        )


def _label(row: Capability) -> str:
    return row.label if isinstance(row, Target) else row.name


RULE = Rule(
    id="p2pdma.filesystem-unsupported",
    severity="error",
    otherwise={"warning": "where a key asks for what has no P2PDMA route at all"},
    problem="the storage cannot be reached by P2PDMA",
    why="The kernel's peer-to-peer reaches drives on PCIe; arrays and fabrics only from certain kernels on, and network "
    "filesystems not at all.",
    look_at=("findmnt", "uname -r", "gdscheck -p"),
    remedy=Remedy(text="Use nvidia-fs for this mount, or a plain drive under ext4 or xfs."),
    source="GDS Troubleshooting Guide, 'P2PDMA'; Linux block layer, BLK_FEAT_PCI_P2PDMA",
    blocks=("p2pdma", "c2c"),
    check=check,
)
