"""Kubernetes manifests, containers as they are inspected, and LMCache's own YAML as the programs that they start."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping

import msgspec

from gdsctl.errors import InputError
from gdsctl.kvcache.beside import Beside
from gdsctl.kvcache.kubernetes import POD_SPECS, objects, pairs
from gdsctl.kvcache.launch import Container, Found, Launch, Place, Service, StorageObject, Volume, Word
from gdsctl.kvcache.read_inspected import is_inspected, read_inspected
from gdsctl.kvcache.read_shell import read_shell, started
from gdsctl.kvcache.yaml_documents import Item, as_yaml, documents

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
# Environment that decides where bytes go; of others, such as tokens, it does not matter where they come from.
_OURS = ("LMCACHE_", "DYN_KVBM_", "FLEXKV_", "MX_", "INSTANTTENSOR_", "SGLANG_", "VLLM_", "KVIKIO_", "CUFILE_")
_REFERENCE = re.compile(r"\$?\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class Embedded:
    """A ConfigMap's file: name, text and place."""

    def __init__(self, name: str, text: str, place: Place) -> None:
        self.name = name
        self.text = text
        self.place = place


Maps = Mapping[str, Mapping[str, Word]]


class Mounted:
    """A file within a container: its text, and the file of ours that holds it."""

    def __init__(self, word: Word, file: str) -> None:
        self.word = word
        self.file = file


class Known:
    """What else tells about a file's containers: ConfigMaps by name, device classes of resource claims, other files.

    What another of the given files holds counts where this one does not hold it.
    """

    def __init__(self, items: Iterable[Item], beside: Beside, file: str = "") -> None:
        listed = list(items)
        self.beside = beside
        self.file = file
        self._own: Maps = config_maps(listed)
        for name, text in beside.texts.items():
            if name != file and name not in beside.kept:
                beside.kept[name] = _other_maps(text)
        self._others: dict[str, Other] = {name: kept for name, kept in beside.kept.items() if name != file}
        self.device_classes = {
            name: found for _, classes in self._others.values() for name, found in classes.items()
        } | device_classes(listed)

    def values(self, name: str | None, line: int) -> Mapping[str, Word] | None:
        """A ConfigMap's or Secret's; of another file all at `line`, where it is named."""
        found = self.mounted(name)
        if found is None:
            return None
        return {
            key: entry.word if entry.file == self.file else Word(text=entry.word.text, line=line)
            for key, entry in found.items()
        }

    def mounted(self, name: str | None) -> dict[str, Mounted] | None:
        if name is None:
            return None
        if name in self._own:
            return {key: Mounted(word, self.file) for key, word in self._own[name].items()}
        for file, (maps, _) in self._others.items():
            if name in maps:
                self.beside.used.add(file)
                return {key: Mounted(word, file) for key, word in maps[name].items()}
        return None


Other = tuple[Maps, Mapping[str, tuple[str, ...]]]


def _other_maps(text: str) -> Other:
    """ConfigMaps and device classes of another of the given files; what is wrong with it, its own reading tells."""
    if not any(kind in text for kind in ("ConfigMap", "Secret", "ResourceClaim")):
        return {}, {}
    try:
        items = documents(as_yaml(text) if text.lstrip()[:1] in ("{", "[") else text)
        return config_maps(items), device_classes(items)
    except InputError:
        return {}, {}


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
    """The ConfigMaps and Secrets of a file by name: key -> value."""
    found: dict[str, dict[str, Word]] = {}
    for item in items:
        for entry in objects(item):
            kind = entry.word("kind")
            if kind not in ("ConfigMap", "Secret"):
                continue
            values = found.setdefault(entry.word("metadata", "name") or "", {})
            for part in ("data", "stringData"):
                for name, value in pairs(entry.get(part)):
                    text = _decoded(value.text) if (kind, part) == ("Secret", "data") else value.text
                    if text is not None:
                        values[name] = Word(text=text, line=value.text_line)
    return found


def _decoded(text: str | None) -> str | None:
    """A Secret's `data` is Base64."""
    try:
        return base64.b64decode(text or "", validate=True).decode()
    except ValueError:
        return text  # a placeholder, or somebody's plain text


def read_document(item: Item, place: Place, known: Known) -> tuple[Found, list[Embedded]]:
    """One YAML document. Kinds that start nothing give nothing."""
    if not item.is_mapping and any(is_inspected(entry) for entry in item.items()):
        each = (read_inspected(entry, place, known.beside) for entry in item.items() if is_inspected(entry))
        return sum(each, Found()), []
    if is_inspected(item):
        return read_inspected(item, place, known.beside), []
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
    for entry in _unowned(objects(item)):
        stored = _storage(entry, place)
        if stored:
            found_all += Found(storage=stored)
        elif entry.word("kind") == "Service":
            found_all += Found(services=(_service(entry),))
        elif entry.word("kind") not in ("ConfigMap", "Secret"):
            found_all += _object(entry, place, known)
    return found_all, embedded


