"""Expected values: GDS configuration guide, cufile.h and libcufile itself (tests/oracle holds the table against it)."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gdsctl.data import cufile_keys

KEYS = cufile_keys.keys()


def test_releases_compare_as_numbers() -> None:
    assert cufile_keys.release("1.9") < cufile_keys.release("1.11.1.6") < cufile_keys.release("1.20")
    for bad in ("", "1", "1.x", "v1.2", "1.2.3.4.5", "1.20 "):
        with pytest.raises(ValueError, match="not a GDS release"):
            cufile_keys.release(bad)


def test_defaults_follow_the_release() -> None:
    direct = cufile_keys.key("properties.max_direct_io_size_kb")
    assert direct is not None
    assert [direct.default_in(v) for v in ("1.11", "1.18.1.6", "1.19", "1.20.0.107")] == [1024, 1024, 16384, 16384]
    threads = cufile_keys.key("execution.max_io_threads")
    assert threads is not None
    assert threads.range_in("1.15.1.6") == cufile_keys.Range(since="1.11", min=0, max=32)
    assert threads.range_in("1.16") == cufile_keys.Range(since="1.16", min=0, max=128)
    counts = cufile_keys.key("properties.posix_pool_slab_count")
    assert counts is not None
    assert counts.default_in("1.11.1.6") == (128, 64, 32)
    assert counts.default_in("1.14") == (128, 64, 64)


def test_known_in() -> None:
    nvtx = cufile_keys.key("profile.nvtx")
    assert nvtx is not None
    assert [nvtx.known_in(v) for v in ("1.15.1.6", "1.16", "1.20")] == [True, False, False]
    assert nvtx.default_in("1.16") is None
    panfs = cufile_keys.key("fs.panfs.mount_table")
    assert panfs is not None
    assert [panfs.known_in(v) for v in ("1.19.0.109", "1.19", "1.19.1.55", "1.20")] == [False, True, True, True]
    names = {row.key for row in cufile_keys.known("1.14.1.1")}
    assert "properties.use_pci_p2pdma" in names
    assert "block.nvme.use_pci_p2pdma" not in names


def test_rows_hold_together() -> None:
    rows = cufile_keys.keys()
    assert len({row.key for row in rows}) == len(rows)
    for row in rows:
        assert row.until is None or cufile_keys.release(row.since) < cufile_keys.release(row.until), row.key
        assert bool(row.values) == (row.unknown_value is not None), row.key
        assert bool(row.ranges) == (row.out_of_range is not None), row.key
        for default in row.defaults:
            assert cufile_keys.release(default.since) >= cufile_keys.release(row.since), row.key
        for bounds in row.ranges:
            assert bounds.min is None or bounds.max is None or bounds.min < bounds.max, row.key
    names = {row.key for row in rows}
    for label in cufile_keys.labels():
        assert label.label not in names
        assert label.key is None or label.key in names
    for dead in cufile_keys.dead_keys():
        assert dead.key not in names
        assert dead.instead is None or dead.instead in names or dead.instead == "denylist.*"
    for variable in cufile_keys.environment():
        assert variable.key is None or variable.key in names, variable.name
    variables = {variable.name for variable in cufile_keys.environment()}
    assert {row.env for row in rows if row.env} <= variables


def test_defaults_lie_within_their_ranges() -> None:
    checked = 0
    for row in KEYS:
        for release in cufile_keys.releases():
            value, bounds = row.default_in(release.gds), row.range_in(release.gds)
            if value is None or bounds is None or isinstance(value, tuple):
                continue
            checked += 1
            assert bounds.min is None or bounds.min <= value, (row.key, release.gds)
            assert bounds.max is None or value <= bounds.max, (row.key, release.gds)
            assert not bounds.multiple_of or value % bounds.multiple_of == 0, (row.key, release.gds)
    assert checked > 100


def test_sections() -> None:
    assert cufile_keys.sections()["block"] == "1.16"
    assert cufile_keys.sections()["fs.panfs"] == "1.19.1"
    assert cufile_keys.sections()["properties.gpu_bounce_buffer_slab_config"] == "1.20"
    assert "fs.lustre.mount_table" not in cufile_keys.sections()


def test_labels_and_cuda() -> None:
    shown = {label.label: label.key for label in cufile_keys.labels()}
    assert shown["properties.use_compat_mode"] == "properties.allow_compat_mode"
    assert cufile_keys.gds_of_cuda("12.8") == "1.13"
    assert cufile_keys.gds_of_cuda("11.4") is None


@pytest.mark.shared
def test_table_names_every_key_that_was_found(shared: Path) -> None:
    with (shared / "reference/libcufile_data/keys.tsv").open() as file:
        found = {row["key"]: row for row in csv.DictReader(file, delimiter="\t")}
    rows = {row.key: row for row in KEYS}
    assert set(rows) - set(found) == {"properties.gpu_bounce_buffer_slab_config"}  # an object, listed by its members
    assert set(found) <= set(rows)
    for name, row in found.items():
        assert rows[name].known_in(row["since"]), name
        assert rows[name].known_in("1.20.0.107") == (not row["last"]), name
        if row["since"] != "1.11.1.6":
            assert not rows[name].known_in("1.11.1.6"), name
