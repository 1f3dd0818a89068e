from __future__ import annotations

import json

import msgspec
import pytest

from gdsctl.assess.assessment import Assessment, assess
from gdsctl.data import cufile_keys
from gdsctl.errors import InputError
from gdsctl.model.devices import Backing, Gpu, LnetNi, Mount
from gdsctl.model.node import Node
from gdsctl.plan.context import Context
from gdsctl.plan.cufile import Style
from gdsctl.plan.desired import Plan, plan
from gdsctl.plan.intent import Intent, MountIntent, Wanted
from gdsctl.plan.steps import differences
from tests.planned_nodes import changed, example, local, unknown, wanted

EXAMPLES = ("hgx-h100-vast", "pcie-nvme-raid", "nvme-unpatched", "vm-flattened", "vm-lab-switches")
MODES = ("auto", "nvidia-fs", "p2pdma", "compat")


def made(node: Node | Assessment, text: str | None = None, mode: str = "auto") -> Plan:
    assessment = node if isinstance(node, Assessment) else assess(node)
    return plan(assessment, wanted(text), mode)  # type: ignore[arg-type]  # the tests' words are modes


def test_far_gpus_are_routed_over_nvlink() -> None:
    """hgx-h100-vast: NICs on two of four switches, all GPUs on NVSwitch; the guide's order for such a node."""
    found = made(example("hgx-h100-vast"))
    values = found.cufile.values
    assert values["properties"]["rdma_dynamic_routing"] is True
    assert values["properties"]["rdma_dynamic_routing_order"] == ["GPU_MEM_NVLINKS", "SYS_MEM"]
    assert values["fs"]["nfs"]["rdma_dev_addr_list"] == ["172.16.1.41", "172.16.1.42"]
    assert "rdma_dev_addr_list" not in values["properties"]
    routed = [r.gpu for r in found.routes_after if r.mount == "/vast/kv" and r.dynamic_routing == "GPU_MEM_NVLINKS"]
    assert len(routed) == 4
    assert not found.unmet


def test_direct_alone_keeps_routing_off() -> None:
    found = made(example("hgx-h100-vast"), "mounts: [{target: /vast/kv, expect: direct}]")
    assert found.cufile.values["properties"]["rdma_dynamic_routing"] is False
    assert any("to go direct, not staged" in note for note in found.notes)


def test_routing_off_and_by_hand() -> None:
    off = made(example("hgx-h100-vast"), "routing: off").cufile.values["properties"]
    assert off["rdma_dynamic_routing"] is False
    assert "rdma_dynamic_routing_order" not in off
    named = made(example("hgx-h100-vast"), "routing: [SYS_MEM]")
    assert named.cufile.values["properties"]["rdma_dynamic_routing_order"] == ["SYS_MEM"]
    assert {r.dynamic_routing for r in named.routes_after if r.mount == "/vast/kv"} == {None, "SYS_MEM"}


def test_registry_keys_for_old_gpus_are_added_to_those_that_stand() -> None:
    """A100s on the stock nvme module: P2PDMA is the way, and before Hopper it needs ForceP2P=0 as well."""
    found = made(example("nvme-unpatched"))
    assert found.mode == "p2pdma"
    assert found.driver.registry == {"RMForceStaticBar1": "1", "RmForceDisableIomapWC": "1", "ForceP2P": "0"}
    node = example("nvme-unpatched").node
    driver = msgspec.structs.replace(
        node.nvidia_driver,
        registry_dwords={"PeerMappingOverride": "1"},
        modprobe_registry_dwords={"PeerMappingOverride": "1", "rmforcestaticbar1": "1"},
        modprobe_files={
            "PeerMappingOverride": "/etc/modprobe.d/local.conf",
            "rmforcestaticbar1": "/etc/modprobe.d/local.conf",
        },
    )
    found = made(changed(node, nvidia_driver=driver))
    assert found.driver.registry is not None
    assert found.driver.registry["PeerMappingOverride"] == "1"
    assert "rmforcestaticbar1" not in found.driver.registry
    assert any("sed" in command and "local.conf" in command for command in found.steps[0].commands)
    assert [step.needs_reboot for step in found.steps] == [False, True, False]


def test_multipath_and_ext4_and_the_block_key() -> None:
    found = made(example("pcie-nvme-raid"))
    assert found.mode == "p2pdma"
    values = found.cufile.values
    assert values["properties"]["use_pci_p2pdma"] is True
    assert values["block"] == {"nvme": {"use_pci_p2pdma": True}}  # md RAID0 wants Linux 7.1, this is 6.8
    assert found.driver.multipath_off
    assert {mount.target: mount.added for mount in found.mounts if mount.added} == {"/mnt/nvme": ("data=ordered",)}
    assert {unmet.subject for unmet in found.unmet} == {"/mnt/raid"}
    assert "p2pdma.filesystem-unsupported" in found.unmet[0].findings


