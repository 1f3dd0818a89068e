"""What --fix corrects, and what it leaves alone. Right values are read off libcufile's rules by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.assess.cufile_fix import fix, repaired
from gdsctl.assess.cufile_lint import PathKind, lint
from gdsctl.parse.cufile_json import parse
from tests.hang import no_hang

SLABS = "gpu_bounce_buffer_slab_config"

SWITCHED_ON = {"properties": {"use_pci_p2pdma": True}}

# wrong, right
SAFE: list[tuple[Any, Any]] = [
    ({"properties": {"use_compat_mode": False}}, {"properties": {"allow_compat_mode": False}}),
    (
        {"properties": {"max_batch_io_size": 64, "rdma_peer_affinity_policy": "FirstFit"}},
        {"properties": {"io_batchsize": 64, "rdma_load_balancing_policy": "FirstFit"}},
    ),
    (
        {"properties": {"use_compat_mode": False, "allow_compat_mode": True}},
        {"properties": {"allow_compat_mode": True}},
    ),
    (
        {**SWITCHED_ON, "fs": {"block": {"nvme": {"use_pci_p2pdma": True}}}},
        {**SWITCHED_ON, "block": {"nvme": {"use_pci_p2pdma": True}}},
    ),
    ({"allow_compat_mode": False}, {"properties": {"allow_compat_mode": False}}),
    ({"properties": {"max_io_threads": 8}}, {"execution": {"max_io_threads": 8}}),
    ({"properties": {"IO_BatchSize": 8}}, {"properties": {"io_batchsize": 8}}),
    ({"blacklist": {"drivers": ["nvme"]}}, {"denylist": {"drivers": ["nvme"]}}),
    (
        {"denylist": {"drivers": ["nvme"]}, "blacklist": {"drivers": ["sfxvdev", "nvme"], "mounts": ["/scratch"]}},
        {"denylist": {"drivers": ["nvme", "sfxvdev"], "mounts": ["/scratch"]}},
    ),
    ({"profile": {"nvtx": True}, "logging": {"level": "INFO"}}, {"logging": {"level": "INFO"}}),
    ({"properties": {"max_device_cache_size": 4096}}, {"properties": {"max_device_cache_size_kb": 4096}}),
    ({"properties": {"allow_compat_mode": "True"}}, {"properties": {"allow_compat_mode": True}}),
    ({"properties": {"use_poll_mode": 0}}, {"properties": {"use_poll_mode": False}}),
    ({"execution": {"max_io_threads": "8"}}, {"execution": {"max_io_threads": 8}}),
    (
        {"properties": {"rdma_dev_addr_list": "192.0.2.1, 192.0.2.2/24"}},
        {"properties": {"rdma_dev_addr_list": ["192.0.2.1", "192.0.2.2"]}},
    ),
    ({"properties": {"rdma_access_mask": 31}}, {"properties": {"rdma_access_mask": "0x1f"}}),
    (
        {"fs": {"nfs": {"mount_table": {"/tmp": ["192.0.2.1"]}}}},
        {"fs": {"nfs": {"mount_table": {"/tmp": {"rdma_dev_addr_list": ["192.0.2.1"]}}}}},
    ),
    ({"properties": {"max_direct_io_size_kb": 1100}}, {"properties": {"max_direct_io_size_kb": 1088}}),  # 17 x 64
    ({"properties": {"poll_mode_max_size_kb": 5}}, {"properties": {"poll_mode_max_size_kb": 4}}),
    (
        {"properties": {"max_direct_io_size_kb": 512}},
        {"properties": {"max_direct_io_size_kb": 512, "per_buffer_cache_size_kb": 512}},
    ),
    ({"logging": {"level": "info"}}, {"logging": {"level": "INFO"}}),
    (
        {"properties": {"rdma_dynamic_routing_order": ["gpu_mem_nvlinks", "SYS_MEM"]}},
        {"properties": {"rdma_dynamic_routing_order": ["GPU_MEM_NVLINKS", "SYS_MEM"]}},
    ),
    ({"properties": {"rdma_io_retry_count": 11}}, {"properties": {"rdma_io_retry_count": 10}}),
    (
        {"properties": {"posix_pool_slab_size_kb": [4, 1024]}},
        {"properties": {"posix_pool_slab_size_kb": [4, 1024], "posix_pool_slab_count": [128, 64]}},
    ),
    (
        {"properties": {"posix_pool_slab_size_kb": [4, 8], "posix_pool_slab_count": [1]}},
        {"properties": {"posix_pool_slab_size_kb": [4], "posix_pool_slab_count": [1]}},
    ),
    (
        {"properties": {SLABS: {"slab_size_kb": [8192, 1024], "slab_count": [1, 2]}}},
        {"properties": {SLABS: {"slab_size_kb": [1024, 8192], "slab_count": [2, 1]}}},
    ),
    # the guides' samples: no comma between two sections; a comma before a bracket; a # comment; a BOM
    (
        '{"properties": {"use_pci_p2pdma": true}\n "block": {"nvme": {"use_pci_p2pdma": true}}}',
        {"properties": {"use_pci_p2pdma": True}, "block": {"nvme": {"use_pci_p2pdma": True}}},
    ),
    (
        '{"properties": {"rdma_dynamic_routing_order": ["GPU_MEM_NVLINKS", "SYS_MEM", ], }}',
        {"properties": {"rdma_dynamic_routing_order": ["GPU_MEM_NVLINKS", "SYS_MEM"]}},
    ),
    ('\ufeff{ # mine\n "logging": {"level": "INFO"}}', {"logging": {"level": "INFO"}}),
    ('{"properties": {"use_poll_mode": True}}', {"properties": {"use_poll_mode": True}}),
    ('{"logging": {"level": "INFO", "level": "WARN"}}', {"logging": {"level": "WARN"}}),
]


@pytest.mark.parametrize(("wrong", "right"), SAFE)
def test_safe_corrections_are_clean(wrong: Any, right: Any) -> None:
    text = wrong if isinstance(wrong, str) else json.dumps(wrong)
    assert lint([("f", text)], version="1.20", env={})
    fixed = fix("f", text, version="1.20")
    assert fixed is not None
    assert json.loads(fixed.text) == right
    assert fixed.changes
    # P2PDMA beside compat mode and a denylist that acts now are told, not wrong.
    assert not [p for p in fixed.left if p.severity != "info" and p.id != "cufile.denylisted"]
    assert fix("f", fixed.text, version="1.20") is None


@pytest.mark.parametrize(
    "doubtful",
    [
        {"execution": {"use_pci_p2pdma": True}},  # a dozen keys end like this
        {"properties": {"io_batchsize": 257}},  # how many then?
        {"properties": {"rdma_peer_type": "peer_mem"}},  # one of two
        {"properties": {"max_direct_io_size_kb": 512, "per_buffer_cache_size_kb": 1024}},  # either
        {"properties": {"alow_compat_mode": True}},  # a guess, however good
        {"properties": {"posix_pool_slab_size_kb": [4, 8, 16, 32]}},  # how many of the fourth?
        {"logging": {"dir": "/no/such"}},
        '{"properties": {"io_batchsize": 1}',
        "no JSON at all",
    ],
)
def test_doubtful_ones_are_left(doubtful: Any) -> None:
    text = doubtful if isinstance(doubtful, str) else json.dumps(doubtful)
    assert lint([("f", text)], version="1.20", env={}, kind_of=lambda _: "absent")
    assert fix("f", text, version="1.20", kind_of=lambda _: "absent") is None


def test_a_rename_must_not_make_the_file_fatal() -> None:
    """Blacklist has no effect; as denylist a device that is not there stops every process."""
    text = json.dumps({"blacklist": {"devices": ["/dev/nvme9n1"]}})

    def kind(path: str) -> PathKind:
        return "absent"

    assert fix("f", text, version="1.20", kind_of=kind) is None
    assert fix("f", text, version="1.20", kind_of=lambda _: "other") is not None
    assert fix("f", json.dumps({"execution": {"io_batchsize": 999}}), version="1.20") is None


def test_comments_are_told_of() -> None:
    fixed = fix("f", '{"logging": {"level": "info"} /* mine */}', version="1.20")
    assert fixed is not None
    assert "comments left out" in fixed.changes


NAMES = (
    "properties fs nfs block logging level mount_table io_batchsize use_compat_mode blacklist drivers "
    f"max_direct_io_size_kb posix_pool_slab_count {SLABS} slab_count x/y~"
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["true", "4", "x", "info"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES.split()),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=40)
@given(JSON.filter(lambda value: isinstance(value, dict)))
def test_never_worse(document: Any) -> None:
    text = json.dumps(document)
    before = [p for p in lint([("f", text)], version="1.20", env={}) if p.fatal]
    fixed = fix("f", text, version="1.20")
    if fixed is not None:
        assert sum(p.fatal for p in fixed.left) <= len(before)
        assert parse(fixed.text).valid


@given(st.text(st.sampled_from('{}[],:"\\#/* \nTrue1'), max_size=60))
def test_repairs_end(text: str) -> None:
    again = repaired(text)[0]
    assert not parse(text).valid or parse(again).value == parse(text).value or "#" in text


def test_hostile_text_does_not_hang() -> None:
    for text in ("/*" * 200_000, '{"a": "' + '\\"' * 200_000, "[" * 200_000, "1 " * 200_000, '"#' * 200_000):
        with no_hang():
            fix("f", text, version="1.20")
