"""Containers as `docker inspect`, `podman inspect` and OCI runtimes describe them, as the programs that they run."""

from __future__ import annotations

from gdsctl.kvcache.beside import Beside
from gdsctl.kvcache.kubernetes import pairs
from gdsctl.kvcache.launch import Container, Found, Launch, Place, Volume, Word
from gdsctl.kvcache.read_shell import started, volume
from gdsctl.kvcache.yaml_documents import Item


def is_inspected(item: Item) -> bool:
    """One object of `docker inspect` (of a container or an image), or an OCI runtime's config.json."""
    config = item.get("Config")
    docker = config is not None and config.is_mapping and any(item.get(key) for key in ("HostConfig", "Id", "RepoTags"))
    return docker or (item.get("ociVersion") is not None and item.get("process") is not None)


def read_inspected(item: Item, place: Place, beside: Beside) -> Found:
    """What runs in it. Of an image nothing is known but the program: what it is given, `docker run` says."""
    docker = item.get("Config") is not None
    env = _environment(item.list("Config", "Env") if docker else item.list("process", "env"))
    if docker:
        words = [*_words(item.get("Config", "Entrypoint")), *_words(item.get("Config", "Cmd"))]
        path = item.get("Path")
        if not words and path is not None and path.text:
            words = [Word(text=path.text, line=path.line), *_words(item.get("Args"))]
        box = _docker_box(item, place)
    else:
        words = _words(item.get("process", "args"))
        box = _oci_box(item, place)
    if not words:
        return Found(launches=(Launch(place=place.at(item.line), env=env, container=box),)) if env else Found()
    launches, _ = started(words, place, env, box, beside=beside)
    return Found(launches=launches)


def _words(item: Item | None) -> list[Word]:
    if item is None:
        return []
    if item.text is not None:
        return [Word(text=item.text, line=item.line)]
    return [Word(text=entry.text, line=entry.line) for entry in item.items() if entry.text is not None]


def _environment(entries: list[Item]) -> dict[str, Word]:
    found = {}
    for entry in entries:
        name, sign, value = (entry.text or "").partition("=")
        if sign:
            found[name] = Word(text=value, line=entry.line)
    return found


def _docker_box(item: Item, place: Place) -> Container:
    host = item.get("HostConfig")
    volumes = [volume(entry.text) for entry in item.list("HostConfig", "Binds") if entry.text]
    for entry in (*item.list("Mounts"), *item.list("HostConfig", "Mounts")):
        path = entry.word("Destination") or entry.word("Target")
        kind = entry.word("Type") or "volume"
        if path is not None and all(known.path != path for known in volumes):
            volumes.append(Volume(path=path, host_path=entry.word("Source") if kind == "bind" else None, kind=kind))
    asked = [
        name.text
        for request in item.list("HostConfig", "DeviceRequests")
        for group in request.list("Capabilities")
        for name in group.items()
    ]
    cdi = any(
        "nvidia.com/gpu" in (e.text or "")
        for r in item.list("HostConfig", "DeviceRequests")
        for e in r.list("DeviceIDs")
    )
    runtime = item.word("HostConfig", "Runtime")
    memlock = [
        limit.word("Soft")
        for limit in item.list("HostConfig", "Ulimits")
        if limit.word("Name") in ("memlock", "RLIMIT_MEMLOCK")
    ]
    devices = tuple(d.word("PathOnHost") or "" for d in item.list("HostConfig", "Devices"))
    tags = item.list("RepoTags")
    image = item.word("Config", "Image") or (tags[0].text if tags else None)
    return Container(
        name=(item.word("Name") or "").lstrip("/") or image or "container",
        kind="docker" if host is not None else "image",
        image=image,
        volumes=tuple(volumes),
        devices=devices,
        privileged=item.word("HostConfig", "Privileged") == "true",
        capabilities=tuple(
            entry.text.removeprefix("CAP_") for entry in item.list("HostConfig", "CapAdd") if entry.text
        ),
        memlock_unlimited="-1" in memlock,
        host_network=item.word("HostConfig", "NetworkMode") == "host",
        resources=("gpu",) if "gpu" in asked or cdi else (),
        toolkit=None if runtime is None else "nvidia" in runtime,
        place=place.at(item.line),
    )


def _oci_box(item: Item, place: Place) -> Container:
    """https://github.com/opencontainers/runtime-spec: mounts, linux.devices, process.capabilities and rlimits."""
    volumes = tuple(
        Volume(
            path=entry.word("destination") or "",
            host_path=entry.word("source") if (entry.word("source") or "").startswith("/") else None,
            kind=entry.word("type") or "bind",
        )
        for entry in item.list("mounts")
        if entry.word("destination")
    )
    devices = tuple(entry.word("path") or "" for entry in item.list("linux", "devices"))
    bounding = [entry.text for entry in item.list("process", "capabilities", "bounding") if entry.text]
    limits = {entry.word("type"): entry.word("soft") for entry in item.list("process", "rlimits")}
    namespaces = [entry.word("type") for entry in item.list("linux", "namespaces")]
    gpus = any(device.startswith("/dev/nvidia") and device[11:].isdigit() for device in devices)
    return Container(
        name=item.word("hostname") or "container",
        kind="docker",
        volumes=volumes,
        devices=devices,
        capabilities=tuple(name.removeprefix("CAP_") for name in bounding),
        memlock_unlimited=limits.get("RLIMIT_MEMLOCK") in ("-1", "18446744073709551615"),
        host_network="network" not in namespaces,
        resources=("gpu",) if gpus or dict(pairs(item.get("annotations"))).get("cdi.k8s.io/gpu") else (),
        place=place.at(item.line),
    )
