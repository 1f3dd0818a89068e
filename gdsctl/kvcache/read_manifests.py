"""Kubernetes manifests, Docker compose files and LMCache's own YAML as the programs that they start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gdsctl.errors import InputError
from gdsctl.kvcache.beside import Beside
from gdsctl.kvcache.kubernetes import POD_SPECS, objects, pairs
from gdsctl.kvcache.launch import Container, Found, Launch, Place, Service, StorageObject, Volume, Word
from gdsctl.kvcache.read_shell import assigned, read_shell, started, volume
from gdsctl.kvcache.yaml_documents import Item, documents

_PODS = (*POD_SPECS, ("template", "spec"))
# Keys that only LMCache's in-process configuration has (lmcache/v1/config.py).
LMCACHE_KEYS = frozenset(
    [
        "chunk_size",
        "local_cpu",
        "max_local_cpu_size",
        "local_disk",
        "max_local_disk_size",
        "remote_url",
        "remote_serde",
        "gds_path",
        "weka_path",
        "use_gds",
        "use_cufile",
        "gds_backend",
        "gds_buffer_size",
        "cufile_buffer_size",
        "gds_path_sharding",
        "nixl_buffer_size",
        "nixl_buffer_device",
        "save_unfull_chunk",
        "extra_config",
    ]
)
_LMCACHE_ONLY = LMCACHE_KEYS - {"chunk_size", "extra_config"}
# What a text in a file of some other kind must hold to be read as a script.
_STARTS = re.compile(r"lmcache\W+server|vllm\W+serve|sglang|--kv-transfer-config|--load-format")
_DEEPEST_EXTENDS = 10
_REFERENCE = re.compile(r"\$?\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class Embedded:
    """A ConfigMap's file: name, text and place."""

    def __init__(self, name: str, text: str, place: Place) -> None:
        self.name = name
        self.text = text
        self.place = place


Maps = Mapping[str, Mapping[str, Word]]


class Known:
    """What else tells about a file's containers: its ConfigMaps by name, device classes of resource claims, other files."""

    def __init__(self, items: Iterable[Item], beside: Beside) -> None:
        listed = list(items)
        self.beside = beside
        self.maps: Maps = config_maps(listed)
        self.device_classes = device_classes(listed)


def device_classes(items: Iterable[Item]) -> dict[str, tuple[str, ...]]:
    """ResourceClaims and their templates by name -> the device classes they request (resource.k8s.io)."""
    found = {}
    for item in items:
        for entry in objects(item):
            kind = entry.word("kind") or ""
            if not kind.startswith("ResourceClaim"):
                continue
            spec = entry.get("spec", "spec") if kind == "ResourceClaimTemplate" else entry.get("spec")
            requests = spec.list("devices", "requests") if spec is not None else []
            names = [r.word("exactly", "deviceClassName") or r.word("deviceClassName") for r in requests]
            found[entry.word("metadata", "name") or ""] = tuple(name for name in names if name is not None)
    return found


def config_maps(items: Iterable[Item]) -> dict[str, dict[str, Word]]:
    """The ConfigMaps (and Secrets in plain text) of a file by name: key -> value."""
    return {
        entry.word("metadata", "name") or "": {
            name: Word(text=value.text, line=value.text_line)
            for part in ("data", "stringData")
            for name, value in pairs(entry.get(part))
            if value.text is not None
        }
        for item in items
        for entry in objects(item)
        if entry.word("kind") in ("ConfigMap", "Secret")
    }


def read_document(item: Item, place: Place, known: Known) -> tuple[Found, list[Embedded]]:
    """One YAML document. Kinds that start nothing give nothing."""
    if item.get("services") is not None and item.get("kind") is None:
        return _compose(item, place, known), []
    if item.word("kind") is None:
        config = lmcache_config(item)
        if config:
            first = min(word.line for word in config.values())
            return Found(launches=(Launch(place=place.at(first), config=config),)), []
        return _elsewhere(item, place, known), []
    embedded = [
        Embedded(name, word.text, place.at(word.line))
        for values in config_maps([item]).values()
        for name, word in values.items()
    ]
    found_all = Found()
    for entry in objects(item):
        stored = _storage(entry, place)
        if stored:
            found_all += Found(storage=stored)
        elif entry.word("kind") == "Service":
            found_all += Found(services=(_service(entry),))
        elif entry.word("kind") not in ("ConfigMap", "Secret"):
            found_all += _object(entry, place, known)
    return found_all, embedded


def _object(entry: Item, place: Place, known: Known) -> Found:
    """An object that may start containers; of a kind that is not known, wherever they lie in it."""
    name = entry.word("metadata", "name") or ""
    found = _dynamo(entry, place, known)
    for path in _PODS:
        spec = entry.get(*path)
        found += _pod(spec, name, place, known) if spec is not None else Found()
    return found if found.launches else _elsewhere(entry, place, known, name)


