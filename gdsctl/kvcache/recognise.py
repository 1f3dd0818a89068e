"""Which KV-cache and weight-loading software a program is, and what its arguments and environment make of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gdsctl.data import app_edges, app_options
from gdsctl.data.app_edges import Memory
from gdsctl.data.app_names import deprecated
from gdsctl.data.app_versions import unknown_to
from gdsctl.errors import InputError
from gdsctl.kvcache.json_text import json_object
from gdsctl.kvcache.launch import Container, Launch, Override, Word
from gdsctl.kvcache.printed import printed
from gdsctl.kvcache.script_calls import interface
from gdsctl.kvcache.stack import Adapter, Draft, Edge, Endpoint, Lack, Manager, Stack, Tier, UnknownOption, edge

_OPEN = re.compile(r"\$[({A-Za-z_]|\{\{|<[A-Za-z_-]+>|`")
_GDS = ("GDS", "GDS_MT")
_LMCACHE_SERVERS = ("lmcache.v1.multiprocess.server", "lmcache.v1.multiprocess.http_server")
_VLLM_MODULES = ("vllm.entrypoints.openai.api_server", "dynamo.vllm", "vllm.entrypoints.cli.main")
_SGLANG_MODULES = ("sglang.launch_server", "dynamo.sglang")
# Connectors whose bytes are another program's (its server's, or what its own variables and YAML configure).
_ELSEWHERE = ("LMCacheConnectorV1", "LMCacheMPConnector", "DynamoConnector", "PdConnector", "FlexKVConnectorV1")


# What a command line holds that some reader below could be for; the others ask the environment alone.
_MARKS = re.compile(r"lmcache|vllm|sglang|nixl|flexkv|--kv-transfer-config|--load-format", re.IGNORECASE)


def recognise_all(launches: Iterable[Launch]) -> list[Draft]:
    """The stacks of launches; of commands that only share an environment, the first one's."""
    found: list[Draft] = []
    seen: set[int] = set()
    for launch in _environment_over_file(tuple(launches)):
        if not launch.calls and launch.words and not any(_MARKS.search(word.text) for word in launch.words):
            if id(launch.env) in seen:
                continue
            seen.add(id(launch.env))
        found += recognise(launch)
    return found


_NO_KEYS = ("config_file", "log_level", "use_experimental")


def _named(env: Mapping[str, Word]) -> dict[str, Word]:
    """LMCache's keys that LMCACHE_* set."""
    return {
        name[8:].lower(): word
        for name, word in env.items()
        if name.startswith("LMCACHE_") and name[8:].lower() not in _NO_KEYS
    }


def _environment_over_file(launches: tuple[Launch, ...]) -> Iterable[Launch]:
    """LMCache reads its file, and over it the environment (0.4.1 to 0.5.6, integration/vllm/utils.py: update_config_from_env)."""
    files = [launch for launch in launches if launch.config]
    naming = [launch for launch in launches if "LMCACHE_CONFIG_FILE" in launch.env]
    emptied: dict[int, dict[str, Word]] = {}
    changed: dict[int, Launch] = {}
    for file in files:
        by = next((launch for launch in naming if _names(launch, file)), None)
        values = _named(by.env) if by is not None else {}
        if by is None or not values:
            continue
        line = min(word.line for word in file.config.values())
        anew = {
            key: Word(text=word.text, line=file.config[key].line if key in file.config else line)
            for key, word in values.items()
        }
        told = tuple(
            Override(
                variable=f"LMCACHE_{key.upper()}",
                value=word.text,
                key=key,
                replaced=file.config[key].text,
                place=by.place.at(word.line),
            )
            for key, word in values.items()
            if key in file.config and file.config[key].text != word.text
        )
        changed[id(file)] = msgspec.structs.replace(file, config=file.config | anew, overridden=told)
        emptied[id(by.env)] = {name: word for name, word in by.env.items() if name[8:].lower() not in values}
    for launch in launches:
        left = emptied.get(id(launch.env))
        yield changed.get(id(launch)) or (launch if left is None else msgspec.structs.replace(launch, env=left))


def _names(launch: Launch, file: Launch) -> bool:
    if launch.container is not None and file.container is not None:
        return (launch.container.name, launch.container.place) == (file.container.name, file.container.place)
    name = launch.env["LMCACHE_CONFIG_FILE"].text.rpartition("/")[2]
    return launch.container is file.container and name == file.place.file.rpartition("/")[2]


def recognise(launch: Launch) -> list[Draft]:
    """The stacks of one launch; none for a program that has nothing to do with KV caches.

    Raises InputError (line in the file) where an option's JSON is broken.
    """
    found: list[Draft] = []
    for reader in (_lmcache_server, _vllm, _lmcache_in_process, _kvbm, _flexkv, _sglang, _weights, _nixlbench, _script):
        draft = reader(launch)
        if draft is not None:
            found.append(draft)
    hidden = tuple(printed(launch.words))
    found = found or [_Steps(launch).draft(launch, name, None) for name in _program(launch) if hidden]
    if hidden and found:
        first, *rest = found
        edges = tuple(_untold("gpu", why, source="the file itself") for _, why in hidden)
        stack = msgspec.structs.replace(first.stack, edges=(*first.stack.edges, *edges))
        return [msgspec.structs.replace(first, stack=stack), *rest]
    return found


