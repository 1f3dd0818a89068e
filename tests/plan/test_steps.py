"""The commands of steps: run where they can be run safely, or read with the tool's own checker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from gdsctl import emit
from gdsctl.assess.assessment import assess
from gdsctl.data.distributions import distribution, distributions
from gdsctl.data.mount_advice import advice
from gdsctl.data.nvfs_hooks import hooks
from gdsctl.data.patched_modules import bringing, packages
from gdsctl.model.node import Node
from gdsctl.parse.fstab import parse as parse_fstab
from gdsctl.parse.mounts import unescape
from gdsctl.plan.desired import Plan, plan
from gdsctl.plan.documents import Step
from tests.planned_nodes import changed, example, local, wanted

FSTAB = """\
# /dev/nvme0n1 /mnt/nvme ext4 defaults 0 0
UUID=0a3407de-014b-458b-b5c1-848e92a327a3 / ext4 errors=remount-ro 0 1
UUID=1b3407de-014b-458b-b5c1-848e92a327a3 {target} ext4 defaults,nofail,x-systemd.device-timeout=10 0 2
/dev/nvme1n1 {target}2 ext4 defaults 0 2
{target} /srv none bind 0 0
"""


def entries(text: str) -> list[list[str]]:
    """Fields of the lines that are no comment (fstab(5))."""
    return [[unescape(part) for part in line.split()] for line in text.splitlines() if not line.startswith("#")]


def made(node: Node, text: str | None = None) -> Plan:
    return plan(assess(node), wanted(text))


def step(found: Plan, words: str) -> Step:
    return next(s for s in found.steps if words in s.what)


def run(commands: tuple[str, ...], tab: Path) -> None:
    for command in commands:
        subprocess.run(["sh", "-c", command.replace("/etc/fstab", str(tab))], check=True)


TARGETS = ["/mnt/nvme", "/mnt/a b", "/mnt/it's [x].*", '/mnt/"q" #1', "/mnt/a\\b", "/mnt/a|b", "/ü", "/mnt/line\nbreak"]


@pytest.mark.skipif(not shutil.which("sed"), reason="no sed here")
@pytest.mark.parametrize("target", TARGETS)
def test_an_option_is_put_into_its_own_line_of_fstab(target: str, tmp_path: Path) -> None:
    """Source, other options, dump and pass stay; so do comments, other lines, and lines that only mention the name."""
    found = made(local(fstype="ext4", target=target))
    doing = step(found, "data=ordered")
    tab = tmp_path / "fstab"
    written = emit.EMITTERS["fstab"].emit(found).content.split("\n")[1].split()[1]
    before = FSTAB.format(target=written)
    tab.write_text(before)
    run(doing.commands[:-1], tab)
    old, new = entries(before), entries(tab.read_text())
    assert old[1][1] == target
    old[1][3] += ",data=ordered"
    assert new == old
    assert tab.read_text().startswith("# /dev/nvme0n1 /mnt/nvme ext4 defaults 0 0\n")
    once = tab.read_text()
    run(doing.commands[:-1], tab)
    assert tab.read_text() == once
    run(doing.undo[:-1], tab)
    assert entries(tab.read_text()) == entries(before)


@pytest.mark.skipif(not shutil.which("sed"), reason="no sed here")
@pytest.mark.parametrize("options", ["data=ordered", "noatime,data=ordered", "data=ordered,noatime"])
def test_an_option_that_a_line_has_is_neither_doubled_nor_undone(options: str, tmp_path: Path) -> None:
    """The mount lacks it all the same: it was mounted by hand, or the line was edited since."""
    doing = step(made(local(fstype="ext4")), "data=ordered")
    tab = tmp_path / "fstab"
    before = f"/dev/nvme0n1 /mnt/nvme ext4 {options}\t0 2\n"
    tab.write_text(before)
    run(doing.commands[:-1], tab)
    assert tab.read_text() == before
    run(doing.undo[:-1], tab)
    assert tab.read_text() == before


def test_a_journal_mode_is_never_remounted() -> None:
    """On Linux 6.18 mount -o remount,data=ordered returns 0 and the mount table stays without it."""
    found = made(local(fstype="ext4"))
    doing = step(found, "data=ordered")
    last = "umount -- /mnt/nvme && mount -t ext4 -o rw,data=ordered -- /dev/nvme0n1 /mnt/nvme"
    assert doing.commands[-1] == last
    assert "/etc/fstab" in doing.commands[1]
    assert last in emit.EMITTERS["mount"].emit(found).content
    flag = made(local(), "mounts: [{target: /mnt/nvme, options: {noatime: true}}]")
    assert step(flag, "noatime").commands[-1] == "mount -o remount,noatime -- /mnt/nvme"


def test_an_undo_mounts_as_it_was_without_a_line_in_fstab() -> None:
    """`mount TARGET` finds nothing without a line, and a remount keeps the flags that it does not name (mount(8))."""
    again = step(made(changed(local(fstype="ext4", options=("rw", "relatime")), fstab=())), "data=ordered")
    assert again.undo == ("umount -- /mnt/nvme && mount -t ext4 -o rw,relatime -- /dev/nvme0n1 /mnt/nvme",)
    text = "mounts: [{target: /mnt/nvme, options: {noatime: true, nodev: true}}]"
    shown = made(changed(local(options=("rw", "relatime")), fstab=()), text)
    assert step(shown, "noatime").undo == ("mount -o remount,rw,relatime,dev -- /mnt/nvme",)
    strict = made(changed(local(options=("rw",)), fstab=()), text)
    assert step(strict, "noatime").undo == ("mount -o remount,rw,strictatime,dev -- /mnt/nvme",)


def test_a_boot_that_comes_anyway_does_the_mount() -> None:
    """pcie-nvme-raid: multipath off needs a boot, /mnt/nvme needs data=ordered; fstab comes first, and no unmount."""
    node = example("pcie-nvme-raid").node
    found = made(changed(node, fstab=None))
    whats = [s.what for s in found.steps]
    (edit,) = [n for n, what in enumerate(whats) if "data=ordered" in what]
    (boot,) = [n for n, s in enumerate(found.steps) if s.needs_reboot]
    assert edit < boot
    assert not any("umount" in c or "remount" in c for s in found.steps for c in s.commands)
    (lineless,) = [s for s in made(changed(node, fstab=())).steps if "data=ordered" in s.what]
    # The boot would bring it up without, or not at all, and with multipath off drives may be numbered anew.
    assert lineless.commands[0].startswith("! mountpoint -q -- /mnt/nvme || umount -- /mnt/nvme && mount -t ext4 ")
    assert "may be another drive" in (lineless.risk or "")
    assert lineless.check == ("findmnt -no OPTIONS --mountpoint /mnt/nvme",)


@pytest.mark.parametrize("stands", [True, False])
def test_a_mount_that_the_boot_left_out_is_made(stands: bool) -> None:
    node = changed(example("pcie-nvme-raid").node, fstab=())
    uuid = "0a3407de-014b-458b-b5c1-848e92a327a3"
    block = tuple(
        msgspec.structs.replace(b, udev={**(b.udev or {}), "ID_FS_UUID": uuid}) if b.name == "nvme5n1" else b
        for b in node.block
    )
    command = step(made(changed(node, block=block)), "data=ordered").commands[0]
    stubs = f'mountpoint() {{ {"true" if stands else "false"}; }}; umount() {{ echo out; }}; mount() {{ echo "$6"; }}; '
    ran = subprocess.run(["sh", "-c", stubs + command], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == (["out"] if stands else []) + [f"UUID={uuid}"]


@pytest.mark.skipif(not shutil.which("sed"), reason="no sed here")
@pytest.mark.parametrize("target", ["/mnt/new", "/mnt/a b\\'c [x]"])
def test_a_line_is_added_and_taken_out_again(target: str, tmp_path: Path) -> None:
    text = f"mounts: [{{target: {json.dumps(target)}, type: lustre, source: '10.0.0.1@o2ib:/fs'}}]"
    doing = step(made(local(), text), "add its line")
    tab = tmp_path / "fstab"
    tab.write_text("/dev/sda1 / ext4 defaults 0 1\n")
    append = doing.commands[0].partition(" || ")[2]
    subprocess.run(["sh", "-c", append.replace("/etc/fstab", str(tab))], check=True)
    assert entries(tab.read_text())[1] == ["10.0.0.1@o2ib:/fs", target, "lustre", "defaults,_netdev", "0", "0"]
    subprocess.run(["sh", "-c", doing.undo[1].replace("/etc/fstab", str(tab))], check=True)
    assert tab.read_text() == "/dev/sda1 / ext4 defaults 0 1\n"


@pytest.mark.skipif(not shutil.which("findmnt"), reason="no findmnt here")
def test_findmnt_takes_the_fstab(tmp_path: Path) -> None:
    """Errors of findmnt --verify that are about the text; that the devices are not here is no fault of it."""
    for node in (
        example("hgx-h100-vast").node,
        example("pcie-nvme-raid").node,
        local(fstype="ext4", target="/mnt/a b'\"#c"),
    ):
        tab = tmp_path / "fstab"
        tab.write_text(emit.EMITTERS["fstab"].emit(made(node)).content)
        shown = subprocess.run(
            ["findmnt", "--verify", "--tab-file", str(tab)], check=False, capture_output=True, text=True
        )
        said = re.findall(r"\[([EW])\] (.*)", shown.stdout + shown.stderr)
        absent = ("unreachable", "does not exist", "no such", "unsupported", "not found", "cannot detect", "seems")
        assert [text for _, text in said if not any(word in text.lower() for word in absent)] == []
        assert "0 parse errors" in shown.stdout + shown.stderr or "Success" in shown.stdout + shown.stderr


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_systemd_takes_the_mount_units(tmp_path: Path) -> None:
    for node in (example("hgx-h100-vast").node, local(fstype="ext4", target="/mnt/a b-c")):
        text = emit.EMITTERS["systemd-mount"].emit(made(node)).content
        units = re.split(r"^# /etc/systemd/system/(.+\.mount)$", text, flags=re.MULTILINE)[1:]
        assert len(units) >= 2
        for name, body in zip(units[::2], units[1::2], strict=True):
            (tmp_path / name).write_text(body)
            shown = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
                check=False,
                capture_output=True,
                text=True,
            )
            own = [line for line in shown.stderr.splitlines() if name in line]
            assert own == []


@pytest.mark.parametrize(
    ("os_id", "initramfs", "loader"),
    [
        ("ubuntu", "update-initramfs -u -k all", "update-grub"),
        ("rocky", "dracut -f --regenerate-all", "grubby --update-kernel=ALL"),
        ("sles", "dracut -f --regenerate-all", "pbl --add-option"),
        (None, "if command -v update-initramfs", "update-grub"),
    ],
)
def test_steps_speak_the_distribution(os_id: str | None, initramfs: str, loader: str) -> None:
    node = local(hook="stock", fstype="ext4", target="/")
    node = changed(node, platform=msgspec.structs.replace(node.platform, os_id=os_id))
    found = made(node)
    commands = [command for s in found.steps for command in s.commands]
    assert any(command.startswith(initramfs) for command in commands)
    assert any(loader in command for command in commands)
    assert sum(s.needs_reboot for s in found.steps) == 1


def test_every_step_can_be_undone_and_checked() -> None:
    for node in (example("hgx-h100-vast").node, example("pcie-nvme-raid").node, example("nvme-unpatched").node):
        for s in made(node).steps:
            assert s.check
            assert s.undo or s.needs_reboot


def test_a_distribution_has_one_row() -> None:
    names = [name for row in distributions() for name in row.ids]
    assert len(names) == len(set(names))
    assert distribution("plan9") is None
    assert all(row.source for row in distributions())


def test_patched_modules_by_kernel() -> None:
    """GDS release notes: DOCA up to Linux 6.16 any but 3.3.0, from 6.17 on 3.3.0 or newer."""
    known = set(hooks())
    assert all(set(row.hooks) <= known and row.source for row in packages())
    assert "any version but 3.3.0" in bringing("nvme", (6, 16, 0), "ubuntu")[0].said
    assert "3.3.0 or newer" in bringing("nvme", (6, 17, 1), "ubuntu")[0].said
    assert not any("linux-nvidia" in row.said for row in bringing("nvme", (6, 8, 0), "rocky"))
    older, newer = (
        next(row for row in bringing("nvme", kernel, "ubuntu") if row.name == "linux-nvidia kernel")
        for kernel in ((6, 8, 0), (6, 17, 0))
    )
    assert "not verified" in older.said
    assert newer.said == "Ubuntu's linux-nvidia kernel"
    assert [row.name for row in bringing("lnet", None, None)] == ["EXAScaler client"]


def test_what_stands_against_a_mode_is_told() -> None:
    notes = made(example("pcie-nvme-raid").node).notes
    assert any(n.startswith("P2PDMA gains nothing for /mnt/raid") and "md RAID0 needs Linux 7.1" in n for n in notes)
    assert any(n.startswith("against nvidia-fs") and "DOCA-OFED" in n for n in notes)
    assert not any(n.startswith("against") for n in made(example("hgx-h100-vast").node).notes)


def test_the_registry_text_is_defined_once() -> None:
    """The keys stand in nvidia-p2pdma.conf already; the last line of an option replaces the others (modprobe.d(5))."""
    text = emit.EMITTERS["modprobe"].emit(made(example("pcie-nvme-raid").node)).content
    options = [line for line in text.splitlines() if line.startswith("options")]
    assert options == ["options nvme_core multipath=N"]
    assert "stands in /etc/modprobe.d/nvidia-p2pdma.conf" in text
    node = example("pcie-nvme-raid").node
    keys = node.nvidia_driver.modprobe_registry_dwords or {}
    driver = msgspec.structs.replace(
        node.nvidia_driver, modprobe_files=dict.fromkeys(keys, "/etc/modprobe.d/gdsctl.conf")
    )
    own = made(changed(node, nvidia_driver=driver))  # the file that is replaced: what stands in it is kept
    assert emit.EMITTERS["modprobe"].emit(own).content.count("\noptions nvidia NVreg_RegistryDwords=") == 1
    assert "registry keys as they stand there" in step(own, "multipath off").what


def test_a_step_tells_all_that_its_file_changes() -> None:
    found = step(made(example("pcie-nvme-raid").node), "Install /etc/cufile.json")
    assert "block.nvme.use_pci_p2pdma" in found.what
    assert found.changes == ("block.nvme.use_pci_p2pdma: false -> true",)
    text = (
        "compat: forbid\ntuning: {max_io_threads: 4, max_request_parallelism: 2, log_level: INFO, use_poll_mode: true}"
    )
    many = step(
        made(example("pcie-nvme-raid").node, text.replace("log_level", "logging.level")), "Install /etc/cufile.json"
    )
    assert "and 2 more keys" in many.what
    assert len(many.changes) == 6
    assert "execution.max_io_threads: 8 -> 4" in many.changes


def test_a_mount_to_come_brings_its_advice() -> None:
    notes = made(local(), "mounts: [{target: /l, type: lustre, source: '10.0.0.1@o2ib:/fs'}]").notes
    assert any(n.startswith("/l: one LNet network") and "lnetctl net show" in n for n in notes)
    for kind in ("lustre", "wekafs", "gpfs", "beegfs", "nfs", "nvme-of", "md"):
        assert advice(kind)
        assert all(row.source and row.check for row in advice(kind))
    assert advice("tmpfs") == ()


# --- what each client wants of a mount that is to come --------------------------------------------------------------------

BEEGFS = "mounts: [{target: /b, type: beegfs, source: beegfs_nodev}]"
WEKA = "mounts: [{target: /w, type: wekafs, source: 'b0,b1/fs', nics: [mlx5_2], options: {num_cores: 2}}]"
GPFS = "mounts: [{target: '/g s', type: gpfs, source: fs1}]"


def test_beegfs_names_its_configuration() -> None:
    """`mount -t beegfs beegfs_nodev /mnt -ocfgFile=...`, as doc.beegfs.io has it."""
    found = made(local(), BEEGFS)
    assert "cfgFile=/etc/beegfs/beegfs-client.conf" in step(found, "Mount /b").commands[-1]
    own = made(local(), BEEGFS.replace("beegfs_nodev}", "beegfs_nodev, options: {cfgFile: /etc/b2.conf}}"))
    assert step(own, "Mount /b").commands[-1] == "mount -t beegfs -o cfgFile=/etc/b2.conf -- beegfs_nodev /b"


def test_weka_waits_for_its_agent_and_names_its_device() -> None:
    """docs.weka.io, fstab: x-systemd.requires=weka-agent.service,x-systemd.mount-timeout=infinity,_netdev."""
    node = example("hgx-h100-vast").node
    device = next(nic.netdevs[0] for nic in node.nics if nic.rdma_device == "mlx5_2")
    found = made(node, WEKA)
    assert step(found, "Mount /w").commands[-1] == f"mount -t wekafs -o net={device},num_cores=2 -- b0,b1/fs /w"
    row = entries(emit.EMITTERS["fstab"].emit(found).content)[-1]
    assert row[3].split(",") == [
        f"net={device}",
        "num_cores=2",
        "_netdev",
        "x-systemd.requires=weka-agent.service",
        "x-systemd.mount-timeout=infinity",
    ]
    unit = emit.EMITTERS["systemd-mount"].emit(found).content.splitlines()
    assert {"After=weka-agent.service", "Requires=weka-agent.service", "TimeoutSec=infinity"} <= set(unit)
    second = next(nic.netdevs[0] for nic in node.nics if nic.rdma_device == "mlx5_7")
    # As NVIDIA's guide mounts over eight: -o num_cores=2 -o net=ib0,net=ib1,... (Troubleshooting Guide, WekaFS)
    both = made(node, WEKA.replace("mlx5_2]", "mlx5_2, mlx5_7]"))
    assert f"-o net={device},net={second},num_cores=2 " in step(both, "Mount /w").commands[-1]
    assert f" net={device},net={second},num_cores=2," in f" {entries(emit.EMITTERS['fstab'].emit(both).content)[-1][3]}"
    # Nothing here installs WEKA's client, and the node has it not.
    assert [(unmet.requirement, unmet.status) for unmet in both.unmet] == [("client:/w", "unknown")]
    there = msgspec.structs.replace(node.modules["wekafsio"], loaded=True)
    joined = msgspec.structs.replace(node, modules={**node.modules, "wekafsio": there})
    assert made(joined, WEKA).unmet == ()
    for text in (WEKA.replace("b0,b1/fs", "fs"), WEKA.replace("nics: [mlx5_2], ", "")):
        assert "net=" not in step(made(node, text), "Mount /w").commands[-1]
    pinned = made(node, WEKA.replace("{num_cores", "{'net:ha': eth7, num_cores"))
    assert "-o net:ha=eth7,num_cores=2 " in step(pinned, "Mount /w").commands[-1]


def test_storage_scale_mounts_by_its_own_command() -> None:
    """`mmmount Device MountPoint`; the line in /etc/fstab is written by mmcrfs and mmchfs."""
    found = made(local(), GPFS)
    doing = step(found, "Mount '/g s'")
    assert doing.commands == ("mkdir -p -- '/g s'", "mmmount fs1 '/g s'")
    assert doing.undo == ("mmumount fs1",)
    assert "/etc/fstab" not in doing.what
    assert "mmmount fs1 '/g s'" in emit.EMITTERS["mount"].emit(found).content
    for kind in ("fstab", "systemd-mount"):
        assert "gpfs" not in emit.EMITTERS[kind].emit(found).content
    with_options = made(local(), GPFS.replace("fs1}", "fs1, options: {ro: true}}"))
    assert step(with_options, "Mount '/g s'").commands[-1] == "mmmount fs1 '/g s' -o ro"


@pytest.mark.parametrize(
    ("source", "route"),
    [("10.0.0.1@o2ib:/fs", "unknown"), ("10.0.0.1@o2ib1,10.1.0.1@tcp:/fs", "unknown"), ("a@tcp:/fs", "compat")],
)
def test_a_lustre_mount_to_come_is_judged_by_its_networks(source: str, route: str) -> None:
    """Over TCP nothing goes direct; over o2ib it hangs on lnet's hooks, of which this node tells nothing."""
    found = made(local(), f"mounts: [{{target: /l, type: lustre, source: '{source}', expect: any}}]")
    assert {r.route for r in found.routes_after if r.mount == "/l"} == {route}


