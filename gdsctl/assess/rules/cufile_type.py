from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.type")


RULE = Rule(
    id="cufile.type",
    severity="critical",
    otherwise={
        "warning": "in gpu_bounce_buffer_slab_config, which the library then drops, and where the root is [] or null",
    },
    problem="a value of cufile.json has the wrong type",
    why='Types are strict: "true" or 1 for a boolean, "64" for a number or a text for a list make the load fail for every process.',
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(text="Write the value as the type that is named."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)
