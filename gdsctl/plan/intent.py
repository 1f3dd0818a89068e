"""What the operator wants: the YAML of `plan --intent` and `verify --intent` (schema gdsctl/intent/v1)."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Literal, cast, get_args

from gdsctl.assess.system_mounts import is_system
from gdsctl.assess.view import Storage, View
from gdsctl.data import cufile_keys, filesystems
from gdsctl.data.cufile_keys import keys as all_keys
from gdsctl.errors import InputError
from gdsctl.model.pci import canonical_address
from gdsctl.model.shell import quoted
from gdsctl.plan.yaml_text import Value, compose, meant
from gdsctl.record import Record

SCHEMA = "gdsctl/intent/v1"
STDIN = "<stdin>"
Mode = Literal["auto", "nvidia-fs", "p2pdma", "compat"]
# undecided: GPUs or mounts are not known; none: no mode makes a path better, or there is no path to plan
PlanMode = Literal["nvidia-fs", "p2pdma", "compat", "undecided", "none"]
GpusBy = Literal["device-plugin", "resource-claim"]
Expect = Literal["direct", "direct-or-routed", "compat", "any"]
Policy = Literal["GPU_MEM_NVLINKS", "GPU_MEM", "SYS_MEM", "P2P"]

_CLOSE_NAME = 0.8  # lustr is lustre's, weka wekafs's; ext3 is not ext4's
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,17}")
_OPTION = re.compile(r"[A-Za-z0-9_.:/~@+-]+")


class NvmeOf(Record, frozen=True, kw_only=True):
    """The subsystem to connect over RDMA before the mount. `traddr`: addresses of its ports; `hostnqn` None: nvme-cli's own.

    `ctrl_loss_tmo_s` -1: reconnect for ever; `nr_io_queues` None: one for each CPU, as the kernel has it.
    """

    nqn: str
    traddr: tuple[str, ...]
    trsvcid: int = 4420
    hostnqn: str | None = None
    ctrl_loss_tmo_s: int = -1
    nr_io_queues: int | None = None


class MountIntent(Record, frozen=True, kw_only=True):
    """`expect` None: left to the mode, see `expected`; `nics`: "auto" or names of RDMA devices or netdevs; `options`:
    mount options pinned, true for one without value; `nvme_of`: of a mount on NVMe over Fabrics.
    """

    target: str
    expect: Expect | None = None
    type: str | None = None
    source: str | None = None
    client: Literal["vast", "kernel"] | None = None
    transport: Literal["rdma", "tcp"] | None = None
    vips: str | None = None
    nics: Literal["auto"] | tuple[str, ...] = "auto"
    options: dict[str, str | int | bool] = {}
    nvme_of: NvmeOf | None = None


class Workload(Record, frozen=True, kw_only=True):
    """`gpus_by`: how a pod asks for GPUs, of NVIDIA's device plugin or by a resource claim (its DRA driver)."""

    kind: str = "kv-cache"
    chunk_bytes: int | None = None
    gpus_by: GpusBy = "device-plugin"


class Intent(Record, frozen=True, kw_only=True):
    """`mounts` None: the node's own data mounts. `tuning`: dotted cufile.json key -> pinned value."""

    schema: str = SCHEMA
    gds_version: str = "auto"
    mode: Mode = "auto"
    compat: Literal["allow", "forbid"] = "allow"
    gpus: Literal["all"] | tuple[int | str, ...] = "all"
    mounts: tuple[MountIntent, ...] | None = None
    routing: Literal["auto", "off"] | tuple[Policy, ...] = "auto"
    tuning: dict[str, Any] = {}
    workload: Workload | None = None


def expected(wish: MountIntent, mode: Mode) -> Expect:
    """What a wish expects; left to the mode it is compat in mode compat, direct or routed in all others."""
    return wish.expect or ("compat" if mode == "compat" else "direct-or-routed")


class Wanted(Record, frozen=True, kw_only=True):
    """An intent and where it came from.

    `path`: the operator's file, None for the default; `lines`: tuning key -> line in it; `said`: one sentence on it;
    `mode_given`: on the command line, over the file's.
    """

    intent: Intent
    path: str | None = None
    mode_given: Mode | None = None
    lines: dict[str, int] = {}
    said: str = "no intent given: this node's own data mounts, direct or routed"

    @property
    def verify(self) -> str:
        """The command that judges a node by this intent."""
        if self.path is None:
            if self.mode_given is None:
                return "gdsctl verify"
            lines = f"schema: {SCHEMA}\\nmode: {self.mode_given}\\n"
            return f"printf '{lines}' | gdsctl verify --intent -"
        file = "FILE" if self.path == STDIN else quoted(self.path)
        note = f" # after 'mode: {self.mode_given}' is in it" if self.mode_given is not None else ""
        return f"gdsctl verify --intent {file}{note}"