def with_registry(**files: str) -> Plan:
    """A100s on the stock nvme module whose driver gets PeerMappingOverride=1 from a file."""
    node = example("nvme-unpatched").node
    keys = {"PeerMappingOverride": "1"}
    driver = msgspec.structs.replace(
        node.nvidia_driver, registry_dwords=keys, modprobe_registry_dwords=keys, modprobe_files=files
    )
    return made(changed(node, nvidia_driver=driver))


def test_a_line_of_a_package_is_copied_and_edited_in_etc() -> None:
    commands = step(with_registry(PeerMappingOverride="/usr/lib/modprobe.d/nv.conf"), "registry keys").commands
    assert commands[0] == "cp -a /usr/lib/modprobe.d/nv.conf /etc/modprobe.d/nv.conf"
    assert commands[1].startswith("sed -i")
    assert commands[1].endswith(" /etc/modprobe.d/nv.conf")


def test_the_command_line_is_told_not_edited() -> None:
    found = with_registry(PeerMappingOverride="/proc/cmdline")
    assert not any("/proc/cmdline" in c for s in found.steps for c in s.commands)
    assert any("beats modprobe.d" in note for note in found.notes)
    assert found.driver.registry is not None
    assert found.driver.registry["PeerMappingOverride"] == "1"


@pytest.mark.skipif(not shutil.which("sed"), reason="no sed here")
def test_only_the_registry_text_is_taken_out(tmp_path: Path) -> None:
    """Other options of the line stay."""
    path = tmp_path / "nv.conf"
    path.write_text('options nvidia NVreg_EnableGpuFirmware=1 NVreg_RegistryDwords="A=1;B=2;" NVreg_TCEBypassMode=1\n')
    before = path.read_text()
    doing = step(with_registry(PeerMappingOverride="/etc/modprobe.d/nv.conf"), "registry keys")
    for _ in range(2):
        subprocess.run(["sh", "-c", doing.commands[0].replace("/etc/modprobe.d/nv.conf", str(path))], check=True)
    assert path.read_text() == "options nvidia NVreg_EnableGpuFirmware=1 NVreg_TCEBypassMode=1\n"
    subprocess.run(["sh", "-c", doing.undo[1].replace("/etc/modprobe.d/nv.conf", str(path))], check=True)
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("name", "artifact", "words", "node"),
    [
        ("/etc/cufile.json", "cufile.json", "Install /etc/cufile.json", "pcie-nvme-raid"),
        ("/etc/modprobe.d/gdsctl.conf", "modprobe.conf", "modprobe.d/gdsctl.conf", "nvme-unpatched"),
    ],
)
@pytest.mark.parametrize("original", ["mine", None])
def test_two_runs_keep_the_first_file_and_one_undo_brings_it_back(
    *, name: str, artifact: str, words: str, node: str, original: str | None, tmp_path: Path
) -> None:
    """Original or none, runs, undone, undone once more: the original or none."""
    found = made(example(node).node)
    doing = step(found, words)
    (install,) = [c for c in doing.commands if f"install -m 0644 {artifact}" in c]
    path = tmp_path / "there"
    if original is not None:
        path.write_text(original)

    def run_here(command: str) -> None:
        subprocess.run(["sh", "-c", command.replace(name, str(path))], check=True, cwd=tmp_path)

    for text in ("first", "second"):
        (tmp_path / artifact).write_text(text)
        run_here(install)
        assert path.read_text() == text
    for _ in range(2):
        run_here(doing.undo[0])
        assert (path.read_text() if path.exists() else None) == original