def _program(launch: Launch) -> list[str]:
    """A program that may keep a KV cache or load weights, whatever its options say."""
    known = {
        "LMCache server": (("lmcache", "server"), _LMCACHE_SERVERS),
        "vLLM": (("vllm", "serve"), _VLLM_MODULES),
        "SGLang": (("sglang", "serve"), _SGLANG_MODULES),
    }
    return [name for name, (program, modules) in known.items() if _runs(launch, program, modules) is not None][:1]


def _untold(from_: Memory, because: str, *, path: str | None = None, source: str = "") -> Edge:
    """Bytes to a file, of which nothing else is known."""
    return Edge(
        from_=from_,
        to="file",
        api="unknown",
        medium="unknown",
        path=path,
        gds_helps="unknown",
        because=because,
        source=source,
    )


# --- what they have in common ----------------------------------------------------------------------------------------


def _options(words: Iterable[Word]) -> dict[str, list[Word]]:
    """`--name value`, `--name=value` and `-tp value`; a name without a value gives an empty one. A `_` counts as `-`."""
    found: dict[str, list[Word]] = {}
    waiting: str | None = None
    for word in words:
        if (word.text.startswith("--") and len(word.text) > 2) or word.text == "-tp":
            name, sign, value = word.text.partition("=")
            name = name.replace("_", "-")
            found.setdefault(name, []).append(Word(text=value, line=word.line))
            waiting = None if sign else name
        elif waiting is not None:
            if not found[waiting][-1].text:
                found[waiting][-1] = word
            else:
                found[waiting].append(word)
    return found


def _first(options: Mapping[str, list[Word]], *names: str) -> Word | None:
    return next((options[name][-1] for name in names if name in options), None)


def _number(word: Word | None) -> float | None:
    """None too for a variable that nothing sets."""
    if word is None:
        return None
    try:
        value = float(word.text)
    except ValueError:
        return None
    return value if 0 <= value < 1e15 else None


def _whole(word: Word | None) -> int | None:
    value = _number(word)
    return int(value) if value is not None and value == int(value) else None


def _true(text: str | None) -> bool:
    return text is not None and text.strip().lower() in ("1", "true", "yes", "on")


def _object(word: Word) -> dict[str, Any] | None:
    """An option's JSON; None where a variable or placeholder in it keeps it from being read."""
    try:
        return json_object(word.text)
    except InputError as error:
        if _OPEN.search(word.text):
            return None
        raise InputError(error.reason, line=word.line + (error.line or 1) - 1) from None


def _runs(launch: Launch, program: tuple[str, str], modules: tuple[str, ...]) -> list[Word] | None:
    """The words behind `PROGRAM SUBCOMMAND` or `python -m MODULE`, however they are wrapped."""
    words = list(launch.words)
    for index, word in enumerate(words):
        name = word.text.rpartition("/")[2]
        following = words[index + 1].text if index + 1 < len(words) else ""
        if (name == program[0] and following == program[1]) or (word.text == "-m" and following in modules):
            return words[index + 2 :]
    return None


def _version(launch: Launch, *names: str) -> str | None:
    """An image's tag, where the image is the software's own."""
    image = launch.container.image if launch.container is not None else None
    if image is None or not any(name in image for name in names):
        return None
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    match = re.match(r"v?(\d+\.\d+[\w.+-]*)", tag)
    return match[1] if match else None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _versions(launch: Launch) -> dict[str, str]:
    """Software -> version, as far as the image tells. An image of LMCache holds a vLLM of some other version."""
    lmcache = _version(launch, "lmcache")
    found = {
        "LMCache": lmcache,
        "vLLM": _version(launch, "vllm/", "vllm-openai") if lmcache is None else None,
        "ModelExpress": _version(launch, "modelexpress"),
        "llm-d": _version(launch, "llm-d"),
    }
    return {software: version for software, version in found.items() if version is not None}


def _with_env(box: Container | None, launch: Launch) -> Container | None:
    """The container with the variables by which NVIDIA's toolkit and cuFile go."""
    if box is None:
        return None
    env = {name: word.text for name, word in launch.env.items() if name.startswith(("NVIDIA_", "CUFILE_"))}
    return msgspec.structs.replace(box, env=env)


