"""Where texts of storage stacks name a cluster, a filesystem, an export, a volume or a client: each name through a function.

Each is replaced in its own place, however short or common the word; whoever calls may replace it elsewhere too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gdsctl.data.filesystems import filesystem

Rename = Callable[[str, str], str]
"""(kind, name) -> pseudonym; kinds: host, cluster, export, filesystem, volume, label, client, secret."""

_TABLES = (
    re.compile(
        r"(?m)^(?P<source>[^\s#]\S*)[ \t]+/\S*[ \t]+(?P<fstype>[A-Za-z][\w.-]*)(?P<rest>[ \t]+\S[^\n]*)"
    ),  # mounts, fstab
    re.compile(
        r"(?m)^\d+ \d+ \d+:\d+ (?P<root>/\S*) /\S* [^\n]*? - (?P<fstype>\S+) (?P<source>\S+)(?P<rest>[^\n]*)"
    ),  # mountinfo
    re.compile(r"(?m)^device (?P<source>\S+) mounted on /\S* with fstype (?P<fstype>\S+)(?P<rest>)"),  # mountstats
    re.compile(r"(?m)^(?P<source>\S+) on /\S* type (?P<fstype>\S+)(?P<rest> \([^\n]*)"),  # mount(8)
)
_OPTION = re.compile(
    r"(?<=[,\s(])(?P<name>dev|fs|mds_namespace|container_name|name|username|credentials|secretfile|auth_token_path|cfgFile)="
    r"(?P<value>[^,\s)]+)"
)
_OPTION_KINDS = {"dev": "filesystem", "fs": "filesystem", "mds_namespace": "filesystem", "container_name": "client"}
_PROPERTY = re.compile(
    r"(?m)^(E:|)(?P<name>ID_FS_LABEL(?:_ENC)?|ID_PART_ENTRY_NAME|DM_NAME|DM_VG_NAME|DM_LV_NAME|MD_NAME|MD_DEVNAME)=(?P<value>.+)$"
)
_LINK = re.compile(r"(?m)^(?P<before>S:|)(?P<folder>disk/by-label|disk/by-partlabel|mapper|md)/(?P<value>\S+)$")
_FIELD = re.compile(
    r"\"(?P<name>cluster_?name|container_?name|failure_?domain|fs_?name|filesystem|join_?secret|password|token|auth_?token)"
    r"\": ?\"(?P<value>[^\"\n]+)\"",
    re.IGNORECASE,
)
_GPFS = re.compile(r"(?m)^(?P<name>clusterName)[ \t]+(?P<value>\S+)|^\[(?P<nodes>[\w.,-]+)\]$")
_FOLDERS = re.compile(
    r"(?:(?<=/proc/fs/beegfs/)(?P<client>[^/\s]+)|(?<=/dev/mapper/)(?P<mapped>[^/\s]+)|(?<=/dev/md/)(?P<array>[^/\s]+)"
    r"|(?<=/by-label/)(?P<label>[^/\s]+)|(?<=/by-partlabel/)(?P<part>[^/\s]+))"
)
_DEVICE = re.compile(
    r"/dev/(?:(?P<folder>mapper|md|disk/by-label|disk/by-partlabel)/(?P<name>\S+)|(?P<vg>[\w.+-]+)/(?P<lv>[\w.+-]+))"
)
_OWN_FOLDERS = frozenset(
    {"disk", "mapper", "md", "loop", "pts", "shm", "block", "char", "dri", "input", "vfio", "nvidia-caps"}
)
# Which every machine has: multipath's own names, BeeGFS's word for no device, its usual file.
_PLAIN = re.compile(r"mpath[a-z]+|control|\d+|beegfs_nodev|none|beegfs-client(\.conf)?|luks-[0-9a-f-]+|etc|beegfs|")


def renamed(path: str, text: str, rename: Rename) -> str:
    """`path`: of the file, or the command's name, whose text it is."""
    for table in _TABLES:
        text = table.sub(lambda match: _row(match, rename), text)
    name = path.rpartition("/")[2]
    if name == "mmfs.cfg":
        text = _GPFS.sub(lambda match: _gpfs(match, rename), text)
    if "/udev/data/" in path or name.startswith("udev"):
        text = _PROPERTY.sub(lambda match: _value(match, _kept("label", match["value"], rename)), text)
        text = _LINK.sub(lambda match: _value(match, _kept("label", match["value"], rename)), text)
    if path.endswith("/dm/name"):
        return _kept("label", text.strip(), rename) + "\n" if text.strip() else text
    text = _FIELD.sub(lambda match: _value(match, rename(_field_kind(match["name"]), match["value"])), text)
    return located(text, rename)