def test_keys_are_gated_by_release() -> None:
    for version in ("1.14.1", "1.16"):
        found = made(local(version=version, hook="stock"), "mounts: [{target: /mnt/nvme}]")
        assert found.mode == "p2pdma"
        # 1.14 passes over the section; 1.16 needs it, so that an upgrade does not end P2PDMA
        assert found.cufile.values["block"] == {"nvme": {"use_pci_p2pdma": True}}
        assert "sparse" not in found.cufile.values
    newest = made(local(version=None), "mounts: [{target: /mnt/nvme}]")
    assert newest.release is None
    assert "sparse" not in newest.cufile.values  # false in 1.19, true in 1.20
    assert made(local(version="1.20.0")).cufile.values["sparse"] == {"p2p_compat_enable": True}
    assert any("not known" in note for note in newest.notes)
    asked = made(local(version="1.20.0"), "gds_version: 1.14")
    assert asked.release == "1.14"
    assert "sparse" not in asked.cufile.values


def test_values_that_depend_on_the_release_are_written_out() -> None:
    """As they are in force, by libcufile 1.14 itself: the explicit style changes nothing that nobody asked for."""
    found = made(local(version="1.14.1"), "mounts: [{target: /mnt/nvme}]")
    values = found.cufile.values
    assert values["execution"] == {
        "max_io_threads": 0,
        "parallel_io": False,
        "min_io_threshold_size_kb": 1024,
        "max_request_parallelism": 0,
    }
    assert values["logging"]["level"] == "WARN"
    properties = values["properties"]
    assert properties["max_direct_io_size_kb"] == 1024
    assert "max_device_pinned_mem_size_kb" not in properties  # no limit, which no number of 32 bits says
    assert properties["posix_pool_slab_size_kb"] == [4, 1024, 16384]
    assert properties["posix_pool_slab_count"] == [128, 64, 64]
    assert properties["allow_compat_mode"] is True
    assert found.steps == ()
    (note,) = [note for note in found.notes if "NVIDIA's package" in note]
    assert "execution.max_io_threads 4 (here 0)" in note


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("style", ["explicit", "minimal"])
@pytest.mark.parametrize("text", [None, "compat: forbid", "workload: {chunk_bytes: 3MiB}"])
def test_no_key_changes_without_a_reason(name: str, style: Style, text: str | None) -> None:
    """Of what a step installs, each value is one in force, or a route, the intent or the hardware asks for it."""
    assessment = example(name)
    found = plan(assessment, wanted(text), style=style)
    reasons = {setting.key: setting.why for setting in found.cufile.settings}
    for difference in differences(Context(assessment, wanted(text)), found.cufile) or ():
        why = reasons.get(difference.key, difference.why)
        assert not why.startswith(("the library's default", "kept from")), difference


def test_minimal_leaves_to_the_library_what_it_takes_anyway() -> None:
    """1.16 takes [4, 1024, 16384] and [128, 64, 64] KiB by itself, and 8 threads where NVIDIA ships 4."""
    wish = wanted("mounts: [{target: /mnt/nvme}]\ncompat: forbid\ntuning: {posix_pool_slab_count: [8, 8, 8]}")
    minimal = plan(assess(local(version="1.16.1")), wish, style="minimal")
    properties = minimal.written.values["properties"]
    assert properties["posix_pool_slab_size_kb"] == [4, 1024, 16384]
    assert properties["posix_pool_slab_count"] == [8, 8, 8]
    assert properties["allow_compat_mode"] is False
    assert "use_pci_p2pdma" not in properties
    assert "execution" not in minimal.written.values
    assert minimal.steps == plan(assess(local(version="1.16.1")), wish).steps
    assert any("minimal style" in note for note in minimal.notes)
    anywhere = plan(assess(local(version=None)), wish, style="minimal").written.values
    assert "execution" not in anywhere  # which defaults are in force is not known


def test_a_release_newer_than_the_table_is_told() -> None:
    assert any("newer than any" in note for note in made(local(version="1.21.0")).notes)
    assert not any("newer than any" in note for note in made(local(version="1.20.3")).notes)


def test_grace_needs_no_registry_keys() -> None:
    node = local(arch="aarch64", hook="stock", gpu="NVIDIA GH200 480GB")
    gpu = msgspec.structs.replace(node.gpus[0], c2c=True)
    found = made(changed(node, gpus=(gpu,)))
    assert found.mode == "p2pdma"
    assert found.driver.registry is None
    assert not found.driver.multipath_off
    assert [route.route for route in found.routes_after] == ["c2c"]
    assert found.cufile.values["block"]["nvme"]["use_pci_p2pdma"] is True


def test_compat_forbidden_and_compat_mode() -> None:
    strict = made(local(), "compat: forbid").cufile
    assert strict.values["properties"]["allow_compat_mode"] is False
    assert any("5001" in setting.why for setting in strict.settings if setting.key == "properties.allow_compat_mode")
    found = made(local(hook="stock"), mode="compat")
    assert found.cufile.values["properties"]["use_pci_p2pdma"] is False
    assert "force_compat_mode" not in found.cufile.values["properties"]  # nothing direct is there to be kept off
    assert found.driver.registry is None
    assert not found.unmet
    assert made(local(), "mounts: [{target: /mnt/nvme, expect: direct}]", mode="compat").fails