def _elsewhere(item: Item, place: Place, known: Known, name: str = "") -> Found:
    try:
        return scattered(item, place, known, name)
    except InputError:  # too deep or too large to walk through, and of no kind that is known: not ours
        return Found()


def scattered(item: Item, place: Place, known: Known, name: str = "") -> Found:
    """Containers and command lines wherever they lie: custom resources, Helm values, playbooks."""
    if item.text is not None:
        if not _STARTS.search(item.text):
            return Found()
        launches, _ = read_shell(item.text, place.at(item.text_line), beside=known.beside)
        return Found(launches=launches)
    below = dict(item.pairs())
    if not below:
        listed = list(item.items())
        if any((entry.text or "").startswith("--") for entry in listed):
            words = [Word(text=entry.text, line=entry.text_line) for entry in listed if entry.text is not None]
            return Found(launches=(Launch(place=place.at(item.line), words=tuple(words)),))
        return sum((scattered(entry, place, known, name) for entry in listed), Found())
    if "containers" in below or "initContainers" in below:
        return _pod(item, name, place, known)
    if any(not below[key].is_mapping and below[key].text is None for key in ("command", "args") if key in below):
        return _container(item, item, name, place, known, outer={})
    return sum((scattered(entry, place, known, name) for entry in below.values()), Found())


def _service(entry: Item) -> Service:
    ports: dict[int, int] = {}
    for port in entry.list("spec", "ports"):
        number = _int(port.word("port"))
        if number is not None:
            ports[number] = _int(port.word("targetPort")) or number
    return Service(name=entry.word("metadata", "name") or "", ports=ports)


def _storage(entry: Item, place: Place) -> tuple[StorageObject, ...]:
    kind, spec = entry.word("kind") or "", entry.get("spec")
    if kind not in ("PersistentVolumeClaim", "PersistentVolume", "StorageClass"):
        return ()
    options = entry.get("mountOptions") if kind == "StorageClass" else entry.get("spec", "mountOptions")
    return (
        StorageObject(
            kind=kind,
            name=entry.word("metadata", "name") or "",
            volume=entry.word("spec", "volumeName"),
            storage_class=entry.word("spec", "storageClassName"),
            claim=entry.word("spec", "claimRef", "name"),
            source=_nfs_source(spec),
            host_path=entry.word("spec", "local", "path") or entry.word("spec", "hostPath", "path"),
            root=entry.word("parameters", "root_export") or entry.word("parameters", "storagePath"),
            options=tuple(item.text for item in options.items() if item.text) if options is not None else (),
            place=place.at(options.line if options is not None else entry.line),
        ),
    )


def _nfs_source(spec: Item | None) -> str | None:
    server = spec.word("nfs", "server") if spec is not None else None
    path = spec.word("nfs", "path") if spec is not None else None
    return f"{server}:{path}" if server and path else None


def _dynamo(entry: Item, place: Place, known: Known) -> Found:
    """DynamoGraphDeployment: each service's extraPodSpec.mainContainer, with envs beside it."""
    found = Found()
    services = entry.get("spec", "services")
    for name, service in pairs(services):
        spec = service.get("extraPodSpec")
        main = spec.get("mainContainer") if spec is not None else None
        if spec is not None and main is not None:
            env = _env([*service.list("envs"), *entry.list("spec", "envs")], known)
            found += _container(main, spec, name, place, known, outer=env)
    return found


def _pod(spec: Item, name: str, place: Place, known: Known) -> Found:
    found = Found()
    for part in ("initContainers", "containers"):
        for container in spec.list(part):
            found += _container(container, spec, name, place, known, outer={})
    return found


def _container(
    container: Item,
    spec: Item,
    pod: str,
    place: Place,
    known: Known,
    *,
    outer: Mapping[str, Word],
) -> Found:
    env = {**outer}
    for source in container.list("envFrom"):
        for kind in ("configMapRef", "secretRef"):
            named = source.word(kind, "name")
            if named is not None and named not in known.maps:
                known.beside.lacks(f"{kind.removesuffix('Ref')} {named}", place.at(source.line))
            env.update(known.maps.get(named or "", {}))
    env.update(_env(container.list("env"), known))
    box = _box(container, spec, pod, place, known)
    words = [*_words(container.get("command"), env), *_words(container.get("args"), env)]
    files = _files(container, spec, known)
    config = files.get(env["LMCACHE_CONFIG_FILE"].text) if "LMCACHE_CONFIG_FILE" in env else None
    found = _config_file(config, place, box) if config is not None else Found()
    if not words:
        return (
            found + Found(launches=(Launch(place=place.at(container.line), env=env, container=box),)) if env else found
        )
    script = next((files[word.text] for word in words[:3] if word.text in files), None)
    if script is not None:
        launches, _ = read_shell(script.text, place.at(script.line), env, box, beside=known.beside)
    else:
        launches, _ = started(words, place, env, box, beside=known.beside)
    return found + Found(launches=launches)


