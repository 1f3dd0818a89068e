from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.alignment")


RULE = Rule(
    id="cufile.alignment",
    severity="critical",
    otherwise={"warning": "in gpu_bounce_buffer_slab_config, which the library then drops"},
    problem="a size in cufile.json is no multiple of what the library asks for",
    why="max_direct_io_size_kb and per_buffer_cache_size_kb must be multiples of 64 (documents say 4), other sizes of 4; the file is refused otherwise.",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(text="Round to the multiple that is named."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)
