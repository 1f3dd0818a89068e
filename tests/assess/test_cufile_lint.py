"""Each problem with a near-miss. What is fatal was seen to be refused by libcufile; tests/oracle asks again."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.assess.cufile_lint import lint
from gdsctl.assess.cufile_merge import Problem
from gdsctl.model.devices import Backing, Block, Mount, Nic
from gdsctl.model.node import Node, SourceInfo
from gdsctl.model.software import CufileConfig, Gds, Module
from gdsctl.model.unknown import Gap

ETC = "/etc/cufile.json"


def problems(document: Any, version: str | None = "1.20", **more: Any) -> list[Problem]:
    text = document if isinstance(document, str) else json.dumps(document)
    more.setdefault("env", {})
    return list(lint([(ETC, text)], version=version, **more))


def props(**keys: Any) -> dict[str, Any]:
    return {"properties": keys}


def table(*mounts: str, addresses: Any = ("192.0.2.1",)) -> dict[str, Any]:
    return {"fs": {"nfs": {"mount_table": {m: {"rdma_dev_addr_list": list(addresses)} for m in mounts}}}}


def block(*kinds: str) -> dict[str, Any]:
    return {"block": {kind: {"use_pci_p2pdma": True} for kind in kinds}}


SLABS = "gpu_bounce_buffer_slab_config"

# id, fatal, document, release
WRONG: list[tuple[str, bool, Any, str]] = [
    ("cufile.syntax", True, '{"properties": {},}', "1.20"),
    ("cufile.syntax", False, '{"properties": {"io_batchsize": 1, "io_batchsize": 2}}', "1.20"),
    ("cufile.type", True, {"properties": []}, "1.20"),
    ("cufile.type", True, {"block": {"nvme": True}}, "1.16"),
    ("cufile.type", True, props(allow_compat_mode="true"), "1.20"),
    ("cufile.type", True, props(allow_compat_mode=1), "1.20"),
    ("cufile.type", True, props(io_batchsize="64"), "1.20"),
    ("cufile.type", True, props(io_batchsize=-1), "1.20"),
    ("cufile.type", True, props(rdma_dev_addr_list="192.0.2.1"), "1.20"),
    ("cufile.type", True, props(rdma_dc_key="xyz"), "1.20"),
    ("cufile.type", True, {"fs": {"nfs": {"mount_table": {"/m": ["192.0.2.1"]}}}}, "1.20"),
    ("cufile.type", False, props(**{SLABS: {"slab_size_kb": "x", "slab_count": [1]}}), "1.20"),
    ("cufile.range", True, props(io_batchsize=257), "1.20"),
    ("cufile.range", True, {"execution": {"max_io_threads": 33}}, "1.15.1.6"),
    ("cufile.range", True, {"execution": {"min_io_threshold_size_kb": 2**32}}, "1.20"),
    ("cufile.range", True, {"logging": {"max_file_size_mb": 0}}, "1.18"),
    ("cufile.range", True, props(max_direct_io_size_kb=512), "1.14"),
    ("cufile.range", True, props(per_buffer_cache_size_kb=2048), "1.18"),
    ("cufile.range", True, props(rdma_peer_type="peer_mem"), "1.20"),
    ("cufile.range", True, props(rdma_dynamic_routing_order=["P2P", "gpu_mem"]), "1.11"),
    ("cufile.range", False, props(rdma_io_retry_count=11), "1.18"),
    ("cufile.range", False, {"logging": {"level": "info"}}, "1.20"),
    ("cufile.range", False, props(rdma_load_balancing_policy="roundrobin"), "1.20"),
    ("cufile.range", False, props(**{SLABS: {"slab_size_kb": [64, 64], "slab_count": [1, 1]}}), "1.20"),
    ("cufile.alignment", True, props(max_direct_io_size_kb=1100), "1.20"),
    ("cufile.alignment", True, props(posix_pool_slab_size_kb=[5, 1024, 16384]), "1.20"),
    ("cufile.alignment", False, props(**{SLABS: {"slab_size_kb": [5], "slab_count": [1]}}), "1.20"),
    ("cufile.slab-lengths", True, props(posix_pool_slab_size_kb=[4]), "1.20"),
    ("cufile.slab-lengths", True, props(posix_pool_slab_count=[4]), "1.11"),
    ("cufile.slab-lengths", True, props(posix_pool_slab_size_kb=[4, 8], posix_pool_slab_count=[1]), "1.20"),
    ("cufile.slab-lengths", False, props(**{SLABS: {"slab_size_kb": [64], "slab_count": [1, 2]}}), "1.20"),
    ("cufile.unknown-key", False, props(nonsense=1), "1.20"),
    ("cufile.unknown-key", False, props(IO_BatchSize=64), "1.20"),
    ("cufile.label-not-key", False, props(use_compat_mode=False), "1.20"),
    ("cufile.label-not-key", False, props(max_batch_io_size=64), "1.11"),
    ("cufile.wrong-section", False, {"fs": {"block": {"nvme": {"use_pci_p2pdma": True}}}}, "1.20"),
    ("cufile.wrong-section", False, {"execution": {"io_batchsize": 64}}, "1.20"),
    ("cufile.wrong-section", False, {"allow_compat_mode": False}, "1.20"),
    ("cufile.dead-key", False, {"blacklist": {"drivers": ["nvme"]}}, "1.11"),
    ("cufile.dead-key", False, {"profile": {"nvtx": True}}, "1.16"),
    ("cufile.dead-key", False, {"profile": {"io_batchsize": 1}}, "1.20"),
    ("cufile.missing-path", False, {"miscellaneous": {"enable_static_routing": True}}, "1.20"),
    ("cufile.log-name", False, {"logging": {"dir": "/tmp"}}, "1.20"),
    (
        "cufile.address-lists",
        False,
        {"fs": {"nfs": {**table("/tmp")["fs"]["nfs"], "rdma_dev_addr_list": ["192.0.2.1"]}}},
        "1.20",
    ),
    ("cufile.key-newer-than-library", False, props(use_pci_p2pdma=True), "1.11"),
    ("cufile.missing-path", True, {"logging": {"dir": ""}}, "1.20"),
    ("cufile.compat-hides-failure", False, {**props(use_pci_p2pdma=True), **block("nvme")}, "1.20"),
    ("cufile.compat-hides-failure", False, props(use_pci_p2pdma=True), "1.15"),
    ("p2pdma.half-configured", False, props(use_pci_p2pdma=True, allow_compat_mode=False), "1.16"),
    ("p2pdma.half-configured", False, block("nvme"), "1.20"),
    ("p2pdma.half-configured", False, {"fs": {"virtiofs": {"use_pci_p2pdma": True}}}, "1.16"),
    ("p2pdma.filesystem-unsupported", False, {"fs": {"nfs": {"use_pci_p2pdma": True}}}, "1.16"),
    (
        "p2pdma.filesystem-unsupported",
        False,
        {
            **props(use_pci_p2pdma=True, allow_compat_mode=False),
            **block("raid"),
            "fs": {"gpfs": {"use_pci_p2pdma": True}},
        },
        "1.20",
    ),
    ("rdma.dev-addr-not-ipv4", False, props(rdma_dev_addr_list=["192.0.2.1/24"]), "1.20"),
    ("rdma.dev-addr-not-ipv4", False, props(rdma_dev_addr_list=["mlx5_0"]), "1.15"),
    ("rdma.dev-addr-not-ipv4", False, table("/m", addresses=["fe80::1"]), "1.20"),
    ("rdma.dev-addr-list-empty", False, props(rdma_dynamic_routing=True), "1.20"),
]


@pytest.mark.parametrize(("name", "fatal", "document", "version"), WRONG)
def test_finds(name: str, fatal: bool, document: Any, version: str) -> None:
    found = problems(document, version)
    assert [(p.id, p.fatal) for p in found] == [(name, fatal)], found
    assert found[0].severity == ("critical" if fatal else found[0].severity)
    assert found[0].severity != "critical" or fatal
    assert found[0].line == 1
    assert found[0].remedy


CLEAN: list[tuple[Any, str]] = [
    ({}, "1.11"),
    ('// c\n{"properties": {"io_batchsize": 64}} trailing', "1.20"),
    ({"properties": None}, "1.20"),
    (props(allow_compat_mode=False, io_batchsize=64.5, use_poll_mode=None), "1.20"),
    (props(io_batchsize=256), "1.20"),
    ({"execution": {"max_io_threads": 33}}, "1.16"),
    ({"execution": {"min_io_threshold_size_kb": 2**32 - 1}}, "1.20"),
    ({"logging": {"max_file_size_mb": -1}}, "1.18"),
    (props(max_direct_io_size_kb=512), "1.11"),
    (props(max_direct_io_size_kb=512, per_buffer_cache_size_kb=512), "1.14"),
    (props(per_buffer_cache_size_kb=2048), "1.19"),
    (props(max_direct_io_size_kb=512, **{SLABS: {"slab_size_kb": [64], "slab_count": [1]}}), "1.20"),
    (props(rdma_peer_type="dmabuf", rdma_access_mask="", rdma_transport_type="ext_rc_v1"), "1.20"),
    (props(max_device_pinned_mem_size_kb=0, compat_odirect_unaligned_read_split_min_size_kb=0), "1.20"),
    (props(rdma_dynamic_routing_order=[]), "1.20"),
    (props(posix_pool_slab_size_kb=[4, 8], posix_pool_slab_count=[2, 1]), "1.20"),
    (props(posix_pool_slab_count=[1, 2, 3]), "1.20"),
    ({**props(use_pci_p2pdma=True, allow_compat_mode=False), **block("nvme")}, "1.16"),
    ({"profile": {"nvtx": True}}, "1.15.1.6"),
    (props(use_pci_p2pdma=True, allow_compat_mode=False), "1.13"),
    (props(rdma_dev_addr_list=["mlx5_0", "192.0.2.1"]), "1.16"),
    (props(rdma_dynamic_routing=True, rdma_dev_addr_list=["192.0.2.1"]), "1.20"),
    (table("/nowhere"), "1.20"),
    ({"logging": {"dir": "/nowhere"}, "denylist": {"devices": ["/dev/sdz"], "mounts": ["/nowhere"]}}, "1.20"),
]


@pytest.mark.parametrize(("document", "version"), CLEAN)
def test_near_misses_are_clean(document: Any, version: str) -> None:
    assert [p for p in problems(document, version) if p.id != "cufile.log-name"] == []


def test_points_at_the_key() -> None:
    found = problems('{\n  "properties": {\n    "io_batchsize": 999\n  }\n}')
    assert [(p.line, p.column, p.pointer) for p in found] == [(3, 5, "/properties/io_batchsize")]


def test_without_a_version_all_releases_are_asked() -> None:
    found = problems({"execution": {"max_io_threads": 100}}, None)
    assert [(p.id, p.since, p.until, p.fatal) for p in found] == [("cufile.range", None, "1.16", True)]
    assert "until 1.16" in found[0].message
    nvtx = problems({"profile": {"nvtx": True}}, None)
    assert [(p.id, p.since, p.until) for p in nvtx] == [("cufile.dead-key", "1.16", None)]
    newer = problems({"block": {"nvme": {"use_pci_p2pdma": False}}}, None)
    assert [(p.id, p.severity, p.until) for p in newer] == [("cufile.key-newer-than-library", "info", "1.16")]


def test_suggestions() -> None:
    assert "properties.io_batchsize" in problems(props(IO_BatchSize=64))[0].remedy
    assert "properties.io_batchsize" in problems(props(io_batchsiz=64))[0].remedy
    assert "block.nvme.use_pci_p2pdma" in problems({"fs": {"block": {"nvme": {"use_pci_p2pdma": True}}}})[0].remedy
    assert "denylist" in problems({"blacklist": {"drivers": []}})[0].remedy


def test_layers_count_together() -> None:
    first, second = json.dumps(props(max_direct_io_size_kb=512)), json.dumps(props(per_buffer_cache_size_kb=512))
    # each file is checked as it is read: the first alone is already refused
    found = lint([("a", first), ("b", second)], version="1.20", env={})
    assert [(p.path, p.id, p.fatal) for p in found] == [("a", "cufile.range", True)]
    assert lint([("b", second), ("a", first)], version="1.20", env={}) == ()
    sizes = json.dumps(props(posix_pool_slab_size_kb=[4, 8]))
    counts = json.dumps(props(posix_pool_slab_count=[1, 2]))
    assert lint([("a", sizes), ("b", counts)], version="1.20", env={}) == ()
    emptied = lint(
        [("a", sizes), ("b", counts), ("c", json.dumps(props(posix_pool_slab_count=[])))], version="1.20", env={}
    )
    assert [(p.path, p.severity) for p in emptied] == [("c", "warning")]


def test_one_file_system_by_two_names() -> None:
    """The library keeps the table by device number: it was seen to print one entry with both addresses for two folders of it."""
    mounts = tuple(
        Mount(target=target, fstype="nfs", major_minor=number, backing=Backing(kind="nfs", nics=("mlx5_1",)))
        for target, number in (("/kv", "0:50"), ("/kv2", "0:50"), ("/other", "0:51"))
    )
    node = Node(source=SourceInfo(kind="tree"), mounts=mounts)
    (found,) = problems(table("/kv", "/other", "/kv2"), node=node)
    assert (found.id, found.pointer) == ("cufile.address-lists", "/fs/nfs/mount_table/~1kv2")
    assert problems(table("/kv", "/other"), node=node) == []
    named = Nic(address="0000:18:00.0", netdevs=("ens1",), rdma_device="mlx5_0", ipv4=("192.0.2.1",))
    (beside,) = problems(table("/kv"), node=Node(source=node.source, mounts=mounts, nics=(named,)))
    assert (beside.id, "mlx5_1" in beside.message) == ("rdma.dev-addr-wrong-nic", True)


NODE = Node(
    source=SourceInfo(kind="tree"),
    nics=(Nic(address="0000:18:00.0", netdevs=("ens1",), rdma_device="mlx5_0", ipv4=("192.0.2.1/24",)),),
    mounts=(Mount(target="/kv", fstype="nfs", backing=Backing(kind="nfs")),),
    block=(Block(name="nvme0n1"),),
    gds=Gds(cufile_config=CufileConfig(files=(ETC,))),
)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (props(rdma_dev_addr_list=["192.0.2.1", "ens1", "mlx5_0"]), []),
        (props(rdma_dev_addr_list=["192.0.2.9"]), [("rdma.dev-addr-not-local", False)]),
        (props(rdma_dev_addr_list=["mlx5_9"]), [("rdma.dev-addr-not-local", False)]),
        (table("/kv"), []),
        (table("/gone"), [("cufile.missing-path", False)]),
        (table("/gone", addresses=[]), []),
        ({"denylist": {"devices": ["/dev/nvme0n1", "/dev/sdx"]}}, []),
        ({"denylist": {"devices": ["/dev/nvme7n1"]}}, [("cufile.missing-path", True)]),
    ],
)
def test_node(document: Any, expected: list[tuple[str, bool]]) -> None:
    assert [(p.id, p.fatal) for p in problems(document, node=NODE)] == expected


def test_paths_where_they_can_be_looked_at() -> None:
    kinds = {"/log": "directory", "/file": "other", "/gone": "absent"}
    for path, expected in (
        ("/log", []),
        ("/file", ["cufile.missing-path"]),
        ("/gone", ["cufile.missing-path"]),
        ("/who", []),
    ):
        found = problems({"logging": {"dir": path}}, kind_of=kinds.get)
        assert [p.id for p in found if p.fatal] == expected
    assert problems({"denylist": {"mounts": ["/file"]}}, kind_of=kinds.get) == []


def test_static_files() -> None:
    """Asked: libcufile 1.20 logs an ERROR for a missing file and falls back; it opens all the same."""
    on = {"miscellaneous": {"enable_static_routing": True, "static_routing_filepath": "/etc/topology.json"}}
    assert problems(on) == []
    assert problems(on, kind_of=lambda _: "other") == []
    (found,) = problems(on, kind_of=lambda _: "absent")
    assert (found.id, found.fatal) == ("cufile.missing-path", False)
    assert "--emit static-routing" in found.remedy
    assert problems(on, "1.16")[0].id == "cufile.key-newer-than-library"


def test_userspace_rdma_without_addresses() -> None:
    node = Node(
        source=SourceInfo(kind="tree"), mounts=(Mount(target="/w", fstype="wekafs", backing=Backing(kind="wekafs")),)
    )
    assert [p.id for p in problems({}, node=node)] == ["rdma.dev-addr-list-empty"]
    assert problems({"fs": {"weka": {"rdma_dev_addr_list": ["192.0.2.1"]}}}, node=node) == []


@pytest.mark.parametrize(
    ("name", "text", "version", "expected"),
    [
        ("CUFILE_FORCE_COMPAT_MODE", "1", "1.20", ["cufile.env-boolean"]),
        ("CUFILE_FORCE_COMPAT_MODE", "TRUE", "1.20", ["cufile.compat-forced"]),
        ("CUFILE_FORCE_COMPAT_MODE", "false", "1.20", []),
        ("CUFILE_ALLOW_COMPAT_MODE", "false", "1.17", ["cufile.dead-key"]),
        ("CUFILE_ALLOW_COMPAT_MODE", "false", "1.16", []),
        ("CUFILE_STATS_LEVEL", "2", "1.16", ["cufile.key-newer-than-library"]),
        ("CUFILE_STATS_LEVEL", "4", "1.20", ["cufile.range"]),
        ("CUFILE_LOGGING_LEVEL", "debug", "1.20", ["cufile.range"]),
        ("CUFILE_FORCE_COMPAT", "true", "1.20", ["cufile.unknown-key"]),
        ("CUDA_VISIBLE_DEVICES", "0", "1.20", []),
        ("CUFILE_ENV_PATH_JSON", "/gone.json", "1.20", ["cufile.env-missing"]),
        ("CUFILE_ENV_PATH_JSON", ETC, "1.20", []),
    ],
)
def test_environment(name: str, text: str, version: str, expected: list[str]) -> None:
    found = problems({}, version, env={name: text}, node=NODE)
    assert [p.id for p in found] == expected
    assert all(p.path == "environment" and p.pointer == name and not p.fatal for p in found)


def test_env_path_is_not_claimed_without_a_node() -> None:
    assert problems({}, env={"CUFILE_ENV_PATH_JSON": "/gone.json"}) == []


def test_hostile_files_are_cut_short() -> None:
    found = problems({f"k{n}": n for n in range(5000)})
    assert len(found) == 101
    assert len(problems({"x" * 300_000: {f"a{n}": n for n in range(5000)}})) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "properties",
                    "fs",
                    "nfs",
                    "mount_table",
                    "rdma_dev_addr_list",
                    "io_batchsize",
                    SLABS,
                    "slab_size_kb",
                    "x",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@settings(deadline=None, max_examples=60)
@given(JSON, st.sampled_from(["1.11", "1.16", "1.20", None]))
def test_never_raises(document: Any, version: str | None) -> None:
    for problem in problems(document, version, node=NODE):
        assert problem.message
        assert problem.fatal == (problem.severity == "critical")


def test_a_key_that_is_named_before_it_acts() -> None:
    """Documents of 1.17 name it; asked, 1.17 and 1.18 look nothing up by that name, 1.19 does."""
    (found,) = problems({"properties": {"gds_fallback_io": True}}, "1.18")
    assert found.id == "cufile.key-newer-than-library"
    assert "named from GDS 1.17" in found.message
    assert "from 1.19 on" in found.message
    assert problems({"properties": {"gds_fallback_io": True}}, "1.19") == []


def test_names_in_a_denylist() -> None:
    wrong = {"denylist": {"drivers": ["nvme-rdma", "nvme"], "filesystems": ["weka", "nfs", "gluster"]}}
    without = [p for p in problems(wrong) if p.id == "cufile.denylist-name"]
    assert [(p.id, p.pointer) for p in without] == [
        ("cufile.denylist-name", "/denylist/filesystems/0"),
        ("cufile.denylist-name", "/denylist/filesystems/2"),
    ]
    assert "wekafs" in without[0].remedy
    loaded = {name: Module(loaded=True) for name in ("nvme", "nvme_rdma")}
    mount = Mount(target="/g", fstype="gluster")
    node = Node(source=SourceInfo(kind="tree"), modules=loaded, mounts=(mount,))
    assert [(p.pointer, p.remedy) for p in problems(wrong, node=node) if p.id == "cufile.denylist-name"] == [
        ("/denylist/drivers/0", "Is nvme_rdma meant?"),
        ("/denylist/filesystems/0", "Is wekafs meant?"),
    ]
    cut = msgspec.structs.replace(node, gaps=(Gap(section="modules", field="loaded", key="nvme", reason="absent"),))
    named = [p.pointer for p in problems(wrong, node=cut) if p.id == "cufile.denylist-name"]
    assert named == ["/denylist/filesystems/0"]


def test_a_denylist_shuts_whole_kinds_of_storage_out() -> None:
    """Libcufile 1.11 to 1.20 report NVMe and NVMeOF as "Unsupported (Disabled)" where drivers names nvme."""
    (found,) = problems({"denylist": {"drivers": ["sd_mod", "nvme"]}})
    assert (found.id, found.severity, found.pointer) == ("cufile.denylisted", "warning", "/denylist/drivers/1")
    assert found.message.endswith("nvme, md, nvme-of")
    (found,) = problems({"denylist": {"filesystems": ["wekafs"]}})
    assert (found.id, found.pointer) == ("cufile.denylisted", "/denylist/filesystems/0")
    assert problems({"denylist": {"drivers": [], "devices": ["/dev/nvme0n1"], "mounts": ["/scratch"]}}) == []


FORCE = "properties.force_compat_mode is true: all I/O goes through host memory"


@pytest.mark.parametrize(
    ("document", "env", "severity", "message"),
    [
        (props(force_compat_mode=True), {}, "info", FORCE),
        (props(force_compat_mode=True, allow_compat_mode=True), {}, "info", FORCE),
        (
            {**props(force_compat_mode=True, use_pci_p2pdma=True), **block("nvme")},
            {},
            "error",
            f"{FORCE}, although properties.use_pci_p2pdma is true and block.nvme.use_pci_p2pdma is true",
        ),
        (
            props(force_compat_mode=True, allow_compat_mode=False),
            {},
            "error",
            f"{FORCE}, although properties.allow_compat_mode is false",
        ),
        (
            {**props(use_pci_p2pdma=True), **block("nvme")},
            {"CUFILE_FORCE_COMPAT_MODE": "true"},
            "error",
            f"{FORCE}, although properties.use_pci_p2pdma is true and block.nvme.use_pci_p2pdma is true",
        ),
        (
            props(vanilla_posix_io_mode=True),
            {"CUFILE_USE_PCIP2PDMA": "true"},
            "error",
            FORCE.replace("force_compat", "vanilla_posix_io") + ", although properties.use_pci_p2pdma is true",
        ),
    ],
)
def test_compat_mode_forced(document: Any, env: dict[str, str], severity: str, message: str) -> None:
    (found,) = [p for p in problems(document, env=env) if p.id == "cufile.compat-forced"]
    assert (found.severity, found.message, found.fatal) == (severity, message, False)


def test_the_environment_switches_forced_compat_mode_off() -> None:
    assert problems(props(force_compat_mode=True), env={"CUFILE_FORCE_COMPAT_MODE": "false"}) == []


@pytest.mark.parametrize("text", ["[]", "null", " [ ] "])
def test_a_root_that_is_no_object(text: str) -> None:
    """Libcufile opens with such a file, and every value is the default."""
    (found,) = problems(text)
    assert (found.id, found.severity, found.fatal) == ("cufile.type", "warning", False)


def test_p2pdma_takes_two_keys_from_1_16_on() -> None:
    """Asked of all releases: one key is all up to 1.15. The environment is as good as the file."""
    alone = props(use_pci_p2pdma=True, allow_compat_mode=False)
    half = [p for p in problems(alone, None) if p.id == "p2pdma.half-configured"]
    assert [(p.pointer, p.since, p.until) for p in half] == [("/properties/use_pci_p2pdma", "1.16", None)]
    assert "block.nvme.use_pci_p2pdma" in half[0].remedy
    assert problems(alone, "1.15") == []
    assert problems({**alone, **block("nvme")}, "1.16") == []
    assert problems(block("nvme"), "1.20", env={"CUFILE_USE_PCIP2PDMA": "true"}) == []
    (off,) = [
        p
        for p in problems({**alone, **block("nvme")}, "1.20", env={"CUFILE_USE_PCIP2PDMA": "false"})
        if p.id.startswith("p2pdma")
    ]
    assert (off.id, off.pointer) == ("p2pdma.half-configured", "/block/nvme/use_pci_p2pdma")
    (named,) = problems({}, "1.20", env={"CUFILE_USE_PCIP2PDMA": "true"})
    assert (named.id, named.path) == ("p2pdma.half-configured", "environment")


def test_what_is_named_instead_says_since_when_it_works() -> None:
    """Asked: 1.17 and 1.18 take posix_io_mode for an unknown key, and vanilla_posix_io_mode too."""
    (dead,) = problems(props(posix_io_mode=True), "1.17")
    assert (dead.id, dead.remedy) == (
        "cufile.dead-key",
        "Use properties.vanilla_posix_io_mode, which came with GDS 1.19.",
    )
    assert problems({"profile": {"io_batchsize": 1}}, "1.17")[0].remedy == "Use properties.io_batchsize."
