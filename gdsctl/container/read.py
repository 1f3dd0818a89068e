"""Files that describe containers: docker or podman inspect, an OCI config.json, a CDI spec, compose, manifests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from gdsctl.container.given import Bind, Given, Kind
from gdsctl.errors import InputError
from gdsctl.kvcache.json_text import json_value
from gdsctl.kvcache.kubernetes import POD_SPECS, objects, pairs
from gdsctl.kvcache.yaml_documents import Item, documents

UNLIMITED_BYTES = 2**63 - 1
_MOST_CONTAINERS = 200
_KINDS = "docker inspect's output, an OCI config.json, a CDI spec, a compose file or a manifest that starts containers"
# Volumes that hold no data of an application (Kubernetes API reference, Volume).
_NOT_DATA = ("configMap", "secret", "projected", "downwardAPI", "image")
# Resources that the kubelet itself gives; all others come from a device plugin.
_PLAIN_RESOURCES = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.*")
_GPU_RESOURCE = re.compile(r"nvidia\.com/(?:gpu|mig-|pgpu)|.*gpu.*")
_SIZE = re.compile(r"(\d{1,18})\s*([bkmg]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def read(text: str, path: str) -> tuple[Given, ...]:
    """All containers of a file. Pure; raises InputError (FILE:LINE) for a file that is broken or describes none."""
    try:
        return _read(text, path)
    except InputError as error:
        raise error.at(path) from None


def _read(text: str, path: str) -> tuple[Given, ...]:
    items = _documents(text)
    claims = _volumes(items)
    found = tuple(given for item in items for given in _containers(item, path, claims))
    if not found:
        raise InputError(f"not {_KINDS}", line=items[0].line if items else 1)
    if len(found) > _MOST_CONTAINERS:
        raise InputError(f"more than {_MOST_CONTAINERS} containers", line=found[_MOST_CONTAINERS].line)
    return found


def _documents(text: str) -> list[Item]:
    """JSON is YAML but for tabs and pairs of surrogates; broken JSON is told as JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return documents(text)
    try:
        value = json_value(text)
    except InputError:
        if text.lstrip()[:2] in ("{{", "{%"):
            raise InputError("a template, not yet a manifest: render it first", line=1) from None
        raise
    try:
        return documents(text.replace("\t", " "))
    except InputError:
        return documents(json.dumps(value, ensure_ascii=False))


def _containers(item: Item, path: str, claims: dict[str, str]) -> Iterator[Given]:
    if item.get("ociVersion") is not None:
        yield _oci(item, path)
    elif item.get("cdiVersion") is not None:
        yield _cdi(item, path)
    elif item.get("services") is not None and item.get("kind") is None:
        for name, service in pairs(item.get("services")):
            yield _compose(name, service, path)
    elif item.get("HostConfig") is not None:
        yield _inspected(item, path)
    elif item.word("kind") is not None:
        for entry in objects(item):
            yield from _pods(entry, path, claims)
    else:
        for entry in item.items():
            if entry.get("HostConfig") is not None:
                yield _inspected(entry, path)


def _texts(item: Item | None) -> list[str]:
    return [entry.text for entry in item.items() if entry.text is not None] if item is not None else []


def _pairs_of_env(entries: list[str]) -> dict[str, str]:
    """`NAME=VALUE` entries."""
    return {name: value for name, sign, value in (entry.partition("=") for entry in entries) if sign}


def _number(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"-?\d{1,20}", text):
        return None
    return int(text)


def _limit(text: str | None) -> int | None:
    """A limit on locked memory in bytes: -1 and all that does not fit 63 bits stand for none."""
    number = _number(text)
    if text in ("unlimited", "infinity"):
        return UNLIMITED_BYTES
    if number is None:
        return None
    return UNLIMITED_BYTES if number < 0 or number > UNLIMITED_BYTES else number


def _ipc_lock(capabilities: list[str]) -> bool:
    return any(name.upper().removeprefix("CAP_") in ("IPC_LOCK", "ALL") for name in capabilities)


