"""A stack: one program's tiers and the edges between them, and what its findings look at."""

from __future__ import annotations

from gdsctl.data.app_edges import EdgeRow, Helps, Memory
from gdsctl.data.app_versions import VersionRow
from gdsctl.kvcache.launch import Container, Override, Place, Word
from gdsctl.model.judgement import RouteName
from gdsctl.record import Record


class Tier(Record, frozen=True, kw_only=True):
    """`name`: the tier as its project counts (L1, L2, G2, weights); `type`: its kind or backend as it was written.

    `size_gib` None: not said. `path`: in the container's own view.
    """

    name: str
    type: str
    medium: str
    size_gib: float | None = None
    path: str | None = None
    line: int | None = None


class EdgeRoute(Record, frozen=True, kw_only=True):
    """How the node's bytes travel between these GPUs and the edge's path. `mount`: None where no mount is known to hold it."""

    gpus: tuple[str, ...]
    mount: str | None
    route: RouteName
    because: str


class Answer(Record, frozen=True, kw_only=True):
    """What holds of an edge for some versions only."""

    versions: str
    api: str
    staged_in: str | None
    gds_helps: Helps
    because: str
    source: str


class Edge(Record, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One step of the bytes. `direction`: which way it is taken, both unless the ways differ.

    `medium`: what they come to rest on; `path`: directory, device or bucket; `staged_in`: where bytes between GPU and storage
    stop on their way; `routes`: on the node that was looked at, None without one. `answers`: where it is a matter of the
    version and that is not known, all of them; `gds_helps` is then what they agree on.
    """

    from_: Memory
    to: Memory
    direction: str = "both"
    api: str
    medium: str
    path: str | None = None
    staged_in: str | None = None
    gds_helps: Helps
    because: str
    source: str
    answers: tuple[Answer, ...] = ()
    routes: tuple[EdgeRoute, ...] | None = None


class Stack(Record, frozen=True, kw_only=True):
    """`version`: as an image tag says, None where nothing does; `source`: where it is started."""

    software: str
    version: str | None
    source: Place
    container: str | None = None
    tiers: tuple[Tier, ...]
    edges: tuple[Edge, ...]


class Adapter(Record, frozen=True, kw_only=True):
    """An L2 adapter of `lmcache server`; `params`: its fields and those of backend_params, as text."""

    type: str
    backend: str
    params: dict[str, str]
    path: str | None
    line: int


class Manager(Record, frozen=True, kw_only=True):
    """An --l1-manager. `tag` None: its JSON could not be read."""

    kind: str
    tag: str | None
    line: int


class Endpoint(Record, frozen=True, kw_only=True):
    host: str
    port: int | None
    line: int


class Lack(Record, frozen=True, kw_only=True):
    """A name that the version in use does not know."""

    version: str
    row: VersionRow
    line: int


class UnknownOption(Record, frozen=True, kw_only=True):
    """`program`: whose list does not have it; `version`: of its software, where that is known."""

    name: str
    program: str
    version: str | None
    line: int


class Draft(Record, frozen=True, kw_only=True):
    """A stack and the facts behind it. Sizes in GiB; None: not said, or said with a variable that nothing sets.

    `listens`: port of an LMCache server; `asks`: LMCache servers that a connector is told of;
    `gds_l1_by_flag`: by --gds-l1-path, the older interface;
    `single_l1`: an option that sets up the one L1 of the older interface; `claims_gds`: words that name GDS, other than a GDS L1; `old`: deprecated names, with their kind;
    `partial`: an option's value alone, of a program that starts elsewhere.
    """

    stack: Stack
    box: Container | None = None
    adapters: tuple[Adapter, ...] = ()
    l1_gib: float | None = None
    gds_l1_line: int | None = None
    gds_l1_by_flag: bool = False
    managers: tuple[Manager, ...] = ()
    single_l1: Word | None = None
    has_dram_l1: bool = False
    listens: Endpoint | None = None
    asks: tuple[Endpoint, ...] = ()
    chunk_tokens: int | None = None
    align_bytes: int = 4096
    model: str | None = None
    tp: int = 1
    kv_dtype: str = "auto"
    claims_gds: tuple[Word, ...] = ()
    lower_gib: tuple[tuple[str, float, float, int], ...] = ()
    old: tuple[tuple[str, str, int], ...] = ()
    lacks: tuple[Lack, ...] = ()
    unknown_options: tuple[UnknownOption, ...] = ()
    overridden: tuple[Override, ...] = ()
    partial: bool = False


def edge(rows: tuple[EdgeRow, ...], path: str | None) -> Edge:
    """One step; of several rows, each is an answer for its versions."""
    row = rows[0]
    answers = tuple(
        Answer(
            versions=row.range,
            api=row.api,
            staged_in=row.staged_in,
            gds_helps=row.gds_helps,
            because=row.because,
            source=row.source,
        )
        for row in rows
        if len(rows) > 1
    )
    agreed = len({row.gds_helps for row in rows}) == 1
    return Edge(
        from_=row.from_,
        to=row.to,
        direction=row.direction,
        api=" or ".join(dict.fromkeys(row.api for row in rows)),
        medium=row.medium,
        path=path,
        staged_in=row.staged_in if all(other.staged_in == row.staged_in for other in rows) else None,
        gds_helps=row.gds_helps if agreed else "unknown",
        because="; ".join(f"{a.versions}: {a.gds_helps}, {a.because}" for a in answers) or row.because,
        source="; ".join(dict.fromkeys(row.source for row in rows)),
        answers=answers,
    )
