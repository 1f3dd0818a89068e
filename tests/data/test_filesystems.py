"""Rows against the facts they stand for, read in NVIDIA's guides; and what every row must hold."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from gdsctl.data.filesystems import filesystem, tables, target, target_name
from gdsctl.model.devices import Backing


def test_every_row_has_a_source_and_no_name_stands_twice() -> None:
    rows = tables()
    assert all(row.source for row in (*rows.filesystem, *rows.target))
    names = [name for row in rows.filesystem for name in row.fstypes]
    assert len(names) == len(set(names))
    assert len({row.name for row in rows.target}) == len(rows.target)


def test_backings_are_words_of_the_model() -> None:
    kinds = get_args(get_type_hints(Backing)["kind"])
    assert {row.backing for row in tables().filesystem} <= {"block", *kinds}


@pytest.mark.parametrize(
    ("fstype", "facts"),
    [
        ("ext4", (None, "yes", None, "none", "1.0")),
        ("nfs4", ("nfs", "yes", "rpcrdma", "kernel", "1.0")),
        ("lustre", ("lustre", "yes", "lnet", "kernel", "1.0")),
        ("fhgfs", ("beegfs", "yes", "beegfs", "kernel", "1.1")),
        ("wekafs", ("weka", "reads", None, "userspace", "1.0")),
        ("gpfs", ("gpfs", "reads", "mmfslinux", "userspace", "1.0")),
        ("overlay", (None, "no", None, "none", "1.16")),
        ("tmpfs", (None, "no", None, "none", "1.16")),
        ("zfs", (None, "no", None, "none", "1.17")),
        ("btrfs", (None, "no", None, "none", "1.17")),
        ("ext3", (None, "no", None, "none", None)),
    ],
)
def test_filesystem_facts(fstype: str, facts: tuple[str | None, ...]) -> None:
    row = filesystem(fstype)
    assert row is not None
    assert (row.cufile_section, row.nvidia_fs, row.nvfs_hook, row.rdma, row.compat_since) == facts


def test_only_ext4_needs_an_option() -> None:
    assert {row.name: row.required_option for row in tables().filesystem if row.required_option} == {
        "ext4": "data=ordered"
    }


def test_unknown_and_fuse() -> None:
    assert filesystem("nosuchfs") is None
    fuse = filesystem("fuse.something")
    assert fuse is not None
    assert fuse.name == "fuse"
    proc = filesystem("proc")
    assert proc is not None
    assert proc.pseudo


@pytest.mark.parametrize(
    ("kind", "transport", "level", "name"),
    [
        ("nvme", "pcie", None, "nvme"),
        ("nvme-of", "rdma", None, "nvmeof-rdma"),
        ("nvme-of", "tcp", None, "nvmeof-tcp"),
        ("md", None, "raid0", "md-raid0"),
        ("md", None, "raid10", "md-raid10"),
        ("md", None, "raid5", "md-other"),
        ("md", None, None, "md-other"),
        ("dm", None, None, "dm"),
        ("other", None, None, "other"),
    ],
)
def test_target_of_a_backing(kind: str, transport: str | None, level: str | None, name: str) -> None:
    assert target_name(kind, transport=transport, level=level) == name
    assert target(name).name == name


def test_p2pdma_floors() -> None:
    assert target("nvmeof-rdma").p2pdma_kernel == (7, 1)
    assert target("md-raid0").p2pdma_kernel == (7, 1)
    assert target("md-raid1").p2pdma_kernel == (7, 2)
    assert target("md-raid10").p2pdma_kernel == (7, 2)
    assert not target("dm").p2pdma
    assert not target("nvmeof-tcp").p2pdma
