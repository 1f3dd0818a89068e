"""What stands in /etc/fstab decides what is left to do there: nothing, an option, a line, or all that is unknown."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gdsctl import emit
from gdsctl.assess.assessment import assess
from gdsctl.model.node import Node
from gdsctl.parse.fstab import parse
from gdsctl.plan.context import Context
from gdsctl.plan.desired import Plan, plan
from gdsctl.plan.drift import system_drift
from tests.planned_nodes import changed, local, wanted

needs_tools = pytest.mark.skipif(not (shutil.which("sed") and shutil.which("findmnt")), reason="no sed or findmnt here")
INTENT = "mounts: [{target: /mnt/nvme}]"
LUSTRE = "mounts: [{target: /scratch, type: lustre, source: '10.0.0.1@o2ib:/fs', options: {flock: true}}]"
BARE = "# disks\nUUID=0a34 /mnt/nvme ext4 defaults,nofail 0 2\n"
RIGHT = "UUID=0a34 /mnt/nvme ext4 nofail,data=ordered 0 2\n"
WRITEBACK = "UUID=0a34 /mnt/nvme ext4 data=writeback 0 2\n"


def node(fstab: str | None, options: tuple[str, ...] = ("rw",)) -> Node:
    lines = None if fstab is None else parse(fstab).entries
    return changed(local(fstype="ext4", options=options), fstab=lines)


def made(subject: Node, text: str = INTENT) -> Plan:
    return plan(assess(subject), wanted(text))


def edited(found: Plan, text: str, folder: Path) -> str:
    """The fstab after all that the plan's steps do to it."""
    tab = folder / "fstab"
    tab.write_text(text)
    for step in found.steps:
        for command in step.commands:
            if "/etc/fstab" in command:
                shell = command.replace("findmnt --fstab", f"findmnt --tab-file {tab}").replace("/etc/fstab", str(tab))
                subprocess.run(["sh", "-c", shell], check=True, stdout=subprocess.DEVNULL)
    return tab.read_text()


def doing(found: Plan) -> list[str]:
    """Titles of the steps on mounts."""
    return [step.what for step in found.steps if "ount" in step.what or "fstab" in step.what]


@needs_tools
def test_a_line_that_is_right_is_left_alone(tmp_path: Path) -> None:
    found = made(node(RIGHT))
    assert doing(found)
    assert edited(found, RIGHT, tmp_path) == RIGHT
    assert doing(made(node(RIGHT, ("rw", "data=ordered")))) == []
    content = emit.EMITTERS["fstab"].emit(found).content
    assert "/mnt/nvme: line 1 of /etc/fstab is right" in content
    assert all(line.startswith("#") for line in content.splitlines())


@needs_tools
@pytest.mark.parametrize("text", [BARE, WRITEBACK])
@pytest.mark.parametrize("options", [("rw",), ("rw", "data=ordered")])
def test_a_line_that_lacks_the_option_is_corrected(text: str, options: tuple[str, ...], tmp_path: Path) -> None:
    found = made(node(text, options))
    after = edited(found, text, tmp_path)
    (entry,) = parse(after).entries
    assert entry.options[-1] == "data=ordered"
    assert (entry.source, entry.passno) == ("UUID=0a34", 2)
    content = emit.EMITTERS["fstab"].emit(found).content
    assert f"line {entry.line} of /etc/fstab, which lacks data=ordered" in content
    assert [(line.source, line.options) for line in parse(content).entries] == [(entry.source, entry.options)]
    assert doing(made(node(after, ("rw", "data=ordered")))) == []


def test_a_line_that_only_the_next_boot_needs_is_a_step() -> None:
    (what,) = doing(made(node(BARE, ("rw", "data=ordered"))))
    assert "data=ordered" in what
    assert "line 2 of /etc/fstab" in what


@needs_tools
def test_a_mount_without_a_line_is_told(tmp_path: Path) -> None:
    other = "/dev/sda1 / ext4 defaults 0 1\n"
    found = made(node(other))
    assert edited(found, other, tmp_path) == other
    assert any(
        "/mnt/nvme has no line in /etc/fstab" in note and note.endswith("must give data=ordered")
        for note in found.notes
    )
    assert not any("has no line" in note for note in made(node(None)).notes)


@needs_tools
def test_a_mount_to_come(tmp_path: Path) -> None:
    line = "10.0.0.1@o2ib:/fs /scratch lustre flock,_netdev 0 0\n"
    for known in (None, ""):
        assert edited(made(node(known), LUSTRE), "", tmp_path) == line
    assert edited(made(node(line), LUSTRE), line, tmp_path) == line
    other = made(node(line.replace("0.1@", "0.2@")), LUSTRE)
    assert any("line 1 of /etc/fstab mounts 10.0.0.2@o2ib:/fs there" in note for note in other.notes)


def test_nfs_by_its_other_names() -> None:
    text = "mounts: [{target: /kv, type: nfs, source: '10.0.0.1:/kv', transport: rdma, client: kernel}]"
    there = "10.0.0.1:/kv /kv nfs nfsvers=4.2,rdma,port=20049 0 0\n"
    (wish,) = made(node(there), text).mounts
    assert wish.fstab.right
    (wish,) = made(node(there.replace("port=20049", "port=2049")), text).mounts
    assert wish.fstab.lacks == ("port=20049",)


def test_verify_tells_of_the_next_boot() -> None:
    subject = node(BARE, ("rw", "data=ordered"))
    assessment = assess(subject)
    (drift,) = [d for d in system_drift(Context(assessment, wanted(INTENT)), made(subject)) if d.kind == "mount"]
    assert (drift.origin, drift.installed, drift.required) == ("/etc/fstab:2", "defaults,nofail", False)
    assert drift.planned == "defaults,nofail,data=ordered"