def test_a_second_plan_keeps_the_words_of_the_first_for_the_boot(tmp_path: Path) -> None:
    node = local(fstype="ext4", target="/")
    node = changed(node, platform=msgspec.structs.replace(node.platform, os_id="ubuntu"))
    doing = step(made(node), "rootflags=data=ordered")
    snippet = tmp_path / "gdsctl.cfg"
    earlier = 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt"\n'
    snippet.write_text(earlier)
    for _ in range(2):
        subprocess.run(["sh", "-c", doing.commands[1].replace("/etc/default/grub.d", str(tmp_path))], check=True)
    assert snippet.read_text() == earlier + earlier.replace("iommu=pt", "rootflags=data=ordered")
    subprocess.run(["sh", "-c", doing.undo[0].replace("/etc/default/grub.d", str(tmp_path))], check=True)
    assert snippet.read_text() == earlier


def test_the_step_that_forbids_compat_mode_tells_the_risk() -> None:
    """Without compat mode cuFileHandleRegister refuses a file that has no direct path, whatever mount it is on."""
    forbidding = step(made(local(), "compat: forbid"), "Install /etc/cufile.json")
    assert "5001" in (forbidding.risk or "")
    assert "every mount" in (forbidding.risk or "")
    other = step(made(local(), "tuning: {max_io_threads: 9}"), "Install /etc/cufile.json")
    assert "5001" not in (other.risk or "")