def _unowned(entries: list[Item]) -> list[Item]:
    """Of objects as a cluster lists them those that no other among them made, and one of those of one maker."""
    named = {(entry.word("kind"), entry.word("metadata", "name")) for entry in entries}
    kept: list[Item] = []
    makers: set[tuple[str | None, str | None]] = set()
    for entry in entries:
        owners = entry.list("metadata", "ownerReferences")
        maker = (owners[0].word("kind"), owners[0].word("name")) if owners else None
        if maker is None or (maker not in named and maker not in makers):
            kept.append(entry)
        if maker is not None:
            makers.add(maker)
    return kept


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
            driver=entry.word("provisioner") if kind == "StorageClass" else entry.word("spec", "csi", "driver"),
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
            env = _env([*service.list("envs"), *entry.list("spec", "envs")], known, place)
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
            values = known.values(named, source.line)
            if named is not None and values is None:
                known.beside.lacks(f"{kind.removesuffix('Ref')} {named}", place.at(source.line))
            prefix = source.word("prefix") or ""
            env.update({prefix + key: word for key, word in (values or {}).items()})
    env.update(_env(container.list("env"), known, place))
    box = _box(container, spec, pod, place, known)
    words = [*_words(container.get("command"), env), *_words(container.get("args"), env)]
    wanted = [*words[:3], *(word for name, word in env.items() if name == "LMCACHE_CONFIG_FILE")]
    files = _files(container, spec, known, place, wanted)
    config = files.get(env["LMCACHE_CONFIG_FILE"].text) if "LMCACHE_CONFIG_FILE" in env else None
    found = config_file(config, place, box) if config is not None else Found()
    if not words:
        return (
            found + Found(launches=(Launch(place=place.at(container.line), env=env, container=box),)) if env else found
        )
    started_by = next((word for word in words[:3] if word.text in files), None)
    if started_by is not None:
        return found + script(files[started_by.text], started_by, place, env, box, known.beside)
    launches, _ = started(words, place, env, box, beside=known.beside)
    return found + Found(launches=launches)


def _files(container: Item, spec: Item, known: Known, place: Place, wanted: list[Word]) -> dict[str, Mounted]:
    """Path in the container -> text, for ConfigMaps and Secrets that are mounted as files.

    One that was not given is noted where a path that is `wanted` lies in it.
    """
    volumes = {entry.word("name"): entry for entry in spec.list("volumes")}
    found: dict[str, Mounted] = {}
    for mount in container.list("volumeMounts"):
        path, source, below = mount.word("mountPath"), volumes.get(mount.word("name")), mount.word("subPath")
        if path is None or source is None:
            continue
        asked = any(word.text == path or word.text.startswith(path.rstrip("/") + "/") for word in wanted)
        values = _projected(source, known, place if asked else None)
        if below is not None and below in values:
            found[path] = values[below]
        elif below is None:
            found |= {f"{path.rstrip('/')}/{name}": entry for name, entry in values.items()}
    return found


def _projected(volume: Item, known: Known, place: Place | None) -> dict[str, Mounted]:
    """File name -> text of a volume that is made of ConfigMaps and Secrets."""
    found: dict[str, Mounted] = {}
    for holder in (volume, *volume.list("projected", "sources")):
        for kind in ("configMap", "secret"):
            name = holder.word(kind, "name") or holder.word(kind, "secretName")
            if name is None:
                continue
            values = known.mounted(name)
            if values is None:
                if place is not None:
                    known.beside.lacks(f"{kind} {name}", place.at(holder.line))
                continue
            chosen = {i.word("key") or "": i.word("path") or "" for i in holder.list(kind, "items")}
            found |= {chosen.get(key, key): value for key, value in values.items() if not chosen or key in chosen}
    return found


def script(  # noqa: PLR0917 -- a place in a container
    text: Mounted, named: Word, place: Place, env: Mapping[str, Word], box: Container, beside: Beside
) -> Found:
    """A script that a container starts. Of another file: all of it at the line that names it, for its environment is here."""
    own = text.file == place.file
    launches, _ = read_shell(text.word.text, place.at(text.word.line if own else 1), env, box, beside=beside)
    if own:
        return Found(launches=launches)
    return Found(
        launches=tuple(
            msgspec.structs.replace(
                launch,
                place=place.at(named.line),
                words=tuple(Word(text=word.text, line=named.line) for word in launch.words),
            )
            for launch in launches
        )
    )


def config_file(text: Mounted, place: Place, box: Container | None) -> Found:
    """The LMCache YAML that LMCACHE_CONFIG_FILE names."""
    try:
        items = documents("\n" * (text.word.line - 1) + text.word.text)
    except InputError:  # a template, perhaps: no fault of the manifest
        return Found()
    config = lmcache_config(items[0]) if items else {}
    if not config:
        return Found()
    first = min(value.line for value in config.values())
    document = place.document if text.file == place.file else None
    where = Place(file=text.file, line=first, document=document)
    return Found(launches=(Launch(place=where, config=config, container=box),))


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


def _env(entries: list[Item], known: Known, place: Place) -> dict[str, Word]:
    found: dict[str, Word] = {}
    for entry in entries:
        name = entry.word("name")
        if name is None:
            continue
        value = entry.get("value")
        if value is not None and value.text is not None:
            found[name] = Word(text=_filled(value.text, found), line=value.text_line)
            continue
        for kind in ("configMapKeyRef", "secretKeyRef"):
            reference = entry.get("valueFrom", kind)
            if reference is None:
                continue
            word = (known.values(reference.word("name"), entry.line) or {}).get(reference.word("key") or "")
            if word is not None:
                found[name] = word
            elif name.startswith(_OURS):
                known.beside.lacks(f"{kind.removesuffix('KeyRef')} {reference.word('name')}", place.at(entry.line))
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
