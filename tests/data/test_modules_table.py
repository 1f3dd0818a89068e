"""The table of kernel modules agrees with the commands that gdsctl may run."""

from __future__ import annotations

from gdsctl.data.modules import modules
from gdsctl.source.commands import COMMANDS


def test_modinfo_commands_exist() -> None:
    asked = {row.modinfo for row in modules().values() if row.modinfo}
    assert asked == {name for name in COMMANDS if name.startswith("modinfo-")}


def test_names_are_the_kernels() -> None:
    assert all(name and "-" not in name for name in modules())


def test_what_nvidia_ships_is_never_built_in() -> None:
    assert not any(
        row.in_tree for name, row in modules().items() if name.startswith(("nvidia", "mlx_compat", "gdrdrv"))
    )