class _Steps:
    """Tiers and edges as they are found."""

    def __init__(self, launch: Launch) -> None:
        self.versions = _versions(launch)
        self.lacks: list[Lack] = []
        self.unknown: list[UnknownOption] = []
        self.tiers: list[Tier] = []
        self.edges: list[Edge] = []
        self.claims: list[Word] = []

    def add(self, shape: str, backend: str, tier: Tier | None = None) -> None:
        path = tier.path if tier is not None else None
        groups = app_edges.edges(shape, backend, self.versions)
        self.edges += [edge(rows, path) for rows in groups]
        if not groups:
            because = f"no table knows {shape} with {backend or 'no backend'}: what it does with the bytes is not known"
            self.edges.append(_untold("dram", because, path=path))
        if tier is not None:
            self.tiers.append(tier)

    def options(self, name: str, options: Mapping[str, list[Word]]) -> None:
        """Keep those that a program's list does not have; of a list that is not complete, those that look misspelt."""
        row = app_options.program(name)
        for option, given in options.items():
            plain = re.fullmatch(r"--[a-z0-9][a-z0-9-]*", option) and not app_options.knows(row, option)
            if plain and (row.last or app_options.nearest(row, option)):
                version = self.versions.get(row.software)
                self.unknown.append(UnknownOption(name=option, program=name, version=version, line=given[0].line))

    def uses(self, of: str, name: str, line: int) -> None:
        """An option, a key or an adapter of that software."""
        version = self.versions.get(of)
        row = unknown_to(of, version, name) if version is not None else None
        if version is not None and row is not None:
            self.lacks.append(Lack(version=version, row=row, line=line))

    def draft(self, launch: Launch, software: str, version: str | None, line: int | None = None, **facts: Any) -> Draft:
        place = launch.place if line is None else launch.place.at(line)
        box = launch.container
        stack = Stack(
            software=software,
            version=version,
            source=place,
            container=box.name if box is not None else None,
            tiers=tuple(self.tiers),
            edges=tuple(self.edges),
        )
        return Draft(
            stack=stack,
            box=_with_env(box, launch),
            claims_gds=tuple(self.claims),
            lacks=tuple(self.lacks),
            unknown_options=tuple(self.unknown),
            overridden=launch.overridden,
            partial=launch.partial,
            **facts,
        )


# --- LMCache ----------------------------------------------------------------------------------------------------------


def _lmcache_server(launch: Launch) -> Draft | None:
    words = _runs(launch, ("lmcache", "server"), _LMCACHE_SERVERS)
    if words is None:
        return None
    options = _options(words)
    steps = _Steps(launch)
    steps.options("lmcache server", options)
    for name, given in options.items():
        steps.uses("LMCache", name, given[0].line)
    size = _number(_first(options, "--l1-size-gb"))
    gds_line = None
    dram = False
    managers = [(word, _object(word)) for word in options.get("--l1-manager", ())]
    path = _first(options, "--gds-l1-path")
    if managers:
        size = 0.0
        for word, manager in managers:
            kind = str((manager or {}).get("type", "")).upper()
            amount = _number(Word(text=str((manager or {}).get("size_gb", "")), line=word.line))
            size = None if size is None or amount is None else size + amount
            if kind == "GDS":
                gds_line = word.line
            dram = dram or kind != "GDS"
            _l1(steps, kind, manager or {}, amount, word.line)
    elif path is not None:
        backend = _first(options, "--gds-l1-backend")
        manager = {"path": path.text, "backend": backend.text if backend else "auto"}
        gds_line = path.line
        _l1(steps, "GDS", manager, size, path.line)
    else:
        dram = True
        devdax = _first(options, "--l1-devdax-path")
        said = devdax or _first(options, "--l1-size-gb")
        manager = {"path": devdax.text} if devdax else {}
        _l1(steps, "DEVDAX" if devdax else "DRAM", manager, size, said.line if said else launch.place.line or 1)
    adapters = []
    old = []
    for word in options.get("--l2-adapter", ()):
        adapter = _adapter(word, steps)
        if adapter is not None:
            adapters.append(adapter)
            if deprecated("nixl-backend", adapter.backend):
                old.append(("nixl-backend", adapter.backend, word.line))
    port = _first(options, "--port")
    host = _first(options, "--host")
    number = 5555 if port is None else _whole(port)
    return steps.draft(
        launch,
        "LMCache server",
        _version(launch, "lmcache"),
        adapters=tuple(adapters),
        l1_gib=size,
        gds_l1_line=gds_line,
        gds_l1_by_flag=not managers,
        managers=tuple(
            Manager(
                kind=str((manager or {}).get("type", "")).upper(),
                tag=None if manager is None else str(manager.get("tag", "")),
                line=word.line,
            )
            for word, manager in managers
        ),
        single_l1=next(
            (
                Word(text=name, line=options[name][-1].line)
                for name in ("--l1-size-gb", "--gds-l1-path", "--l1-devdax-path")
                if name in options
            ),
            None,
        ),
        has_dram_l1=dram,
        listens=Endpoint(
            host=host.text if host else "localhost", port=number, line=port.line if port else launch.place.line or 1
        ),
        chunk_tokens=_whole(_first(options, "--chunk-size")) or (256 if "--chunk-size" not in options else None),
        align_bytes=_whole(_first(options, "--l1-align-bytes")) or 4096,
        old=tuple(old),
    )