def read(text: str, path: str) -> Wanted:
    """An intent file. Raises InputError (FILE:LINE) for unknown keys, wrong types and wrong values."""
    try:
        root = compose(text)
        if root is None or root.is_null:
            return Wanted(intent=Intent(), path=path, said=f"{path} is empty: every key has its default")
        intent, lines = _intent(root)
    except InputError as error:
        raise error.at(path) from None
    return Wanted(intent=intent, path=path, lines=lines, said=f"intent from {path}")


_KEYS = ("schema", "gds_version", "mode", "compat", "gpus", "mounts", "routing", "tuning", "workload")
_MOUNT_KEYS = ("target", "expect", "type", "source", "client", "transport", "vips", "nics", "options", "nvme_of")


def _intent(root: Value) -> tuple[Intent, dict[str, int]]:
    given = {name: value for name, value in root.fields(_KEYS).items() if not value.is_null}
    found: dict[str, Any] = {}
    lines: dict[str, int] = {}
    if "schema" in given and given["schema"].text() != SCHEMA:
        raise given["schema"].fault(f"{given['schema'].text()[:60]!r} is not {SCHEMA!r}, the only schema there is")
    if "gds_version" in given:
        found["gds_version"] = _version(given["gds_version"])
    if "mode" in given:
        found["mode"] = given["mode"].word(get_args(Mode))
    if "compat" in given:
        found["compat"] = given["compat"].word(("allow", "forbid"))
    if "gpus" in given:
        found["gpus"] = _gpus(given["gpus"])
    if "mounts" in given:
        found["mounts"] = _mounts(given["mounts"])
    if "routing" in given:
        found["routing"] = _routing(given["routing"])
    if "tuning" in given:
        found["tuning"], lines = _tuning(given["tuning"])
    if "workload" in given:
        found["workload"] = _workload(given["workload"])
    return Intent(**found), lines


def _version(value: Value) -> str:
    text = value.text()
    if text == "auto":
        return text
    try:
        asked = cufile_keys.release(text)
    except ValueError:
        raise value.fault(f"{text[:60]!r} is not a GDS release such as 1.14, nor auto") from None
    if not cufile_keys.in_table(asked):
        raise value.fault(f"{text}: {cufile_keys.span()}")
    return text


def _gpus(value: Value) -> Literal["all"] | tuple[int | str, ...]:
    if not value.is_list:
        value.word(("all",))
        return "all"
    found: list[int | str] = []
    for item in value.items():
        text = item.text()
        address = canonical_address(text)
        if address is None and not (_DECIMAL.fullmatch(text) and len(text) < 5):
            raise item.fault(f"{text[:60]!r} is neither an index nor a PCI address such as 0000:3b:00.0")
        found.append(address or int(text))
    if not found:
        raise value.fault("an empty list: name GPUs, or write all")
    return tuple(dict.fromkeys(found))


def _mounts(value: Value) -> tuple[MountIntent, ...]:
    found: dict[str, MountIntent] = {}
    for item in value.items():
        mount = _mount(item)
        if mount.target in found:
            raise item.fault(f"{mount.target!r} is named twice")
        found[mount.target] = mount
    if not found:
        raise value.fault("an empty list: name mounts, or leave the key out for the node's own")
    return tuple(found.values())


def _mount(value: Value) -> MountIntent:
    given = {name: field for name, field in value.fields(_MOUNT_KEYS).items() if not field.is_null}
    if "target" not in given:
        raise value.fault("target is missing" + ("" if given else ", and so is all else"))
    found: dict[str, Any] = {"target": _target(given["target"])}
    for name, allowed in {
        "expect": get_args(Expect),
        "client": ("vast", "kernel"),
        "transport": ("rdma", "tcp"),
    }.items():
        if name in given:
            found[name] = given[name].word(allowed)
    for name in ("type", "source"):
        if name in given:
            found[name] = given[name].text()
            if not found[name] or "\0" in found[name]:
                raise given[name].fault("empty, or with a NUL character")
    if "type" in given and not re.fullmatch(r"[A-Za-z0-9_.-]+", found["type"]):
        raise given["type"].fault(f"{found['type'][:60]!r} is not a filesystem's name")
    if "type" in given and filesystems.filesystem(found["type"]) is None:
        near = meant(found["type"], filesystems.fstypes(), closeness=_CLOSE_NAME)
        if near:  # others are mounted as they are written, and judged by what the table says of unknown ones
            raise given["type"].fault(f"{found['type'][:60]!r} is no filesystem of GPUDirect Storage{near}")
    if "vips" in given:
        found["vips"] = _vips(given["vips"])
    if "nics" in given:
        found["nics"] = _nics(given["nics"])
    if "options" in given:
        found["options"] = {name: _option(name, field) for name, field in given["options"].fields().items()}
    if "nvme_of" in given:
        found["nvme_of"] = _nvme_of(given["nvme_of"])
        if found.get("transport") == "tcp":
            raise given["nvme_of"].fault("GDS carries NVMe over RDMA alone: transport is tcp here")
    return MountIntent(**found)