def located(text: str, rename: Rename) -> str:
    """What a path itself names: the folder of a BeeGFS client is called after its host, a link after a volume."""
    return _FOLDERS.sub(lambda match: _kept("client" if match["client"] else "label", match[0], rename), text)


def _field_kind(name: str) -> str:
    lower = name.lower().replace("_", "")
    if lower.startswith("cluster"):
        return "cluster"
    if lower.startswith(("fs", "filesystem")):
        return "filesystem"
    return "client" if lower.startswith(("container", "failure")) else "secret"


def _value(match: re.Match[str], value: str, group: str = "value") -> str:
    start, end = (edge - match.start() for edge in match.span(group))
    return match[0][:start] + value + match[0][end:]


def _kept(kind: str, value: str, rename: Rename) -> str:
    return value if _PLAIN.fullmatch(value) else rename(kind, value)


def _row(match: re.Match[str], rename: Rename) -> str:
    """One line of a mount table: its source, and of what a server gives also the folder that is mounted."""
    fstype, whole = match["fstype"], match[0]
    row = filesystem(fstype)
    if row is None or row.pseudo or row.backing in ("tmpfs", "overlay"):
        return whole
    found = whole
    if row.backing != "block":
        found = _value(match, options(match["rest"], rename), "rest")
    start, end = (edge - match.start() for edge in match.span("source"))
    found = found[:start] + _source(match["source"], row.backing, rename) + found[end:]
    root = match.groupdict().get("root")
    if root and root != "/" and row.backing not in ("block", "other"):
        start = match.start("root") - match.start()
        found = found[:start] + _path(root, rename) + found[start + len(root) :]
    return found


def device(source: str, fstype: str, rename: Rename) -> str:
    """A mount's source by itself."""
    row = filesystem(fstype)
    return (
        source
        if row is None or row.pseudo or row.backing in ("tmpfs", "overlay")
        else _source(source, row.backing, rename)
    )


def prop(name: str, value: str, rename: Rename) -> str:
    """The value of one of udev's properties."""
    return _kept("label", value, rename) if _PROPERTY.fullmatch(f"{name}={value}") else value


def entry(folder: str, name: str, rename: Rename) -> str:
    """A name in a folder's listing."""
    return located(f"{folder}/{name}", rename).removeprefix(f"{folder}/")


def _source(source: str, backing: str, rename: Rename) -> str:
    tag, sign, label = source.partition("=")
    if sign and tag in ("LABEL", "PARTLABEL"):
        return f"{tag}={_kept('label', label, rename)}"
    if sign and tag in ("UUID", "PARTUUID", "ID"):
        return source
    if source.startswith("/dev/") and backing != "gpfs":
        device = _DEVICE.fullmatch(source)
        if device is None or device["vg"] in _OWN_FOLDERS:
            return source
        if device["folder"]:
            return f"/dev/{device['folder']}/{_kept('label', device['name'], rename)}"
        return f"/dev/{rename('volume', device['vg'])}/{rename('volume', device['lv'])}"
    if source.startswith("/dev/"):
        return f"/dev/{rename('filesystem', source.removeprefix('/dev/'))}"
    scheme, marks, rest = source.rpartition("://")
    if not marks and rest.startswith("//"):
        marks, rest = "//", rest[2:]
    server, colon, path = rest.rpartition(":/")
    if colon:
        return f"{scheme}{marks}{server}:/{_path(path, rename)}"
    first, slash, path = rest.partition("/")
    if slash and backing in ("wekafs", "network"):  # BACKEND[,BACKEND]/FILESYSTEM, //SERVER/SHARE
        hosts = ",".join(
            host if re.fullmatch(r"[\d.:]*|\[.*\]", host) else rename("host", host) for host in first.split(",")
        )
        return f"{scheme}{marks}{hosts}/{_path(path, rename)}"
    return f"{scheme}{marks}{_path(rest, rename)}"


def _path(path: str, rename: Rename) -> str:
    return "/".join(_kept("export", part, rename) for part in path.split("/"))


def _gpfs(match: re.Match[str], rename: Rename) -> str:
    if match["name"]:
        return _value(match, rename("cluster", match["value"]))
    return f"[{','.join(node if node == 'common' else rename('host', node) for node in match['nodes'].split(','))}]"


def options(text: str, rename: Rename) -> str:
    """Options of mounts that name a filesystem, a client or a user."""

    def one(match: re.Match[str]) -> str:
        folder, slash, last = match["value"].rpartition("/")
        stem, dot, ending = last.partition(".")
        kind = _OPTION_KINDS.get(match["name"], "client")
        return f"{match['name']}={folder}{slash}{_kept(kind, stem, rename)}{dot}{ending}"

    return _OPTION.sub(one, text)