# --- the root filesystem, and options that no mount table shows -----------------------------------------------------------

ROOT = "mounts: [{target: /, options: {noatime: true}}]"


def rooted(cmdline: str = "quiet", **fields: object) -> Node:
    node = local(fstype="ext4", target="/")
    return changed(node, platform=msgspec.structs.replace(node.platform, cmdline=cmdline), **fields)


def test_rootflags_hold_no_flag_of_the_mount() -> None:
    """Without an initramfs the kernel hands rootflags to the filesystem, and ext4 refuses `noatime` there: no root, no boot."""
    found = made(rooted(), ROOT)
    assert [argument.word for argument in found.driver.arguments] == ["rootflags=data=ordered"]
    put = step(found, "into the line of /")
    assert "Put noatime into" in put.what
    assert put.order < step(found, "Reboot").order
    assert not any(s.what.startswith("Mount / ") for s in found.steps)  # the boot does it
    content = emit.EMITTERS["mount"].emit(found).content
    assert content.splitlines()[1:] == [
        "# rootflags=data=ordered on the kernel command line",
        "mount -o remount,noatime -- /",
    ]
    assert entries(emit.EMITTERS["fstab"].emit(found).content)[0][3:] == ["rw,data=ordered,noatime", "0", "1"]
    assert "no mount needs a unit" in emit.EMITTERS["systemd-mount"].emit(found).content


