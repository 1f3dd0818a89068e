"""What is wrong with the stacks of some files: one function an id, each with its evidence and the line to change."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gdsctl.data import app_options
from gdsctl.data.app_findings import remedy_for, stories
from gdsctl.data.app_models import model as known_model
from gdsctl.data.app_names import deprecated
from gdsctl.data.limits import older
from gdsctl.data.nfs_ports import misplaced
from gdsctl.errors import InputError, UsageError
from gdsctl.kvcache.launch import Place, Service, StorageObject
from gdsctl.kvcache.model_config import Attention, read_model_config
from gdsctl.kvcache.size import GIB
from gdsctl.kvcache.stack import Adapter, Draft, Endpoint
from gdsctl.model.judgement import Evidence, Finding, Remedy, Severity
from gdsctl.parse import nfs_options
from gdsctl.record import Record

# LMCache gds_context.py@16f17958, _register_region; every release with a GDS L1 splits.
_MOST_REGISTERED_BYTES = 16 << 20
_SPLITS_SINCE = "0.4.7"
_MOST_OPEN_FILES = 1 << 20  # the kernel's default of fs.nr_open
_USELESS_BYTES = GIB  # no store of KV cache is meant to be smaller


class Sized(Record, frozen=True, kw_only=True):
    """A model's layers and what told of them."""

    attention: Attention
    said: str
    tp: int | None = None


class App(Record, frozen=True, kw_only=True):
    """All drafts, and what was given beside them: `model` is the caller's own.

    `cufile`: dotted key -> value that the node's library would take, written or by default; `cpus`: the node's, None: not known.
    """

    drafts: tuple[Draft, ...]
    services: tuple[Service, ...] = ()
    storage: tuple[StorageObject, ...] = ()
    model: Sized | None = None
    cufile: dict[str, int | bool] = {}
    cpus: int | None = None


def findings(app: App) -> tuple[Finding, ...]:
    """All of them, in no order."""
    checks = (
        _dram_staged,
        _exclusive,
        _lacks,
        _pool,
        _ports,
        _chunks,
        _batches,
        _threads,
        _files,
        _mounts,
        _old,
        _unknown,
        _overridden,
    )
    return tuple(found for check in checks for found in check(app))