def _l1(steps: _Steps, kind: str, manager: Mapping[str, Any], size: float | None, line: int) -> None:
    path = str(manager["path"]) if "path" in manager else None
    backend = str(manager.get("backend", "auto"))
    shape, medium = {
        "GDS": ("mp.l1.gds", "file"),
        "DEVDAX": ("mp.l1.devdax", "dram"),
        "DRAM": ("mp.l1.dram", "dram"),
    }.get(kind, (f"mp.l1.{kind.lower() or '?'}", "unknown"))
    tier_type = f"{kind} ({backend})" if kind == "GDS" else kind or "?"
    steps.add(
        shape,
        backend if kind == "GDS" else "",
        Tier(name="L1", type=tier_type, medium=medium, size_gib=size, path=path, line=line),
    )


def _adapter(word: Word, steps: _Steps) -> Adapter | None:
    values = _object(word)
    if values is None:
        steps.add("mp.l2.?", "", Tier(name="L2", type="?", medium="unknown", line=word.line))
        return None
    while values.get("type") == "fault_inject" and isinstance(values.get("inner"), dict):
        values = values["inner"]  # a wrapper for tests around the adapter proper
    kind = str(values.get("type", "?"))
    steps.uses("LMCache", kind, word.line)
    inner = values.get("backend_params")
    params = {
        str(key): _text(value)
        for holder in (values, inner if isinstance(inner, dict) else {})
        for key, value in holder.items()
        if not isinstance(value, (dict, list))
    }
    backend = params.get("backend", "")
    if kind == "phx" and values.get("device_ids"):
        backend = "devices"
    elif kind == "raw_block":
        backend = "io_uring_cmd" if _true(params.get("use_uring_cmd")) else params.get("io_engine", "posix").lower()
    remote = kind in app_edges.backends("mp.l2.remote")
    path, capacity = _room(values, params)
    object_store = remote or backend in ("OBJ", "AZURE_BLOB")
    memory = kind in ("dax", "p2p", "mock", "dram", "cxl_peer")
    steps.add(
        "mp.l2.remote" if remote else f"mp.l2.{kind}",
        kind if remote else backend,
        Tier(
            name="L2",
            type=f"{kind} ({params['backend']})" if "backend" in params else kind,
            medium="object" if object_store else "dram" if memory else "file",
            size_gib=capacity,
            path=path,
            line=word.line,
        ),
    )
    if backend in _GDS:
        steps.claims.append(Word(text=f"backend {backend}", line=word.line))
    return Adapter(type=kind, backend=backend, params=params, path=path, line=word.line)


def _room(values: Mapping[str, Any], params: Mapping[str, str]) -> tuple[str | None, float | None]:
    """Where an adapter keeps its bytes, and how many GiB it may; of several devices the first path and the sum."""
    listed = values.get("devices")
    devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else [params]
    paths = ("file_path", "base_path", "base_paths", "device_path", "path")
    path = next((_text(device[key]) for device in devices for key in paths if device.get(key)), None)
    if path is not None and "base_paths" in params:
        path = f"{params.get('mount_point', '').rstrip('/')}/{path.partition(',')[0].strip().lstrip('/')}"
    sizes = [_gib(device, name) for device in devices for name in ("max_capacity_gb", "max_dax_size_gb", "max_size_gb")]
    size = sum(size for size in sizes if size is not None)
    if not size:
        told = params.get("capacity_bytes") or params.get("max_capacity_bytes") or ""
        size = (_number(Word(text=told, line=1)) or 0) / (1 << 30)
    return path, size or None


def _gib(holder: Mapping[str, Any], name: str) -> float | None:
    return _number(Word(text=_text(holder.get(name, "")), line=1))


def _lmcache_in_process(launch: Launch) -> Draft | None:
    """From its YAML, or from LMCACHE_* in the environment of an engine that loads the in-process connector."""
    config = dict(launch.config)
    if not config:
        inproc = any("LMCacheConnector" in word.text and "MPConnector" not in word.text for word in launch.words)
        named = _named(launch.env)
        keys = ("gds_path", "weka_path", "local_cpu", "local_disk", "nixl_buffer_device", "use_gds", "extra_config")
        if not named or not (inproc or any(key in named for key in keys)):
            return None
        if launch.words and not inproc and _runs(launch, ("vllm", "serve"), _VLLM_MODULES) is None:
            return None
        config = named
        extra = named.get("extra_config")
        values = _object(extra) if extra is not None else None
        for key, value in (values or {}).items():
            config[f"extra_config.{key}"] = Word(text=_text(value), line=extra.line if extra else 1)
    return _in_process(launch, config)


