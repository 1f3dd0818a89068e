"""The cufile.json that a node should have: each key with the reason for its value."""

from __future__ import annotations

import difflib
from typing import Any, Literal

import msgspec

from gdsctl.assess import cufile_merge, routing
from gdsctl.assess.cufile_lint import lint
from gdsctl.assess.static_routing import KEYS
from gdsctl.assess.view import Storage
from gdsctl.data import cufile_keys
from gdsctl.data.cufile_keys import Key
from gdsctl.data.cufile_keys import keys as all_keys
from gdsctl.errors import InputError
from gdsctl.model.devices import Gpu
from gdsctl.plan import static_routing
from gdsctl.plan.context import Context, addresses
from gdsctl.plan.intent import MountIntent, PlanMode
from gdsctl.plan.static_routing import StaticRouting
from gdsctl.record import Record

PATH = "/etc/cufile.json"
Style = Literal["explicit", "minimal"]

_DIRECT, _BUFFER = "properties.max_direct_io_size_kb", "properties.per_buffer_cache_size_kb"
_CACHE = "properties.max_device_cache_size_kb"
_PINNED = "properties.max_device_pinned_mem_size_kb"
_UNLIMITED = 18014398509481980  # max_device_pinned_mem_size_kb, more than the 32 bits that the library reads of a file
_LEAST_DIRECT = 1024  # the library's per_buffer_cache_size_kb, below which max_direct_io_size_kb is refused
_SLABS = "properties.gpu_bounce_buffer_slab_config"
_SIZES, _COUNTS = "properties.posix_pool_slab_size_kb", "properties.posix_pool_slab_count"
ROUTING = ("properties.rdma_dynamic_routing", "properties.rdma_dynamic_routing_order")
_ROUTING, _ORDER = ROUTING
_WRONG = ("cufile.type", "cufile.range", "cufile.alignment", "cufile.slab-lengths", "cufile.dead-key")


class Setting(Record, frozen=True, kw_only=True):
    """One key. `required`: a route or the operator hangs on it, so that another value is drift in any case."""

    key: str
    value: Any
    why: str
    required: bool = False


class CufilePlan(Record, frozen=True, kw_only=True):
    """`settings`: in the key table's order; `told`: sentences on choices and on what the installed files lose.

    `packaged`: where NVIDIA's own file differs from what is in force; `static`: the file that the settings may name.
    """

    settings: tuple[Setting, ...]
    static: StaticRouting
    told: tuple[str, ...] = ()
    packaged: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """Nested as in the file."""
        return nested({setting.key: setting.value for setting in self.settings})


def minimal(plan: CufilePlan, version: str | None) -> CufilePlan:
    """Without the keys that say what the library of that release takes anyway; None: what every release takes.

    The effective configuration stays the same; lists that must be of one length stay together.
    """
    releases = [version] if version else [row.gds for row in cufile_keys.releases()]
    kept = {setting.key for setting in plan.settings if not _is_default(setting, releases)}
    if kept & {_SIZES, _COUNTS}:
        kept |= {_SIZES, _COUNTS}
    return msgspec.structs.replace(plan, settings=tuple(s for s in plan.settings if s.key in kept))


