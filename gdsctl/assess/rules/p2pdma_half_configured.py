from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.limits import numbers
from gdsctl.model.judgement import Evidence, Remedy


def check(view: View) -> Iterator[Verdict]:
    if not view.p2pdma_storages or view.gpuless:
        return
    wanted = view.p2pdma_wanted
    if wanted is None:
        yield Cannot(
            subject="cufile.json",
            fact="whether cufile.json switches P2PDMA on is not known",
            settle_with="cat /etc/cufile.json",
            scope=Scope(mounts=frozenset(storage.mount.target for storage in view.p2pdma_storages)),
        )
    elif wanted:
        yield from _keys_lacking(view)
    else:
        yield from told(view, "p2pdma.half-configured")
        yield from _only_the_driver(view)


def _keys_lacking(view: View) -> Iterator[Verdict]:
    for storage in view.p2pdma_storages:
        row = storage.direct
        if row is None or (view.version and numbers(view.version)[:2] < (1, 16)):
            continue  # before 1.16 one key is all
        if p2pdma.kernel_too_old(view, row):
            continue  # p2pdma.filesystem-unsupported tells what no key would change
        lacking = [key for key in row.p2pdma_keys if view.config.flag(key.strip("/").replace("/", ".")) is not True]
        if lacking:
            target = storage.mount.target
            names = ", ".join(key.strip("/").replace("/", ".") for key in lacking)
            scope = Scope(mounts=frozenset({target}))
            if view.version is None:
                yield Cannot(
                    subject=target,
                    fact=f"which GDS release this is; from 1.16 on {target} also needs {names}",
                    settle_with=view.settle("gds", "version", "gdscheck -v"),
                    scope=scope,
                )
            yield Fail(
                subject=target,
                message=f"cufile.json switches P2PDMA on, but {names} is not true, so {target} stays out"
                + (" from GDS 1.16 on" if view.version is None else ""),
                blocks=() if view.version is None else None,
                evidence=tuple(
                    Evidence(fact=key, value="not true", source=view.config.origin_of(key) or "cufile.json")
                    for key in lacking
                ),
                remedy=_in_the_file(f"Set {names} to true in cufile.json"),
                scope=scope,
            )


def _only_the_driver(view: View) -> Iterator[Verdict]:
    """The registry keys stand, so somebody meant P2PDMA, but cufile.json does not ask for it."""
    dwords = {
        **(view.node.nvidia_driver.modprobe_registry_dwords or {}),
        **(view.node.nvidia_driver.registry_dwords or {}),
    }
    value = dwords.get("RMForceStaticBar1")
    if value in ("1", "0x1"):
        yield Fail(
            subject="cufile.json",
            message="the driver is set up for P2PDMA, but cufile.json does not switch it on",
            evidence=seen("RMForceStaticBar1", value, "driver registry")
            + seen("/properties/use_pci_p2pdma", "false", "cufile.json"),
            remedy=_in_the_file("Switch it on in cufile.json, or take the registry keys out"),
            blocks=(),
            severity="warning",
        )


def _in_the_file(what: str) -> Remedy:
    return Remedy(
        text=f"{what}; processes that use cuFile see the file when they start anew.",
        commands=("gdsctl plan --mode p2pdma --emit cufile.json",),
    )


RULE = Rule(
    id="p2pdma.half-configured",
    severity="error",
    otherwise={
        "warning": "where no storage of a node is known to lose its path by it",
    },
    problem="some of what P2PDMA needs is set, and some is not",
    why="P2PDMA needs all of: open driver, registry keys, kernel option, nvme_core multipath=N for multipath drives, "
    "properties.use_pci_p2pdma, and from GDS 1.16 the key of the target in the top-level section block. With any one "
    "missing cuFile falls back in silence, or fails with 801 or 5008.",
    look_at=(
        "cat /etc/cufile.json",
        "grep RegistryDwords /proc/driver/nvidia/params",
        "cat /sys/module/nvme_core/parameters/multipath",
    ),
    remedy=Remedy(
        text="Write all keys together: gdsctl plan makes the file and the modprobe line.",
        commands=("gdsctl plan --mode p2pdma --emit all --output-dir gds-plan",),
        needs_reboot=True,
        risk="with RMForceStaticBar1=1 a GPU whose BAR1 is smaller than its memory does not start",
    ),
    not_to_conclude="Do not switch it on for NFS or Storage Scale: they have no P2PDMA route.",
    source="GDS Troubleshooting Guide, 'P2PDMA'; GDS 1.16 Release Notes, block.*.use_pci_p2pdma",
    blocks=("p2pdma", "c2c"),
    after=("driver.proprietary", "driver.registry-key-missing", "kernel.no-p2pdma", "nvme.native-multipath"),
    check=check,
)
