"""Artifacts read back by readers that gdsctl did not write: json, a shell, libmount, systemd, kmod's rules."""

from __future__ import annotations

import functools
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl import emit
from gdsctl.assess.assessment import assess
from gdsctl.emit.comment import comment
from gdsctl.emit.systemd_mount import unit_name
from gdsctl.errors import UsageError
from gdsctl.model.shell import fstab_field as field
from gdsctl.plan.desired import Plan, plan
from gdsctl.plan.intent import Intent, MountIntent, Wanted
from tests.planned_nodes import changed, example, local, wanted

HOSTILE = (
    "/mnt/with blank",
    "/mnt/line\nmount /evil",
    "/mnt/$(touch /tmp/x)`id`",
    "/mnt/'single' \"double\" \\back\\",
    "/mnt/tab\there#hash;semi&amp|pipe",
    "/mnt/\x1b[31mred\x07\x7f",
    "/mnt/ünï/日本/🚀",
    "/mnt/\u202ertl\u2066",
    "/mnt/%s%n%%",
    "/mnt/-o",
    "/mnt/" + "x" * 255,
    "/mnt/\x85\xa0c1",
)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@functools.cache
def hostile(target: str, source: str = "server:/export $(id)\n'x'") -> Plan:
    """An ext4 mount that lacks its option and an NFS mount to come, both with the name."""
    node = local(fstype="ext4", target=target)
    wish = Wanted(
        intent=Intent(
            mounts=(
                MountIntent(target=target),
                MountIntent(target=target + "/nfs", source=source, type="nfs", transport="rdma"),
            )
        ),
        path="i",
    )
    return plan(assess(node), wish)


def text(kind: str, made: Plan) -> str:
    return emit.EMITTERS[kind].emit(made).content


def lines(content: str) -> list[str]:
    return [line for line in content.splitlines() if line and not line.startswith("#")]


def octal(name: str) -> str:
    """Escapes of fstab undone as util-linux does: three octal digits are one byte."""
    return re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), name.encode("utf-8", "surrogateescape")).decode(
        "utf-8", "surrogateescape"
    )


@pytest.mark.parametrize("target", HOSTILE)
@pytest.mark.parametrize("kind", list(emit.EMITTERS))
def test_no_control_character_leaves(kind: str, target: str) -> None:
    content = text(kind, hostile(target))
    assert not CONTROL.search(content)
    assert content.endswith("\n") or (kind, content) == ("kernel-cmdline", "")
    content.encode()


@pytest.mark.parametrize("target", HOSTILE)
def test_a_shell_reads_the_mount_commands_back(target: str, tmp_path: Path) -> None:
    """Bash runs them with `mount` and its like replaced by a function that prints its arguments."""
    script = tmp_path / "mount.sh"
    made = hostile(target)
    show = 'umount() { :; }; mkdir() { :; }; mount() { printf "%s\\0" "$@"; printf "\\1"; };\n'
    script.write_text(show + text("mount", made))
    ran = subprocess.run(["bash", "--norc", script], capture_output=True, check=True)
    assert ran.stderr == b""
    calls = [call.split(b"\0")[:-1] for call in ran.stdout.split(b"\1")[:-1]]
    again, fresh = calls  # a remount would leave the mount table as it is
    assert again == [b"-t", b"ext4", b"-o", b"rw,data=ordered", b"--", b"/dev/nvme0n1", target.encode()]
    assert fresh[:3] == [b"-t", b"nfs", b"-o"]
    assert fresh[4:] == [b"--", b"server:/export $(id)\n'x'", f"{target}/nfs".encode()]
    assert set(fresh[3].split(b",")) == {b"vers=3", b"proto=rdma", b"port=20049"}


@pytest.mark.parametrize("target", HOSTILE)
def test_steps_are_one_line_a_command(target: str) -> None:
    made = hostile(target)
    for step in made.steps:
        for command in (*step.commands, *step.undo):
            assert "\n" not in command
            assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0


@pytest.mark.parametrize("target", HOSTILE)
def test_fstab_fields(target: str) -> None:
    content = text("fstab", hostile(target))
    rows = [line.split(" ") for line in lines(content)]
    assert [len(row) for row in rows] == [6, 6]
    assert [octal(row[1]) for row in rows] == [target, f"{target}/nfs"]
    assert [octal(row[0]) for row in rows] == ["/dev/nvme0n1", "server:/export $(id)\n'x'"]
    assert "data=ordered" in rows[0][3].split(",")
    assert {"proto=rdma", "port=20049", "_netdev"} <= set(rows[1][3].split(","))