@pytest.mark.parametrize(
    "text", [None, "mode: compat", "mode: compat\nmounts: [{target: /scratch}, {target: /vast/kv}]"]
)
def test_compat_mode_keeps_off_the_direct_path(text: str | None) -> None:
    found = made(example("hgx-h100-vast"), text, mode="compat" if text is None else "auto")
    assert "nvidia-fs" in {route.route for route in found.routes_now}
    assert {route.route for route in found.routes_after if route.mount in ("/scratch", "/vast/kv")} == {"compat"}
    assert found.cufile.values["properties"]["force_compat_mode"] is True
    assert {wish.expect for wish in found.intent.mounts or ()} == {"compat"}
    assert not found.unmet
    assert any("force_compat_mode" in step.what for step in found.steps)


def test_mounts_that_are_all_to_go_through_host_memory_do() -> None:
    """In mode auto too; beside one that is to go direct the switch for the whole node stays off, and the plan says so."""
    found = made(local(), "mounts: [{target: /mnt/nvme, expect: compat}]")
    assert found.cufile.values["properties"]["force_compat_mode"] is True
    assert {route.route for route in found.routes_after} == {"compat"}
    assert found.unmet == ()
    there = made(local(hook="stock"), "mounts: [{target: /mnt/nvme, expect: compat}]")
    assert "force_compat_mode" not in there.cufile.values["properties"]
    assert any("force_compat_mode is not written" in note for note in there.notes)
    mixed = made(example("hgx-h100-vast"), "mounts: [{target: /scratch, expect: compat}, {target: /vast/kv}]")
    assert "force_compat_mode" not in mixed.cufile.values["properties"]
    assert {unmet.subject for unmet in mixed.unmet} == {"/scratch"}


def test_a_mode_that_gains_nothing_asks_for_nothing() -> None:
    """vm-lab-switches: Linux without CONFIG_PCI_P2PDMA, so that neither registry keys nor a boot could help."""
    found = made(example("vm-lab-switches"), mode="p2pdma")
    assert found.steps == ()
    assert found.driver.registry is None
    assert found.cufile.values["properties"]["use_pci_p2pdma"] is False
    told = [note for note in found.notes if note.startswith("P2PDMA gains nothing for /mnt/ext4")]
    assert len(told) == 1
    assert "kernel.no-p2pdma" in told[0]
    assert all("kernel.no-p2pdma" in unmet.findings for unmet in found.unmet)
    flat = made(example("vm-flattened"), mode="p2pdma")
    assert [unmet.findings for unmet in flat.unmet] == [("p2pdma.filesystem-unsupported",)]
    other = made(example("pcie-nvme-raid"), mode="nvidia-fs")  # stock nvme: no mount option would change that
    assert {mount.change for mount in other.mounts} == {"none"}
    assert not any(step.needs_reboot for step in other.steps)


def test_p2pdma_on_an_old_kernel_is_not_promised() -> None:
    """Ubuntu's Linux 5.15 has no P2PDMA from user space (6.2): the direct path over nvidia-fs stays."""
    found = made(example("hgx-h100-vast"), mode="p2pdma")
    assert found.driver.registry is None
    assert not any(step.needs_reboot for step in found.steps)
    assert {route.route for route in found.routes_after if route.mount == "/scratch"} == {"nvidia-fs"}


def test_what_p2pdma_does_not_carry_is_not_counted_for_it() -> None:
    """Linux 5.15 cannot do P2PDMA from user space: in that mode the paths stay nvidia-fs's."""
    found = made(example("hgx-h100-vast"))
    assert "p2pdma would reach 16 of 16 GPU x mount, none of them over P2PDMA" in found.mode_reason
    assert "over P2PDMA" not in made(example("nvme-unpatched")).mode_reason


def test_own_choices_are_no_reason() -> None:
    (unmet,) = made(example("pcie-nvme-raid")).unmet
    assert unmet.findings == ("p2pdma.filesystem-unsupported",)
    assert "not true" not in unmet.because


def test_a_right_node_needs_no_step() -> None:
    found = made(local())
    assert found.mode == "nvidia-fs"
    assert found.steps == ()
    assert found.unmet == ()
    assert [route.route for route in found.routes_now] == ["nvidia-fs"]


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", [None, "compat: forbid\nrouting: [SYS_MEM]\ntuning: {max_io_threads: 7}"])
def test_a_plan_carried_out_leaves_no_step(name: str, mode: str, text: str | None) -> None:
    first = made(example(name), text, mode)
    again = made(first.node_after, text, mode if mode != "auto" else first.mode)
    assert again.steps == ()
    assert again.cufile.values == first.cufile.values
    assert [r.route for r in again.routes_now] == [r.route for r in first.routes_after]
    if mode == "auto":
        assert made(first.node_after, text).mode == first.mode


def test_the_plan_changes_nothing_that_it_was_given() -> None:
    node = local(hook="stock")
    before = msgspec.json.encode(node)
    made(node)
    assert msgspec.json.encode(node) == before


# --- the installed file, and pins ---------------------------------------------------------------------------------------

INSTALLED = json.dumps(
    {
        "execution": {"max_io_threads": 16},
        "denylist": {"filesystems": ["lustre"]},
        "properties": {"force_compat_mode": True, "use_compat_mode": False},
        "block": {"raid": {"use_pci_p2pdma": True}},
    }
)