def _in_process(launch: Launch, config: Mapping[str, Word]) -> Draft | None:
    def said(key: str) -> str | None:
        return config[key].text if key in config else None

    steps = _Steps(launch)
    for key, word in config.items():
        steps.uses("LMCache", key, word.line)
    line = min(word.line for word in config.values())
    size = _number(config.get("max_local_cpu_size"))
    lower: list[tuple[str, float, float, int]] = []
    if _true(said("local_cpu") or "true"):
        at = config["local_cpu"].line if "local_cpu" in config else line
        steps.add("inproc.cpu", "", Tier(name="CPU", type="local_cpu", medium="dram", size_gib=size, line=at))
    gds = config.get("gds_path") or config.get("weka_path")
    if gds is not None and gds.text:
        switch = said("use_gds") or said("use_cufile") or said("extra_config.use_cufile") or "true"
        steps.add(
            "inproc.gds",
            str(_true(switch)).lower(),
            Tier(name="GDS", type="gds_path", medium="file", path=gds.text.partition(",")[0], line=gds.line),
        )
        steps.claims.append(gds)
    if _true(said("extra_config.enable_nixl_storage")):
        backend = config.get("extra_config.nixl_backend") or Word(text="?", line=line)
        device = (said("nixl_buffer_device") or "?").partition(":")[0]
        steps.add(
            f"inproc.nixl.{device}",
            backend.text,
            Tier(
                name="NIXL",
                type=f"{backend.text} ({device})",
                medium="file",
                path=said("extra_config.nixl_path"),
                line=backend.line,
            ),
        )
        if backend.text in _GDS:
            steps.claims.append(Word(text=f"nixl_backend {backend.text}", line=backend.line))
    disk = config.get("local_disk")
    if disk is not None and disk.text and disk.text.lower() not in ("false", "none"):
        amount = _number(config.get("max_local_disk_size"))
        path = disk.text.removeprefix("file://")
        steps.add(
            "inproc.disk",
            "",
            Tier(name="disk", type="local_disk", medium="file", size_gib=amount, path=path, line=disk.line),
        )
        if amount is not None and size is not None:
            lower.append(("local_disk", amount, size, disk.line))
    remote = config.get("remote_url")
    if remote is not None and remote.text and remote.text.lower() != "none":
        steps.add(
            "inproc.remote",
            "",
            Tier(name="remote", type="remote_url", medium="object", path=remote.text, line=remote.line),
        )
    for name, shape, medium in (
        ("extra_config.rust_raw_block.device_path", "inproc.raw_block", "file"),
        ("extra_config.dax.device_path", "inproc.dax", "dram"),
        ("maru_path", "inproc.maru", "dram"),
    ):
        if said(name):
            word = config[name]
            tier_type = name.removeprefix("extra_config.").partition(".")[0]
            steps.add(shape, "", Tier(name=shape[7:], type=tier_type, medium=medium, path=word.text, line=word.line))
    if not steps.edges:
        return None
    old = tuple(("lmcache-key", key, word.line) for key, word in config.items() if deprecated("lmcache-key", key))
    return steps.draft(
        launch,
        "LMCache in-process",
        _version(launch, "lmcache"),
        line,
        chunk_tokens=_whole(config.get("chunk_size")),
        lower_gib=tuple(lower),
        old=old,
    )


# --- vLLM ---------------------------------------------------------------------------------------------------------------


def _vllm(launch: Launch) -> Draft | None:
    words = _runs(launch, ("vllm", "serve"), _VLLM_MODULES)
    options = _options(launch.words if words is None else words)
    transfers = options.get("--kv-transfer-config", [])
    if words is None and not transfers:
        return None
    steps = _Steps(launch)
    if words is not None:
        steps.options("vllm serve", options)
    asks: list[Endpoint] = []
    old: list[tuple[str, str, int]] = []
    for transfer in transfers:
        values = _object(transfer)
        if values is None:
            continue
        for connector in _connectors(values):
            _connector(connector, transfer.line, steps, asks, old)
    model = _first(options, "--model", "--model-path")
    if words and not words[0].text.startswith("-"):
        model = words[0]
    tp = _first(options, "--tensor-parallel-size", "-tp")
    dtype = _first(options, "--kv-cache-dtype")
    if not (steps.edges or asks):
        return None
    return steps.draft(
        launch,
        "vLLM",
        steps.versions.get("vLLM"),
        asks=tuple(asks),
        old=tuple(old),
        model=model.text if model is not None else None,
        tp=_whole(tp) or 1,
        kv_dtype=dtype.text if dtype is not None else "auto",
    )


def _connectors(values: Mapping[str, Any], depth: int = 0) -> list[Mapping[str, Any]]:
    extra = values.get("kv_connector_extra_config")
    inner = extra.get("connectors") if isinstance(extra, dict) else None
    if values.get("kv_connector") == "MultiConnector" and isinstance(inner, list) and depth < 3:
        return [found for entry in inner if isinstance(entry, dict) for found in _connectors(entry, depth + 1)]
    return [values]


