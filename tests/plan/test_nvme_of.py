"""NVMe over RDMA: connect lines, what makes them hold over a boot, and what is told where a fact is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from gdsctl import emit
from gdsctl.assess.assessment import assess
from gdsctl.model.devices import Backing, Block, Mount, Nic, Nvme, NvmeHost
from gdsctl.model.node import Node, Numa, NumaNode
from gdsctl.model.software import Iommu, NvfsHook
from gdsctl.plan.desired import Plan, plan
from gdsctl.plan.documents import Step
from gdsctl.plan.intent import NvmeOf
from tests.planned_nodes import changed, local, wanted

NQN = "nqn.2024-01.org.example:kv"
NICS = (
    Nic(address="0000:04:00.0", rdma_device="mlx5_0", netdevs=("eth0",), ipv4=("192.0.2.7",)),
    Nic(address="0000:05:00.0", rdma_device="mlx5_1", netdevs=("eth1",), ipv4=("198.51.100.7",)),
)
ASKED = f"""
mounts:
  - target: /kv
    type: ext4
    source: UUID=0a3407de-014b-458b-b5c1-848e92a327a3
    nvme_of: {{nqn: "{NQN}", traddr: 198.51.100.20}}
"""


def node(**fields: object) -> Node:
    """Patched modules, 8 CPUs, two RDMA NICs in networks of their own."""
    hook = NvfsHook(
        state="patched", symbol="nvme_rdma_v1_register_nvfs_dma_ops", wanted_symbol="nvme_rdma_v1_register_nvfs_dma_ops"
    )
    made = local()
    base = {
        "nics": NICS,
        "numa": Numa(nodes=(NumaNode(id=0, cpus="0-3,8-11"),)),
        "nvfs_hooks": {**made.nvfs_hooks, "nvme_rdma": hook},
    }
    return changed(made, **{**base, **fields})


def connected(**fields: object) -> Node:
    """/kv stands on a controller over RDMA."""
    values = {
        "name": "nvme5",
        "transport": "rdma",
        "traddr": "198.51.100.20",
        "trsvcid": "4420",
        "host_traddr": "198.51.100.7",
        "nqn": NQN,
        "namespaces": ("nvme5n1",),
        "multipath": False,
        **fields,
    }
    backing = Backing(kind="nvme-of", nvme=("nvme5",), nics=("mlx5_1",), transport="rdma", server="198.51.100.20")
    mount = Mount(target="/kv", source="/dev/nvme5n1", fstype="xfs", options=("rw",), device="nvme5n1", backing=backing)
    base = node()
    return changed(
        base,
        nvme=(*base.nvme, msgspec.convert(values, Nvme)),
        block=(
            *base.block,
            Block(name="nvme5n1", members=("nvme5",), integrity=False, udev={"ID_FS_USAGE": "filesystem"}),
        ),
        mounts=(*base.mounts, mount),
    )


def made(subject: Node, text: str = ASKED) -> Plan:
    return plan(assess(subject), wanted(text))


def artifact(found: Plan) -> str:
    return emit.EMITTERS["nvme-connect"].emit(found).content


def connecting(found: Plan) -> list[Step]:
    return [step for step in found.steps if step.what.startswith("Connect ")]


def words(command: str) -> list[str]:
    """What `nvme` is given when a shell reads the line."""
    ran = subprocess.run(
        ["sh", "-c", f'nvme() {{ printf "%s\\n" "$@"; }}; {command}'], capture_output=True, text=True, check=True
    )
    return ran.stdout.splitlines()


def test_a_mount_to_come_is_connected_before_it() -> None:
    found = made(node())
    (step,) = connecting(found)
    assert words(step.commands[1]) == [
        "connect",
        "--transport=rdma",
        "--traddr=198.51.100.20",
        "--trsvcid=4420",
        "--host-traddr=198.51.100.7",  # the NIC in the port's network, not the first one
        f"--nqn={NQN}",
        "--ctrl-loss-tmo=-1",
    ]
    assert step.order < next(s.order for s in found.steps if s.what.startswith("Mount /kv"))
    assert step.commands[0] == "modprobe nvme-rdma"
    assert {route.route for route in found.routes_after if route.mount == "/kv"} == {"nvidia-fs"}
    assert found.unmet == ()
    tab = emit.EMITTERS["fstab"].emit(found).content.splitlines()[-1].split()
    assert (tab[0], tab[3].split(","), tab[5]) == (
        "UUID=0a3407de-014b-458b-b5c1-848e92a327a3",
        ["data=ordered", "_netdev"],
        "0",
    )


def test_a_stock_module_is_told() -> None:
    hooks = {
        **node().nvfs_hooks,
        "nvme_rdma": NvfsHook(state="stock", wanted_symbol="nvme_rdma_v1_register_nvfs_dma_ops"),
    }
    found = made(node(nvfs_hooks=hooks))
    assert any(
        note.startswith("against nvidia-fs for /kv: the module nvme_rdma is the stock one") for note in found.notes
    )
    assert [unmet.findings[0] for unmet in found.unmet] == ["nvme-rdma.unpatched"]


def test_the_boot_lines_are_put_once_and_taken_out(tmp_path: Path) -> None:
    """nvme-cli takes a line apart at blanks and `=` and knows no quotes (fabrics.c, discover_from_conf_file)."""
    (step,) = connecting(made(node()))
    conf = tmp_path / "discovery.conf"
    conf.write_text("-t tcp -a 192.0.2.1\n")
    for _ in range(2):
        for command in step.commands[2:4]:
            subprocess.run(["sh", "-c", command.replace("/etc/nvme", str(tmp_path))], check=True)
    before, line = conf.read_text().splitlines()
    assert before == "-t tcp -a 192.0.2.1"
    cells = line.replace("=", " ").split(" ")
    assert dict(zip(cells[::2], cells[1::2], strict=True)) == {
        "--transport": "rdma",
        "--traddr": "198.51.100.20",
        "--trsvcid": "4420",
        "--host-traddr": "198.51.100.7",
        "--ctrl-loss-tmo": "-1",
    }
    assert step.commands[4] == "systemctl enable nvmf-autoconnect.service"
    subprocess.run(["sh", "-c", step.undo[1].replace("/etc/nvme", str(tmp_path))], check=True)
    assert conf.read_text() == "-t tcp -a 192.0.2.1\n"


def test_a_name_of_the_host_that_no_line_can_hold() -> None:
    """223 bytes are allowed, but nvme-cli reads discovery.conf in pieces of 256."""
    long = "nqn.2024-01.org.example:" + "x" * 190
    text = ASKED.replace("}", f", hostnqn: {long}}}")
    found = made(node(), text)
    (step,) = connecting(found)
    assert f"--hostnqn={long}" in words(step.commands[1])
    assert len(step.commands) == 3
    assert step.commands[2].startswith("timeout 60 sh -c ")
    assert any("connect it at boot by a unit of your own" in note for note in found.notes)


@pytest.mark.parametrize("hostnqn", ["nqn.2024-01.org.example:$(touch\u00a0x)", "nqn.2024-01.org.example:'\"`id`;&|"])
def test_hostile_names_are_one_word(hostnqn: str, tmp_path: Path) -> None:
    wish = wanted(ASKED)
    mount = wish.intent.mounts[0] if wish.intent.mounts else None
    assert mount is not None
    asked = NvmeOf(nqn=hostnqn, traddr=("198.51.100.20",), hostnqn=hostnqn)
    intent = msgspec.structs.replace(wish.intent, mounts=(msgspec.structs.replace(mount, nvme_of=asked),))
    found = plan(assess(node()), msgspec.structs.replace(wish, intent=intent))
    content = artifact(found)
    script = tmp_path / "s"
    script.write_text(
        'modprobe() { :; }; mkdir() { :; }; systemctl() { :; }; grep() { :; }; timeout() { :; }; nvme() { printf "%s\\0" "$@"; }\n'
        + content
    )
    ran = subprocess.run(["sh", script], capture_output=True, check=True, cwd=tmp_path)
    assert f"--nqn={hostnqn}".encode() in ran.stdout.split(b"\0")
    assert f"--hostnqn={hostnqn}".encode() in ran.stdout.split(b"\0")
    assert os.listdir(tmp_path) == ["s"]


def test_the_script_does_what_the_steps_do() -> None:
    """Each connection's commands, the wait for the namespace behind the last: `nvme connect` returns before the kernel has it."""
    text = ASKED.replace("198.51.100.20}", "[192.0.2.20, 198.51.100.20]}")
    found = made(node(), text)
    script = artifact(found).splitlines()
    taken = [command for step in connecting(found) for command in step.commands]
    assert [line for line in script if line in taken] == taken
    assert script[-1].startswith("timeout 60 sh -c ")
    assert sum(line.startswith("timeout ") for line in script) == 1


