"""What a file gives to one container. None: the file does not decide it."""

from __future__ import annotations

from typing import Literal

from gdsctl.record import Record

Kind = Literal["docker", "podman", "oci", "cdi", "compose", "kubernetes"]


class Bind(Record, frozen=True, kw_only=True):
    """A path in the container. `source`: the node's path below it; None for what is not a folder of the node.

    `kind`: bind | tmpfs | the word for a volume whose place on the node the file does not say.
    """

    target: str
    source: str | None = None
    kind: str = "bind"


class Given(Record, frozen=True, kw_only=True):
    """One container. `devices`: paths in it that its device cgroup lets it open; `cdi`: qualified names of CDI devices.

    `toolkit`: is the NVIDIA container toolkit seen to act on NVIDIA_GDS and NVIDIA_MOFED? `plugin`, `rdma_plugin`: may a
    device plugin, a resource driver or a CDI spec that is not at hand add devices and mounts? `masked`: paths that the runtime
    covers (OCI linux.maskedPaths).
    """

    name: str
    kind: Kind
    file: str
    line: int
    image: str | None = None
    binds: tuple[Bind, ...] = ()
    devices: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cdi: tuple[str, ...] = ()
    gpus: bool | None = None
    toolkit: bool | None = None
    plugin: bool = False
    rdma_plugin: bool = False
    privileged: bool = False
    ipc_lock: bool = False
    memlock_bytes: int | None = None
    io_uring: bool | None = None
    sysfs: bool = True
    masked: tuple[str, ...] = ()
    host_network: bool | None = None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def gds(self) -> bool | None:
        """Does the toolkit bring what GDS needs, provided that the node has /dev/nvidia-fs*?"""
        if any(name.partition("=")[0].endswith("/gds") for name in self.cdi):
            return True
        return self.toolkit if self.env.get("NVIDIA_GDS") == "enabled" else False

    @property
    def mofed(self) -> bool | None:
        if any(name.partition("=")[0].endswith("/mofed") for name in self.cdi):
            return True
        return self.toolkit if self.env.get("NVIDIA_MOFED") == "enabled" else False