def visible(env: dict[str, str]) -> bool | None:
    """NVIDIA_VISIBLE_DEVICES: does it ask for GPUs? None where it is not set."""
    value = env.get("NVIDIA_VISIBLE_DEVICES")
    return None if value is None else value not in ("", "void", "none")


# --- docker inspect, podman inspect ---------------------------------------------------------------------------------


def _inspected(item: Item, path: str) -> Given:
    """Engine API, GET /containers/{id}/json."""
    host = item.get("HostConfig")
    if host is None or not host.is_mapping:
        raise InputError("HostConfig is no object", line=item.line)
    env = _pairs_of_env(_texts(item.get("Config", "Env")))
    kind: Kind = "podman" if item.get("OCIRuntime") is not None or item.get("EffectiveCaps") is not None else "docker"
    privileged = host.word("Privileged") == "true"
    requests = host.list("DeviceRequests")
    cdi = [
        *(name for request in requests if request.word("Driver") == "cdi" for name in _texts(request.get("DeviceIDs"))),
        *(entry.word("PathOnHost") or "" for entry in host.list("Devices")),
    ]
    cdi = [name for name in cdi if _is_cdi(name)]
    runtime = host.word("Runtime") or item.word("OCIRuntime")
    toolkit = None if runtime is None else "nvidia" in runtime
    asked = any(request.word("Driver") in ("nvidia", "", None) for request in requests) or bool(cdi)
    binds = tuple(
        Bind(
            target=mount.word("Destination") or "",
            source=mount.word("Source") or None if mount.word("Type") != "tmpfs" else None,
            kind="tmpfs" if mount.word("Type") == "tmpfs" else "bind",
        )
        for mount in item.list("Mounts")
        if mount.word("Destination")
    )
    if not binds:
        binds = tuple(filter(None, (_short_bind(text) for text in _texts(host.get("Binds")))))
    binds += tuple(Bind(target=target, kind="tmpfs") for target, _ in pairs(host.get("Tmpfs")))
    devices = [
        entry.word("PathInContainer") or entry.word("PathOnHost") or ""
        for entry in host.list("Devices")
        if not _is_cdi(entry.word("PathOnHost") or "")
    ]
    if host.list("DeviceCgroupRules"):  # which numbers they allow is not compared: a bound node counts as usable
        devices += [bind.target for bind in binds if bind.target.startswith("/dev/")]
    limits = {(limit.word("Name") or "").lower().removeprefix("rlimit_"): limit for limit in host.list("Ulimits")}
    return Given(
        name=(item.word("Name") or item.word("Id") or "container").lstrip("/")[:200],
        kind=kind,
        file=path,
        line=item.line,
        image=item.word("Config", "Image") or item.word("ImageName"),
        binds=binds,
        devices=tuple(filter(None, devices)),
        env=env,
        cdi=tuple(cdi),
        gpus=True if asked else through_runtime(toolkit, visible(env)),
        toolkit=toolkit,
        plugin=bool(cdi),
        rdma_plugin=bool(cdi),
        privileged=privileged,
        ipc_lock=privileged or _ipc_lock([*_texts(host.get("CapAdd")), *_texts(item.get("EffectiveCaps"))]),
        memlock_bytes=_limit(limits["memlock"].word("Soft")) if "memlock" in limits else None,
        io_uring=True if privileged else _security_opt(_texts(host.get("SecurityOpt"))),
        host_network=_shared(host.word("NetworkMode")),
        masked=tuple(_texts(host.get("MaskedPaths"))),
    )


def through_runtime(toolkit: bool | None, asks: bool | None) -> bool | None:
    """Without a request for devices GPUs come by NVIDIA's runtime and the environment alone."""
    if toolkit is False or asks is False:
        return False
    return True if toolkit and asks else None


def _is_cdi(name: str) -> bool:
    """A qualified name, `vendor.com/class=name` (CDI specification)."""
    return not name.startswith("/") and "=" in name and "/" in name.partition("=")[0]


def _short_bind(text: str) -> Bind | None:
    """`SOURCE:TARGET[:OPTIONS]`; a SOURCE that is no absolute path is a named volume."""
    source, sign, rest = text.partition(":")
    if not sign:
        return Bind(target=source, kind="anonymous volume") if source.startswith("/") else None
    target = rest.partition(":")[0]
    if source.startswith("/"):
        return Bind(target=target, source=source)
    return Bind(target=target, kind=f"volume {source}" if not source.startswith((".", "~")) else f"folder {source}")