def test_without_an_intent_the_file_is_the_operators_voice() -> None:
    found = made(local(files={"/etc/cufile.json": INSTALLED}))
    values = found.cufile.values
    assert values["execution"]["max_io_threads"] == 16
    assert values["denylist"] == {"filesystems": ["lustre"]}
    assert values["block"]["raid"]["use_pci_p2pdma"] is False
    assert "force_compat_mode" not in values["properties"]
    assert "use_compat_mode" not in values["properties"]
    assert any("force_compat_mode is dropped" in note for note in found.notes)
    why = {setting.key: setting.why for setting in found.cufile.settings}
    assert "kept from /etc/cufile.json" in why["execution.max_io_threads"]


def test_with_an_intent_the_intent_is() -> None:
    found = made(local(files={"/etc/cufile.json": INSTALLED}), "mounts: [{target: /mnt/nvme}]")
    assert found.cufile.values["execution"]["max_io_threads"] == 16  # of which the intent says nothing
    assert "force_compat_mode" not in found.cufile.values["properties"]
    larger = {"/etc/cufile.json": json.dumps({"properties": {"max_direct_io_size_kb": 8192}})}
    asked = made(local(files=larger), "workload: {chunk_bytes: 2MiB}")
    assert asked.cufile.values["properties"]["max_direct_io_size_kb"] == 2048
    assert any("max_direct_io_size_kb changes from 8192 to 2048, for a chunk of" in note for note in asked.notes)
    pinned = made(local(files={"/etc/cufile.json": INSTALLED}), "tuning: {max_io_threads: 16}")
    assert pinned.cufile.values["execution"]["max_io_threads"] == 16


def test_a_file_that_the_library_refuses_is_replaced() -> None:
    found = made(local(files={"/etc/cufile.json": "{,}"}))
    assert [step.what.partition(":")[0] for step in found.steps] == ["Install /etc/cufile.json"]
    assert found.unmet == ()


def test_what_overrides_the_file_is_told() -> None:
    node = local(
        files={"/etc/cufile.json": "{}", "/opt/app.json": '{"properties": {"use_pci_p2pdma": true}}'},
        env={"CUFILE_ENV_PATH_JSON": "/opt/app.json", "CUFILE_FORCE_COMPAT_MODE": "true"},
    )
    whats = [step.what for step in made(node, mode="nvidia-fs").steps]
    assert any("use_pci_p2pdma out of /opt/app.json" in what for what in whats)
    assert any("Unset CUFILE_FORCE_COMPAT_MODE" in what for what in whats)


@pytest.mark.parametrize(
    ("version", "tuning", "line", "words"),
    [
        ("1.15.1", "{max_io_threads: 64}", 2, "outside 0 to 32"),
        ("1.20.0", "{max_io_threads: 129}", 2, "outside 0 to 128"),
        ("1.20.0", "{max_direct_io_size_kb: 100}", 2, "not a multiple of 64"),
        ("1.20.0", "{max_io_threads: many}", 2, "not a number"),
        ("1.20.0", "{posix_pool_slab_size_kb: [4, 1024]}", 2, "2 entries"),
        ("1.20.0", "{rdma_peer_type: peer_mem}", 2, "not one of"),
        ("1.20.0", "{logging.level: info}", 2, "not one of"),
    ],
)
def test_wrong_pins_are_input_errors(version: str, tuning: str, line: int, words: str) -> None:
    with pytest.raises(InputError) as caught:
        made(local(version=version), f"mode: nvidia-fs\ntuning: {tuning}")
    assert str(caught.value).startswith(f"intent.yaml:{line}: tuning: ")
    assert words in str(caught.value)


def test_pins_that_hold_only_together() -> None:
    low = made(local(version="1.20.0"), "tuning: {max_direct_io_size_kb: 512}").cufile.values["properties"]
    assert (low["max_direct_io_size_kb"], low["per_buffer_cache_size_kb"]) == (512, 512)
    text = "tuning: {properties.gpu_bounce_buffer_slab_config: {slab_size_kb: [1024, 8192], slab_count: [8, 2]}}"
    slabs = made(local(version="1.20.0"), text).cufile.values["properties"]
    assert slabs["gpu_bounce_buffer_slab_config"] == {"slab_size_kb": [1024, 8192], "slab_count": [8, 2]}
    assert "max_device_cache_size_kb" not in slabs


def test_a_pin_that_the_library_does_not_know_is_unmet() -> None:
    found = made(local(version="1.14.1"), "tuning: {rdma_multipath_enabled: true}")
    assert "rdma_multipath_enabled" not in found.cufile.values["properties"]
    assert [(u.requirement, u.status) for u in found.unmet] == [("tuning:properties.rdma_multipath_enabled", "fail")]


# --- mounts -------------------------------------------------------------------------------------------------------------

VAST = """\
mounts:
- target: /vast/new
  type: nfs
  source: 172.16.1.10:/new
  client: vast
  transport: rdma
  vips: 172.16.1.10-172.16.1.15
"""