def _is_default(setting: Setting, releases: list[str]) -> bool:
    row = cufile_keys.key(setting.key)
    defaults = [row.default_in(release) for release in releases if row.known_in(release)] if row else []
    return bool(defaults) and all(_plain(default) == setting.value for default in defaults)


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys of the table to nested objects."""
    values: dict[str, Any] = {}
    for dotted, value in flat.items():
        *sections, name = dotted.split(".")
        place = values
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return values


def governed(key: Key) -> bool:
    """Keys that decide about routes: the plan speaks for them even where it does not write them."""
    last = key.key.rpartition(".")[2]
    return last in ("use_pci_p2pdma", "rdma_dev_addr_list", "mount_table") or key.key in (
        _ROUTING,
        _ORDER,
        "properties.allow_compat_mode",
        "properties.force_compat_mode",
        "properties.vanilla_posix_io_mode",
        "fs.weka.rdma_write_support",
        "fs.gpfs.gds_write_support",
        "miscellaneous.skip_topology_detection",
    )


def desire(context: Context, mode: PlanMode, *, forced: bool = False) -> CufilePlan:
    """`forced`: keep off the direct paths that the node has. Raises InputError (at the intent's line) for a pinned value that the library would refuse."""
    draft = _Draft(context, mode)
    if mode == "undecided":
        draft.pins()
        draft.together()
        return draft.plan()
    draft.defaults()
    draft.sizes()
    draft.compat()
    draft.forced(forced)
    draft.p2pdma()
    draft.writes()
    draft.routing()
    draft.static_routing()
    draft.installed()
    draft.pins()
    draft.together()
    return draft.plan()


class _Draft:
    def __init__(self, context: Context, mode: PlanMode) -> None:
        self.context = context
        self.mode = mode
        self.release = context.release
        self.settings: dict[str, Setting] = {}
        self.told: list[str] = []
        self.packaged: list[str] = []
        self.unwritten: list[str] = []
        self.static = StaticRouting(devices={})
        self._stored = _stored(context)

    def put(self, key: str, value: Any, why: str, *, required: bool = False) -> None:
        """Set a key, unless this release does not know it."""
        row = cufile_keys.key(key)
        if row is not None and row.known_in(self.release):
            self.settings[key] = Setting(key=key, value=_plain(value), why=why, required=required)

    def defaults(self) -> None:
        """Keys whose value, left out, depends on the release or on whether NVIDIA's file is there: as they are in force."""
        unlike: list[str] = []
        for key in cufile_keys.known(self.release):
            values = [row.value for row in key.defaults]
            if not values or key.type in ("object", "mount_table") or governed(key):
                continue
            varies, shipped = any(value != values[0] for value in values), key.file_default
            if not varies and shipped in (None, values[0]):
                continue
            stored = cufile_merge.get(self._stored, key.key)
            if stored is not None:
                self.put(key.key, stored, f"kept from {PATH}; {_default_why(key)}")
            elif (varies and self.context.version is None) or _plain(values[0]) == _UNLIMITED:
                continue  # what is in force cannot be told, or not written
            else:
                self.put(
                    key.key, key.default_in(self.release), f"the library's default, in force now; {_default_why(key)}"
                )
            if shipped is not None and _plain(shipped) != self.settings[key.key].value and stored is None:
                unlike.append(f"{key.key} {_shown(shipped)} (here {_shown(self.settings[key.key].value)})")
        if _COUNTS in self.settings:
            why = "written beside posix_pool_slab_count: lists of unequal length abort the process"
            self.put(_SIZES, self._value(_SIZES), why)
        if unlike:
            self.packaged.append(
                f"the cufile.json of NVIDIA's package has {', '.join(unlike)}: pin under tuning what you want of it"
            )

    def sizes(self) -> None:
        """Buffers that the smallest BAR1 can map, and pieces that the workload's chunks come in."""
        bars = [gpu.bar1_bytes for gpu in self.context.gpus]
        known = [bar for bar in bars if bar]
        small = any(bar < (gpu.memory_bytes or 0) for bar, gpu in zip(known, self.context.gpus, strict=False))
        if known and len(known) == len(bars) and small and self.mode == "nvidia-fs":
            self._within_bar1(known)
        workload = self.context.intent.workload
        if workload and workload.chunk_bytes:
            self._chunk(workload.chunk_bytes)

    def _within_bar1(self, bars: list[int]) -> None:
        """Bounce buffers and registered memory are mapped through BAR1; what does not fit fails with -12 (ENOMEM)."""
        half = min(bars) // 2 >> 10 & ~63
        cache = self._value(_CACHE)
        if _ints(cache) and cache > half:
            cache = half
            self.put(_CACHE, half, f"half of the smallest BAR1 ({min(bars) >> 20} MiB), which maps the buffers")
        pinned = self._value(_PINNED)
        room = (sum(bars) >> 10) - (cache or 0) * len(bars) & ~63
        if _ints(pinned) and 64 <= room < pinned:
            self.put(_PINNED, room, "what BAR1 of all GPUs can map beside the buffers; more fails with -12")

    def _chunk(self, chunk: int) -> None:
        row, now = cufile_keys.key(_DIRECT), self._value(_DIRECT)
        most = max(value for value in (now, row.file_default if row else None) if isinstance(value, int))
        kib = min(most, max(-(-chunk // (64 << 10)) * 64, _LEAST_DIRECT))
        pieces = -(-chunk // (kib << 10))
        why = f"a chunk of {chunk} bytes goes in {pieces} piece{'s' * (pieces > 1)}"
        if kib < most:
            why += f"; {most} KiB would only take more shadow memory for each registered buffer"
        self.put(_DIRECT, kib, why)
        if chunk % 4096:
            self.told.append(
                f"chunks of {chunk} bytes are no multiple of 4 KiB: their ends are read through a bounce buffer and "
                "written by read-modify-write; pad them where the application allows"
            )

    def compat(self) -> None:
        if self.context.intent.compat == "forbid":
            self.put(
                "properties.allow_compat_mode",
                False,
                "the intent forbids compat mode: where no direct path exists an open fails with 5001 instead of going "
                "through host memory, for every cuFile process of the node",
                required=True,
            )
        else:
            self.put(
                "properties.allow_compat_mode",
                True,
                "the intent allows compat mode: I/O without a direct path goes through host memory, in silence",
                required=True,
            )

    def forced(self, wanted: bool) -> None:
        if wanted:
            targets = ", ".join(wish.target for wish in self.context.mounts)
            why = f"mode compat: without it a direct path would carry {targets}; with it all files of the node go"
            self.put("properties.force_compat_mode", True, f"{why} through host memory", required=True)
            self.put("properties.allow_compat_mode", True, "force_compat_mode switches it on anyway", required=True)
            if self.context.intent.compat == "forbid":
                self.told.append("compat: forbid has no effect in mode compat: force_compat_mode allows it as well")

    def p2pdma(self) -> None:
        wanted: dict[str, list[str]] = {}
        if self.mode == "p2pdma":
            for wish, storage in self.context.direct_storages:
                row = storage.direct
                for pointer in row.p2pdma_keys if row is not None and self.context.tries_p2pdma(storage) else ():
                    wanted.setdefault(pointer.strip("/").replace("/", "."), []).append(wish.target)
        for key in all_keys():
            if not key.key.endswith(".use_pci_p2pdma"):
                continue
            if not key.known_in(self.release):
                if key.key in wanted and key.section != "properties":
                    # An unknown key is passed over; without it the upgrade would end P2PDMA in silence.
                    why = f"{self.release} passes over it, but from GDS {key.since} on the master switch alone does nothing"
                    self.settings[key.key] = Setting(key=key.key, value=True, why=why)
            elif key.key in wanted:
                why = f"P2PDMA for {', '.join(wanted[key.key])}"
                if key.section == "properties":
                    why = f"master switch of P2PDMA and C2C, for {', '.join(wanted[key.key])}"
                self.put(key.key, True, why, required=True)
            elif key.section == "properties":
                why = (
                    "no intended mount goes over P2PDMA"
                    if self.mode != "p2pdma"
                    else "no intended mount can use P2PDMA"
                )
                self.put(key.key, False, why, required=True)
            elif cufile_merge.get(self._stored, key.key) is True:
                self.put(key.key, False, "set in the installed file, but no intended mount uses it", required=True)

    def writes(self) -> None:
        """File systems whose writes go direct only with a switch of their own."""
        if self.mode == "compat":
            return
        for wish, storage in self.context.direct_storages:
            pointer = storage.direct.nvidia_fs_write_key if storage.direct else None
            if pointer:
                key = pointer.strip("/").replace("/", ".")
                self.put(key, True, f"without it writes to {wish.target} go through host memory", required=True)

    def routing(self) -> None:
        chosen, why, tables = _routing(self.context, self.mode)
        self.told += [why] if self.context.mounts and why else []
        self.told += _unread_clients(self.context) if self.mode != "compat" else []
        self.put(_ROUTING, bool(chosen), why or "no intended mount is storage that dynamic routing knows")
        if chosen:
            self.put(_ORDER, list(chosen), f"the stagings that can work here, best first: {', '.join(chosen)}")
        self.told += _sharing(self.context, tables)
        for key, (value, reason) in tables.items():
            # Dynamic routing makes a path faster; user-space RDMA has none without its addresses.
            userspace = key.startswith(("properties.", "fs.weka.", "fs.gpfs."))
            self.put(key, value, reason, required=userspace)

    def static_routing(self) -> None:
        all_of_them = self.mode == "compat" or self._value(_ROUTING) is True
        staged = frozenset(wish.target for wish in self.context.mounts) if all_of_them else frozenset[str]()
        self.static, told = static_routing.desire(self.context, staged)
        self.told += told
        if self.static.needed:
            self.put(KEYS[0], True, f"{self.static.why}: the file tells it which is nearest")
            self.put(KEYS[1], static_routing.PATH, "written for this node: gdsctl plan --emit static-routing")

    def installed(self) -> None:
        """What the node's own files say besides. Without an intent file they are the operator's voice."""
        for key in cufile_keys.known(self.release):
            value = cufile_merge.get(self._stored, key.key)
            if value is None or key.type == "object" or _plain(value) == _plain(key.default_in(self.release)):
                continue
            planned = self.settings.get(key.key)
            if governed(key):
                if planned is None:
                    self.told.append(f"{key.key} is dropped from {PATH}: the plan has no use for {_shown(value)}")
            elif planned is None:
                self.put(key.key, value, f"kept from {PATH}: the plan has no say in it")
            elif self.context.wanted.path is None and _plain(value) != planned.value:
                self.put(
                    key.key,
                    value,
                    f"kept from {PATH}; where the key is absent the value would be {_shown(planned.value)}",
                )
            elif _plain(value) != planned.value:
                self.told.append(
                    f"{key.key} changes from {_shown(value)} to {_shown(planned.value)}, for {planned.why}; pin it under "
                    "tuning to keep it"
                )

    def pins(self) -> None:
        for key, value in self.context.intent.tuning.items():
            row = cufile_keys.key(key)
            if row is not None and not row.known_in(self.release):
                self.unwritten.append(key)
                continue
            self.put(key, value, "pinned by the operator under tuning", required=True)

    def together(self) -> None:
        """Keys that hold only beside others."""
        pinned = self.context.intent.tuning
        if any(key.startswith(_SLABS) for key in self.settings):
            for key in (_CACHE, _BUFFER):
                if key in self.settings and key not in pinned:
                    del self.settings[key]
                    self.told.append(f"{key} is left out: gpu_bounce_buffer_slab_config takes its place")
        direct, buffer = (self._value(key) for key in (_DIRECT, _BUFFER))
        if _ints(direct, buffer) and direct < buffer and not any(key.startswith(_SLABS) for key in self.settings):
            if _BUFFER in pinned and _DIRECT not in pinned:
                self.put(_DIRECT, buffer, f"raised: it must not be below the pinned {_BUFFER}", required=True)
            elif _BUFFER not in pinned:
                self.put(_BUFFER, direct, f"lowered: it must not be above {_DIRECT}", required=True)

    def _value(self, key: str) -> Any:
        """As planned, or as it is in force where the plan leaves the key out."""
        if key in self.settings:
            return self.settings[key].value
        stored = cufile_merge.get(self._stored, key)
        row = cufile_keys.key(key)
        return row.default_in(self.release) if stored is None and row else stored

    def plan(self) -> CufilePlan:
        ordered = tuple(self.settings[row.key] for row in all_keys() if row.key in self.settings)
        plan = CufilePlan(
            settings=ordered,
            static=self.static,
            told=tuple(self.told),
            packaged=tuple(self.packaged),
            unwritten=tuple(self.unwritten),
        )
        self._refuse_wrong_pins(plan)
        return plan

    def _refuse_wrong_pins(self, plan: CufilePlan) -> None:
        """The library's own judgement on the whole file, told at the line of the pin that spoils it."""
        wanted = self.context.wanted
        if not self.context.intent.tuning:
            return
        text = msgspec.json.encode(plan.values).decode()
        for problem in lint([("cufile.json", text)], version=self.context.version, env={}):
            named = (problem.pointer or "").strip("/").replace("/", ".")
            pins = [key for key in self.context.intent.tuning if named == key or named.startswith(f"{key}.")]
            if not pins and problem.fatal:
                pins = difflib.get_close_matches(named, list(self.context.intent.tuning), n=1, cutoff=0.3)
            if pins and (problem.fatal or problem.id in _WRONG):
                raise InputError(f"tuning: {problem.message}", line=wanted.lines.get(pins[0]), path=wanted.path)


def _stored(context: Context) -> dict[str, Any]:
    """What the file that the plan replaces says; {} where it is not known or not read by the library."""
    found = context.node.gds.cufile_config
    if found.files is None or PATH not in found.texts or context.view.config.fatal is not None:
        return {}
    return cufile_merge.merge([(PATH, found.texts[PATH])], {}, context.version).values


def _default_why(key: Key) -> str:
    """Why it is written although it changes nothing."""
    seen = ", ".join(f"{_shown(row.value)} from {row.since} on" for row in key.defaults)
    if key.file_default is None:
        return f"left out it depends on the release ({seen})"
    return f"left out it is the library's ({seen}), in NVIDIA's package {_shown(key.file_default)}"


def _routing(context: Context, mode: PlanMode) -> tuple[tuple[str, ...], str | None, dict[str, tuple[Any, str]]]:
    """The order of stagings (empty: off), why, and the address keys that dynamic routing and user-space RDMA need."""
    view, asked = context.view, context.intent.routing
    if mode == "compat":
        return (), None, {}
    networked = [
        (wish, storage)
        for wish, storage in context.direct_storages
        if routing.is_routed(storage) and storage.filesystem
    ]
    userspace = [(wish, storage) for wish, storage in networked if storage.takes_user_rdma]
    best: dict[str, None] = {}
    reasons: list[str] = []
    routed: list[tuple[MountIntent, Storage]] = []
    for wish, storage in networked:
        nics = context.nics(wish, storage.mount)
        far = _far(context, wish, storage)
        if far is None:
            reasons.append(f"where the NICs of {wish.target} sit is not known, so dynamic routing stays off for it")
        elif not far:
            reasons.append(f"every GPU has a NIC of {wish.target} under its root port: nothing to route")
        elif len(far) == len(view.gpus):
            reasons.append(f"no GPU shares a root port with a NIC of {wish.target}: routing could stage nowhere better")
        elif wish.expect == "direct":
            reasons.append(f"{wish.target} is to go direct, not staged: dynamic routing stays off for it")
        else:
            routed.append((wish, storage))
            names = ", ".join(str(gpu.index) for gpu in far)
            reasons.append(f"GPU {names} share no root port with a NIC of {wish.target}, others do")
            for gpu in far:
                best[routing.applicable(view, gpu, nics)[0]] = None
    if asked == "off":
        why = "the intent switches dynamic routing off" if networked else None
        return (), why, _tables(context, userspace)
    if isinstance(asked, tuple):
        return asked, "the intent names the stagings", _tables(context, networked)
    if not routed:
        return (), "; ".join(reasons) or None, _tables(context, userspace)
    order = tuple(policy for policy in routing.POLICIES if policy in best or policy == "SYS_MEM")
    reasons.append(f"I/O of far GPUs is staged, tried in this order: {', '.join(order)}")
    return order, "; ".join(reasons), _tables(context, networked)


def _far(context: Context, wish: MountIntent, storage: Storage) -> tuple[Gpu, ...] | None:
    """GPUs without a NIC of the mount under their root port, by the NICs that the intent names, if it does."""
    if wish.nics == "auto":
        return routing.far_gpus(context.view, storage)
    nics = context.nics(wish, storage.mount)
    distances = {gpu.index: [routing.near(context.view, gpu, nic) for nic in nics] for gpu in context.view.gpus}
    if not nics or any(all(near is None for near in found) for found in distances.values()):
        return None
    return tuple(gpu for gpu in context.view.gpus if not any(distances[gpu.index]))


def _tables(context: Context, storages: list[tuple[MountIntent, Storage]]) -> dict[str, tuple[Any, str]]:
    """Address lists: one for a file system's section where its mounts agree, else a table by mount."""
    found: dict[str, tuple[Any, str]] = {}
    by_section: dict[str, dict[str, tuple[str, ...]]] = {}
    global_list: dict[str, None] = {}
    for wish, storage in storages:
        section = storage.filesystem.cufile_section if storage.filesystem else None
        own = addresses(context.nics(wish, storage.mount))
        if section == "lustre":  # a NIC may have other addresses besides its NID's
            named = context.lnet_addresses(storage.mount.source)
            own = tuple(ip for ip in own if ip in named) or own
        if section and own:
            by_section.setdefault(section, {})[wish.target] = own
            if storage.takes_user_rdma:
                global_list.update(dict.fromkeys(own))
    for section, lists in by_section.items():
        if len(set(lists.values())) == 1:
            own = next(iter(lists.values()))
            found[f"fs.{section}.rdma_dev_addr_list"] = (
                list(own),
                f"this node's addresses on the NICs of {', '.join(lists)}",
            )
        else:
            found[f"fs.{section}.mount_table"] = (
                {target: {"rdma_dev_addr_list": list(own)} for target, own in lists.items()},
                f"the mounts use different NICs; each of {', '.join(lists)} must stand whenever a cuFile process starts",
            )
    if global_list:
        found["properties.rdma_dev_addr_list"] = (
            list(global_list),
            "user-space RDMA (WekaFS, Storage Scale) opens the NICs that this list names",
        )
    return found


# What tells the NICs of a client that opens them itself, where the node's own gap names no command.
_CLIENTS = {"gpfs": "mmlsconfig verbsPorts", "wekafs": "weka local resources --json"}


def _unread_clients(context: Context) -> list[str]:
    """Mounts whose NICs are not what their client said, since it was not asked."""
    told = []
    for wish, storage in context.direct_storages:
        target, kind = wish.target, storage.mount.backing.kind
        if kind == "lustre" and wish.nics == "auto" and context.node.lnet is None:
            told.append(
                f"{target}: LNet's own interfaces were not read, so its NICs are those with a route to the server; lnetctl "
                "net show names those that it uses"
            )
        elif storage.takes_user_rdma and not addresses(context.nics(wish, storage.mount)):
            look = context.view.settle("mounts", "backing/nics", _CLIENTS.get(kind, "rdma resource show"), key=target)
            told.append(
                f"{target}: no address of a NIC that it uses is known, so none is named for it and its I/O goes through host "
                f"memory: name nics in the intent, or look with {look}"
            )
    return told


def _sharing(context: Context, tables: dict[str, tuple[Any, str]]) -> list[str]:
    """Mounts of one table that are one device to libcufile, which joins their addresses."""
    numbers = {mount.target: mount.major_minor for mount in context.node.mounts}
    told = []
    for key, (value, _) in tables.items():
        groups: dict[str, list[str]] = {}
        for target in value if key.endswith(".mount_table") else ():
            if numbers.get(target):
                groups.setdefault(str(numbers[target]), []).append(target)
        told += [
            f"{' and '.join(targets)} share a device number: libcufile takes the addresses of either for both"
            for targets in groups.values()
            if len(targets) > 1
        ]
    return told


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _ints(*values: Any) -> bool:
    return all(isinstance(value, int) for value in values)


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:77] + "..."
