"""Everything that `plan` writes, read back by `app`: nothing is found that the plan itself does not say."""

from __future__ import annotations

import functools
from typing import get_args

import msgspec
import pytest

from gdsctl import emit, pipeline
from gdsctl.data import app_foreign
from gdsctl.errors import InputError
from gdsctl.kvcache.app import AppReport, judge
from gdsctl.model.node import Report
from gdsctl.plan.documents import PlanReport
from gdsctl.plan.intent import Intent, Mode, Wanted, Workload
from gdsctl.source.opening import open_source

EXAMPLES = ("hgx-h100-vast", "nvme-unpatched", "pcie-nvme-raid", "vm-flattened", "vm-lab-switches")
MODES: tuple[Mode, ...] = get_args(Mode)
STARTS = ("lmcache", "pod")  # the artifacts that start a program


@functools.cache
def node(name: str) -> Report:
    return pipeline.inspect(open_source(f"example:{name}"))


@functools.cache
def planned(name: str, mode: Mode, gpus_by: str) -> PlanReport:
    workload = msgspec.convert({"kind": "kv-cache", "chunk_bytes": 48 << 20, "gpus_by": gpus_by}, Workload)
    wanted = Wanted(intent=Intent(workload=workload), path="i")
    return pipeline.plan(open_source(f"example:{name}"), wanted, mode=mode, kinds=list(emit.EMITTERS))


def read_back(files: dict[str, str], on: Report) -> AppReport:
    return judge(list(files.items()), tool=pipeline.tool(), node=on)


def after(report: PlanReport, now: Report) -> Report:
    """The node as the plan leaves it, as far as routes go."""
    return msgspec.structs.replace(now, routes=report.routes_after)


@pytest.mark.parametrize("gpus_by", ["device-plugin", "resource-claim"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_is_found_that_the_plan_does_not_say(name: str, mode: Mode, gpus_by: str) -> None:
    drawn, now = planned(name, mode, gpus_by), node(name)
    unmet = {row.requirement.removeprefix("route:") for row in drawn.unmet}
    changed = {
        a.mount
        for a, b in zip(drawn.routes_after, drawn.routes_now, strict=True)
        if (a.gpu, a.route) != (b.gpu, b.route)
    }
    judged = 0
    for kind in STARTS:
        files = {emit.EMITTERS[kind].file: drawn.artifacts[kind].content}
        for on, allowed in ((after(drawn, now), unmet), (now, unmet | changed)):
            report = read_back(files, on)
            judged += 1
            mounts = {
                route.mount
                for stack in report.stacks
                for edge in stack.edges
                for route in edge.routes or ()
                if route.mount is not None
            }
            told = [f for f in report.findings if f.severity in ("critical", "error", "warning")]
            assert all(f.id == "app.path-not-direct" and mounts & allowed for f in told), told
            assert report.verdict == ("fail" if told else "pass")
    assert judged == 4


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_whole_folder_is_one_application(name: str) -> None:
    drawn = planned(name, "auto", "device-plugin")
    kinds = ("pod", "lmcache", "storageclass")
    files = {emit.EMITTERS[kind].file: drawn.artifacts[kind].content for kind in kinds}
    files = {file: text for file, text in files.items() if any(line[:1] not in ("", "#") for line in text.split("\n"))}
    report = read_back(files, after(drawn, node(name)))
    assert [f.id for f in report.findings if f.severity != "info"] == []


@pytest.mark.parametrize("kind", [kind for kind in emit.EMITTERS if kind not in STARTS])
@pytest.mark.parametrize("name", EXAMPLES)
def test_what_starts_nothing_is_known_for_what_it_is(name: str, kind: str) -> None:
    text = planned(name, "auto", "device-plugin").artifacts[kind].content
    if kind == "storageclass" and "kind: StorageClass" in text:  # storage tells what it is, and what to give beside it
        report = read_back({"f": text}, node(name))
        assert (report.verdict, report.stacks) == ("unknown", ())
        assert {one.kind for one in report.storage} == {"StorageClass", "PersistentVolumeClaim"}
        return
    with pytest.raises(InputError) as raised:
        read_back({"f": text}, node(name))
    words = ["the file is empty", "comments only", "Kubernetes manifest", *(row.what for row in app_foreign.rows())]
    assert any(word in str(raised.value) for word in words)
