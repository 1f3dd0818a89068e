from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    container = view.node.container
    inside = view.in_container
    if inside and container.has_cufile_json is False and view.node.gds.cufile_config.files == () and not view.gpuless:
        yield Fail(
            subject="/etc/cufile.json",
            message="the container has no cufile.json: the library's defaults apply, not the host's settings",
            evidence=seen("/etc/cufile.json", "missing", "file system"),
        )
    elif inside and container.has_cufile_json is None and view.node.gds.cufile_config.files is None:
        yield Cannot(
            subject="/etc/cufile.json",
            fact="whether the container has a cufile.json is not known",
            settle_with=view.settle("container", "has_cufile_json", "ls -l /etc/cufile.json"),
        )


RULE = Rule(
    id="container.no-cufile-json",
    severity="warning",
    problem="the container has no cufile.json",
    why="Library and shipped file have different defaults, and neither P2PDMA nor RDMA addresses are set without the file.",
    look_at=("ls -l /etc/cufile.json", "env | grep CUFILE_ENV_PATH_JSON"),
    remedy=Remedy(
        text="Mount the host's /etc/cufile.json into the container, or set CUFILE_ENV_PATH_JSON to one that is in it."
    ),
    source="NVIDIA container toolkit, internal/discover/gds.go; libcufile defaults, observed",
    after=("container.toolkit-skips-mounts",),
    check=check,
)