def _connector(
    values: Mapping[str, Any], line: int, steps: _Steps, asks: list[Endpoint], old: list[tuple[str, str, int]]
) -> None:
    name = str(values.get("kv_connector", "?"))
    given = values.get("kv_connector_extra_config")
    extra: Mapping[str, Any] = given if isinstance(given, dict) else {}
    steps.uses("vLLM", name, line)
    if deprecated("connector", name):
        old.append(("connector", name, line))
    if name == "LMCacheMPConnector":
        asks += _endpoints(extra, line)
    elif name in ("SharedStorageConnector", "ExampleConnector"):
        path = extra.get("shared_storage_path")
        steps.add(
            "vllm.shared-storage",
            "",
            Tier(name="storage", type=name, medium="file", path=str(path) if path else None, line=line),
        )
    elif name == "OffloadingConnector":
        spec = extra.get("spec_name")
        if spec == "SharedStorageOffloadingSpec":
            if "gds_mode" in extra:
                steps.uses("llm-d", "gds_mode", line)
            mode = str(extra.get("gds_mode", "disabled"))
            path = str(extra["shared_storage_path"]) if "shared_storage_path" in extra else None
            tier = Tier(name="storage", type=f"llm-d fs ({mode})", medium="file", path=path, line=line)
            steps.add("llmd.store", mode, tier)
            steps.add("llmd.load", mode, tier)
            steps.tiers.pop()
            if mode != "disabled":
                steps.claims.append(Word(text=f"gds_mode {mode}", line=line))
        elif spec in (None, "CPUOffloadingSpec", "TieringOffloadingSpec"):
            tier = Tier(
                name="CPU", type=name, medium="dram", size_gib=_bytes_as_gib(extra, "cpu_bytes_to_use"), line=line
            )
            steps.add("vllm.offload.cpu", "", tier)
        else:
            steps.add("vllm.offload", str(spec))  # somebody's own module
        if spec == "TieringOffloadingSpec":
            steps.uses("vLLM", spec, line)
            _secondary(extra.get("secondary_tiers"), line, steps)
    elif name == "SimpleCPUOffloadConnector":
        kind = str(extra.get("kv_offload_backend", "cpu"))
        if "kv_offload_backend" in extra:
            steps.uses("vLLM", "kv_offload_backend", line)
        disk = kind == "disk"
        size = _bytes_as_gib(extra, "disk_capacity_bytes" if disk else "cpu_bytes_to_use")
        path = str(extra["disk_path"]) if disk and extra.get("disk_path") else None
        tier = Tier(name=kind, type=name, medium="file" if disk else "dram", size_gib=size, path=path, line=line)
        steps.add("vllm.connector", f"{name} {kind}", tier)
    elif name not in _ELSEWHERE:
        steps.add("vllm.connector", name)


def _bytes_as_gib(extra: Mapping[str, Any], key: str) -> float | None:
    amount = _number(Word(text=_text(extra.get(key, "")), line=1))
    return amount / (1 << 30) if amount is not None else None


def _secondary(tiers: Any, line: int, steps: _Steps) -> None:
    for tier in tiers if isinstance(tiers, list) else ():
        if isinstance(tier, dict):
            kind = str(tier.get("type", "?"))
            steps.uses("vLLM", f"secondary tier {kind}", line)
            path = str(tier["root_dir"]) if "root_dir" in tier else None
            medium = {"obj": "object", "p2p": "dram"}.get(kind, "file")
            steps.add("vllm.tiering", kind, Tier(name="secondary", type=kind, medium=medium, path=path, line=line))


def _endpoints(extra: Mapping[str, Any], line: int) -> list[Endpoint]:
    urls = extra.get("lmcache.mp.server_urls")
    if urls:
        entries = urls if isinstance(urls, list) else str(urls).split(",")
        return [_endpoint(str(entry), None, line) for entry in entries]
    return [_endpoint(str(extra.get("lmcache.mp.host", "localhost")), _text(extra.get("lmcache.mp.port", 5555)), line)]


def _endpoint(text: str, port: str | None, line: int) -> Endpoint:
    plain = text.strip().rpartition("://")[2]
    host, sign, tail = plain.rpartition(":")
    if port is None and sign:
        plain, port = host, tail
    return Endpoint(host=plain, port=_whole(Word(text=port or "", line=line)), line=line)


# --- others -------------------------------------------------------------------------------------------------------------


def _kvbm(launch: Launch) -> Draft | None:
    env = launch.env

    def size(kind: str) -> tuple[Word | None, float | None]:
        word = env.get(f"DYN_KVBM_{kind}_CACHE_GB")
        blocks = env.get(f"DYN_KVBM_{kind}_CACHE_OVERRIDE_NUM_BLOCKS")
        amount = _number(word)
        if word is not None and amount != 0:
            return word, amount
        return (blocks, None) if blocks is not None and _number(blocks) != 0 else (None, None)

    cpu, cpu_gib = size("CPU")
    disk, disk_gib = size("DISK")
    bucket = (
        env.get("DYN_KVBM_OBJECT_BUCKET")
        if _true(getattr(env.get("DYN_KVBM_USE_OBJECT_OFFLOAD"), "text", None))
        else None
    )
    if cpu is None and disk is None and bucket is None:
        return None
    steps = _Steps(launch)
    lower: list[tuple[str, float, float, int]] = []
    if cpu is not None:
        steps.add("kvbm.cpu", "", Tier(name="G2", type="CPU", medium="dram", size_gib=cpu_gib, line=cpu.line))
    if disk is not None:
        folder = env.get("DYN_KVBM_DISK_CACHE_DIR")
        second = any("kvbm.v2" in word.text for word in launch.words)
        path = "/tmp" if second else folder.text if folder is not None else None  # noqa: S108 -- where KVBM v2 makes its file
        tier = Tier(name="G3", type="disk", medium="file", size_gib=disk_gib, path=path, line=disk.line)
        steps.add("kvbm.disk-only" if cpu is None else "kvbm.disk-behind-cpu", "v2" if second else "", tier)
        if disk_gib is not None and cpu_gib is not None:
            lower.append(("DYN_KVBM_DISK_CACHE_GB", disk_gib, cpu_gib, disk.line))
    if bucket is not None:
        steps.add(
            "kvbm.object", "", Tier(name="G4", type="object", medium="object", path=bucket.text, line=bucket.line)
        )
    line = min(word.line for word in (cpu, disk, bucket) if word is not None)
    return steps.draft(launch, "Dynamo KVBM", _version(launch, "dynamo", "ai-dynamo"), line, lower_gib=tuple(lower))


