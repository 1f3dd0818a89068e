"""What a configuration starts: programs with arguments and an environment, and the container around them."""

from __future__ import annotations

from gdsctl.record import Record


class Place(Record, frozen=True, kw_only=True):
    """`line` counts from 1; `document`: which YAML document of the file, from 1, None where it has none."""

    file: str
    line: int | None = None
    document: int | None = None

    def at(self, line: int) -> Place:
        return Place(file=self.file, line=line, document=self.document)

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Word(Record, frozen=True, kw_only=True):
    """One argument or value, and its line."""

    text: str
    line: int


class Volume(Record, frozen=True, kw_only=True):
    """A path in a container. `host_path`: where it comes from on the node, None: from elsewhere (a claim, a driver).

    `source`: SERVER:PATH of a volume that the kubelet mounts; `claim`: a PersistentVolumeClaim's name.
    """

    path: str
    host_path: str | None = None
    kind: str = ""
    source: str | None = None
    claim: str | None = None


class Container(Record, frozen=True, kw_only=True):
    """`capabilities`: added; `devices`: host paths or CDI names; `resources`: names that are asked for (nvidia.com/gpu, ...).

    `toolkit`: does NVIDIA's runtime start it, None: not said; `env`: of its program, where that bears on GDS.
    """

    name: str
    kind: str
    image: str | None = None
    volumes: tuple[Volume, ...] = ()
    devices: tuple[str, ...] = ()
    privileged: bool = False
    capabilities: tuple[str, ...] = ()
    memlock_unlimited: bool = False
    host_network: bool = False
    resources: tuple[str, ...] = ()
    toolkit: bool | None = None
    env: dict[str, str] = {}
    place: Place


class Call(Record, frozen=True, kw_only=True):
    """A call in a Python script. `name`: through its import, of a method of what another call gives `.NAME`.

    `arguments`: constants, by keyword or as "0", "1"; `open`: the text of those that are none.
    """

    name: str
    line: int
    arguments: dict[str, str] = {}
    open: dict[str, str] = {}


class Override(Record, frozen=True, kw_only=True):
    """A key of a configuration file that a variable sets anew. `place`: of the variable."""

    variable: str
    value: str
    key: str
    replaced: str
    place: Place


class Launch(Record, frozen=True, kw_only=True):
    """One program. `words`: its command line; `env`: what is set for it, by name; `config`: an LMCache YAML's keys;
    `overridden`: keys of it that the environment sets anew; `calls`: a Python script's; `partial`: only an option's value is known of it.
    """

    place: Place
    words: tuple[Word, ...] = ()
    env: dict[str, Word] = {}
    config: dict[str, Word] = {}
    overridden: tuple[Override, ...] = ()
    calls: tuple[Call, ...] = ()
    partial: bool = False
    container: Container | None = None


class Service(Record, frozen=True, kw_only=True):
    """A Kubernetes Service. `ports`: port -> target port, as numbers."""

    name: str
    ports: dict[int, int]


class StorageObject(Record, frozen=True, kw_only=True):
    """A PersistentVolumeClaim, PersistentVolume or StorageClass.

    `driver`: a class's provisioner, a volume's CSI driver; `claim`: whom a volume belongs to; `root`: a class's export; `options`: of its mounts, at `place`.
    """

    kind: str
    name: str
    driver: str | None = None
    volume: str | None = None
    storage_class: str | None = None
    claim: str | None = None
    source: str | None = None
    host_path: str | None = None
    root: str | None = None
    options: tuple[str, ...] = ()
    place: Place


class Claim(Record, frozen=True, kw_only=True):
    """What the files tell of a PersistentVolumeClaim: its volume's name, SERVER:PATH or folder on the node.

    `root`: the export that its class's driver makes volumes below.
    """

    name: str
    volume: str | None = None
    source: str | None = None
    host_path: str | None = None
    root: str | None = None


class Found(Record, frozen=True, kw_only=True):
    """All that was read from some files. `models`: texts of config.json among them, with their place."""

    launches: tuple[Launch, ...] = ()
    services: tuple[Service, ...] = ()
    storage: tuple[StorageObject, ...] = ()
    models: tuple[tuple[Place, str], ...] = ()

    def __add__(self, other: Found) -> Found:
        return Found(
            launches=self.launches + other.launches,
            services=self.services + other.services,
            storage=self.storage + other.storage,
            models=self.models + other.models,
        )


def claims(storage: tuple[StorageObject, ...]) -> dict[str, Claim]:
    """Name -> claim, with what its volume's and its class's objects tell."""
    named = {(found.kind, found.name): found for found in storage}
    joined: dict[str, Claim] = {}
    for found in storage:
        if found.kind != "PersistentVolumeClaim":
            continue
        volume = named.get(("PersistentVolume", found.volume or "")) or next(
            (v for v in storage if v.kind == "PersistentVolume" and v.claim == found.name), None
        )
        storage_class = named.get(("StorageClass", found.storage_class or ""))
        joined[found.name] = Claim(
            name=found.name,
            volume=volume.name if volume is not None else found.volume,
            source=volume.source if volume is not None else None,
            host_path=volume.host_path if volume is not None else None,
            root=storage_class.root if storage_class is not None else None,
        )
    return joined