def _shared(mode: str | None) -> bool | None:
    """Docker's network modes: whose network another container's is does not show, and macvlan networks have names."""
    if mode is None or mode.startswith("container:"):
        return None
    return mode == "host" if mode in ("host", "default", "bridge", "none") else None


def _security_opt(options: list[str]) -> bool | None:
    for option in options:
        name, _, value = option.replace(":", "=", 1).partition("=") if "=" not in option else option.partition("=")
        if name != "seccomp":
            continue
        if value == "unconfined":
            return True
        if value.startswith("{"):
            try:
                profile = _documents(value)
            except InputError:
                return None
            return _allows(profile[0]) if profile else None
        return None
    return None


def _allows(profile: Item) -> bool | None:
    """Does a seccomp profile (OCI linux.seccomp) let io_uring_setup through? None where it hangs on its arguments."""
    action = profile.word("defaultAction")
    for rule in profile.list("syscalls"):
        if "io_uring_setup" in [*_texts(rule.get("names")), rule.word("name")]:
            if rule.list("args"):
                return None
            action = rule.word("action")
            break
    return action in ("SCMP_ACT_ALLOW", "SCMP_ACT_LOG") if action is not None else None


# --- OCI ------------------------------------------------------------------------------------------------------------


def _oci(item: Item, path: str) -> Given:
    """OCI runtime specification, config.md and config-linux.md."""
    env = _pairs_of_env(_texts(item.get("process", "env")))
    linux = item.get("linux")
    mounts = [mount for mount in item.list("mounts") if mount.word("destination")]
    binds = []
    for mount in mounts:
        options = _texts(mount.get("options"))
        kind = mount.word("type") or ""
        if kind in ("bind", "rbind") or {"bind", "rbind"} & set(options):
            binds.append(Bind(target=mount.word("destination") or "", source=mount.word("source")))
        elif kind == "tmpfs":
            binds.append(Bind(target=mount.word("destination") or "", kind="tmpfs"))
    rules = linux.list("resources", "devices") if linux is not None else []
    open_to_all = any(rule.word("allow") == "true" and rule.word("major") is None for rule in rules) or not rules
    devices = [device.word("path") or "" for device in (linux.list("devices") if linux is not None else [])]
    if open_to_all:
        devices += [bind.target for bind in binds if bind.target.startswith("/dev/")]
    hooks = [
        hook.word("path") or ""
        for part in ("prestart", "createRuntime", "createContainer")
        for hook in item.list("hooks", part)
    ]
    hooked = any("nvidia-container-runtime-hook" in hook or "nvidia-container-toolkit" in hook for hook in hooks)
    given = any(re.fullmatch(r"/dev/nvidia\d+", device) for device in devices)
    limits = {limit.word("type"): limit for limit in item.list("process", "rlimits")}
    namespaces = linux.list("namespaces") if linux is not None else []
    seccomp = linux.get("seccomp") if linux is not None else None
    capabilities = item.get("process", "capabilities")
    return Given(
        name=(item.word("hostname") or item.word("annotations", "io.kubernetes.cri.container-name") or "container")[
            :200
        ],
        kind="oci",
        file=path,
        line=item.line,
        binds=tuple(binds),
        devices=tuple(filter(None, devices)),
        env=env,
        gpus=True if given or (hooked and visible(env)) else None if visible(env) else False,
        toolkit=None,
        ipc_lock=_ipc_lock(_texts(capabilities.get("effective") if capabilities is not None else None)),
        memlock_bytes=_limit(limits["RLIMIT_MEMLOCK"].word("soft")) if "RLIMIT_MEMLOCK" in limits else None,
        io_uring=_allows(seccomp) if seccomp is not None and seccomp.is_mapping else True,
        host_network=None if any(space.word("type") == "network" for space in namespaces) else True,
        sysfs=any(mount.word("destination") in ("/sys", "/") for mount in mounts),
        masked=tuple(_texts(linux.get("maskedPaths"))) if linux is not None else (),
    )


