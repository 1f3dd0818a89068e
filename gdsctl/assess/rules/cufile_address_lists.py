from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.address-lists")


RULE = Rule(
    id="cufile.address-lists",
    severity="warning",
    problem="RDMA addresses of one file system are given twice",
    why="NVIDIA calls an address list beside a mount table of the same file system an error; libcufile takes both and lets the mount's own come first. It keeps the table by device number, so two mounts of one file system become one entry with the addresses of both.",
    look_at=("gdsctl lint", "cat /etc/cufile.json", "cat /proc/self/mountinfo"),
    remedy=Remedy(text="Keep the table where mounts differ, else the list; name each file system once."),
    source="NVIDIA GDS Overview Guide, dynamic routing; libcufile 1.11 to 1.20, observed",
    check=check,
)