def graver_first(found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    order = {"critical": 0, "error": 1, "warning": 2, "info": 3}
    return tuple(sorted(dict.fromkeys(found), key=lambda one: order[one.severity]))


def finding(
    id_: str,
    place: Place,
    message: str,
    evidence: tuple[Evidence, ...],
    *,
    severity: Severity | None = None,
    remedy: Remedy | None = None,
    source: str | None = None,
) -> Finding:
    story = stories()[id_]
    return Finding(
        id=id_,
        severity=severity or story.severity,
        subject=str(place),
        message=message,
        why=story.why,
        evidence=evidence,
        remedy=remedy or story.remedy,
        source=source or story.source,
    )


def seen(fact: str, value: object, place: Place) -> tuple[Evidence, ...]:
    return (Evidence(fact=fact, value=str(value), source=str(place)),)


def _at(draft: Draft, line: int) -> Place:
    return draft.stack.source.at(line)


def _dram_staged(app: App) -> Iterator[Finding]:
    """An error where the configuration names GDS, a remark on NIXL with a backend that plainly is none."""
    for draft in app.drafts:
        staged = [edge for edge in draft.stack.edges if edge.staged_in == "dram" and edge.gds_helps == "no"]
        helped = any(edge.gds_helps in ("yes", "half") for edge in draft.stack.edges)
        nixl = any("NIXL" in edge.api for edge in staged)
        if not (staged and (nixl or draft.claims_gds)):
            continue
        first = staged[0]
        claims = draft.claims_gds
        claimed = bool(claims) and (not helped or draft.gds_l1_line is not None)
        line = (
            claims[0].line
            if claims
            else next((t.line for t in draft.stack.tiers if t.path == first.path and t.line), None)
        )
        place = _at(draft, line or draft.stack.source.line or 1)
        claim = (
            "GPUDirect Storage is asked for"
            if draft.stack.software == "Python script"
            else claims[0].text
            if claims
            else ""
        )
        what = f"{claim}, but the bytes go" if claimed else "the bytes go"
        where = f" ({first.path})" if first.path else ""
        storage = "object store" if "object" in (first.to, first.from_) else "file"
        gpu = "GPU <-> " if any("gpu" in (edge.from_, edge.to) for edge in draft.stack.edges) else ""
        software = claims[0].text if claims and draft.stack.software == "Python script" else draft.stack.software
        yield finding(
            "app.dram-staged",
            place,
            f"{software}: {what} {gpu}host memory <-> {storage}{where}; GPUDirect Storage has no part in it",
            tuple(Evidence(fact=edge.api, value=edge.because, source=edge.source) for edge in staged),
            severity="error" if claimed else "info",
            remedy=remedy_for("app.dram-staged", draft.stack.software),
        )


def _exclusive(app: App) -> Iterator[Finding]:
    """What lmcache server refuses to start with (LMCache 0.5.6 lmcache/v1/distributed/config.py)."""
    for draft in app.drafts:
        tags = {manager.tag: manager.kind for manager in draft.managers}
        slabs = [manager for manager in draft.managers if manager.kind == "GDS"]
        refused: list[tuple[int, str]] = []
        for adapter in draft.adapters:
            tag = adapter.params.get("affinity_tag", "_default")
            if draft.gds_l1_line is not None and not draft.has_dram_l1:
                refused.append(
                    (
                        adapter.line,
                        f"the only L1 is GDS, which has no host memory that the L2 adapter {adapter.type} could register",
                    )
                )
            elif tags and None not in tags and tag not in tags:
                refused.append(
                    (adapter.line, f"the L2 adapter {adapter.type} has the affinity_tag {tag}, and no L1 has it")
                )
            elif tags.get(tag) == "GDS":
                refused.append(
                    (adapter.line, f"the L2 adapter {adapter.type} asks for the L1 {tag}, which is GDS: no host memory")
                )
        if len(slabs) > 1:
            refused.append((slabs[1].line, "two GDS slabs, and a process has one at most"))
        if draft.managers and draft.single_l1 is not None:
            refused.append(
                (draft.single_l1.line, f"{draft.single_l1.text} beside --l1-manager: one interface or the other")
            )
        for line, message in refused:
            place = _at(draft, line)
            said = ", ".join(f"{m.kind} {m.tag}" for m in draft.managers) or "GDS"
            yield finding("app.tiers-exclude-each-other", place, message, seen("L1", said, place))


def _lacks(app: App) -> Iterator[Finding]:
    for draft in app.drafts:
        for lack in draft.lacks:
            row = lack.row
            place = _at(draft, lack.line)
            when = f"came with {row.since}" if row.since else f"went with {row.until}"
            yield finding(
                "app.version-lacks",
                place,
                f"{row.of} {lack.version} does not know {row.name}, which {when}",
                seen(row.name, f"{row.of} {lack.version}", place),
                source=row.source,
            )


def _pool(app: App) -> Iterator[Finding]:
    for draft in app.drafts:
        for adapter in draft.adapters:
            yield from _pool_of(draft, adapter)
        for name, lower, upper, line in draft.lower_gib:
            if 0 < lower < upper:
                yield _smaller(draft, name, lower, upper, line)


def _pool_of(draft: Draft, adapter: Adapter) -> Iterator[Finding]:
    place = _at(draft, adapter.line)
    if adapter.type == "nixl_store":
        size = _whole(adapter.params.get("file_size")) or draft.align_bytes
        pool = _whole(adapter.params.get("pool_size"))
        if pool is None:
            return
        if adapter.backend in ("OBJ", "AZURE_BLOB"):
            size = draft.align_bytes
        total = pool * size
        said = f"pool_size {pool} x file_size {size}" + (
            "" if "file_size" in adapter.params else " (the L1's alignment: not set)"
        )
        if total < _USELESS_BYTES:
            yield finding(
                "app.pool-too-small",
                place,
                f"{said} = {_bytes(total)}: the L2 holds next to nothing",
                seen("capacity", f"{said} = {total} bytes", place),
            )
        elif draft.l1_gib is not None and total < draft.l1_gib * GIB:
            yield _smaller(draft, said, total / GIB, draft.l1_gib, adapter.line)
        return
    capacity = _real(adapter.params.get("max_capacity_gb"))
    if capacity and draft.l1_gib is not None and draft.has_dram_l1 and capacity < draft.l1_gib:
        yield _smaller(draft, f"max_capacity_gb of {adapter.type}", capacity, draft.l1_gib, adapter.line)


def _smaller(draft: Draft, name: str, lower: float, upper: float, line: int) -> Finding:
    place = _at(draft, line)
    return finding(
        "app.pool-too-small",
        place,
        f"{name}: {lower:.4g} GiB lie below a tier of {upper:.4g} GiB: all it keeps is in the upper tier already",
        seen("lower tier, GiB", f"{lower:g}", place) + seen("upper tier, GiB", f"{upper:g}", draft.stack.source),
        severity="warning",
        remedy=Remedy(text="Make the lower tier larger than the upper one, or leave it out."),
    )


def _ports(app: App) -> Iterator[Finding]:
    servers = [(draft, draft.listens) for draft in app.drafts if draft.listens is not None]
    if not servers or any(server.port is None for _, server in servers):
        return
    for draft in app.drafts:
        for asked in draft.asks:
            port = _target(app, asked)
            if port is None or any(server.port == port for _, server in servers):
                continue
            place = _at(draft, asked.line)
            there = ", ".join(f"{_at(other, server.line)} listens on {server.port}" for other, server in servers)
            yield finding(
                "app.port-mismatch",
                place,
                f"the connector asks {asked.host} for port {asked.port}, but {there}",
                seen("lmcache.mp.port", asked.port, place)
                + tuple(e for other, server in servers for e in seen("--port", server.port, _at(other, server.line))),
            )


def _target(app: App, asked: Endpoint) -> int | None:
    """The port behind a Service's, where the host is one of the files' Services."""
    if asked.port is None:
        return None
    service = next((s for s in app.services if s.name == asked.host.partition(".")[0]), None)
    return asked.port if service is None else service.ports.get(asked.port, asked.port)


def _sized(app: App) -> Sized | None:
    """The caller's model, or a public one that an engine of the files names."""
    if app.model is not None:
        return app.model
    for draft in app.drafts:
        row = known_model(draft.model) if draft.model else None
        if row is not None:
            try:
                attention = read_model_config(json.dumps(row.config), _dtype(draft.kv_dtype))
            except (InputError, UsageError):
                continue
            return Sized(attention=attention, said=f"{draft.model} ({row.source})", tp=draft.tp)
    return None


def _dtype(text: str) -> str:
    from gdsctl.kvcache.model_config import KV_DTYPES

    return text if text in KV_DTYPES else "auto"


def _chunks(app: App) -> Iterator[Finding]:
    sized = _sized(app)
    if sized is None:
        return
    tp = sized.tp or max((draft.tp for draft in app.drafts), default=1)
    for draft in app.drafts:
        if draft.listens is None or draft.chunk_tokens is None:
            continue
        per_token = sized.attention.rank_bytes(tp)
        chunk = draft.chunk_tokens * per_token
        place = _at(draft, draft.gds_l1_line or draft.stack.source.line or 1)
        said = f"{draft.chunk_tokens} tokens x {per_token:g} bytes (tensor parallel {tp}) = {_bytes(chunk)}"
        evidence = (*seen("chunk bytes", said, place), Evidence(fact="model", value=sized.said, source=sized.said))
        splits = not draft.gds_l1_by_flag or older(draft.stack.version or "", _SPLITS_SINCE) is False
        if draft.gds_l1_line is not None and not splits and chunk > _MOST_REGISTERED_BYTES:
            most = int(_MOST_REGISTERED_BYTES / per_token) // 16 * 16
            yield finding(
                "app.chunk-too-large",
                place,
                f"a chunk is {said}, more than 16 MiB: states before the release {_SPLITS_SINCE} "
                f"refuse to register that, all later ones split it; --chunk-size {most} fits both",
                evidence,
            )
        direct = draft.gds_l1_line is not None or any(
            adapter.params.get("use_direct_io") == "true" or adapter.params.get("use_odirect") == "true"
            for adapter in draft.adapters
        )
        if direct and chunk % draft.align_bytes:
            yield finding(
                "app.chunk-unaligned",
                place,
                f"a chunk is {said}, not a multiple of {draft.align_bytes} bytes",
                evidence,
            )


def _batches(app: App) -> Iterator[Finding]:
    """Where the node's library takes smaller batches than NIXL's GDS backend hands it."""
    batch = app.cufile.get("properties.io_batchsize")
    if batch is None:
        return
    for draft in app.drafts:
        for adapter in draft.adapters:
            if adapter.backend != "GDS":
                continue
            limit = _whole(adapter.params.get("batch_limit")) or 128
            if limit > batch:
                place = _at(draft, adapter.line)
                yield finding(
                    "app.batch-limit",
                    place,
                    f"NIXL submits up to {limit} requests at once, libcufile takes {batch}",
                    (
                        *seen("batch_limit", limit, place),
                        Evidence(fact="properties.io_batchsize", value=str(batch), source="cufile.json"),
                    ),
                )


def _threads(app: App) -> Iterator[Finding]:
    """GDS_MT has one synchronous cuFile call in flight for each thread, so its threads stand against the node's CPUs and cuFile's queue."""
    for draft in app.drafts:
        for adapter in draft.adapters:
            if "thread_count" not in adapter.params:
                continue
            place = _at(draft, adapter.line)
            count = _whole(adapter.params["thread_count"])
            told = ""
            if adapter.backend != "GDS_MT" and adapter.params.get("mode") != "mt":
                told = f"thread_count is GDS_MT's; NIXL's {adapter.backend or 'backend'} passes over it"
            elif count is not None and app.cpus is not None and count > app.cpus:
                told = f"{count} threads, each waiting in a cuFile call of its own, on a node of {app.cpus} CPUs"
            elif count is not None and app.cufile.get("execution.parallel_io"):
                pieces = int(app.cufile.get("execution.max_request_parallelism", 0))
                depth = app.cufile.get("execution.max_io_queue_depth")
                if depth is not None and count * pieces > depth:
                    told = (
                        f"{count} threads x {pieces} pieces of a call (execution.max_request_parallelism) = {count * pieces}, "
                        f"more than cuFile's queue takes (execution.max_io_queue_depth {depth})"
                    )
            if told:
                yield finding(
                    "app.thread-count", place, told, seen("thread_count", adapter.params["thread_count"], place)
                )


def _files(app: App) -> Iterator[Finding]:
    """nixl_store opens pool_size files at its start and keeps them open; a page is a file of its own unless file_size is set."""
    for draft in app.drafts:
        for adapter in draft.adapters:
            pool = _whole(adapter.params.get("pool_size"))
            if adapter.type != "nixl_store" or pool is None or adapter.backend in ("OBJ", "AZURE_BLOB"):
                continue
            place = _at(draft, adapter.line)
            if pool > _MOST_OPEN_FILES:
                yield finding(
                    "app.pool-files",
                    place,
                    f"nixl_store opens {pool} files at its start; a process has {_MOST_OPEN_FILES} at most (fs.nr_open)",
                    seen("pool_size", pool, place),
                    severity="error",
                )
            elif "file_size" not in adapter.params and pool * draft.align_bytes >= _USELESS_BYTES:
                yield finding(
                    "app.pool-files",
                    place,
                    f"file_size is not set: each page of {draft.align_bytes} bytes is a file and a request of its own",
                    seen("file_size", f"{draft.align_bytes} (the L1's alignment)", place),
                )


def _mounts(app: App) -> Iterator[Finding]:
    """The mount options of StorageClasses and PersistentVolumes."""
    for stored in app.storage:
        options = nfs_options.parse(",".join(stored.options))
        wrong = misplaced(options.proto, options.port)
        if wrong is not None:
            words, severity = wrong
            yield finding(
                "app.mount-port",
                stored.place,
                f"{stored.kind} {stored.name} mounts with {words}",
                seen("mountOptions", ",".join(stored.options), stored.place),
                severity=severity,
            )
        if stored.kind == "StorageClass" and options.localports:
            yield finding(
                "app.localports-shared",
                stored.place,
                f"StorageClass {stored.name} names localports: they are one node's own addresses, and all nodes mount with them",
                seen("localports", "~".join(options.localports), stored.place),
            )


def _old(app: App) -> Iterator[Finding]:
    for draft in app.drafts:
        for kind, name, line in draft.old:
            row = deprecated(kind, name)
            if row is not None:
                place = _at(draft, line)
                yield finding(
                    "app.deprecated-backend",
                    place,
                    f"{name}: {row.said}",
                    seen(kind, name, place),
                    severity=row.severity,
                    remedy=Remedy(text=f"Use {row.instead}."),
                    source=row.source,
                )


def _unknown(app: App) -> Iterator[Finding]:
    for draft in app.drafts:
        for option in draft.unknown_options:
            row = app_options.program(option.program)
            place = _at(draft, option.line)
            near = app_options.nearest(row, option.name)
            newer = option.version is not None and bool(row.last) and older(row.last, option.version) is True
            listed = f"{row.software} {row.first} to {row.last}"
            if row.last and not newer:
                said = f"{option.name} is no option of {row.name} in {listed}"
            else:
                said = f"{option.name} is not known to gdsctl" + (
                    f", which knows the options of {listed}" if newer else ""
                )
            yield finding(
                "app.unknown-option",
                place,
                said + (f"; the nearest is {near}" if near else ""),
                seen(option.program, option.name, place),
                severity="warning" if row.last and not newer else "info",
                source=row.source,
            )


def _overridden(app: App) -> Iterator[Finding]:
    for draft in app.drafts:
        for override in draft.overridden:
            yield finding(
                "app.environment-over-file",
                override.place,
                f"{override.variable}={override.value} replaces {override.key}: {override.replaced} of {draft.stack.source.file}",
                (
                    *seen(override.variable, override.value, override.place),
                    *seen(override.key, override.replaced, draft.stack.source),
                ),
            )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 16 else None


def _real(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and 0 < value < 1e12 else None


def _bytes(count: float) -> str:
    for unit, step in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= step:
            return f"{count / step:.4g} {unit}"
    return f"{count:g} bytes"