def _files(container: Item, spec: Item, known: Known) -> dict[str, Word]:
    """Path in the container -> text, for ConfigMaps of the same file that are mounted as files."""
    names = {entry.word("name"): entry.word("configMap", "name") for entry in spec.list("volumes")}
    found: dict[str, Word] = {}
    for mount in container.list("volumeMounts"):
        path = mount.word("mountPath")
        values = known.maps.get(names.get(mount.word("name")) or "", {})
        below = mount.word("subPath")
        if path is not None and below is not None and below in values:
            found[path] = values[below]
        elif path is not None and below is None:
            found |= {f"{path.rstrip('/')}/{name}": word for name, word in values.items()}
    return found


def _config_file(word: Word, place: Place, box: Container) -> Found:
    """The LMCache YAML that LMCACHE_CONFIG_FILE names."""
    try:
        items = documents("\n" * (word.line - 1) + word.text)
    except InputError:  # a template, perhaps: no fault of the manifest
        return Found()
    config = lmcache_config(items[0]) if items else {}
    if not config:
        return Found()
    first = min(value.line for value in config.values())
    return Found(launches=(Launch(place=place.at(first), config=config, container=box),))


def _words(item: Item | None, env: Mapping[str, Word]) -> list[Word]:
    if item is None:
        return []
    return [Word(text=_filled(i.text, env), line=i.text_line) for i in item.items() if i.text is not None]


def _filled(text: str, env: Mapping[str, Word]) -> str:
    """`$(NAME)` as the kubelet replaces it: only where the container's env has the name."""

    def value(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):  # the escape
            return match[0][1:]
        known = env.get(match[1])
        return known.text if known is not None else match[0]

    return _REFERENCE.sub(value, text)


def _env(entries: list[Item], known: Known) -> dict[str, Word]:
    found: dict[str, Word] = {}
    for entry in entries:
        name = entry.word("name")
        if name is None:
            continue
        value = entry.get("value")
        if value is not None and value.text is not None:
            found[name] = Word(text=_filled(value.text, found), line=value.text_line)
            continue
        reference = entry.get("valueFrom", "configMapKeyRef")
        if reference is not None:
            word = known.maps.get(reference.word("name") or "", {}).get(reference.word("key") or "")
            if word is not None:
                found[name] = word
    return found


def _box(container: Item, spec: Item, pod: str, place: Place, known: Known) -> Container:
    sources = {entry.word("name"): entry for entry in spec.list("volumes")}
    volumes = []
    for mount in container.list("volumeMounts"):
        path = mount.word("mountPath")
        source = sources.get(mount.word("name"))
        if path is None:
            continue
        host = source.word("hostPath", "path") if source is not None else None
        kind = next((key for key, _ in source.pairs() if key != "name"), "") if source is not None else ""
        below = mount.word("subPath")
        if host is not None and below:
            host = f"{host.rstrip('/')}/{below}"
        claim = source.word("persistentVolumeClaim", "claimName") if source is not None else None
        volumes.append(Volume(path=path, host_path=host, kind=kind, source=_nfs_source(source), claim=claim))
    security = container.get("securityContext")
    limits = {name for part in ("limits", "requests") for name, _ in pairs(container.get("resources", part))}
    limits |= _claimed(container, spec, known)
    return Container(
        name=f"{pod}/{container.word('name') or '?'}".lstrip("/"),
        kind="kubernetes",
        image=container.word("image"),
        volumes=tuple(volumes),
        devices=tuple(v.host_path for v in volumes if v.host_path is not None and v.host_path.startswith("/dev/")),
        privileged=security is not None and security.word("privileged") == "true",
        capabilities=tuple(i.text for i in (security.list("capabilities", "add") if security else ()) if i.text),
        host_network=spec.word("hostNetwork") == "true",
        resources=tuple(sorted(limits)),
        place=place.at(container.line),
    )


def _claimed(container: Item, spec: Item, known: Known) -> set[str]:
    """Device classes that a container's resource claims ask for; "claim" for one whose object is not in the file."""
    objects = {
        entry.word("name"): entry.word("resourceClaimTemplateName") or entry.word("resourceClaimName")
        for entry in spec.list("resourceClaims")
    }
    found: set[str] = set()
    for claim in container.list("resources", "claims"):
        classes = known.device_classes.get(objects.get(claim.word("name")) or "")
        found |= set(classes) if classes is not None else {"claim"}
    return found


