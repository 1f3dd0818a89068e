"""A node as a process in a container would see it, by what the container is given."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

import msgspec

from gdsctl.container.given import Bind, Given
from gdsctl.errors import InputError
from gdsctl.model.devices import Backing, Mount
from gdsctl.model.node import Node
from gdsctl.model.shell import quoted
from gdsctl.model.software import Container, CufileConfig
from gdsctl.model.unknown import Gap

_CUFILE_JSON = "/etc/cufile.json"
_ENV_PATH = "CUFILE_ENV_PATH_JSON"
_PCI = "/sys/bus/pci/devices"
# What is bound from here is configuration, devices or sockets, and no application's data.
_NOT_DATA = ("/dev", "/etc", "/proc", "/run", "/sys", "/var/run")
_KINDS = {"docker": "docker", "compose": "docker", "podman": "podman", "kubernetes": "kubernetes"}


def joined(found: tuple[Given, ...]) -> tuple[Given, ...]:
    """Containers with the edits of the CDI specs among them that they ask for.

    Where there are CDI specs alone, one container that gets the devices of all. Containers that ask for no GPU beside some
    that do are left out: sidecars have no use for GDS.
    """
    specs = tuple(given for given in found if given.kind == "cdi")
    boxes = tuple(given for given in found if given.kind != "cdi")
    if not boxes:
        first, *others = specs
        return (_edited(first, tuple(others)),)
    edited = tuple(_edited(box, tuple(spec for spec in specs if _asked(box, spec))) for box in boxes)
    with_gpu = tuple(box for box in edited if box.gpus is not False)
    return _distinct(with_gpu or edited)


def _distinct(boxes: tuple[Given, ...]) -> tuple[Given, ...]:
    """Names tell requirements apart: of those that share one, all but the first get a number."""
    count: dict[str, int] = {}
    named = []
    for box in boxes:
        count[box.name] = count.get(box.name, 0) + 1
        number = f" ({count[box.name]})" if count[box.name] > 1 else ""
        named.append(msgspec.structs.replace(box, name=box.name + number))
    return tuple(named)


def _asked(box: Given, spec: Given) -> bool:
    return any(name.partition("=")[0] == spec.name for name in box.cdi)


def _edited(box: Given, specs: tuple[Given, ...]) -> Given:
    if not specs:
        return box
    left = [name for name in box.cdi if name.partition("=")[0] not in {spec.name for spec in specs}]
    env = dict(box.env)
    for spec in specs:
        env |= spec.env
    return msgspec.structs.replace(
        box,
        binds=(*box.binds, *(bind for spec in specs for bind in spec.binds)),
        devices=tuple(dict.fromkeys((*box.devices, *(device for spec in specs for device in spec.devices)))),
        env=env,
        # The spec says itself what it gives; only a name whose spec is not at hand stands for the toolkit's word.
        cdi=tuple(left),
        gpus=True if any(spec.gpus for spec in specs) else box.gpus,
        plugin=box.plugin and bool(left),
        rdma_plugin=box.rdma_plugin and bool(left),
    )


def inside(node: Node, given: Given) -> Node:
    """The node with mounts, device nodes, configuration and limits as the container has them.

    What the file does not decide is None with a gap that says so. Raises InputError for a path that is not absolute.
    """
    for bind in given.binds:
        if not bind.target.startswith("/") or "\0" in bind.target:
            raise InputError(f"{bind.target[:80]!r} is no absolute path", line=given.line, path=given.file)
    seen = _Seen(node, given)
    gaps = [
        gap
        for gap in node.gaps
        if gap.section not in ("container", "mounts", "gds")
        and (gap.section, gap.field) != ("nvidia_fs", "device_nodes")
    ]
    mounts = tuple(seen.mounts())
    container = seen.container()
    config = seen.config()
    nodes = seen.nvidia_fs_nodes()
    for field in ("libcufile", "version"):
        seen.gap("gds", field, "the image brings its own library", f"docker run --rm {seen.image} ldconfig -p")
    return msgspec.structs.replace(
        node,
        container=container,
        mounts=mounts,
        nvidia_fs=msgspec.structs.replace(node.nvidia_fs, device_nodes=nodes),
        gds=msgspec.structs.replace(node.gds, libcufile=None, version=None, cufile_config=config),
        gaps=(*gaps, *seen.gaps),
    )


def sources(node: Node, given: Given) -> dict[str, str]:
    """Volume of the container -> the node's mount below it, where both are known."""
    seen = _Seen(node, given)
    found = {}
    for bind in given.binds:
        below = seen.below(bind.source) if bind.source is not None and not _no_data(bind) else None
        if below is not None:
            found[posixpath.normpath(bind.target)] = below.target
    return found


def _no_data(bind: Bind) -> bool:
    return any(holds(folder, path) for folder in _NOT_DATA for path in (bind.target, bind.source or ""))


