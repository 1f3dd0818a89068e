from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.cufile_lint import FORCING
from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data import cufile_keys
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    for key in FORCING:
        if view.config.flag(key) is True:
            yield Fail(
                subject=key,
                message=f"{key} is true: all I/O goes through host memory, whatever else is set up",
                evidence=seen(key, "true", view.config.origin_of(cufile_keys.pointer(key)) or "cufile.json"),
            )


RULE = Rule(
    id="cufile.compat-forced",
    severity="error",
    otherwise={"info": "where lint judges a configuration that asks for no direct path"},
    problem="the configuration forces every file into compat mode",
    why="force_compat_mode and vanilla_posix_io_mode make libcufile use POSIX I/O through host memory for all files.",
    look_at=("grep -E 'force_compat_mode|posix_io_mode' /etc/cufile.json", "env | grep CUFILE_FORCE_COMPAT_MODE"),
    remedy=Remedy(text="Take the key or CUFILE_FORCE_COMPAT_MODE out, and start the processes that use cuFile anew."),
    not_to_conclude="Nothing else on the node need be wrong.",
    source="libcufile 1.11 to 1.20, observed; GDS 1.19 Release Notes",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma"),
    check=check,
)
