"""Patched, stock, mismatched, not loaded, unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl.collect import modules, nvfs_hooks, nvidia_fs
from gdsctl.collect.reader import Reader
from gdsctl.model.software import Module, NvidiaFs
from gdsctl.source.opening import open_source

Machine = Callable[..., Reader]

V1 = "0000000000000000 T nvme_v1_register_nvfs_dma_ops\t[nvme]\n0000000000000000 T nvme_v1_unregister_nvfs_dma_ops\t[nvme]\n"
V2 = V1.replace("_v1_", "_v2_")
STOCK = "0000000000000000 t nvme_probe\t[nvme]\n"
ITERATOR = "0000000000000000 T blk_rq_dma_map_iter_start\n"
LOADED = {"nvme": Module(loaded=True), "rpcrdma": Module(loaded=False)}
NVFS = NvidiaFs(loaded=True, version="2.28.4", registered=("wekafsio",))


def hook(reader: Reader, loaded: dict[str, Module] = LOADED, nvfs: NvidiaFs = NVFS, name: str = "nvme") -> Any:
    return nvfs_hooks.collect(reader, loaded, nvfs)[name]


def tree(kernel: Any, symbols: Any) -> Any:
    return {"/proc/sys/kernel/osrelease": kernel + "\n", "/proc/kallsyms": symbols}


def gaps(reader: Reader) -> Any:
    return {(gap.key, gap.field): gap.reason for gap in reader.gaps if gap.section == "nvfs_hooks"}


@pytest.mark.parametrize(
    "case",  # kernel, kallsyms, nvidia-fs -> state, exported, wanted, mismatched
    [
        ("6.8.0", V1, "2.28.4", "patched", "v1", "v1", False),
        ("6.17.0", V2 + ITERATOR, "2.28.4", "patched", "v2", "v2", False),
        ("6.17.0", V1 + ITERATOR, "2.28.4", "patched", "v1", "v2", True),
        ("6.8.0", V2, "2.28.4", "patched", "v2", "v1", True),
        ("6.12.0-1.el10", V2 + ITERATOR, "2.28.2", "patched", "v2", "v2", False),  # backported block layer
        ("6.17.0", V1 + V2, "2.28.4", "patched", "v2", "v2", False),
        ("6.17.0", V2, "2.27.3", "patched", "v2", "v1", True),  # an nvidia-fs from before v2
        ("6.8.0", STOCK, "2.28.4", "stock", None, "v1", False),
        ("6.17.0", V1, "2.28", "patched", "v1", None, False),  # 2.28 may be either side of 2.28.2
    ],
)
def test_nvme(machine: Machine, case: tuple[Any, ...]) -> None:
    kernel, symbols, version, state, symbol, wanted, mismatched = case
    found = hook(machine(tree(kernel, symbols)), nvfs=NvidiaFs(loaded=True, version=version, registered=("wekafsio",)))
    name = "nvme_{}_register_nvfs_dma_ops"
    assert found.state == state
    assert found.symbol == (name.format(symbol) if symbol else None)
    assert found.wanted_symbol == (name.format(wanted) if wanted else None)
    assert found.mismatched is mismatched
    assert found.registered is False


def test_not_loaded(machine: Machine) -> None:
    found = hook(machine(tree("6.8.0", STOCK)), name="rpcrdma")
    assert (found.state, found.wanted_symbol) == ("not_loaded", "rpcrdma_register_nvfs_dma_ops")


def test_built_in_nvme(machine: Machine) -> None:
    symbols = V1.replace("\t[nvme]", "")
    assert hook(machine(tree("6.8.0", symbols))).state == "patched"


def test_one_of_the_pair_is_not_enough(machine: Machine) -> None:
    reader = machine(tree("6.8.0", V1.splitlines()[0] + "\n"))
    assert hook(reader).state == "unknown"
    assert gaps(reader)["nvme", "state"] == "unsupported"


@pytest.mark.parametrize("refused", [True, False])
def test_without_kallsyms_nothing_is_claimed(machine: Machine, denied: OSError, refused: Any) -> None:
    reader = machine({"/proc/kallsyms": denied} if refused else {})
    found = hook(reader)
    assert (found.state, found.symbol, found.mismatched) == ("unknown", None, False)
    assert gaps(reader)["nvme", "state"] == ("denied" if refused else "absent")


def test_registration_proves_the_hooks(machine: Machine, denied: OSError) -> None:
    nvfs = NvidiaFs(loaded=True, version="2.28.4", registered=("nvme", "wekafsio"))
    found = hook(machine({"/proc/kallsyms": denied}), nvfs=nvfs)
    assert (found.state, found.registered) == ("patched", True)


def test_no_nvidia_fs_wants_nothing_of_nvme_without_a_gap(machine: Machine) -> None:
    reader = machine(tree("6.17.0", V2 + ITERATOR))
    found = hook(reader, nvfs=NvidiaFs(loaded=False))
    assert (found.state, found.wanted_symbol, found.registered) == ("patched", None, None)
    assert ("nvme", "wanted_symbol") not in gaps(reader)


def test_a_module_that_may_or_may_not_be_loaded(machine: Machine) -> None:
    reader = machine(tree("6.8.0", STOCK))
    assert hook(reader, loaded={"nvme": Module(loaded=None)}).state == "unknown"
    assert ("nvme", "state") in gaps(reader)


@pytest.mark.shared
def test_a_booted_machine(shared: Path) -> None:
    """nvidia-fs 2.28.4 on Debian's kernel 6.1, whose nvme is the stock one."""
    reader = Reader(open_source(str(shared / "field/vm/acs-on-nvidia-fs-2.28.4/root.tar.gz")))
    found = nvfs_hooks.collect(reader, modules.collect(reader), nvidia_fs.collect(reader))
    assert (found["nvme"].state, found["nvme"].registered) == ("stock", False)
    assert found["nvme"].wanted_symbol == "nvme_v1_register_nvfs_dma_ops"
    assert found["rpcrdma"].state == "not_loaded"
