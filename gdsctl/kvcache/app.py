"""The `app` document: what the files start, how its bytes travel, and what is wrong with it."""

from __future__ import annotations

from typing import Literal

from gdsctl.errors import InputError
from gdsctl.kvcache.findings import App, Sized, findings
from gdsctl.kvcache.launch import Found
from gdsctl.kvcache.model_config import read_model_config
from gdsctl.kvcache.on_node import on_node
from gdsctl.kvcache.read import read
from gdsctl.kvcache.recognise import recognise
from gdsctl.kvcache.stack import Draft, Stack
from gdsctl.model.judgement import Finding
from gdsctl.model.node import SCHEMA_VERSION, Report, SourceInfo, Tool
from gdsctl.record import Record


class AppReport(Record, frozen=True, kw_only=True):
    """`node`: where the routes come from, None where no node was looked at.

    `verdict`: fail where a finding is an error, unknown where it cannot be told whether GDS can help, else pass.
    """

    schema_version: str = SCHEMA_VERSION
    tool: Tool
    verdict: Literal["pass", "fail", "unknown"]
    node: SourceInfo | None = None
    stacks: tuple[Stack, ...]
    findings: tuple[Finding, ...]


def judge(
    files: list[tuple[str, str]],
    *,
    tool: Tool,
    node: Report | None = None,
    model: Sized | None = None,
    strict: bool = False,
) -> AppReport:
    """`files`: (path, text). Pure.

    Raises InputError for a file that is broken, and for one in which nothing is recognised.
    """
    found = Found()
    drafts: list[Draft] = []
    for path, text in files:
        here = read(text, path)
        try:
            own = [draft for launch in here.launches for draft in recognise(launch)]
        except InputError as error:
            raise error.at(path) from None
        if not (own or here.models):
            raise InputError(
                "nothing of LMCache, NIXL, vLLM, KVBM, HiCache, ModelExpress or fastsafetensors is configured here",
                path=path,
            )
        found += here
        drafts += own
    if not drafts:
        raise InputError("a model's config.json alone; name what serves it too", path=files[0][0])
    drafts.sort(
        key=lambda draft: draft.box is not None
    )  # of two readings of one line, the one within its container counts
    unique = tuple({(draft.stack.software, str(draft.stack.source)): draft for draft in drafts}.values())
    if model is None and found.models:
        place, text = found.models[0]
        try:
            model = Sized(attention=read_model_config(text), said=place.file)
        except InputError as error:
            raise error.at(place.file) from None
    app = App(drafts=unique, services=found.services, model=model, io_batchsize=_io_batchsize(node))
    told = findings(app)
    if node is not None:
        unique, more = on_node(unique, node)
        told = (*more, *told)
    stacks = tuple(draft.stack for draft in unique)
    return AppReport(
        tool=tool,
        verdict=_verdict(stacks, told, strict=strict),
        node=node.source if node is not None else None,
        stacks=stacks,
        findings=told,
    )


def _verdict(
    stacks: tuple[Stack, ...], told: tuple[Finding, ...], *, strict: bool
) -> Literal["pass", "fail", "unknown"]:
    failing = {"critical", "error"} | ({"warning"} if strict else set())
    if any(finding.severity in failing for finding in told):
        return "fail"
    edges = [edge for stack in stacks for edge in stack.edges]
    undecided = any(route.route == "unknown" for edge in edges for route in edge.routes or ())
    return "unknown" if undecided or any(edge.gds_helps == "unknown" for edge in edges) else "pass"


def _io_batchsize(node: Report | None) -> int | None:
    """properties.io_batchsize that the node's library would take; None without a node or a configuration."""
    merged = node.gds.cufile_config.merged if node is not None else None
    properties = merged.get("properties") if merged is not None else None
    value = properties.get("io_batchsize") if isinstance(properties, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
