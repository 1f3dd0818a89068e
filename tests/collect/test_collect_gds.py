"""libcufile's place and version, cufile.json in the library's order, the udev rule for md arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gdsctl.collect import gds
from gdsctl.collect.reader import Reader

Machine = Callable[..., Reader]

REPORT = """ GDS release version: 1.16.0.49
 nvidia_fs version:  2.27 nvidia_fs minimum version: 2.12
 Platform: x86_64
 ============
 ENVIRONMENT:
 ============
 CUFILE_LOGGING_LEVEL : TRACE
"""
RULE = 'IMPORT{program}="/usr/sbin/mdadm --detail --export $devnode"\n'


def gaps(reader: Reader) -> Any:
    return {gap.field: gap.reason for gap in reader.gaps if gap.section == "gds"}


def lib(version: Any) -> Any:
    return f"targets/x86_64-linux/lib/libcufile.so.{version}"


@pytest.mark.parametrize(
    ("files", "path", "version"),
    [
        ([f"/usr/local/cuda-12.9/{lib('1.14.1')}"], f"/usr/local/cuda-12.9/{lib('1.14.1')}", "1.14.1"),
        (
            [f"/usr/local/cuda-12.9/{lib('1.14.1')}", f"/usr/local/cuda-12.10/{lib('1.15.0')}"],
            f"/usr/local/cuda-12.10/{lib('1.15.0')}",
            "1.15.0",
        ),
        (["/usr/lib/x86_64-linux-gnu/libcufile.so.1.11.1"], "/usr/lib/x86_64-linux-gnu/libcufile.so.1.11.1", "1.11.1"),
        (
            ["/usr/local/cuda-13.0/targets/sbsa-linux/lib/libcufile.so.1.15.1"],
            "/usr/local/cuda-13.0/targets/sbsa-linux/lib/libcufile.so.1.15.1",
            "1.15.1",
        ),
    ],
)
def test_library(machine: Machine, files: Any, path: Any, version: Any) -> None:
    found = gds.collect(machine(dict.fromkeys(files, b"")))
    assert (found.libcufile, found.version) == (path, version)


def test_the_link_that_the_loader_follows(machine: Machine, link: type[str]) -> None:
    folder = "/usr/local/cuda-12.8/targets/x86_64-linux/lib"
    files = {
        "/usr/local/cuda": link("cuda-12.8"),
        f"{folder}/libcufile.so.1.13.1": b"",
        f"{folder}/libcufile.so.1.14.0": b"",
        f"{folder}/libcufile.so.0": link("libcufile.so.1.13.1"),
    }
    found = gds.collect(machine(files))
    assert (found.libcufile, found.version) == (f"{folder}/libcufile.so.1.13.1", "1.13.1")


def test_version_json(machine: Machine) -> None:
    text = '{"cuda": {"version": "12.9.1"}, "libcufile": {"name": "cuFile", "version": "1.14.1.1"}}'
    assert gds.collect(machine({"/usr/local/cuda/version.json": text})).version == "1.14.1"


@pytest.mark.parametrize("text", ["[]", "{", '{"libcufile": 3}', '{"libcufile": {"version": "new"}}'])
def test_a_strange_version_json_tells_nothing(machine: Machine, text: Any) -> None:
    reader = machine({"/usr/local/cuda/version.json": text})
    assert gds.collect(reader).version is None
    assert "version" in gaps(reader)


def test_gdscheck(machine: Machine) -> None:
    found = gds.collect(machine({}, outputs={"gdscheck": REPORT}))
    assert found.version == "1.16.0"
    assert found.gdscheck is not None
    assert found.gdscheck["nvidia_fs_version"] == "2.27"
    assert found.cufile_config.env == {"CUFILE_LOGGING_LEVEL": "TRACE"}


def test_nothing_captured(machine: Machine) -> None:
    reader = machine({})
    found = gds.collect(reader)
    assert (found.version, found.libcufile, found.gdscheck, found.udev_rule_md, found.cufile_config.files) == (
        None,
    ) * 5
    assert set(gaps(reader)) == {
        "version", "libcufile", "gdscheck", "udev_rule_md", "cufile_config/files", "cufile_config/env",
        "gpfs_verbs_ports",
    }  # fmt: skip


def test_files_in_the_order_of_the_library(machine: Machine) -> None:
    reader = machine(
        {"/etc/cufile.json": '{"a": 1}', "/home/u/mine.json": '{"a": 2}'},
        answers={"host": {"cufile_environment": {"CUFILE_ENV_PATH_JSON": "/home/u/mine.json"}}},
    )
    found = gds.collect(reader).cufile_config
    assert found.files == ("/etc/cufile.json", "/home/u/mine.json")
    assert found.texts == {"/etc/cufile.json": '{"a": 1}', "/home/u/mine.json": '{"a": 2}'}
    assert found.env == {"CUFILE_ENV_PATH_JSON": "/home/u/mine.json"}
    assert (found.merged, found.problems) == (None, ())


def test_no_file_at_all_is_known(machine: Machine) -> None:
    env = {"CUFILE_ENV_PATH_JSON": "/etc/none.json"}
    reader = machine({"/etc/hostname": "n"}, answers={"host": {"cufile_environment": env}})
    assert gds.collect(reader).cufile_config.files == ()
    assert "cufile_config/files" not in gaps(reader)


def test_a_refused_layer_leaves_the_configuration_unknown(machine: Machine, denied: OSError) -> None:
    reader = machine(
        {"/etc/cufile.json": "{}", "/root/x.json": denied},
        answers={"host": {"cufile_environment": {"CUFILE_ENV_PATH_JSON": "/root/x.json"}}},
    )
    found = gds.collect(reader).cufile_config
    assert found.files is None
    assert found.texts == {"/etc/cufile.json": "{}"}
    assert gaps(reader)["cufile_config/files"] == "denied"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/usr/lib/udev/rules.d/63-md-raid-arrays.rules": RULE}, True),
        ({"/usr/lib/udev/rules.d/63-md-raid-arrays.rules": "# " + RULE}, False),
        ({"/usr/lib/udev/rules.d/60-block.rules": RULE}, False),
        (
            {
                "/usr/lib/udev/rules.d/63-md-raid-arrays.rules": RULE,
                "/etc/udev/rules.d/63-md-raid-arrays.rules": "# off\n",
            },
            False,
        ),
        (
            {
                "/usr/lib/udev/rules.d/63-md-raid-arrays.rules": "# none\n",
                "/etc/udev/rules.d/99-local-md.rules": 'SUBSYSTEM=="block", ' + RULE,
            },
            True,
        ),
        ({"/etc/udev/rules.d/70-x.rules": ""}, None),
    ],
)
def test_udev_rule(machine: Machine, files: Any, expected: Any) -> None:
    reader = machine(files)
    assert gds.collect(reader).udev_rule_md is expected
    assert ("udev_rule_md" in gaps(reader)) is (expected is None)


def test_a_refused_rule_is_a_gap(machine: Machine, denied: OSError) -> None:
    reader = machine({"/usr/lib/udev/rules.d/63-md-raid-arrays.rules": denied})
    assert gds.collect(reader).udev_rule_md is None
    assert gaps(reader)["udev_rule_md"] == "denied"


def test_a_hostile_rule_is_read_at_once(machine: Machine) -> None:
    text = 'IMPORT{program}="' + "mdadm " * 100_000
    assert gds.collect(machine({"/usr/lib/udev/rules.d/63-md.rules": text})).udev_rule_md is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clusterName c1\nverbsRdma enable\nverbsPorts mlx5_0/1 mlx5_1/1\n", ("mlx5_0/1", "mlx5_1/1")),
        ("[common]\nverbsPorts mlx5_0/1,mlx5_2\n", ("mlx5_0/1", "mlx5_2")),
        ("verbsRdma disable\n", ()),
        ("verbsPorts mlx5_0/1\n[gpunodes]\nverbsPorts mlx5_4/1\n", None),
    ],
)
def test_verbs_ports(machine: Machine, text: str, expected: Any) -> None:
    reader = machine({"/var/mmfs/gen/mmfs.cfg": text})
    assert gds.collect(reader).gpfs_verbs_ports == expected
    assert ("gpfs_verbs_ports" in gaps(reader)) is (expected is None)


def test_no_storage_scale_is_no_gap(machine: Machine) -> None:
    reader = machine({"/var/log/x": ""})
    assert gds.collect(reader).gpfs_verbs_ports is None
    assert "gpfs_verbs_ports" not in gaps(reader)
