"""fstab(5), by lines written here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.parse.fstab import parse

TEXT = """\
# /etc/fstab: static file system information.

UUID=0a34 /               ext4    errors=remount-ro 0       1
/dev/md0\t/raid/\txfs\tdefaults,nofail
10.0.0.1:/kv /mnt/a\\040b nfs vers=3,proto=rdma,port=20049,_netdev 0 0  # VAST
/dev/nvme0n1 /scratch ext4
tmpfs /run tmpfs size=10%,context="a,b" 0
none
/dev/sdz /x ext4 rw zero two
/swapfile none swap sw 0 0
"""


def test_fields() -> None:
    found = parse(TEXT)
    assert [(e.line, e.source, e.target, e.fstype) for e in found.entries] == [
        (3, "UUID=0a34", "/", "ext4"),
        (4, "/dev/md0", "/raid", "xfs"),
        (5, "10.0.0.1:/kv", "/mnt/a b", "nfs"),
        (6, "/dev/nvme0n1", "/scratch", "ext4"),
        (7, "tmpfs", "/run", "tmpfs"),
        (10, "/swapfile", "none", "swap"),
    ]
    root, raid, kv, scratch, run, _ = found.entries
    assert (root.options, root.dump, root.passno) == (("errors=remount-ro",), 0, 1)
    assert (raid.options, raid.passno) == (("defaults", "nofail"), 0)
    assert kv.options == ("vers=3", "proto=rdma", "port=20049", "_netdev")
    assert scratch.options == ()
    assert run.options == ("size=10%", 'context="a,b"')
    assert [warned.line for warned in found.warnings] == [8, 9]


@pytest.mark.skipif(not shutil.which("findmnt"), reason="no findmnt here")
def test_libmount_reads_the_same(tmp_path: Path) -> None:
    tab = tmp_path / "fstab"
    tab.write_text("\n".join(line for line in TEXT.splitlines() if "zero" not in line and line != "none") + "\n")
    shown = subprocess.run(
        ["findmnt", "--fstab", "--tab-file", str(tab), "--raw", "--noheadings", "-o", "SOURCE,TARGET,FSTYPE"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    ours = [(e.target, e.fstype) for e in parse(tab.read_text()).entries]
    theirs = [line.split(" ")[1:3] for line in shown.splitlines()]
    assert [(target.replace("\\x20", " ").rstrip("/") or "/", fstype) for target, fstype in theirs] == ours


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.sampled_from('a/# \t\n\\0,="\0é'), max_size=80))
def test_any_text_is_an_fstab(text: str) -> None:
    found = parse(text)
    assert all(0 < entry.line <= text.count("\n") + 1 for entry in found.entries)