def _flexkv(launch: Launch) -> Draft | None:
    """From FLEXKV_* in the environment; defaults as in flexkv/common/config.py, load_user_config_from_env."""
    env = launch.env
    asked = [word for word in launch.words if "FlexKVConnectorV1" in word.text or word.text == "--enable-flexkv"]
    named = [
        word for name, word in env.items() if name.startswith("FLEXKV_") and name.endswith(("_GB", "_DIR", "_GDS"))
    ]
    if not (asked or named):
        return None
    steps = _Steps(launch)
    line = min(word.line for word in (*asked, *named))
    config = env.get("FLEXKV_CONFIG_PATH")
    if config is not None:
        steps.add("flexkv.file", config.text)
        return steps.draft(launch, "FlexKV", None, config.line)
    cpu, ssd = env.get("FLEXKV_CPU_CACHE_GB"), env.get("FLEXKV_SSD_CACHE_GB")
    cpu_gib = _number(cpu) if cpu is not None else 16.0
    steps.add("flexkv.cpu", "", Tier(name="CPU", type="FlexKV", medium="dram", size_gib=cpu_gib, line=line))
    ssd_gib = _number(ssd)
    if ssd is None or ssd_gib == 0:
        return steps.draft(launch, "FlexKV", None, line)
    folder, gds = env.get("FLEXKV_SSD_CACHE_DIR"), env.get("FLEXKV_ENABLE_GDS")
    path = folder.text.partition(";")[0].strip() if folder is not None else None
    tier = Tier(name="SSD", type="FlexKV", medium="file", size_gib=ssd_gib, path=path, line=ssd.line)
    if gds is not None and gds.text == "1":
        steps.claims.append(Word(text="FLEXKV_ENABLE_GDS=1", line=gds.line))
    steps.add("flexkv.ssd", "gds" if steps.claims else "", tier)
    lower = (("FLEXKV_SSD_CACHE_GB", ssd_gib, cpu_gib, ssd.line),) if ssd_gib and cpu_gib else ()
    return steps.draft(launch, "FlexKV", None, line, lower_gib=lower)


def _sglang(launch: Launch) -> Draft | None:
    words = _runs(launch, ("sglang", "serve"), _SGLANG_MODULES)
    if words is None:
        return None
    options = _options(words)
    hicache = options.get("--enable-hierarchical-cache")
    if hicache is None:
        return None
    steps = _Steps(launch)
    steps.options("sglang", options)
    size = _number(_first(options, "--hicache-size")) or None
    steps.add("sglang.host", "", Tier(name="host", type="HiCache", medium="dram", size_gib=size, line=hicache[0].line))
    backend = _first(options, "--hicache-storage-backend")
    if backend is not None:
        folder = launch.env.get("SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR") or launch.env.get(
            "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"
        )
        kept = {row.to for rows in app_edges.edges("sglang.storage", backend.text, {}) for row in rows}
        steps.add(
            "sglang.storage",
            backend.text,
            Tier(
                name="storage",
                type=backend.text,
                medium=min(kept, default="unknown"),
                path=folder.text if folder is not None else None,
                line=backend.line,
            ),
        )
        extra = _first(options, "--hicache-storage-backend-extra-config")
        if extra is not None and '"gds' in extra.text.lower():
            steps.claims.append(Word(text="the NIXL plugin GDS", line=extra.line))
    return steps.draft(launch, "SGLang HiCache", _version(launch, "sglang"))