class _Service:
    """A service of a compose file upon those of the same file that it extends."""

    def __init__(self, chain: list[Item]) -> None:
        self.chain = chain
        self.line = chain[-1].line

    def get(self, *path: str) -> Item | None:
        return next((found for item in reversed(self.chain) if (found := item.get(*path)) is not None), None)

    def word(self, *path: str) -> str | None:
        found = self.get(*path)
        return found.text if found is not None else None

    def list(self, *path: str) -> list[Item]:
        return [entry for item in self.chain for entry in item.list(*path)]


def _chain(service: Item, services: Mapping[str, Item], place: Place, known: Known, depth: int = 0) -> list[Item]:
    base = service.word("extends", "service") or service.word("extends")
    if base is None:
        return [service]
    file = service.word("extends", "file")
    if file is not None or base not in services or depth > _DEEPEST_EXTENDS:
        known.beside.lacks(f"{file or 'service'} ({base})" if file else f"service {base}", place.at(service.line))
        return [service]
    return [*_chain(services[base], services, place, known, depth + 1), service]


def _compose(item: Item, place: Place, known: Known) -> Found:
    found = Found()
    services = dict(pairs(item.get("services")))
    for name, own in services.items():
        service = _Service(_chain(own, services, place, known))
        env = _compose_env(service, place, known)
        box = _compose_box(name, service, place)
        words = [*_compose_words(service.get("entrypoint")), *_compose_words(service.get("command"))]
        if words:
            launches, _ = started(words, place, env, box, beside=known.beside)
            found += Found(launches=launches)
        elif env:
            found += Found(launches=(Launch(place=place.at(service.line), env=env, container=box),))
    return found


def _compose_env(service: _Service, place: Place, known: Known) -> dict[str, Word]:
    """Its env files, and over them what it sets itself."""
    env: dict[str, Word] = {}
    for own in service.chain:
        named = own.get("env_file")
        for entry in [named, *named.items()] if named is not None else []:
            file = entry.text or entry.word("path")
            text = known.beside.text(file, place.at(entry.line)) if file else None
            env |= assigned(text, entry.line) if text is not None else {}
    for own in service.chain:
        environment = own.get("environment")
        if environment is None:
            continue
        for key, value in environment.pairs():
            if value.text is not None:
                env[key] = Word(text=value.text, line=value.text_line)
        for entry in environment.items():
            key, sign, text = (entry.text or "").partition("=")
            if sign:
                env[key] = Word(text=text, line=entry.text_line)
    return env


def _compose_words(item: Item | None) -> list[Word]:
    """A list of words, or one text that is split as a shell would."""
    if item is None:
        return []
    if item.text is not None:
        launches, _ = read_shell(item.text, Place(file="", line=item.text_line))
        return [word for launch in launches for word in launch.words]
    return [Word(text=entry.text, line=entry.text_line) for entry in item.items() if entry.text is not None]


def _compose_box(name: str, service: _Service, place: Place) -> Container:
    volumes = []
    for entry in service.list("volumes"):
        if entry.text is not None:
            volumes.append(volume(entry.text))
        elif (target := entry.word("target")) is not None:
            source = entry.word("source")
            volumes.append(Volume(path=target, host_path=source if entry.word("type") == "bind" else None, kind="bind"))
    devices = [entry.text.partition(":")[0] for entry in service.list("devices") if entry.text]
    gpus = service.get("deploy", "resources", "reservations", "devices") or service.get("gpus")
    memlock = service.get("ulimits", "memlock")
    unlimited = memlock is not None and "-1" in (memlock.text, memlock.word("soft"), memlock.word("hard"))
    return Container(
        name=name,
        kind="compose",
        image=service.word("image"),
        volumes=tuple(volumes),
        devices=tuple(devices),
        privileged=service.word("privileged") == "true",
        capabilities=tuple(entry.text for entry in service.list("cap_add") if entry.text),
        memlock_unlimited=unlimited,
        host_network=service.word("network_mode") == "host",
        resources=("gpu",) if gpus is not None else (),
        place=place.at(service.line),
    )


def lmcache_config(item: Item) -> dict[str, Word]:
    """LMCache's in-process configuration by key, `extra_config` with a dot; empty for a mapping that is not one."""
    found: dict[str, Word] = {}
    for name, value in item.pairs():
        if value.text is not None:
            found[name] = Word(text=value.text, line=value.text_line)
        elif name == "extra_config":
            for key, inner in value.pairs():
                if inner.text is not None:
                    found[f"extra_config.{key}"] = Word(text=inner.text, line=inner.text_line)
                for deeper, text in inner.pairs():
                    if text.text is not None:
                        found[f"extra_config.{key}.{deeper}"] = Word(text=text.text, line=text.text_line)
    own = {name.partition(".")[0] for name in found}
    return found if own & _LMCACHE_ONLY or "extra_config.enable_nixl_storage" in found else {}


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else None
