"""The `app` document: what the files start, how its bytes travel, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gdsctl.data import cufile_keys
from gdsctl.errors import InputError
from gdsctl.kvcache import foreign
from gdsctl.kvcache.beside import Beside, Look
from gdsctl.kvcache.findings import App, Sized, findings, graver_first
from gdsctl.kvcache.launch import Found, claims
from gdsctl.kvcache.model_config import read_model_config
from gdsctl.kvcache.on_node import Lacking, mounted, on_node
from gdsctl.kvcache.read import read
from gdsctl.kvcache.recognise import recognise_all
from gdsctl.kvcache.stack import Draft, Stack
from gdsctl.kvcache.stored import Stored, stored
from gdsctl.model.judgement import Finding
from gdsctl.model.node import SCHEMA_VERSION, Report, SourceInfo, Tool
from gdsctl.parse.platform_text import parse_cpulist
from gdsctl.record import Record


class AppReport(Record, frozen=True, kw_only=True):
    """`node`: where the routes come from, None where no node was looked at.

    `unread`: what the files name and nobody gave, as FILE:LINE: NAME; `followed`: files that were not given but that lie beside
    one that names them, with where; `idle`: given manifests that start nothing and that no other names;
    `storage`: the files' own storage objects. `verdict`: fail where a finding is an error, unknown where it cannot be told whether GDS can help (so where nothing
    is started but storage is described), or whether a container is given what a direct path needs, else pass.
    """

    schema_version: str = SCHEMA_VERSION
    tool: Tool
    verdict: Literal["pass", "fail", "unknown"]
    node: SourceInfo | None = None
    stacks: tuple[Stack, ...]
    findings: tuple[Finding, ...]
    unread: tuple[str, ...] = ()
    followed: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    storage: tuple[Stored, ...] = ()


def judge(
    files: list[tuple[str, str]],
    *,
    tool: Tool,
    node: Report | None = None,
    model: Sized | None = None,
    strict: bool = False,
    look: Look | None = None,
    lacking: Lacking | None = None,
) -> AppReport:
    """`files`: (path, text), all of one application; `look`: finds what lies beside one of them; `lacking`: what a container on
    the node lacks (gdsctl.container.boxed). Pure but for those.

    Raises InputError for a file that is broken, and for one in which nothing is recognised.
    """
    found = Found()
    drafts: list[Draft] = []
    empty: list[str] = []
    beside = Beside(dict(files), look)
    for path, text in files:
        try:
            here = read(text, path, beside)
            own = recognise_all(here.launches)
        except InputError as error:
            seems = foreign.seems(text, path) if error.path in (None, path) else None
            raise InputError(seems, path=path) if seems else error.at(path) from None
        if not (own or here.models or here.storage or here.services):
            empty.append(path)
        found += here
        drafts += own
    # A file that others name is theirs, and starts nothing by itself.
    drafts = [draft for draft in drafts if _by_itself(draft) or draft.stack.source.file not in beside.used]
    whole = {draft.stack.software for draft in drafts if not draft.partial}
    drafts = [draft for draft in drafts if not draft.partial or draft.stack.software not in whole]
    idle = []
    storage_alone = bool(found.storage) and all(foreign.starts_nothing(text) for _, text in files)
    for path in empty:
        if path not in beside.used:
            text = beside.texts[path]
            seems = foreign.seems(text, path)
            if (drafts or storage_alone) and foreign.is_manifest(text):
                idle.append(path)
                continue
            named = "".join(f"; {name} was not given" for name in beside.unread if name.startswith(f"{path}:"))
            reason = "no KV cache and no loading of weights that gdsctl knows is configured here"
            raise InputError(seems if seems and not named else f"{reason}{named}", path=path)
    if not drafts and not storage_alone:
        path, text = files[0]
        seems = foreign.model(path) if found.models else foreign.seems(text, path)
        raise InputError(seems or "no program that keeps a KV cache or loads weights is started here", path=path)
    unique = tuple(_unlike(drafts))
    if model is None and found.models:
        place, text = found.models[0]
        try:
            model = Sized(attention=read_model_config(text), said=place.file)
        except InputError as error:
            raise error.at(place.file) from None
    app = App(
        drafts=unique,
        services=found.services,
        storage=found.storage,
        model=model,
        cufile=_cufile(node),
        cpus=_cpus(node),
    )
    told = findings(app)
    if node is not None:
        unique, more = on_node(unique, node, claims(found.storage), lacking)
        told = (*more, *told)
    told = graver_first(told)
    objects = stored(found.storage, started=bool(drafts))
    if node is not None:
        objects = tuple(mounted(one, node, claims(found.storage)) for one in objects)
    stacks = tuple(draft.stack for draft in unique)
    return AppReport(
        tool=tool,
        verdict=_verdict(stacks, told, strict=strict),
        node=node.source if node is not None else None,
        stacks=stacks,
        findings=told,
        unread=tuple(beside.unread),
        followed=tuple(f"{path}, named in {place}" for path, place in beside.followed.items()),
        idle=tuple(idle),
        storage=objects,
    )


def _by_itself(draft: Draft) -> bool:
    return draft.box is not None and draft.box.kind != "image"


def _unlike(drafts: list[Draft]) -> Iterator[Draft]:
    """Each stack once. Of two readings of one line, the one within its container counts; containers may share a line."""
    boxed = {(draft.stack.software, str(draft.stack.source)) for draft in drafts if draft.box is not None}
    seen: set[tuple[str, str, str | None]] = set()
    for draft in drafts:
        line = (draft.stack.software, str(draft.stack.source))
        if (draft.box is None and line in boxed) or (*line, draft.stack.container) in seen:
            continue
        seen.add((*line, draft.stack.container))
        yield draft


def _verdict(
    stacks: tuple[Stack, ...], told: tuple[Finding, ...], *, strict: bool
) -> Literal["pass", "fail", "unknown"]:
    failing = {"critical", "error"} | ({"warning"} if strict else set())
    if any(finding.severity in failing for finding in told):
        return "fail"
    if any(finding.id == "app.pod-lacks" for finding in told):  # a warning: what is not seen to be there
        return "unknown"
    if not stacks:
        return "unknown"
    edges = [edge for stack in stacks for edge in stack.edges]
    undecided = any(route.route == "unknown" for edge in edges for route in edge.routes or ())
    return "unknown" if undecided or any(edge.gds_helps == "unknown" for edge in edges) else "pass"


_ASKED = (
    "properties.io_batchsize",
    "execution.parallel_io",
    "execution.max_request_parallelism",
    "execution.max_io_queue_depth",
)


def _cufile(node: Report | None) -> dict[str, int | bool]:
    """What the node's library would take for the keys that findings ask for; those that are not known are left out."""
    if node is None:
        return {}
    merged = node.gds.cufile_config.merged
    found: dict[str, int | bool] = {}
    for dotted in _ASKED:
        section, _, name = dotted.partition(".")
        holder = merged.get(section) if merged is not None else None
        value = holder.get(name) if isinstance(holder, dict) else None
        row = cufile_keys.key(dotted)
        if value is None and merged is not None and row is not None and node.gds.version is not None:
            value = row.default_in(node.gds.version)
        if isinstance(value, (int, bool)):
            found[dotted] = value
    return found


def _cpus(node: Report | None) -> int | None:
    lists = (
        [parse_cpulist(entry.cpus) for entry in node.numa.nodes if entry.cpus is not None] if node is not None else []
    )
    return sum(len(entry) for entry in lists if entry is not None) or None