@pytest.mark.skipif(not shutil.which("findmnt"), reason="util-linux is not installed")
@pytest.mark.parametrize("target", HOSTILE)
def test_libmount_reads_fstab_the_same_way(target: str, tmp_path: Path) -> None:
    table = tmp_path / "fstab"
    table.write_text(text("fstab", hostile(target)))
    command = ["findmnt", "--tab-file", str(table), "--json", "-o", "TARGET,SOURCE,FSTYPE"]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    )
    found = json.loads(ran.stdout)["filesystems"]

    def flat(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        return [row for entry in rows for row in (entry, *flat(entry.get("children", [])))]  # type: ignore[arg-type]

    assert {row["fstype"] for row in flat(found)} == {"ext4", "nfs"}
    shown = {str(row["target"]) for row in flat(found)}
    if target.isprintable():  # findmnt itself writes \x0a for other characters
        assert shown == {target, f"{target}/nfs"}


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_name_is_one_field_and_one_comment(name: str) -> None:
    written = field(name)
    assert octal(written) == name
    assert len(written.split()) == 1
    assert not CONTROL.search(written)
    assert "#" not in written
    assert comment(name).isascii()
    assert "\n" not in comment(name)


@pytest.mark.skipif(not shutil.which("systemd-escape"), reason="systemd is not installed")
@pytest.mark.parametrize("target", HOSTILE)
def test_unit_names_are_those_of_systemd(target: str) -> None:
    ran = subprocess.run(["systemd-escape", "--path", "--", target], capture_output=True, text=True, check=True)
    assert unit_name(target) == ran.stdout.rstrip("\n")


def test_unit_names_of_the_manual() -> None:
    r"""systemd.unit(5) and systemd.mount(5): /home/lennart is home-lennart; `-` is \x2d."""
    assert unit_name("/home/lennart") == "home-lennart"
    assert unit_name("/") == "-"
    assert unit_name("/mnt/a-b c") == r"mnt-a\x2db\x20c"
    assert unit_name("/.hidden") == r"\x2ehidden"


@pytest.mark.parametrize("target", HOSTILE)
def test_json_names_come_back(target: str) -> None:
    base = example("hgx-h100-vast").node
    kv = next(mount for mount in base.mounts if mount.target == "/vast/kv")
    first = msgspec.structs.replace(kv, target=target, backing=msgspec.structs.replace(kv.backing, nics=("mlx5_2",)))
    second = msgspec.structs.replace(kv, target="/other", backing=msgspec.structs.replace(kv.backing, nics=("mlx5_7",)))
    made = plan(assess(changed(base, mounts=(first, second))), wanted())
    artifact = emit.EMITTERS["cufile.json"].emit(made)
    assert artifact.content.isascii()
    assert set(json.loads(artifact.content)["fs"]["nfs"]["mount_table"]) == {target, "/other"}


def test_reasons_stand_beside_every_key() -> None:
    artifact = emit.EMITTERS["cufile.json"].emit(plan(example("hgx-h100-vast"), wanted()))
    value = json.loads(artifact.content)
    assert artifact.path == "/etc/cufile.json"
    for pointer, why in artifact.reasons.items():
        found = value
        for part in pointer.split("/")[1:]:
            found = found[part]
        assert len(why) > 10
    leaves = sum(len(keys) for section in ("execution", "properties", "logging") for keys in [value[section]])
    assert leaves <= len(artifact.reasons)


def modprobe_options(content: str) -> dict[str, list[str]]:
    """modprobe.d(5): `options MODULE OPTION...`, double quotes keep blanks; `#` lines are comments."""
    found: dict[str, list[str]] = {}
    for line in lines(content):
        word, module, *options = shlex.split(line)
        assert word == "options"
        found.setdefault(module, []).extend(options)
    return found


def test_modprobe() -> None:
    made = plan(example("nvme-unpatched"), wanted())
    artifact = emit.EMITTERS["modprobe"].emit(made)
    assert artifact.path == "/etc/modprobe.d/gdsctl.conf"
    assert modprobe_options(artifact.content) == {
        "nvidia": ["NVreg_RegistryDwords=RMForceStaticBar1=1;RmForceDisableIomapWC=1;ForceP2P=0;"]
    }
    raid = plan(example("pcie-nvme-raid"), wanted())
    assert modprobe_options(text("modprobe", raid))["nvme_core"] == ["multipath=N"]


def test_kept_registry_keys_cannot_end_the_line() -> None:
    node = example("nvme-unpatched").node
    evil = {'X"\noptions evil a=1 "': "1", "Y": "2\\"}
    driver = msgspec.structs.replace(node.nvidia_driver, registry_dwords=evil, modprobe_registry_dwords=evil)
    content = text("modprobe", plan(assess(changed(node, nvidia_driver=driver)), wanted()))
    assert set(modprobe_options(content)) == {"nvidia"}


def test_kernel_cmdline_only_where_a_finding_asks() -> None:
    right = plan(assess(local()), wanted())
    assert text("kernel-cmdline", right) == ""
    assert not emit.EMITTERS["kernel-cmdline"].applies(right)
    node = local()
    iommu = msgspec.structs.replace(node.iommu, state="translated")
    advised = plan(assess(changed(node, iommu=iommu)), wanted())
    assert text("kernel-cmdline", advised) == "iommu=pt\n"
    assert not any(step.needs_reboot for step in advised.steps)


def test_nfsmount_conf() -> None:
    made = plan(example("hgx-h100-vast"), wanted())
    content = text("nfsmount.conf", made)
    found = lines(content)
    assert found[0] == '[ MountPoint "/vast/kv" ]'
    assert {"Proto=rdma", "Port=20049", "Nfsvers=3"} <= set(found)
    quote = hostile('/mnt/a"b')
    assert lines(text("nfsmount.conf", quote)) == []


def test_nfsmount_conf_has_no_options_of_fstab_only() -> None:
    """mount.nfs reads the file, and refuses what it does not know: nfs(5) has neither nofail nor x-..."""
    pinned: dict[str, str | int | bool] = {
        "nofail": True,
        "_netdev": True,
        "x-systemd.mount-timeout": "30",
        "hard": True,
    }
    nfs = MountIntent(target="/mnt/nfs", source="server:/e", type="nfs", transport="rdma", options=pinned)
    new = plan(assess(local()), Wanted(intent=Intent(mounts=(nfs,)), path="i"))
    found = lines(text("nfsmount.conf", new))
    assert {"Proto=rdma", "hard=True"} <= set(found)
    assert not [line for line in found if line.startswith(("nofail", "_netdev", "x-"))]


def test_choosing() -> None:
    assert [row.kind for row in emit.chosen(["fstab", "cufile.json"])] == ["cufile.json", "fstab"]
    assert [row.kind for row in emit.chosen(["all"])] == list(emit.EMITTERS)
    with pytest.raises(UsageError, match=r"did you mean cufile\.json"):
        emit.chosen(["cufile-json"])


def test_all_leaves_out_what_has_nothing_to_say() -> None:
    made = plan(assess(local()), wanted())
    assert set(emit.artifacts(made, emit.chosen(["all"]), named=frozenset({"all"}))) == {"cufile.json"}
    assert set(emit.artifacts(made, emit.chosen(["modprobe"]), named=frozenset({"modprobe"}))) == {"modprobe"}


@pytest.mark.parametrize("target", ["/mnt/end ", "/mnt/tab\u00a0", "/mnt/two  "])
def test_a_unit_that_would_lose_a_blank_is_left_out(target: str) -> None:
    """systemd.syntax(7): whitespace around a value is taken off; such a unit would mount another folder."""
    content = text("systemd-mount", hostile(target))
    assert f"Where={target.rstrip()}\n" not in content
    assert "left out" in content


def test_a_device_is_named_by_its_uuid_where_udev_tells_it() -> None:
    node = local(fstype="ext4")
    by_name = plan(assess(node), wanted())
    assert lines(text("fstab", by_name))[0].startswith("/dev/nvme0n1 ")
    assert "udev tells no UUID" in text("fstab", by_name)
    assert "udev tells no UUID" in text("systemd-mount", by_name)
    block = msgspec.structs.replace(node.block[0], udev={"ID_FS_USAGE": "filesystem", "ID_FS_UUID": "1b34-a0"})
    by_uuid = plan(assess(changed(node, block=(block,))), wanted())
    assert lines(text("fstab", by_uuid)) == ["UUID=1b34-a0 /mnt/nvme ext4 rw,data=ordered 0 2"]
    assert "\nWhat=UUID=1b34-a0\n" in text("systemd-mount", by_uuid)


def test_what_has_no_server_does_not_wait_for_the_network() -> None:
    """`_netdev` holds a mount back until the network is up (mount(8)); memory needs none, Lustre does."""
    for fstype, source, waits in (
        ("tmpfs", "tmpfs", False),
        ("virtiofs", "share", False),
        ("lustre", "a@tcp:/f", True),
    ):
        made = plan(
            assess(local()), wanted(f"mounts: [{{target: /x, type: {fstype}, source: '{source}', expect: any}}]")
        )
        (row,) = lines(text("fstab", made))
        assert ("_netdev" in row) is waits
        assert row.endswith(" 0 0")
        assert ("network-online" in text("systemd-mount", made)) is waits