def _nvme_of(value: Value) -> NvmeOf:
    names = ("nqn", "traddr", "trsvcid", "hostnqn", "ctrl_loss_tmo_s", "nr_io_queues")
    given = {name: field for name, field in value.fields(names).items() if not field.is_null}
    for name in ("nqn", "traddr"):
        if name not in given:
            raise value.fault(f"{name} is missing")
    ports = given["traddr"].items() if given["traddr"].is_list else [given["traddr"]]
    found: dict[str, Any] = {"nqn": _nqn(given["nqn"]), "traddr": tuple(dict.fromkeys(map(_ip, ports)))}
    if not ports:
        raise given["traddr"].fault("an empty list: name the addresses of the subsystem's ports")
    if "hostnqn" in given:
        found["hostnqn"] = _nqn(given["hostnqn"])
    for name, low, high in (("trsvcid", 1, 65535), ("ctrl_loss_tmo_s", -1, 1 << 30), ("nr_io_queues", 1, 65535)):
        if name in given:
            text = given[name].text()
            number = int(text) if _DECIMAL.fullmatch(text.removeprefix("-")) else None
            if number is None or not low <= number <= high:
                raise given[name].fault(f"{text[:60]!r} is not a number from {low} to {high}")
            found[name] = number
    return NvmeOf(**found)


def _nqn(value: Value) -> str:
    text = value.text()
    if not is_nqn(text):
        raise value.fault(f"{text[:60]!r} is not an NVMe qualified name such as nqn.2014-08.org.nvmexpress:uuid:...")
    return text


def is_nqn(text: str) -> bool:
    """At most 223 bytes (NVMe Base Specification 2.0, 4.5); the kernel takes options apart at commas."""
    name = re.fullmatch(r"nqn\.\d{4}-\d\d\.[^\s,]+", text)
    return bool(name) and text.isprintable() and len(text.encode("utf-8", "replace")) <= 223


def _ip(value: Value) -> str:
    text = value.text()
    try:
        plain = str(ipaddress.ip_address(text))
    except ValueError:
        plain = ""
    if not re.fullmatch(r"[0-9A-Za-z.:%_-]+", plain):  # a scope may be any text
        raise value.fault(f"{text[:60]!r} is not an IP address")
    return plain


def _target(value: Value) -> str:
    text = value.text()
    if not text.startswith("/") or "\0" in text:
        raise value.fault(f"{text[:60]!r} is not an absolute path")
    if any(part in (".", "..") for part in text.split("/")) or "//" in text:
        raise value.fault(f"{text[:60]!r} is not a plain path: no empty parts, . or ..")
    return text.rstrip("/") or "/"


def _vips(value: Value) -> str:
    """Checked; kept as written: `A-B`, several with `~` or `,`."""
    text = value.text()
    for part in re.split(r"[~,]", text):
        ends = part.split("-")
        try:
            numbers = [int(ipaddress.IPv4Address(end.strip())) for end in ends]
        except ValueError:
            raise value.fault(f"{part[:60]!r} is not an IPv4 address or a range of two") from None
        if len(numbers) > 2 or numbers[0] > numbers[-1] or numbers[-1] - numbers[0] >= 4096:
            raise value.fault(f"{part[:60]!r} is not a range from low to high of at most 4096 addresses")
    return "~".join(part.replace(" ", "") for part in re.split(r"[~,]", text))


def _nics(value: Value) -> Literal["auto"] | tuple[str, ...]:
    if not value.is_list:
        value.word(("auto",))
        return "auto"
    names = tuple(item.text() for item in value.items())
    if not names:
        raise value.fault("an empty list: name NICs, or write auto")
    return names


def _option(name: str, value: Value) -> str | int | bool:
    """No commas, blanks or quotes: an option that holds one cannot be written in fstab."""
    if not _OPTION.fullmatch(name):
        raise value.fault("not the name of a mount option")
    if value.is_null:
        return True
    text = value.text()
    if value.is_bool:
        return text.lower() in ("true", "yes", "on")
    if not _OPTION.fullmatch(text):
        raise value.fault(f"{text[:60]!r} is not the value of a mount option")
    # As written: mode=0755 and lock=1:30 are texts to mount(8), not the numbers 493 and 90 of YAML 1.1.
    return int(text) if _DECIMAL.fullmatch(text) else text