class _Seen:
    """The questions of `inside`, with the gaps that they leave."""

    def __init__(self, node: Node, given: Given) -> None:
        self.node = node
        self.given = given
        self.image = quoted(given.image) if given.image else "IMAGE"
        self.gaps: list[Gap] = []
        self.toolkit_brings = self._toolkit_brings()

    def gap(self, section: str, field: str, detail: str, settle: str) -> None:
        self.gaps.append(
            Gap(
                section=section,
                field=field,
                reason="unsupported",
                detail=f"{self.given.place}: {detail}",
                settle_with=settle,
            )
        )

    def _toolkit_brings(self) -> bool | None:
        """The toolkit's gds mode brings udev's database and cufile.json, but only beside device nodes of nvidia-fs."""
        if self.given.gds is False:
            return False
        nodes = self.node.nvidia_fs.device_nodes
        if nodes == ():
            return False
        return self.given.gds if nodes is not None else None

    def _bound(self, path: str) -> Bind | None:
        """The innermost bind that holds a path of the container; a bind of `/` holds all."""
        holding = [bind for bind in self.given.binds if holds(bind.target, path)]
        return max(holding, key=lambda bind: len(bind.target), default=None)

    def _on_node(self, path: str) -> str | None:
        """A container's path on the node; None where it is the image's or its place is not known."""
        bind = self._bound(path)
        if bind is None or bind.source is None:
            return None
        return posixpath.normpath(bind.source + "/" + path[len(bind.target.rstrip("/")) :])

    # --- files and devices --------------------------------------------------------------------------------------------

    def container(self) -> Container:
        given, host = self.given, self.node.container
        nodes = self.node.nvidia_fs.device_nodes
        gpus = given.gpus if not given.privileged or given.gpus else None
        if gpus is None:
            self.gap(
                "container", "has_gpu_nodes", "whether it gets GPUs is not said", "nvidia-smi -L   # in the container"
            )
        return Container(
            kind=_KINDS.get(given.kind, "unknown"),
            has_udev_db=self._has("/run/udev/data", "has_udev_db", host.has_udev_db, "/run/udev"),
            has_cufile_json=self._has_cufile_json(),
            has_gpu_nodes=gpus,
            has_sysfs=self._has_sysfs(),
            nvidia_fs_nodes=len(nodes) if nodes is not None else host.nvidia_fs_nodes,
            rdma_nodes=self._rdma(),
            memlock_bytes=self._memlock(),
            ipc_lock=given.ipc_lock,
            io_uring=self._io_uring(),
            toolkit_gds=given.gds,
            host_network=self._host_network(),
            evidence=(f"{given.place} describes the container {given.name}",),
        )

    def _has_sysfs(self) -> bool | None:
        """False where a volume or the runtime's mask lies over it; read-only is enough."""
        bind = self._bound(_PCI)
        over = bind is not None and holds("/sys", bind.target)
        if not self.given.sysfs or any(holds(path, _PCI) for path in self.given.masked):
            return False
        if bind is None or not over or self._on_node(_PCI) == _PCI:
            return True
        if bind.source is None:
            return False
        self.gap("container", "has_sysfs", f"{bind.target} comes from {bind.source}", f"ls {quoted(bind.source)}")
        return None

    def _has(self, path: str, field: str, on_host: bool | None, names: str) -> bool | None:
        bind = self._bound(path)
        if bind is not None and bind.source is not None:
            if self._on_node(path) in (path, f"/var{path}"):
                if on_host is None:
                    self.gap("container", field, f"{path} of the node is not known", f"ls -d {path}")
                return on_host
            self.gap("container", field, f"{bind.target} comes from {bind.source}", f"ls {quoted(bind.source)}")
            return None
        if self.toolkit_brings:
            return on_host
        if self.toolkit_brings is None or (self.given.plugin and self.node.nvidia_fs.device_nodes != ()):
            self.gap("container", field, self._maybe(names), f"ls -d {path}   # in the container")
            return None
        return False

    def _maybe(self, names: str) -> str:
        by = (
            "the NVIDIA container toolkit"
            if self.given.gds is not False
            else "a device plugin or CDI device in gds mode"
        )
        return f"{names} is not mounted; {by} may add it, which the file does not show"

    def _has_cufile_json(self) -> bool | None:
        """An image may hold one, so that it is never certain not to be there."""
        stands = self._has(_CUFILE_JSON, "has_cufile_json", self.node.container.has_cufile_json, _CUFILE_JSON)
        if stands is False and self._bound(_CUFILE_JSON) is None:
            words = f"{_CUFILE_JSON} is not mounted; the image may hold one"
            self.gap("container", "has_cufile_json", words, f"docker run --rm {self.image} cat {_CUFILE_JSON}")
            return None
        return stands

    def nvidia_fs_nodes(self) -> tuple[str, ...] | None:
        """The node's, as far as they are given; those that are named where the node's are not known."""
        of_node = self.node.nvidia_fs.device_nodes
        named = tuple(path for path in self.given.devices if re.fullmatch(r"/dev/nvidia-fs\d+", path))
        if of_node is None:
            if not named:
                self.gap("nvidia_fs", "device_nodes", "the node's are not known", "ls /dev/nvidia-fs*")
            return named or None
        if self.given.privileged or self.toolkit_brings or "/dev" in self.given.devices:
            return of_node
        if of_node and not named and (self.given.plugin or self.toolkit_brings is None):
            words = self._maybe("/dev/nvidia-fs*")
            self.gap("nvidia_fs", "device_nodes", words, "ls /dev/nvidia-fs*   # in the container")
            return None
        return tuple(path for path in of_node if path in named)

    def _rdma(self) -> tuple[str, ...] | None:
        of_node = self.node.container.rdma_nodes
        named = [path for path in self.given.devices if holds("/dev/infiniband", path) or path == "/dev"]
        if self.given.privileged or self.given.mofed or {"/dev", "/dev/infiniband"} & set(named):
            if of_node is None:
                self.gap("container", "rdma_nodes", "the node's are not known", "ls /dev/infiniband")
            return of_node
        if named:
            return tuple(path.rpartition("/")[2] for path in named)
        if self.given.rdma_plugin or self.given.mofed is None:
            words = "/dev/infiniband is not given; a device plugin may add it, which the file does not show"
            self.gap("container", "rdma_nodes", words, "ls /dev/infiniband   # in the container")
            return None
        return ()

    # --- limits -------------------------------------------------------------------------------------------------------

    def _host_network(self) -> bool | None:
        if self.given.host_network is None:
            words = "whether the container's network has the node's RDMA interfaces is not said"
            self.gap("container", "host_network", words, "ip -4 addr   # in the container")
        return self.given.host_network

    def _memlock(self) -> int | None:
        if self.given.memlock_bytes is None:
            words = "no limit on locked memory is set: the runtime's own holds"
            self.gap("container", "memlock_bytes", words, "ulimit -l   # in the container")
        return self.given.memlock_bytes

    def _io_uring(self) -> bool | None:
        if self.given.io_uring is None:
            words = "the runtime's own seccomp profile holds: Docker's from 25 on and containerd's from 2.0 on refuse io_uring"
            self.gap("container", "io_uring", words, "docker info --format '{{.SecurityOptions}} {{.ServerVersion}}'")
        return self.given.io_uring

    # --- configuration ------------------------------------------------------------------------------------------------

    def config(self) -> CufileConfig:
        """The files that libcufile would merge, where they are files of the node whose text is known."""
        env = {name: value for name, value in self.given.env.items() if name.startswith("CUFILE_")}
        of_node = self.node.gds.cufile_config
        texts: dict[str, str] = {}
        whole = True
        for path in (_CUFILE_JSON, env.get(_ENV_PATH)):
            if not path:
                continue
            source = self._on_node(path)
            if source is None and path == _CUFILE_JSON and self.toolkit_brings:
                source = path
            if source is not None and source in of_node.texts:
                texts[path] = of_node.texts[source]
            elif source == _CUFILE_JSON and of_node.files is not None:
                continue  # known not to be there
            else:
                whole = False
                place = f"{source} of the node was not read" if source else f"{path} is the image's own, if it is there"
                settle = f"cat {quoted(source)}" if source else f"docker run --rm {self.image} cat {quoted(path)}"
                self.gap("gds", "cufile_config/files", place, settle)
        return CufileConfig(files=tuple(texts) if whole else None, env=env, texts=texts if whole else {})

    # --- mounts -------------------------------------------------------------------------------------------------------

    def mounts(self) -> Iterator[Mount]:
        """The overlay at `/`, then each volume with the node's file system below it."""
        yield Mount(target="/", source="overlay", fstype="overlay", backing=Backing(kind="overlay"))
        table = [gap for gap in self.node.gaps if gap.section == "mounts" and gap.key is None]
        known = bool(self.node.mounts) and not table
        for bind in self.given.binds:
            target = posixpath.normpath(bind.target)
            if _no_data(bind):
                continue
            if bind.kind == "tmpfs":
                yield Mount(target=target, source="tmpfs", fstype="tmpfs", backing=Backing(kind="tmpfs"))
                continue
            if bind.source is None:
                words = f"{target} is a {bind.kind}: where it lies on the node the file does not say"
                self.gap("mounts", "", words, f"findmnt -T {quoted(target)}   # in the container")
                continue
            below = self.below(bind.source) if known else None
            if below is None:
                self.gap("mounts", "", f"what {bind.source} lies on is not known", f"findmnt -T {quoted(bind.source)}")
                continue
            self.gaps += [
                msgspec.structs.replace(gap, key=target)
                for gap in self.node.gaps
                if gap.section == "mounts" and gap.key == below.target
            ]
            yield msgspec.structs.replace(below, target=target)

    def below(self, path: str) -> Mount | None:
        """The node's mount that holds a path; of stacked ones the last."""
        path = posixpath.normpath(path)
        holding = [mount for mount in self.node.mounts if holds(mount.target, path)]
        return max(reversed(holding), key=lambda mount: len(mount.target), default=None)


def holds(folder: str, path: str) -> bool:
    return folder == "/" or path == folder.rstrip("/") or path.startswith(folder.rstrip("/") + "/")