# --- CDI ------------------------------------------------------------------------------------------------------------


def _cdi(item: Item, path: str) -> Given:
    """Container Device Interface specification: what all devices of the spec together give.

    `name` is its kind, `cdi` the qualified names of its devices.
    """
    kind = item.word("kind") or "?"
    edits = [item.get("containerEdits"), *(device.get("containerEdits") for device in item.list("devices"))]
    nodes = [
        node.word("path") or ""
        for edit in edits
        if edit is not None
        for node in (*edit.list("deviceNodes"), *edit.list("devices"))
    ]
    mounts = [mount for edit in edits if edit is not None for mount in edit.list("mounts")]
    env = [name for edit in edits if edit is not None for name in _texts(edit.get("env"))]
    return Given(
        name=kind[:200],
        kind="cdi",
        file=path,
        line=item.line,
        binds=tuple(
            Bind(target=mount.word("containerPath") or "", source=mount.word("hostPath"))
            for mount in mounts
            if mount.word("containerPath")
        ),
        devices=tuple(dict.fromkeys(filter(None, nodes))),
        env=_pairs_of_env(env),
        cdi=tuple(f"{kind}={device.word('name') or ''}" for device in item.list("devices")),
        gpus=True if any(re.fullmatch(r"/dev/nvidia\d+", node) for node in nodes) else None,
    )


# --- compose --------------------------------------------------------------------------------------------------------


def _compose(name: str, service: Item, path: str) -> Given:
    """Compose specification, services."""
    environment = service.get("environment")
    env = _pairs_of_env(_texts(environment))
    env |= {key: value.text for key, value in pairs(environment) if value.text is not None}
    binds = []
    for entry in service.list("volumes"):
        short = _short_bind(entry.text) if entry.text is not None else None
        target = entry.word("target")
        if short is not None:
            binds.append(short)
        elif target is not None:
            source, kind = entry.word("source") or "", entry.word("type") or "volume"
            if kind == "bind" and source.startswith("/"):
                binds.append(Bind(target=target, source=source))
            else:
                binds.append(Bind(target=target, kind="tmpfs" if kind == "tmpfs" else f"{kind} {source}".strip()))
    tmpfs = service.get("tmpfs")
    memory = [tmpfs.text] if tmpfs is not None and tmpfs.text else _texts(tmpfs)
    binds += [Bind(target=target.partition(":")[0], kind="tmpfs") for target in memory]
    devices, cdi = [], []
    for entry in service.list("devices"):
        text = entry.text or entry.word("source") or ""
        if _is_cdi(text):
            cdi.append(text)
        else:
            parts = text.split(":")
            devices.append(entry.word("target") or (parts[1] if len(parts) > 1 and parts[1] else parts[0]))
    reservations = service.list("deploy", "resources", "reservations", "devices")
    cdi += [id_ for entry in reservations for id_ in _texts(entry.get("device_ids")) if _is_cdi(id_)]
    runtime = service.word("runtime")
    toolkit = None if runtime is None else "nvidia" in runtime
    asked = bool(reservations or cdi or service.get("gpus") is not None)
    memlock = service.get("ulimits", "memlock")
    privileged = service.word("privileged") == "true"
    return Given(
        name=name[:200],
        kind="compose",
        file=path,
        line=service.line,
        image=service.word("image"),
        binds=tuple(binds),
        devices=tuple(filter(None, devices)),
        env=env,
        cdi=tuple(cdi),
        gpus=True if asked else through_runtime(toolkit, visible(env)),
        toolkit=toolkit,
        plugin=bool(cdi),
        rdma_plugin=bool(cdi),
        privileged=privileged,
        ipc_lock=privileged or _ipc_lock(_texts(service.get("cap_add"))),
        memlock_bytes=_limit(memlock.text or memlock.word("soft")) if memlock is not None else None,
        io_uring=True if privileged else _security_opt(_texts(service.get("security_opt"))),
        host_network=_shared(service.word("network_mode") or "default"),
    )


# --- Kubernetes -----------------------------------------------------------------------------------------------------


