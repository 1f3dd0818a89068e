"""Expected values: what libcufile 1.11 and 1.20 made of the same two files and variables (see tests/oracle)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gdsctl.assess.cufile_merge import Merged, merge

ETC, ENV = "/etc/cufile.json", "/home/user/cufile.json"


def two(first: Any, second: Any, env: dict[str, str] | None = None, version: str | None = "1.20") -> Merged:
    return merge([(ETC, json.dumps(first)), (ENV, json.dumps(second))], env or {}, version)


def test_keys_of_the_second_file_win_one_by_one() -> None:
    merged = two(
        {"properties": {"io_batchsize": 64, "poll_mode_max_size_kb": 8}}, {"properties": {"poll_mode_max_size_kb": 16}}
    )
    assert merged.values == {"properties": {"io_batchsize": 64, "poll_mode_max_size_kb": 16}}
    assert merged.origin == {"/properties/io_batchsize": ETC, "/properties/poll_mode_max_size_kb": ENV}
    assert merged.fatal is None


@pytest.mark.parametrize("second", [{"properties": {"io_batchsize": None}}, {"properties": None}, [], None, {}])
def test_null_changes_nothing(second: Any) -> None:
    assert two({"properties": {"io_batchsize": 64}}, second).values == {"properties": {"io_batchsize": 64}}


def test_arrays_are_replaced_and_empty_ones_ignored() -> None:
    first = {"fs": {"nfs": {"rdma_dev_addr_list": ["10.0.0.1", "10.0.0.2"]}}}
    assert two(first, {"fs": {"nfs": {"rdma_dev_addr_list": []}}}).values == first
    replaced = two(first, {"fs": {"nfs": {"rdma_dev_addr_list": ["10.0.0.3"]}}})
    assert replaced.values == {"fs": {"nfs": {"rdma_dev_addr_list": ["10.0.0.3"]}}}


def mounts(**table: list[str]) -> Any:
    return {"fs": {"nfs": {"mount_table": {f"/{name}": {"rdma_dev_addr_list": ips} for name, ips in table.items()}}}}


def test_mount_tables_are_joined() -> None:
    merged = two(mounts(tmp=["10.0.0.1"]), mounts(proc=["10.0.0.2"]))
    assert merged.values == mounts(tmp=["10.0.0.1"], proc=["10.0.0.2"])
    assert merged.origin == {"/fs/nfs/mount_table/~1tmp": ETC, "/fs/nfs/mount_table/~1proc": ENV}
    assert two(mounts(tmp=["10.0.0.1"]), mounts(tmp=["10.0.0.2"])).values == mounts(tmp=["10.0.0.1", "10.0.0.2"])
    assert two(mounts(tmp=["10.0.0.1"]), mounts(tmp=[])).values == mounts(tmp=["10.0.0.1"])


def test_a_broken_file_leaves_nothing() -> None:
    merged = merge([(ETC, '{"properties": {"io_batchsize": 64,}}'), (ENV, "{}")], {}, "1.20")
    assert merged.values == {}
    assert merged.fatal is not None
    assert (merged.fatal.id, merged.fatal.path, merged.fatal.line, merged.fatal.fatal) == (
        "cufile.syntax",
        ETC,
        1,
        True,
    )


def test_numbers_are_converted() -> None:
    assert two({"properties": {"io_batchsize": 64.5}, "execution": {"max_io_threads": True}}, {}).values == {
        "properties": {"io_batchsize": 64},
        "execution": {"max_io_threads": 1},
    }


def test_keys_without_effect_are_left_out() -> None:
    document = {"block": {"nvme": {"use_pci_p2pdma": True}}, "profile": {"nvtx": True}, "blacklist": {"drivers": ["x"]}}
    assert two(document, {}, version="1.14.1.1").values == {"profile": {"nvtx": True}}
    assert two(document, {}, version="1.16").values == {"block": {"nvme": {"use_pci_p2pdma": True}}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("TRUE", True),
        ("tRuE", True),
        ("false", False),
        ("1", None),
        ("yes", None),
        (" true", None),
        ("", None),
    ],
)
def test_only_two_words_act(text: str, value: bool | None) -> None:
    merged = two({}, {}, {"CUFILE_FORCE_COMPAT_MODE": text})
    assert merged.values.get("properties", {}).get("force_compat_mode") is value


def test_environment_beats_files() -> None:
    merged = two({"properties": {"force_compat_mode": True}}, {}, {"CUFILE_FORCE_COMPAT_MODE": "False"})
    assert merged.values == {"properties": {"force_compat_mode": False}}
    assert merged.origin == {"/properties/force_compat_mode": "CUFILE_FORCE_COMPAT_MODE"}


@pytest.mark.parametrize(
    ("name", "text", "version", "values"),
    [
        ("CUFILE_ALLOW_COMPAT_MODE", "false", "1.16", {"properties": {"allow_compat_mode": False}}),
        ("CUFILE_ALLOW_COMPAT_MODE", "false", "1.17", {}),
        ("CUFILE_ALLOW_COMPAT_MODE", "false", None, {}),
        ("CUFILE_USE_PCIP2PDMA", "true", "1.11", {}),
        ("CUFILE_USE_PCIP2PDMA", "true", "1.13", {"properties": {"use_pci_p2pdma": True}}),
        ("CUFILE_STATS_LEVEL", "2", "1.16", {}),
        ("CUFILE_STATS_LEVEL", "2", "1.17", {"profile": {"cufile_stats": 2}}),
        ("CUFILE_STATS_LEVEL", "4", "1.17", {}),
        ("CUFILE_MAX_DEVICE_CACHE_SIZE", "65536", "1.14", {"properties": {"max_device_cache_size_kb": 65536}}),
        ("CUFILE_MAX_DEVICE_CACHE_SIZE", "65537", "1.14", {}),
        ("CUFILE_PER_BUFFER_CACHE_SIZE", "x", "1.20", {}),
        ("CUFILE_DMABUF_ENABLE", "TRUE", "1.20", {"properties": {"rdma_peer_type": "dmabuf"}}),
        ("CUFILE_LOGGING_LEVEL", "trace", "1.20", {}),
        ("CUFILE_LOGGING_LEVEL", "TRACE", "1.20", {"logging": {"level": "TRACE"}}),
    ],
)
def test_environment_by_release(name: str, text: str, version: str | None, values: dict[str, Any]) -> None:
    assert two({}, {}, {name: text}, version).values == values
