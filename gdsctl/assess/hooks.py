"""What the rules on nvidia-fs's hooks have in common: one check, told by the module's name."""

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Scope, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Evidence


def unpatched(view: View, hook: str) -> Iterator[Verdict]:
    """Is the module behind data mounts without nvidia-fs's hooks? A mismatch v1/v2 is told by a rule of its own."""
    storages = [s for s in view.nvidia_fs_storages if s.hook == hook]
    if not storages or view.gpuless:
        return
    scope = Scope(mounts=frozenset(storage.mount.target for storage in storages))
    found = view.node.nvfs_hooks.get(hook)
    if found is None or found.state == "unknown":
        yield Cannot(
            subject=hook,
            fact=f"whether the module {hook} exports nvidia-fs's hooks is not known",
            settle_with=view.settle("nvfs_hooks", "state", f"grep nvfs_dma_ops /proc/kallsyms | grep {hook}", key=hook),
            scope=scope,
        )
    elif found.state == "stock":
        yield Fail(
            subject=hook,
            message=f"the module {hook} is the stock one, without nvidia-fs's hooks",
            evidence=(
                Evidence(
                    fact=f"symbol {found.wanted_symbol or '*_register_nvfs_dma_ops'}",
                    value="not exported",
                    source="/proc/kallsyms",
                ),
            ),
            scope=scope,
        )
    elif found.state == "not_loaded":
        yield Fail(
            subject=hook,
            message=f"the module {hook} is not loaded",
            evidence=(Evidence(fact=f"{hook} loaded", value="no", source="/proc/modules"),),
            scope=scope,
        )