def test_rootflags_that_stand_are_kept() -> None:
    """The kernel takes the last rootflags= alone (Linux init/do_mounts.c, root_data_setup)."""
    found = made(rooted("ro rootflags=subvol=a rootflags=errors=remount-ro,data=writeback"))
    assert [argument.word for argument in found.driver.arguments] == ["rootflags=errors=remount-ro,data=ordered"]


def test_a_root_that_stands_as_it_should_needs_no_line_for_its_own_options(tmp_path: Path) -> None:
    lines = parse_fstab("UUID=1 / ext4 noatime 0 1\n").entries
    mounts = local(fstype="ext4", target="/", options=("rw", "noatime", "data=ordered")).mounts
    found = made(rooted(mounts=mounts, fstab=lines), ROOT)
    assert [s.what for s in found.steps if "/etc/cufile.json" not in s.what] == []


@pytest.mark.parametrize("option", ["nofail: true", "x-systemd.device-timeout: 5", "_netdev: true", "noauto: true"])
def test_what_no_mount_table_shows_asks_for_no_mount(option: str) -> None:
    """mount(8): these are read from fstab and never reach the kernel."""
    found = made(local(), f"mounts: [{{target: /mnt/nvme, options: {{{option}}}}}]")
    assert [plan.change for plan in found.mounts] == ["none"]
    lines = parse_fstab("/dev/nvme0n1 /mnt/nvme xfs defaults 0 2\n").entries
    put = step(made(changed(local(), fstab=lines), f"mounts: [{{target: /mnt/nvme, options: {{{option}}}}}]"), "Put ")
    assert "line 1 of /etc/fstab" in put.what