def test_a_mount_to_come_is_planned_and_judged() -> None:
    """Two NICs of 200 Gb/s: 2 connections a 100 Gb/s are 8; six addresses make it 12, a multiple of six."""
    found = made(example("hgx-h100-vast"), VAST)
    (mount,) = found.mounts
    assert mount.change == "new"
    assert set(mount.options) == {
        "vers=3",
        "proto=rdma",
        "port=20049",
        "localports=172.16.1.41-172.16.1.42",
        "remoteports=172.16.1.10-172.16.1.15",
        "nconnect=12",
        "spread_reads",
        "spread_writes",
    }
    assert found.unmet == ()
    assert sum(r.mount == "/vast/new" and r.route == "nvidia-fs" for r in found.routes_after) == 8
    pinned = made(example("hgx-h100-vast"), VAST + "  options: {nconnect: 24, spread_writes: false}\n")
    assert "nconnect=24" in pinned.mounts[0].options


def test_a_mount_without_a_source_is_unmet() -> None:
    found = made(local(), "mounts: [{target: /data}]")
    assert [(u.subject, u.status) for u in found.unmet] == [("/data", "fail")]
    assert "not mounted" in found.unmet[0].because


def test_nfs_over_tcp_is_mounted_again_over_rdma() -> None:
    node = example("hgx-h100-vast").node
    mounts = tuple(
        msgspec.structs.replace(
            mount,
            options=("rw", "vers=3", "proto=tcp", "addr=172.16.1.10"),
            backing=msgspec.structs.replace(mount.backing, transport="tcp"),
        )
        if mount.target == "/vast/kv"
        else mount
        for mount in node.mounts
    )
    found = made(changed(node, mounts=mounts), "mounts: [{target: /vast/kv}]")
    (mount,) = found.mounts
    assert (mount.change, mount.added) == ("again", ("proto=rdma", "port=20049"))
    assert "addr=172.16.1.10" not in mount.options
    assert found.unmet == ()


def test_user_space_rdma_gets_addresses_writes_and_peermem() -> None:
    node = example("hgx-h100-vast").node
    nics = tuple(nic.rdma_device for nic in node.nics if "172.16.1.41" in nic.ipv4)
    weka = Mount(
        target="/weka",
        source="weka/fs",
        fstype="wekafs",
        options=("rw",),
        backing=Backing(kind="wekafs", nics=tuple(name for name in nics if name), transport="rdma"),
    )
    peermem = msgspec.structs.replace(node.modules["nvidia_peermem"], loaded=False)
    node = changed(node, mounts=(weka,), modules={**node.modules, "nvidia_peermem": peermem})
    found = made(node, "routing: off")
    values = found.cufile.values
    assert values["properties"]["rdma_dev_addr_list"] == ["172.16.1.41"]
    assert values["fs"]["weka"] == {"rdma_dev_addr_list": ["172.16.1.41"], "rdma_write_support": True}
    assert any("nvidia_peermem" in step.what for step in found.steps)


def test_storage_scale_goes_by_its_verbs_ports() -> None:
    node = example("hgx-h100-vast").node
    port = next(nic.rdma_device for nic in node.nics if "172.16.1.42" in nic.ipv4)
    mount = Mount(target="/gpfs", source="fs1", fstype="gpfs", options=("rw",), backing=Backing(kind="gpfs"))
    node = changed(node, mounts=(mount,), gds=msgspec.structs.replace(node.gds, gpfs_verbs_ports=(f"{port}/1",)))
    values = made(node, "routing: off").cufile.values
    assert values["properties"]["rdma_dev_addr_list"] == ["172.16.1.42"]
    assert values["fs"]["gpfs"]["rdma_dev_addr_list"] == ["172.16.1.42"]


LNET = (
    LnetNi(nid="172.16.1.41@o2ib", net="o2ib", up=True),
    LnetNi(nid="172.16.1.42@o2ib1", net="o2ib1", up=True),
)


def on_lustre(**fields: object) -> Node:
    """Two Lustre mounts, each over one LNet network of its own, on a node whose first NIC has a second address."""
    node = example("hgx-h100-vast").node
    nics = tuple(
        msgspec.structs.replace(nic, ipv4=(*nic.ipv4, "10.9.9.9")) if "172.16.1.41" in nic.ipv4 else nic
        for nic in node.nics
    )
    own = {ip: nic.rdma_device or "" for nic in nics for ip in nic.ipv4}
    mounts = tuple(
        Mount(
            target=f"/l{number}",
            source=f"172.16.9.9@{net}:/fs{number}",
            fstype="lustre",
            options=("rw",),
            backing=Backing(kind="lustre", nics=(own[ip],), transport="rdma"),
            major_minor=f"0:{number}",
        )
        for number, net, ip in ((1, "o2ib", "172.16.1.41"), (2, "o2ib1", "172.16.1.42"))
    )
    return changed(node, nics=nics, mounts=mounts, **{"lnet": LNET, **fields})