def _routing(value: Value) -> Literal["auto", "off"] | tuple[Policy, ...]:
    if not value.is_list:
        return cast("Literal['auto', 'off']", value.word(("auto", "off")))
    names = [item.word(get_args(Policy)) for item in value.items()]
    if not names:
        raise value.fault("an empty list means all policies to libcufile; name them, or write auto or off")
    if len(set(names)) < len(names):
        raise value.fault("a policy is named twice")
    return cast("tuple[Policy, ...]", tuple(names))


def _workload(value: Value) -> Workload:
    given = {
        name: field for name, field in value.fields(("kind", "chunk_bytes", "gpus_by")).items() if not field.is_null
    }
    found: dict[str, Any] = {}
    if "kind" in given:
        found["kind"] = given["kind"].word(("kv-cache",))
    if "chunk_bytes" in given:
        found["chunk_bytes"] = given["chunk_bytes"].size_bytes()
    if "gpus_by" in given:
        found["gpus_by"] = given["gpus_by"].word(get_args(GpusBy))
    return Workload(**found)


def _tuning(value: Value) -> tuple[dict[str, Any], dict[str, int]]:
    """Keys by dotted path, nested, or by their last part where only one key has it."""
    found: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for name, field in _flat(value, ""):
        key = cufile_keys.key(_full(name, field))
        if key is None:  # _full gives names of the table only
            raise field.fault("not a key of cufile.json")
        if key.key in found:
            raise field.fault(f"{key.key} is given twice")
        if field.is_null:
            raise field.fault("no value; leave the key out instead")
        if key.type in ("string", "hex"):
            found[key.key] = field.text()
        elif key.type == "string_list":
            found[key.key] = [item.text() for item in field.items()]
        else:
            found[key.key] = field.plain()
        lines[key.key] = field.line
    return found, lines


def _flat(value: Value, prefix: str) -> list[tuple[str, Value]]:
    found: list[tuple[str, Value]] = []
    for name, field in value.fields().items():
        dotted = f"{prefix}{name}"
        if field.is_mapping and dotted in cufile_keys.sections():
            found += _flat(field, f"{dotted}.")
        else:
            found.append((dotted, field))
    return found


def _full(name: str, field: Value) -> str:
    if cufile_keys.key(name) is not None:
        return name
    rows = [row.key for row in all_keys()]
    fitting = [row for row in rows if row.rpartition(".")[2] == name]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        shown = ", ".join(fitting[:4]) + (" ..." if len(fitting) > 4 else "")
        raise field.fault(f"{name!r} could be any of {shown}: write it out")
    dead = next((row for row in cufile_keys.dead_keys() if row.key == name), None)
    label = next((row for row in cufile_keys.labels() if name in (row.label, row.label.rpartition(".")[2])), None)
    instead = (dead and dead.instead) or (label and label.key)
    if instead:
        raise field.fault(f"libcufile does not act on it; the key is {instead}")
    section, _, last = name.rpartition(".")
    beside = [row.removeprefix(f"{section}.") for row in rows if section and row.startswith(f"{section}.")]
    near = meant(last, beside) if beside else meant(name, [*rows, *(row.rpartition(".")[2] for row in rows)])
    sections = sorted({row.section for row in all_keys()})
    known = f"known in {section}: {', '.join(beside)}" if beside else f"known here: the keys of {', '.join(sections)}"
    raise field.fault(f"not a key of cufile.json{near}; {known}")


# --- the default: what the node's own mounts suggest ----------------------------------------------------------------


def could_go_direct(storage: Storage) -> bool:
    return storage.takes_nvidia_fs or storage.takes_p2pdma or storage.takes_user_rdma


def own_mounts(view: View) -> tuple[tuple[MountIntent, ...], str]:
    """The node's data mounts that could go direct in principle, and a sentence on the choice.

    System mounts are taken only where nothing else qualifies: a node with one big root still has an answer.
    """
    able = [storage.mount.target for storage in view.storages if could_go_direct(storage)]
    data = [target for target in able if not is_system(target)]
    if data:
        said = "no mounts named: this node's data mounts that can go direct in principle, direct or routed"
    elif able:
        said = "no mounts named, and only system mounts could go direct in principle: these, direct or routed"
    elif view.gap("mounts", "") is not None:
        said = "no mounts named, and which this node has is not known"
    else:
        said = "no mounts named, and no mount of this node could go direct even in principle"
    return tuple(MountIntent(target=target) for target in dict.fromkeys(data or able)), said