def _volumes(items: list[Item]) -> dict[str, str]:
    """PersistentVolumeClaim -> folder on the node, where the file holds its volume and that is a folder there."""
    entries = [entry for item in items for entry in objects(item)]
    folders: dict[str, str] = {}
    claimed: dict[str, str] = {}
    for entry in entries:
        if entry.word("kind") == "PersistentVolume":
            folder = entry.word("spec", "local", "path") or entry.word("spec", "hostPath", "path")
            if folder:
                folders[entry.word("metadata", "name") or ""] = folder
                claimed[entry.word("spec", "claimRef", "name") or ""] = folder
    for entry in entries:
        if entry.word("kind") == "PersistentVolumeClaim":
            volume = entry.word("spec", "volumeName")
            if volume in folders:
                claimed[entry.word("metadata", "name") or ""] = folders[volume or ""]
    claimed.pop("", None)
    return claimed


def _pods(entry: Item, path: str, claims: dict[str, str]) -> Iterator[Given]:
    name = entry.word("metadata", "name") or entry.word("metadata", "generateName") or ""
    for where in POD_SPECS:
        spec = entry.get(*where)
        if spec is None:
            continue
        for container in spec.list("containers"):
            yield _pod_container(container, spec, name, path, claims)


def _pod_container(container: Item, spec: Item, pod: str, path: str, claims: dict[str, str]) -> Given:
    env = {
        entry.word("name") or "": entry.word("value") or ""
        for entry in container.list("env")
        if entry.word("name") and entry.get("value") is not None
    }
    sources = {entry.word("name"): entry for entry in spec.list("volumes")}
    binds = tuple(filter(None, (_volume(mount, sources, claims) for mount in container.list("volumeMounts"))))
    security = container.get("securityContext")
    privileged = security is not None and security.word("privileged") == "true"
    capabilities = _texts(security.get("capabilities", "add")) if security is not None else []
    profile = (security.word("seccompProfile", "type") if security is not None else None) or spec.word(
        "securityContext", "seccompProfile", "type"
    )
    asked = [
        name
        for part in ("limits", "requests")
        for name, amount in pairs(container.get("resources", part))
        if not _PLAIN_RESOURCES.fullmatch(name) and amount.text != "0"
    ]
    claimed = bool(container.list("resources", "claims"))
    gpus = any(_GPU_RESOURCE.match(name) for name in asked)
    others = [name for name in asked if not _GPU_RESOURCE.match(name)]
    asks = visible(env)
    return Given(
        name=f"{pod}/{container.word('name') or '?'}".lstrip("/")[:200],
        kind="kubernetes",
        file=path,
        line=container.line,
        image=container.word("image"),
        binds=binds,
        env=env,
        gpus=True if gpus else False if asks is False else None,
        toolkit=None,
        plugin=gpus or claimed,
        rdma_plugin=gpus or claimed or bool(others),
        privileged=privileged,
        ipc_lock=privileged or _ipc_lock(capabilities),
        io_uring=True if privileged or profile == "Unconfined" else None,
        host_network=True if spec.word("hostNetwork") == "true" else None,  # Multus may add interfaces
    )


def _volume(mount: Item, sources: dict[str | None, Item], claims: dict[str, str]) -> Bind | None:
    target = mount.word("mountPath")
    volume = sources.get(mount.word("name"))
    if target is None:
        return None
    if volume is None:
        return Bind(target=target, kind=f"volume {mount.word('name') or '?'}")
    kind = next((key for key, _ in volume.pairs() if key != "name"), "emptyDir")
    if kind in _NOT_DATA:
        return None
    if kind == "emptyDir" and volume.word("emptyDir", "medium") == "Memory":
        return Bind(target=target, kind="tmpfs")
    claim = volume.word("persistentVolumeClaim", "claimName")
    folder = volume.word("hostPath", "path") if kind == "hostPath" else claims.get(claim or "")
    if folder is None:
        return Bind(target=target, kind=f"{kind} {claim}" if claim else kind)
    below = mount.word("subPath")
    return Bind(target=target, source=f"{folder.rstrip('/')}/{below}" if below else folder)