def test_lustre_mounts_get_the_addresses_of_their_nids() -> None:
    """One LNet network for each NIC is what EXAScaler's guide asks for (GDS Troubleshooting Guide, chapter 9)."""
    found = made(on_lustre(), "routing: [GPU_MEM_NVLINKS, SYS_MEM]")
    assert found.cufile.values["fs"]["lustre"] == {
        "mount_table": {
            "/l1": {"rdma_dev_addr_list": ["172.16.1.41"]},
            "/l2": {"rdma_dev_addr_list": ["172.16.1.42"]},
        }
    }
    assert not any("LNet" in note for note in found.notes)


def test_lnet_that_was_not_read_is_told() -> None:
    found = made(on_lustre(lnet=None))
    assert sum("LNet's own interfaces were not read" in note for note in found.notes) == 2
    named = made(on_lustre(lnet=None), "mounts: [{target: /l1, nics: [mlx5_2]}]")
    assert not any("were not read" in note for note in named.notes)


def test_a_lustre_mount_to_come_goes_by_lnet() -> None:
    text = "mounts: [{target: /new, type: lustre, source: '203.0.113.9@o2ib1:/fs'}]"
    (mount,) = (m for m in made(on_lustre(), text).node_after.mounts if m.target == "/new")
    nic = next(nic for nic in on_lustre().nics if "172.16.1.42" in nic.ipv4)
    assert mount.backing.nics == (nic.rdma_device,)
    beside = made(on_lustre(lnet=None), text.replace("203.0.113.9", "172.16.1.9"))
    (mount,) = (m for m in beside.node_after.mounts if m.target == "/new")
    assert len(mount.backing.nics) == 2


@pytest.mark.parametrize(
    ("kind", "look"), [("gpfs", "mmlsconfig verbsPorts"), ("wekafs", "weka local resources --json")]
)
def test_a_client_whose_nics_are_not_known_is_told(kind: str, look: str) -> None:
    """Both open the NICs that rdma_dev_addr_list names, and with none they go through host memory."""
    node = example("hgx-h100-vast").node
    backing = msgspec.convert({"kind": kind}, Backing)
    mount = Mount(target="/c", source="fs1", fstype=kind, options=("rw",), backing=backing)
    found = made(changed(node, mounts=(mount,)))
    assert any(note.startswith("/c: no address of a NIC") and note.endswith(look) for note in found.notes)
    assert not any(note.startswith("against nvidia-fs") for note in found.notes)
    named = made(changed(node, mounts=(mount,)), "mounts: [{target: /c, nics: [mlx5_2]}]")
    assert not any("no address of a NIC" in note for note in named.notes)
    assert {route.route for route in named.routes_after if route.mount == "/c"} == {"rdma"}


def test_mounts_with_unlike_nics_get_a_table() -> None:
    node = example("hgx-h100-vast").node
    kv = next(mount for mount in node.mounts if mount.target == "/vast/kv")
    own = {ip: nic.rdma_device for nic in node.nics for ip in nic.ipv4 if ip in ("172.16.1.41", "172.16.1.42")}
    halves = tuple(
        msgspec.structs.replace(
            kv,
            target=f"/vast/{number}",
            backing=msgspec.structs.replace(kv.backing, nics=(own[f"172.16.1.4{number}"] or "",)),
        )
        for number in (1, 2)
    )
    values = made(changed(node, mounts=halves)).cufile.values
    assert values["fs"]["nfs"] == {
        "mount_table": {
            "/vast/1": {"rdma_dev_addr_list": ["172.16.1.41"]},
            "/vast/2": {"rdma_dev_addr_list": ["172.16.1.42"]},
        }
    }


def test_ext4_root_takes_its_option_from_the_command_line() -> None:
    found = made(local(fstype="ext4", target="/"))
    assert [argument.word for argument in found.driver.arguments] == ["rootflags=data=ordered"]
    assert any(step.needs_reboot for step in found.steps)
    assert found.unmet == ()


# --- nothing there, nothing known ---------------------------------------------------------------------------------------


def test_nothing_known() -> None:
    found = made(unknown())
    assert {unmet.status for unmet in found.unmet} == {"unknown"}
    named = made(unknown(), "gpus: [0]\nmounts: [{target: /data}]")
    assert {unmet.status for unmet in named.unmet} == {"unknown"}


def test_a_node_without_a_gpu_has_nothing_to_meet() -> None:
    found = made(changed(local(), gpus=()))
    assert found.unmet == ()
    assert found.steps == ()
    assert any("no GPU" in note for note in found.notes)


def test_named_gpus_that_are_not_there_are_unmet() -> None:
    found = made(local(), "gpus: [0, 5]")
    assert [(u.requirement, u.subject, u.status) for u in found.unmet] == [("gpu:5", "5", "fail")]


def test_system_mounts_only_where_nothing_else_qualifies() -> None:
    node = local()
    root = msgspec.structs.replace(node.mounts[0], target="/")
    both = made(changed(node, mounts=(root, *node.mounts)))
    assert [mount.target for mount in both.intent.mounts or ()] == ["/mnt/nvme"]
    alone = made(changed(node, mounts=(root,)))
    assert [mount.target for mount in alone.intent.mounts or ()] == ["/"]