# --- md arrays ------------------------------------------------------------------------------------------------------------


def arrayed(kernel: tuple[int, int, int], udev: dict[str, str] | None, **gds: object) -> Plan:
    node = example("pcie-nvme-raid").node
    block = tuple(msgspec.structs.replace(b, udev=udev) if b.kind == "md" else b for b in node.block)
    platform = msgspec.structs.replace(node.platform, kernel_version=kernel, kernel=".".join(map(str, kernel)))
    node = changed(node, block=block, platform=platform, gds=msgspec.structs.replace(node.gds, **gds))
    return made(node, "mode: p2pdma\nmounts: [{target: /mnt/raid}]")


@pytest.mark.parametrize(("udev", "gds"), [({"ID_FS_TYPE": "xfs"}, {}), (None, {"udev_rule_md": False})])
def test_an_array_that_udev_does_not_know_gets_a_rule(udev: dict[str, str] | None, gds: dict[str, object]) -> None:
    """P2PDMA to md RAID0 needs Linux 7.1, and MD_LEVEL and MD_DEVICES in udev's database."""
    found = arrayed((7, 1, 0), udev, **gds)
    doing = step(found, "Let udev ask mdadm")
    assert "/dev/md0" in doing.what
    assert {route.route for route in found.routes_after if route.mount == "/mnt/raid"} == {"p2pdma"}
    assert doing.order > step(found, "Reboot").order


