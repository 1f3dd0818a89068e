from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gdsctl.parse.fstab import parse

TEXT = r"""# /etc/fstab: static file system information.
UUID=0a3407de-014b-458b-b5c1-848e92a327a3 / ext4 errors=remount-ro,data=ordered 0 1
/dev/md0	/mnt/raid\0401  xfs  defaults,nofail  0  2
10.0.0.5:/kv /kv nfs rw,vers=3,proto=rdma,port=20049
  # an indented comment
tmpfs /tmp tmpfs
broken
/dev/sda1 none swap sw 0 x
"""


def test_lines() -> None:
    found = parse(TEXT)
    assert [(e.source[:9], e.target, e.fstype, e.options, e.dump, e.pass_, e.line) for e in found.entries] == [
        ("UUID=0a34", "/", "ext4", ("errors=remount-ro", "data=ordered"), 0, 1, 2),
        ("/dev/md0", "/mnt/raid 1", "xfs", ("defaults", "nofail"), 0, 2, 3),
        ("10.0.0.5:", "/kv", "nfs", ("rw", "vers=3", "proto=rdma", "port=20049"), 0, 0, 4),
        ("tmpfs", "/tmp", "tmpfs", (), 0, 0, 6),
    ]
    assert [w.line for w in found.warnings] == [7, 8]


@given(st.text())
def test_never_raises(text: str) -> None:
    parse(text)