def test_module_on_disk_is_loaded_and_one_that_may_be_missing_stays_unknown() -> None:
    node = local()
    for version, status in (("2.27.3", []), (None, ["unknown"])):
        module = msgspec.structs.replace(node.modules["nvidia_fs"], loaded=False, version=version)
        stopped = changed(
            node,
            modules={**node.modules, "nvidia_fs": module},
            nvidia_fs=msgspec.structs.replace(
                node.nvidia_fs, loaded=False, device_nodes=(), registered=None, version=None
            ),
        )
        found = made(stopped, mode="nvidia-fs")
        assert found.steps[0].commands[0] == "modprobe nvidia_fs"
        assert [unmet.status for unmet in found.unmet] == status


def test_many_gpus_and_mounts_in_one_plan() -> None:
    node = local()
    gpus = tuple(Gpu(index=n, address=f"0000:02:{n:02x}.0", name="NVIDIA H100", c2c=False) for n in range(16))
    mounts = tuple(msgspec.structs.replace(node.mounts[0], target=f"/mnt/{n}") for n in range(40))
    wish = Intent(mounts=tuple(MountIntent(target=mount.target) for mount in mounts))
    found = plan(assess(changed(node, gpus=gpus, mounts=mounts)), Wanted(intent=wish, path="i"))
    assert len(found.routes_after) == 640


def test_all_written_keys_are_known_to_the_release() -> None:
    for version in ("1.11", "1.13", "1.14", "1.16", "1.18", "1.19", "1.20"):
        for mode in MODES:
            found = made(local(version=version), mode=mode)
            for setting in found.cufile.settings:
                key = cufile_keys.key(setting.key)
                assert key is not None
                # The one written ahead: 1.13 to 1.15 pass over it, from 1.16 on P2PDMA hangs on it.
                assert key.known_in(version) or (version > "1.11" and key.key == "block.nvme.use_pci_p2pdma")
                assert setting.why.strip()


def sized(bar1_mib: int, gpus: int = 1, text: str = "mounts: [{target: /mnt/nvme}]") -> dict[str, int]:
    node = local(version="1.14.1")
    found = tuple(msgspec.structs.replace(node.gpus[0], index=n, bar1_bytes=bar1_mib << 20) for n in range(gpus))
    values: dict[str, int] = made(changed(node, gpus=found), text).cufile.values["properties"]
    return values


def test_buffers_fit_bar1() -> None:
    """128 MiB of bounce buffers in half of BAR1; registered memory in what is left of all BAR1s, where these are small."""
    large = sized(131072)
    assert "max_device_pinned_mem_size_kb" not in large  # BAR1 maps all 64 GiB of the GPU
    assert large.get("max_device_cache_size_kb", 131072) == 131072
    small = sized(256, gpus=2)
    assert small.get("max_device_cache_size_kb", 131072) == 131072  # exactly half
    assert small["max_device_pinned_mem_size_kb"] == 2 * (256 - 128) << 10
    tiny = sized(128)
    assert tiny["max_device_cache_size_kb"] == 64 << 10
    assert tiny["max_device_pinned_mem_size_kb"] == (128 - 64) << 10


def test_pieces_fit_the_chunk() -> None:
    def chunk(size: str) -> int:
        return sized(131072, text=f"mounts: [{{target: /mnt/nvme}}]\nworkload: {{chunk_bytes: {size}}}")[
            "max_direct_io_size_kb"
        ]

    assert chunk("48MiB") == 16384
    assert chunk("6MiB") == 6144
    assert chunk("6000001") == 5888  # 92 x 64 KiB hold 6,029,312 bytes
    assert chunk("64KiB") == 1024
    odd = made(local(), "mounts: [{target: /mnt/nvme}]\nworkload: {chunk_bytes: 5000}")
    assert any("no multiple of 4 KiB" in note for note in odd.notes)


# --- nothing to decide on ----------------------------------------------------------------------------------------------


def test_what_is_not_known_decides_no_mode_and_plans_no_step() -> None:
    """Mounts or GPUs that were not captured could make any mode the right one."""
    for node in (
        unknown(),
        changed(local(), mounts=(), gaps=unknown().gaps[2:3]),
        changed(unknown(), gpus=local().gpus),
    ):
        found = made(node)
        assert found.mode == "undecided"
        assert "not known" in found.mode_reason
        assert found.steps == ()
        assert found.cufile.values == {}
        assert {unmet.status for unmet in found.unmet} == {"unknown"}
        assert any(unmet.settle_with for unmet in found.unmet)
    named = "mounts: [{target: /a, source: 's:/a', transport: rdma}]"
    assert made(unknown(), named).mounts == ()  # it may be mounted already
    assert made(local()).mode == "nvidia-fs"


@pytest.mark.parametrize("files", [None, ("/etc/cufile.json",)])
def test_a_file_that_was_not_read_is_not_replaced(files: tuple[str, ...] | None) -> None:
    node = local()
    config = msgspec.structs.replace(node.gds.cufile_config, files=files, texts={})
    node = changed(node, gds=msgspec.structs.replace(node.gds, cufile_config=config))
    for mode in MODES:
        found = made(node, "tuning: {max_io_threads: 7}", mode=mode)
        assert not any("cufile.json" in command for step in found.steps for command in step.commands)
        assert [(u.requirement, u.status) for u in found.unmet] == [("cufile", "unknown")]
        assert found.unmet[0].settle_with