@pytest.mark.skipif(not shutil.which("nvme"), reason="no nvme-cli here")
def test_nvme_cli_takes_the_options() -> None:
    """What it cannot read it calls an unrecognized option; all else fails later, without the fabrics driver."""
    text = ASKED.replace("}", f", hostnqn: '{NQN}:h', ctrl_loss_tmo_s: 600, nr_io_queues: 4, trsvcid: 4421}}")
    (step,) = connecting(made(node(), text))
    if Path("/dev/nvme-fabrics").exists():
        pytest.skip("it would connect")

    def said(command: str) -> str:
        return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False).stderr

    assert "unrecognized option" in said(f"{step.commands[1]} --nonsense=1")
    assert "option" not in said(step.commands[1])


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="no shellcheck here")
def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    script = tmp_path / "nvme-connect.sh"
    for found in (made(node()), made(connected(), "mounts: [{target: /kv}]"), made(local())):
        script.write_text(artifact(found))
        ran = subprocess.run(["shellcheck", "--shell=sh", script], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout


def test_queues_are_held_against_the_cpus() -> None:
    """The kernel makes no more queues than it has CPUs online (Linux drivers/nvme/host/fabrics.c, nvmf_parse_options)."""
    text = ASKED.replace("}", ", nr_io_queues: 64}")
    found = made(node(), text)
    assert "--nr-io-queues=8" in words(connecting(found)[0].commands[1])
    assert any("64 is more than this node's 8 CPUs" in note for note in found.notes)
    for numa in (Numa(), Numa(nodes=(NumaNode(id=0, cpus="nonsense"),)), Numa(nodes=(NumaNode(id=0),))):
        assert "--nr-io-queues=64" in words(connecting(made(node(numa=numa), text))[0].commands[1])


def test_two_ports_by_two_nics() -> None:
    text = ASKED.replace("198.51.100.20}", "[192.0.2.20, 198.51.100.20]}")
    found = made(node(), text)
    assert [words(step.commands[1])[4] for step in connecting(found)] == [
        "--host-traddr=192.0.2.7",
        "--host-traddr=198.51.100.7",
    ]
    assert any("native multipath" in note for note in found.notes)


def test_a_port_in_no_known_network_is_told() -> None:
    found = made(node(), ASKED.replace("198.51.100.20", "203.0.113.1"))
    assert not any("host-traddr" in word for word in words(connecting(found)[0].commands[1]))
    assert any("ip route get 203.0.113.1" in note for note in found.notes)
    named = ASKED.replace("198.51.100.20}", "203.0.113.1}\n    nics: [eth1]")
    assert "--host-traddr=198.51.100.7" in words(connecting(made(node(), named))[0].commands[1])


def test_what_is_connected_is_no_step() -> None:
    for text in (ASKED.replace("ext4", "xfs"), "mounts: [{target: /kv}]"):
        found = made(connected(), "\n".join(line for line in text.splitlines() if "source" not in line))
        assert connecting(found) == []
        assert found.unmet == ()
        lines = artifact(found).splitlines()
        assert lines
        assert all(line.startswith("#") for line in lines)
        assert any(
            f"nvme connect --transport=rdma --traddr=198.51.100.20 --trsvcid=4420 --host-traddr=198.51.100.7 --nqn={NQN}"
            in line
            for line in lines
        )


def test_a_namespace_that_is_connected_and_not_mounted() -> None:
    base = connected()
    found = made(changed(base, mounts=base.mounts[:1]))
    assert connecting(found) == []
    assert any(step.what.startswith("Mount /kv") for step in found.steps)


def test_a_number_that_a_drive_of_the_node_has_is_not_mounted() -> None:
    """/dev/nvme0n1 is the drive of this node that is mounted already."""
    text = ASKED.replace("UUID=0a3407de-014b-458b-b5c1-848e92a327a3", "/dev/nvme0n1")
    found = made(node(), text)
    assert not any(step.what.startswith("Mount ") for step in found.steps)
    assert len(connecting(found)) == 1
    assert any("/dev/nvme0n1 can be another drive after each boot, today nvme0 (pcie)" in note for note in found.notes)
    free = made(node(), ASKED.replace("UUID=0a3407de-014b-458b-b5c1-848e92a327a3", "/dev/nvme7n1"))
    assert any(step.what.startswith("Mount /kv") for step in free.steps)
    assert any("name the source by UUID=" in note for note in free.notes)


def test_a_mount_that_stays_in_compat_mode_asks_for_no_boot() -> None:
    """The mount is made, but no driver option or kernel argument for it: nothing of it would go direct."""
    hooks = {
        **node().nvfs_hooks,
        "nvme_rdma": NvfsHook(state="stock", wanted_symbol="nvme_rdma_v1_register_nvfs_dma_ops"),
    }
    found = made(node(nvfs_hooks=hooks, iommu=Iommu(state="translated")))
    assert [step.what.partition(" ")[0] for step in found.steps] == ["Connect", "Mount"]


def test_another_subsystem_is_another_mount() -> None:
    text = "\n".join(line for line in ASKED.replace("ext4", "xfs").splitlines() if "source" not in line)
    found = made(connected(nqn="nqn.2024-01.org.example:other"), text)
    assert connecting(found) == []
    assert [unmet.because for unmet in found.unmet] == [
        f"the intent says nvme_of {NQN}, the node says nqn.2024-01.org.example:other"
    ]
    (unread,) = made(connected(nqn=None), text).unmet
    assert (unread.status, unread.settle_with) == ("unknown", "nvme list-subsys")


def test_a_name_that_was_not_read_gives_no_line() -> None:
    found = made(connected(nqn=None), "mounts: [{target: /kv}]")
    assert "nvme connect" not in artifact(found)
    assert any("nvme list-subsys" in note for note in found.notes)


def test_who_connects_at_boot_is_asked() -> None:
    text = "mounts: [{target: /kv}]"
    for discovery, told in (
        (None, False),
        ((), True),
        (("-t rdma -a 198.51.100.2",), True),
        (("-t rdma -a 198.51.100.20",), False),
        (("--transport=rdma --traddr=198.51.100.20",), False),
    ):
        found = made(changed(connected(), nvme_host=NvmeHost(discovery=discovery)), text)
        assert any("no line of /etc/nvme/discovery.conf names" in note for note in found.notes) is told


def test_the_hosts_own_name_is_left_to_nvme_cli() -> None:
    text = "mounts: [{target: /kv}]"
    own = NvmeHost(hostnqn=f"{NQN}:host")
    same = made(changed(connected(hostnqn=f"{NQN}:host"), nvme_host=own), text)
    assert "--hostnqn" not in artifact(same)
    other = made(changed(connected(hostnqn=f"{NQN}:other"), nvme_host=own), text)
    assert f"--hostnqn={NQN}:other" in artifact(other)


def test_a_plan_without_fabrics_has_nothing_to_say() -> None:
    found = made(local(), "mounts: [{target: /mnt/nvme}]")
    assert not emit.EMITTERS["nvme-connect"].applies(found)
    assert artifact(found) == "#!/bin/sh\n# no mount of the plan rests on NVMe over RDMA\n"