def _weights(launch: Launch) -> Draft | None:
    """Weights, for a launch that names such a loader."""
    options = _options(launch.words)
    load = _first(options, "--load-format")
    if load is not None and load.text.lower() == "remote_instance":
        return _remote_instance(launch, options, load)
    name = load.text.lower() if load is not None else ""
    backend = launch.env.get("INSTANTTENSOR_BACKEND")
    chosen = backend.text.partition(",")[0].strip().lower() if backend is not None else ""
    if not chosen and _true(getattr(launch.env.get("INSTANTTENSOR_USE_CUFILE"), "text", None)):
        chosen = "use_cufile"
    steps = _Steps(launch)
    if load is not None:
        steps.uses("vLLM", name, load.line)
    software = {"modelexpress": "ModelExpress", "mx": "ModelExpress", "instanttensor": "InstantTensor"}.get(
        name, "fastsafetensors"
    )
    model = _first(options, "--model")
    device = _first(options, "--device")
    tier = Tier(name="weights", type=name, medium="file", path=None, line=load.line if load is not None else None)
    if load is not None and device is not None and device.text.lower().startswith("cpu"):
        if name not in ("modelexpress", "mx", "instanttensor", "fastsafetensors"):
            return None
        steps.add("weights.cpu", "", tier)
        steps.claims.append(Word(text=f"--load-format {load.text}", line=load.line))
    elif software == "ModelExpress":
        instant = launch.env.get("MX_INSTANT_TENSOR")
        key = chosen
        if instant is not None and instant.text.lower() not in ("1", "true"):
            uri = launch.env.get("MX_MODEL_URI")
            key = "gds" if uri is None or not uri.text else "model-streamer"
        steps.add("weights.modelexpress", key, tier)
    elif software == "InstantTensor":
        steps.add("weights.instanttensor", chosen, tier)
    elif name == "fastsafetensors":
        ranks = _whole(_first(options, "--tensor-parallel-size", "-tp", "--tp-size", "--tp")) or 1
        extra = _first(options, "--model-loader-extra-config")
        sglang = _runs(launch, ("sglang", "serve"), _SGLANG_MODULES) is not None
        off = sglang and extra is not None and (_object(extra) or {}).get("enable_gds") is False
        key = "nogds" if off else "tensor-parallel" if ranks > 1 and not sglang else ""
        steps.add("weights.fastsafetensors", key, tier)
    else:
        return None
    return steps.draft(
        launch,
        software,
        None,
        load.line if load is not None else None,
        model=model.text if model is not None else None,
    )


def _remote_instance(launch: Launch, options: Mapping[str, list[Word]], load: Word) -> Draft | None:
    """SGLang's weights from another instance's GPU (0.5.23 srt/arg_groups/model_path_hook.py: what is lacking makes it auto)."""
    if _runs(launch, ("sglang", "serve"), _SGLANG_MODULES) is None:
        return None
    steps = _Steps(launch)
    chosen = _first(options, "--remote-instance-weight-loader-backend")
    backend = chosen.text if chosen is not None else "nccl"
    needed = ["seed-instance-ip", "seed-instance-service-port"]
    if backend == "nccl":
        needed.append("send-weights-group-ports")
    if backend == "modelexpress":
        config = _first(options, "--modelexpress-config")
        told = _object(config) if config is not None else {}
        transport = "with a configuration that is not read" if told is None else str(told.get("transport", "nixl"))
        uri = launch.env.get("MX_MODEL_URI")
        streamed = transport == "nixl" and uri is not None and bool(uri.text)
        backend = "modelexpress " + ("model-streamer" if streamed else transport)
    elif not all(f"--remote-instance-weight-loader-{name}" in options for name in needed):
        backend = "auto"
    medium = "file" if backend.startswith(("modelexpress", "auto")) else "gpu"
    tier = Tier(name="weights", type=f"remote_instance {backend}", medium=medium, line=load.line)
    steps.add("weights.remote_instance", backend, tier)
    software = "ModelExpress" if backend.startswith("modelexpress") else "SGLang weights"
    model = _first(options, "--model-path", "--model")
    return steps.draft(launch, software, None, load.line, model=model.text if model is not None else None)


def _nixlbench(launch: Launch) -> Draft | None:
    if not launch.words or launch.words[0].text.rpartition("/")[2] != "nixlbench":
        return None
    options = _options(launch.words)
    backend = _first(options, "--backend")
    if backend is None or backend.text not in _GDS:
        return None
    segment = _first(options, "--initiator-seg-type")
    steps = _Steps(launch)
    path = _first(options, "--filepath")
    steps.claims.append(Word(text=f"backend {backend.text}", line=backend.line))
    steps.add(
        f"nixlbench.{segment.text.upper() if segment is not None else 'DRAM'}",
        backend.text,
        Tier(
            name="files",
            type=backend.text,
            medium="file",
            path=path.text if path is not None else None,
            line=backend.line,
        ),
    )
    old = (("nixl-backend", backend.text, backend.line),) if deprecated("nixl-backend", backend.text) else ()
    return steps.draft(launch, "nixlbench", None, old=old)


def _script(launch: Launch) -> Draft | None:
    """A Python script that calls an interface to cuFile by name."""
    known = app_edges.backends("script.call")
    named = [(call, interface(call, launch)) for call in launch.calls]
    found = {name: call for call, name in reversed(named) if name in known}
    if not found:
        return None
    steps = _Steps(launch)
    for name, call in reversed(found.items()):
        first = call.arguments.get("0", call.arguments.get("filename", ""))
        path = first if first.startswith("/") else None  # as written down; what a variable holds is not seen
        if name.endswith(" host"):
            steps.claims.append(Word(text=_plain(name), line=call.line))
        steps.add("script.call", name, Tier(name="script", type=_plain(name), medium="file", path=path, line=call.line))
    return steps.draft(launch, "Python script", None, min(call.line for call in found.values()))


def _plain(name: str) -> str:
    return name.removesuffix(" host").removesuffix(" open")
