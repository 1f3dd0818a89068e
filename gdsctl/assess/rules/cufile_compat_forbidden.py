from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data import cufile_keys
from gdsctl.model.judgement import Remedy

_KEY = "properties.allow_compat_mode"


def check(view: View) -> Iterator[Verdict]:
    if view.config.flag(_KEY) is False:
        yield Fail(
            subject=_KEY,
            message="compat mode is forbidden: where no direct route works, cuFile refuses the file",
            evidence=seen(_KEY, "false", view.config.origin_of(cufile_keys.pointer(_KEY)) or "cufile.json"),
        )


RULE = Rule(
    id="cufile.compat-forbidden",
    severity="info",
    problem="compat mode is forbidden",
    why="With allow_compat_mode false cuFile opens a file only where a direct route works; all else fails, with 5001 or 5008, "
    "instead of going through host memory.",
    look_at=("grep allow_compat_mode /etc/cufile.json", "gdscheck -p | grep use_compat_mode"),
    remedy=Remedy(
        text="Nothing has to change where a direct route is required; otherwise set properties.allow_compat_mode to true."
    ),
    not_to_conclude="It is no fault: it makes a lost direct route show.",
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    blocks=("compat",),
    check=check,
)