def test_a_mode_without_gain_installs_no_file() -> None:
    """The stock nvme module: nvidia-fs cannot carry it. The installed file says otherwise than the plan would."""
    stale = {"/etc/cufile.json": '{"properties": {"use_pci_p2pdma": true}}'}
    found = made(local(hook="stock", files=stale), mode="nvidia-fs")
    assert any("no change of the system" in note for note in found.notes)
    assert found.steps == ()
    pinned = made(local(hook="stock"), "tuning: {max_io_threads: 7}", mode="nvidia-fs")
    assert [step.what.partition(":")[0] for step in pinned.steps] == ["Install /etc/cufile.json"]
    assert any("what the intent pins" in note and "max_io_threads" in note for note in pinned.notes)


def test_a_denied_mount_gets_no_step_for_what_the_denylist_forbids() -> None:
    denied = {"/etc/cufile.json": '{"denylist": {"mounts": ["/mnt/nvme"]}, "properties": {"use_pci_p2pdma": true}}'}
    found = made(local(files=denied), mode="nvidia-fs")
    assert {route.route for route in found.routes_after} <= {"compat", "none"}
    assert found.steps == ()
    assert found.fails


def test_a_node_without_a_gpu_gets_no_file() -> None:
    node = changed(local(files={}), gpus=())
    for mode in MODES:
        found = made(node, mode=mode)
        assert found.steps == ()
        assert found.unmet == ()
    assert [u.requirement for u in made(node, "mounts: [{target: /mnt/nvme}]").unmet] == ["gpu"]


# --- a mount that is not the one that the intent names -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pinned", "said"),
    [
        ("type: xfs", None),
        ("type: ext4", "the intent says type ext4, the node says xfs"),
        ("source: /dev/nvme0n1", None),
        ("source: /dev/nvme1n1", None),  # no such device is known here: maybe a link
        ("source: 'server:/export'", "the intent says source server:/export, the node says /dev/nvme0n1"),
        ("source: UUID=1b34", None),  # udev's database does not tell
        ("transport: rdma", "the intent says transport rdma, the node says pcie"),
        ("client: vast", "the intent says client vast, the node says no NFS but xfs"),
        ("vips: 10.0.0.1-10.0.0.4", "the intent says vips 10.0.0.1-10.0.0.4, the node says no remoteports"),
    ],
)
def test_a_local_mount_is_held_against_what_is_pinned(pinned: str, said: str | None) -> None:
    found = made(local(), f"mounts: [{{target: /mnt/nvme, {pinned}}}]")
    told = [(u.requirement, u.because) for u in found.unmet if u.status == "fail"]
    assert told == ([] if said is None else [("mount:/mnt/nvme", said)])


def test_a_device_by_uuid_and_by_name() -> None:
    node = local()
    udev = {"ID_FS_USAGE": "filesystem", "ID_FS_UUID": "0A34-B5"}
    blocks = (msgspec.structs.replace(node.block[0], udev=udev), msgspec.structs.replace(node.block[0], name="sdb"))
    node = changed(node, block=blocks)

    def status(source: str) -> list[str]:
        return [u.status for u in made(node, f"mounts: [{{target: /mnt/nvme, source: '{source}'}}]").unmet]

    assert status("UUID=0a34-b5") == status("/dev/disk/by-uuid/0A34-B5") == status("/dev/nvme0n1") == []
    assert status("UUID=0a34-b6") == status("/dev/sdb") == ["fail"]
    assert status("LABEL=data") == status("/dev/disk/by-id/nvme-x") == ["unknown"]


@pytest.mark.parametrize(
    ("pinned", "status"),
    [
        ("type: nfs", None),
        ("type: nfs4", "fail"),  # the mount table shows nfs, which is version 3
        ("source: '172.16.1.10:/kv'", None),
        ("source: '172.16.1.10:/kv/'", None),
        ("source: '172.16.1.10:/other'", "fail"),
        ("source: '172.16.1.99:/kv'", "fail"),
        ("source: 'vast.example:/kv'", "unknown"),
        ("transport: rdma", None),
        ("client: vast", None),
        ("client: kernel", "fail"),
    ],
)
def test_an_nfs_mount_is_held_against_what_is_pinned(pinned: str, status: str | None) -> None:
    """hgx-h100-vast mounts 172.16.1.10:/kv of type nfs over RDMA with remoteports, which only VAST's client takes."""
    found = made(example("hgx-h100-vast"), f"mounts: [{{target: /vast/kv, {pinned}}}]")
    assert [u.status for u in found.unmet] == ([] if status is None else [status])
    if status == "unknown":
        assert found.unmet[0].settle_with


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (changed(local(), gpus=()), "no GPU to plan for"),
        (changed(local(), mounts=()), "no mount to plan for"),
        (example("vm-flattened").node, "no mode makes a path here better (nvidia-fs would reach 0 of 8 GPU x mount)"),
    ],
)
def test_where_nothing_is_to_do_no_mode_is_needed(node: Node, said: str) -> None:
    found = made(node)
    assert found.mode == "none"
    assert found.mode_reason.startswith(said)
    assert found.steps == ()