def test_no_rule_where_it_gains_nothing_or_stands() -> None:
    stands = {"MD_LEVEL": "raid0", "MD_DEVICES": "4"}
    for found in (arrayed((6, 8, 0), {}), arrayed((7, 1, 0), stands), arrayed((7, 1, 0), None, udev_rule_md=None)):
        assert not any("mdadm" in s.what for s in found.steps)


def test_udev_takes_the_rule(tmp_path: Path) -> None:
    rule = tmp_path / "63-gdsctl-md.rules"
    doing = step(arrayed((7, 1, 0), {}), "Let udev ask mdadm")
    subprocess.run(["sh", "-c", doing.commands[0].replace("/etc/udev/rules.d", str(tmp_path))], check=True)
    assert rule.read_text().count("\n") == 1
    udevadm = shutil.which("udevadm")  # it knows `verify` since systemd 254
    if udevadm and "verify" in subprocess.run([udevadm, "--help"], capture_output=True, text=True, check=False).stdout:
        ran = subprocess.run(
            [udevadm, "verify", "--resolve-names=never", rule], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr + ran.stdout
    subprocess.run(["sh", "-c", doing.undo[0].replace("/etc/udev/rules.d", str(tmp_path))], check=True)
    assert not rule.exists()


IMPOSSIBLE = "mode: p2pdma\ncompat: forbid\nmounts: [{target: /mnt/raid, expect: direct}]"


def test_a_file_that_takes_the_only_path_is_held_back() -> None:
    """pcie-nvme-raid: P2PDMA to md RAID 0 needs Linux 7.1, the node has 6.8 and a stock nvme module; only compat is left."""
    node = example("pcie-nvme-raid").node
    found = made(node, IMPOSSIBLE)
    held = step(found, "Install /etc/cufile.json")
    assert held.held is not None
    assert held.held.startswith("/mnt/raid would be left without any path")
    assert (held.commands, held.undo) == ((), ())
    assert [unmet.status for unmet in found.unmet] == ["fail"]
    text = emit.EMITTERS["steps"].emit(found).content
    assert "# " + "   held back, do not apply it: /mnt/raid" in text
    assert "cufile.json /etc/cufile.json" not in text
    allowed = made(node, IMPOSSIBLE.replace("compat: forbid", "compat: allow"))
    assert [s.held for s in allowed.steps if s.held] == []
    # A drive that P2PDMA does reach loses nothing.
    direct = made(example("nvme-unpatched").node, IMPOSSIBLE.replace("/mnt/raid", "/mnt/nvme"))
    assert step(direct, "Install /etc/cufile.json").commands
    # Where compat mode is forbidden already, the file takes nothing away.
    own = made(local(files={"/etc/cufile.json": '{"properties": {"allow_compat_mode": false}}'}, hook="stock"))
    assert not any(s.held for s in own.steps)
