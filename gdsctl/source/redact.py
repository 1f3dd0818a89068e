"""A capture with pseudonyms for what names a machine, its owner or its place.

Told twice: the first pass only learns what is secret (a serial in its file, an address in a route), the second replaces
each of it wherever it stands. Same value, same pseudonym; numbers run in order of appearance, addresses keep their
subnets. The key of the address mapping is drawn afresh each time, so nobody can try all addresses against it.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gdsctl.data.cufile_keys import keys as cufile_keys
from gdsctl.data.filesystems import fstypes
from gdsctl.data.redaction import SecretFile, public_digits, secret_files
from gdsctl.source import storage_names
from gdsctl.source.addresses import Mapping4, Mapping6, kept_bits
from gdsctl.source.base import Output
from gdsctl.source.capture import Capture

_PLACEHOLDERS = frozenset(
    [
        "0",
        "none",
        "n/a",
        "[n/a]",
        "na",
        "not",
        "not specified",
        "not available",
        "unknown",
        "default string",
        "system serial number",
        "no asset tag",
        "to be filled by o.e.m.",
        "chassis serial number",
        "base board serial number",
    ]
)
"""What firmware writes for want of a serial number or a tag."""

_COMMON = frozenset(
    [
        "localhost",
        "localdomain",
        "root",
        "admin",
        "ubuntu",
        "user",
        "users",
        "data",
        "test",
        "none",
        "default",
        "linux",
        "node",
        "host",
        "server",
        "storage",
        "nvidia",
        "nvme",
        "mlx5",
        "cuda",
        "ordered",
        "local",
        "disk",
        "true",
        "false",
        "home",
        "mount",
        "kernel",
        "driver",
        "device",
        "devices",
        "system",
        "loop",
        "tmpfs",
        "ext4",
        "cloud",
        "rocky",
    ]
)
"""Words that reports are made of: a host or user of such a name is replaced in its own place only."""

_VERSION_FILES = frozenset(("version", "srcversion", "vermagic", "firmware_rev", "fw_ver", "hw_rev", "osrelease"))
_UNREAD = frozenset(("kallsyms",))  # symbols only, and ten megabytes of them

_PATTERN = r"""
(?<![0-9A-Za-z])(?:
  (?P<literal>LITERALS)(?![0-9A-Za-z])
 |(?P<nqn>nqn\.\d{4}-\d\d\.[^\s"',;\\/)\]]+)
 |(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9A-Za-z])
 |(?P<md>[0-9a-f]{8}(?::[0-9a-f]{8}){3})(?![0-9A-Za-z:])
 |(?<!:)(?P<hardware>[0-9a-f]{2}(?::[0-9a-f]{2}){19}|[0-9a-f]{2}(?::[0-9a-f]{2}){7}|[0-9a-f]{2}(?::[0-9a-f]{2}){5}
    |[0-9a-f]{2}(?:-[0-9a-f]{2}){7}|[0-9a-f]{2}(?:-[0-9a-f]{2}){5})(?![0-9A-Za-z]|[:-][0-9a-f]{2})
 |nvme\.[0-9a-f]{4}-(?P<nvme>(?:[0-9a-f]{2})+)(?=-[0-9a-f]+-[0-9a-f]{8})
 |(?:eui|naa|wwn|uuid|nguid|nn|pn)[.-](?:0x)?(?P<eui>[0-9a-f]{32}|[0-9a-f]{16})(?![0-9A-Za-z])
 |(?:scsi-|mpath-)?3(?P<naa>6[0-9a-f]{31}|[25][0-9a-f]{15})(?![0-9A-Za-z])
 |(?<!:)(?P<guid>[0-9a-f]{4}(?::[0-9a-f]{4}){3})(?![0-9A-Za-z]|:[0-9a-f:])
 |(?<![:.])(?P<ip6>[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){1,6}:(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]{0,4}))(?![0-9A-Za-z:]|\.\d)
 |(?<![._])(?P<ip4>\d{1,3}(?:\.\d{1,3}){3})(?![0-9A-Za-z_]|\.[0-9A-Za-z])(?P<length>/\d{1,2}(?![0-9A-Za-z.]))?
 |(?P<word>[0-9A-Za-z]{4,})
)"""
_SERIAL = re.compile(
    r"""(?i)\bserial[ _-]?(?:number|no|short)?\b["']?[ \t]*[:=][ \t]*["']?([0-9A-Za-z][\w.-]{2,63})(?![\w./-])""",
    re.ASCII,
)
_HOME = re.compile(r"/(?:home|users)/([A-Za-z_][\w.-]*)", re.ASCII | re.IGNORECASE)
_USER = re.compile(r"\b(?:user|username|logname|sudo_user)=([A-Za-z_][\w.-]*)", re.ASCII | re.IGNORECASE)
_NFS_HOST = re.compile(r"(?:^|[ \t])([A-Za-z][\w.-]*):/(?!/)", re.ASCII | re.MULTILINE)
_MOUNT_FILES = re.compile(r"(?:/mounts|/mountinfo|/mountstats|/fstab|/mtab)$")
_SHORT_UUID = re.compile(r"\bUUID=\"?([0-9A-F]{4}-[0-9A-F]{4})\b")  # of FAT: a volume's serial number
_NETWORK = re.compile(r"\"(?:local|dst)\": ?\"([\d.]+)\",[^{}]*?\"prefixlen\": ?(\d+)")  # ip -json addr
_ADDRESS_BEFORE = re.compile(
    r"(?i)(?:\b(?:\w*addrs?|address|inet|via|src|dst|ip|host|server|peer|remote|local|vips?|nid|gateway|router|dns)"
    r"[\s=:\"'\[]+|//|@|,traddr=|remoteports=|localports=)$"
)
_VERSION_BEFORE = re.compile(
    r"""(?i)(?<![a-z])(?:version|release|ver|rev|driver|fw|firmware|gds|cuda|ofed)[\s=:"'(]*$"""
)
_RANGE_BEFORE = re.compile(r"\d\.\d{1,3}\.\d{1,3}\.\d{1,3}-$")  # 172.16.1.10-172.16.1.25, but not ofed-5.8-1.1.2.1
_VERSION_LIKE_UNTIL = 24
"""A dotted quad outside private ranges that begins lower is taken for a version (1.14.1.1) unless a word says address."""


def redacted(capture: Capture, key: bytes | None = None) -> Capture:
    """The same capture with pseudonyms. `key` (up to 64 bytes) fixes the mapping of addresses; drawn at random if None."""
    names = _Names(key or os.urandom(32))
    names.learn(capture)
    _replaced(capture, names)  # only to meet everything once
    names.settle()
    return _replaced(capture, names)


def _replaced(capture: Capture, names: _Names) -> Capture:
    manifest = capture.manifest

    def sub(text: str) -> str:
        return names.text(storage_names.located(text, names.storage))

    return Capture(
        manifest=msgspec.structs.replace(
            manifest,
            host=manifest.host and names.host(manifest.host),
            note=manifest.note and sub(manifest.note),
            redacted=True,
            paths={sub(path): status for path, status in manifest.paths.items()},
            details={sub(path): sub(detail) for path, detail in manifest.details.items()},
            listings={
                sub(path): tuple(sorted(names.text(storage_names.entry(path, name, names.storage)) for name in listed))
                for path, listed in manifest.listings.items()
            },
            commands={
                name: msgspec.structs.replace(entry, detail=sub(entry.detail))
                for name, entry in manifest.commands.items()
            },
            answers={
                name: msgspec.structs.replace(entry, detail=sub(entry.detail))
                for name, entry in manifest.answers.items()
            },
        ),
        files={sub(path): names.file(path, content) for path, content in capture.files.items()},
        links={sub(path): sub(target) for path, target in capture.links.items()},
        outputs={
            name: Output(
                stdout=names.text(storage_names.renamed(name, output.stdout, names.storage)),
                stderr=sub(output.stderr),
                exit_code=output.exit_code,
            )
            for name, output in capture.outputs.items()
        },
        answers={name: names.answer(answer) for name, answer in capture.answers.items()},
    )


class _Names:
    """Who is called what from now on."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._counts: dict[str, int] = {}
        self._given: dict[tuple[str, str], str] = {}
        self._literals: dict[str, str] = {}
        self._hexes = {digits: digits for digits in public_digits()}
        self._addresses: set[int] = set()
        self._networks: set[ipaddress.IPv4Network] = set()
        self._mapping4: Mapping4 | None = None
        self._mapping6 = Mapping6(key)
        self._texts: dict[str, str] = {}
        self._pattern = _compiled(())

    def learn(self, capture: Capture) -> None:
        """Everything whose place says what it is."""
        if capture.manifest.host:
            self.host(capture.manifest.host)
        for answer in capture.answers.values():
            self._learn_answer(answer)
            self.answer(answer)  # names of storage
        for path, content in sorted(capture.files.items()):
            row = _secret_file(path)
            text = content.decode("latin-1")
            if path.rpartition("/")[2] not in _UNREAD:
                storage_names.renamed(path, text, self.storage)
            if row is not None:
                self._secret(row, text)
            elif path.endswith("/vpd"):
                self._learn_vpd(content)
            if path.rpartition("/")[2] not in _UNREAD:
                self._learn_text(text, mounts=_MOUNT_FILES.search(path) is not None)
            if path.endswith("/net/route"):
                _routes(text, self._learn_route)
        for path in (*capture.manifest.paths, *capture.links.values()):
            self._learn_text(path, mounts=False)
            storage_names.located(path, self.storage)
        for name, output in capture.outputs.items():
            storage_names.renamed(name, output.stdout, self.storage)
            self._learn_text(output.stdout, mounts=False)
            self._learn_text(output.stderr, mounts=False)
        self._pattern = _compiled(literal for literal in self._literals if not literal.isalnum())

    def settle(self) -> None:
        """Fix the addresses' mapping: none may become another one that is replaced itself."""
        for attempt in range(64):
            mapping = Mapping4(self._key + bytes([attempt]), self._networks)
            if not self._addresses & {mapping(address) for address in self._addresses if kept_bits(address) < 32}:
                break
        self._mapping4 = mapping
        self._texts.clear()

    def text(self, text: str) -> str:
        """A text with all pseudonyms in the place of what they stand for."""
        if len(text) > 200:
            return self._pattern.sub(self._token, text)
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = self._pattern.sub(self._token, text)
        return known

    def file(self, path: str, content: bytes) -> bytes:
        name = path.rpartition("/")[2]
        if name in _UNREAD:
            return content
        if name == "config" and len(content) > 256 and "/sys/" in path:
            return self._config(content)
        text = storage_names.renamed(path, content.decode("latin-1"), self.storage)
        row = _secret_file(path)
        if row is not None:
            return self._secret(row, text).encode("latin-1")
        if path.endswith("/net/route"):
            return _routes(text, self._route).encode("latin-1")
        if "/nfsfs/" in path:
            text = re.sub(r"(?m)^(v\d +)([0-9a-f]{8})\b", lambda m: m[1] + f"{self._ip4(int(m[2], 16)):08x}", text)
        if name in ("if_inet6", "ipv6_route"):
            text = re.sub(r"\b[0-9a-f]{32}\b", lambda m: f"{self._ip6(int(m[0], 16)):032x}", text)
        if name in _VERSION_FILES and re.fullmatch(r"[\d.]+\s*", text):
            return content
        return self.text(text).encode("latin-1")

    def answer(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            value = {key: self._property(str(key), each, value) for key, each in value.items()}
            return {self.text(str(key)): self.answer(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.answer(each) for each in value]
        return value

    def _property(self, name: str, value: Any, beside: dict[str, Any]) -> Any:
        if not isinstance(value, str):
            return value
        if name == "device" and isinstance(beside.get("fstype"), str):
            return storage_names.device(value, beside["fstype"], self.storage)
        return storage_names.prop(name, value, self.storage)

    def storage(self, kind: str, name: str) -> str:
        """The pseudonym of a cluster, an export, a volume; elsewhere only where the word means nothing else."""
        if kind == "host":
            return self.host(name)
        if name in self._given.values():  # told in the first of two places that hold it
            return name
        token = self._give(kind, name, f"{kind}-{{}}")
        if name.lower() not in _vocabulary():
            self._literal(name, token)
        return token

    def host(self, name: str) -> str:
        """A host's pseudonym; of a full name also its short form and its domain become known."""
        short, _, domain = name.partition(".")
        if not short or name in ("localhost", "(none)"):
            return name
        token = self._give("host", short, "host-{}")
        self._literal(short, token)
        if not domain:
            return token
        self._literal(domain, "example.net")
        self._literals[name.lower()] = f"{token}.example.net"
        return f"{token}.example.net"

    def _give(self, kind: str, value: str, form: str) -> str:
        known = self._given.get((kind, value))
        if known is None:
            self._counts[kind] = number = self._counts.get(kind, 0) + 1
            known = self._given[kind, value] = form.format(number)
        return known

    def _literal(self, value: str, token: str) -> None:
        """Replace this value wherever it stands, unless it is a word that means other things too."""
        if len(value) < 4 or value.lower() in _COMMON or (value.isdigit() and len(value) < 6):
            return
        self._literals.setdefault(value.lower(), token)

    def _serial(self, value: str) -> str:
        if value.lower() in _PLACEHOLDERS or not re.search(r"[0-9A-Za-z]", value):
            return value
        if re.fullmatch(r"(?:0x)?(?:[0-9a-f]{16}|[0-9a-f]{32})", value):
            return value.replace(value.removeprefix("0x"), self._hex(value.removeprefix("0x")))
        token = self._give("serial", value, "SN{:06}")
        self._literal(value, token)
        return token

    def _user(self, name: str) -> str:
        if name.lower() in ("root", "nobody", "ubuntu"):
            return name
        token = self._give("user", name, "user-{}")
        self._literal(name, token)
        return token

    def _secret(self, row: SecretFile, text: str) -> str:
        value = text.strip("\0 \t\r\n")
        if not value:
            return text
        if row.kind == "serial":
            return text.replace(value, self._serial(value), 1)
        if row.kind == "host":
            return text.replace(value, self.host(value), 1)
        if row.kind == "words":
            first, blank, _ = value.partition(" ")
            if blank:
                self.host(first)
            return self.text(text)
        digits = re.sub(r"[^0-9a-f]", "", value.lower())
        if len(digits) in (12, 16, 32):
            return _reshaped(text, self._hex(digits))
        return text.replace(value, self._serial(value), 1)

    def _learn_answer(self, answer: Any) -> None:
        if isinstance(answer, dict):
            for key, value in answer.items():
                if key == "hostname" and isinstance(value, str):
                    self.host(value)
                elif "serial" in str(key).lower() and isinstance(value, str):
                    self._serial(value)
                else:
                    self._learn_answer(value)
        elif isinstance(answer, (list, tuple)):
            for value in answer:
                self._learn_answer(value)
        elif isinstance(answer, str):
            self._learn_text(answer, mounts=False)

    def _learn_text(self, text: str, *, mounts: bool) -> None:
        if len(text) < 5:
            return
        for match in _HOME.finditer(text):
            self._user(match[1])
        for match in _USER.finditer(text):
            self._user(match[1])
        for match in _SHORT_UUID.finditer(text):
            self._serial(match[1])
        if "erial" in text or "ERIAL" in text:
            for match in _SERIAL.finditer(text):
                if not re.fullmatch(r"[0-9a-f]{2}([:-][0-9a-f]{2})+", match[1]):
                    self._serial(match[1])
        if mounts:
            for match in _NFS_HOST.finditer(text):
                self.host(match[1])
        for match in _NETWORK.finditer(text):
            self._learn_network(match[1], match[2])

    def _learn_vpd(self, content: bytes) -> None:
        """The SN field of Vital Product Data: keyword, one length byte, text (PCI 3.0, appendix I)."""
        for match in re.finditer(rb"SN(.)", content, re.DOTALL):
            value = content[match.end() : match.end() + match[1][0]].decode("latin-1").strip("\0 ")
            if re.fullmatch(r"[ -~]{4,64}", value):
                self._serial(value)

    def _learn_network(self, address: str, length: str) -> None:
        try:
            self._networks.add(ipaddress.IPv4Network(f"{address}/{length}", strict=False))
            self._addresses.add(int(ipaddress.IPv4Address(address)))
        except ValueError:
            return

    def _learn_route(self, address: int, mask: int) -> int:
        if address:
            self._addresses.add(address)
            length = mask.bit_count()
            if length and not address & ~mask & 0xFFFFFFFF:
                self._networks.add(ipaddress.IPv4Network((address, length)))
        return address

    def _route(self, address: int, _mask: int) -> int:
        return self._ip4(address)

    def _token(self, match: re.Match[str]) -> str:
        kind = match.lastgroup or ""
        if kind == "length":
            kind = "ip4"
        value = match[kind]
        replaced = self._of(kind, value, match)
        if replaced == value:
            return match[0]
        start = match.start(kind) - match.start()
        return match[0][:start] + replaced + match[0][start + len(value) :]

    def _of(self, kind: str, value: str, match: re.Match[str]) -> str:
        if kind == "word":
            return self._word(value)
        if kind == "literal":
            return self._literals[value.lower()]
        if kind == "nqn":
            if value.endswith(".discovery"):
                return value
            return self._give("nqn", value, "nqn.2014-08.org.nvmexpress:redacted:{}")
        if kind == "ip4":
            return self._quad(value, match)
        if kind == "ip6":
            return self._ip6_text(value)
        if kind == "nvme":
            serial = bytes.fromhex(value).decode("latin-1")
            return self._serial(serial.strip("\0 ")).encode("latin-1").hex() if serial.strip("\0 ") else value
        digits = re.sub(r"[^0-9a-f]", "", value.lower())
        if len(digits) == 40:  # IPoIB: flags and queue pair, then the port's GID (RFC 4391)
            return _reshaped(value, digits[:8] + f"{self._ip6(int(digits[8:], 16)):032x}")
        return _reshaped(value, self._hex(digits))

    def _word(self, word: str) -> str:
        lower = word.lower()
        token = self._literals.get(lower)
        if token is not None:
            return token
        for prefix in ("0x", "enx", ""):
            if lower.startswith(prefix) and len(lower) - len(prefix) in (12, 16, 32):
                digits = lower[len(prefix) :]
                if digits in self._hexes or (prefix == "enx" and re.fullmatch(r"[0-9a-f]{12}", digits)):
                    return word[: len(prefix)] + self._hex(digits)
        return word

    def _hex(self, digits: str) -> str:
        """The pseudonym of a MAC (12 digits), GUID or EUI-64 (16), UUID or NGUID (32). A GUID made of a MAC still is."""
        known = self._hexes.get(digits)
        if known is not None:
            return known
        if len(set(digits)) == 1 or len(digits) not in (12, 16, 32):
            return digits
        if len(digits) == 12:
            if int(digits[1], 16) & 1:  # multicast and broadcast
                return digits
            token = self._give("mac", digits, "0200{:08x}")
        elif len(digits) == 16 and digits[6:10] == "fffe":  # modified EUI-64, RFC 4291 appendix A
            mac = self._hex(_toggled(digits[:6] + digits[10:]))
            token = _toggled(mac[:6] + "fffe" + mac[6:])
        elif len(digits) == 16 and digits[6:10] == "0300":  # so do Mellanox adapters make theirs
            mac = self._hex(digits[:6] + digits[10:])
            token = mac[:6] + "0300" + mac[6:]
        elif len(digits) == 16:
            token = self._give("guid", digits, "02000000{:08x}")
        else:
            token = self._give("uuid", digits, "00000000000040008{:015x}")
        self._hexes[digits] = token
        return token

    def _quad(self, text: str, match: re.Match[str]) -> str:
        try:
            address = int(ipaddress.IPv4Address(text))
        except ValueError:
            return text
        before = match.string[max(0, match.start() - 24) : match.start()]
        private = address >> 24 == 10 or kept_bits(address) in (10, 12) or address >> 16 in (0xA9FE, 0xC0A8)
        if _VERSION_BEFORE.search(before) or (before.endswith("-") and not (private or _RANGE_BEFORE.search(before))):
            return text
        after = match.string[match.end("ip4") : match.end("ip4") + 2]
        if address not in self._addresses:
            told = after[:1] == ":" or match["length"] or _ADDRESS_BEFORE.search(before)
            if not (private or told or address >> 24 >= _VERSION_LIKE_UNTIL):
                return text
            self._addresses.add(address)
        if match["length"] and self._mapping4 is None:
            length = match["length"][1:]
            if int(length) <= 32 and not address & ((1 << (32 - int(length))) - 1):
                self._learn_network(text, length)
        return str(ipaddress.IPv4Address(self._ip4(address)))

    def _ip4(self, address: int) -> int:
        self._addresses.add(address)
        return self._mapping4(address) if self._mapping4 else address

    def _ip6_text(self, text: str) -> str:
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            return text
        mapped = ipaddress.IPv6Address(self._ip6(int(address)))
        if mapped == address:
            return text
        if address.ipv4_mapped and "." in text:
            return f"{text[: text.rindex(':')]}:{ipaddress.IPv4Address(int(mapped) & 0xFFFFFFFF)}"
        return mapped.exploded if text.lower() == address.exploded else mapped.compressed

    def _ip6(self, value: int) -> int:
        upper, lower = value >> 64, value & 0xFFFFFFFFFFFFFFFF
        if upper == 0:
            if lower >> 32 == 0xFFFF:  # IPv4-mapped: the GIDs of RoCE
                return 0xFFFF00000000 | self._ip4(lower & 0xFFFFFFFF)
            return value
        if upper >> 56 == 0xFF:  # multicast
            return value
        network = self._mapping6.network(upper)
        digits = f"{lower:016x}"
        if network == upper or lower >> 32 or digits in self._hexes:
            lower = int(self._hex(digits), 16)
        return network << 64 | lower

    def _config(self, content: bytes) -> bytes:
        """Configuration space with another Device Serial Number (PCIe 7.9.3: extended capability 3, eight bytes)."""
        at = 0x100
        for _ in range(1024):
            header = int.from_bytes(content[at : at + 4], "little")
            if header & 0xFFFF == 3 and at + 12 <= len(content):
                token = bytes.fromhex(self._hex(content[at + 4 : at + 12][::-1].hex()))[::-1]
                content = content[: at + 4] + token + content[at + 12 :]
            at = header >> 20
            if at < 0x100:
                break
        return content


@functools.cache
def _vocabulary() -> frozenset[str]:
    """Words that programs mean something by: filesystems, keys of cufile.json, folders of every machine."""
    words = {part for key in cufile_keys() for part in key.key.split(".")}
    folders = [
        "boot",
        "cufile",
        "export",
        "exports",
        "modules",
        "nfsd",
        "proc",
        "root",
        "scratch",
        "share",
        "shares",
        "srv",
        "vast",
        "volume",
        "volumes",
        "weka",
        "work",
    ]
    return frozenset((*words, *fstypes(), *folders))


def _compiled(literals: Iterable[str]) -> re.Pattern[str]:
    ordered = sorted(literals, key=lambda literal: (-len(literal), literal))
    pattern = _PATTERN.replace("LITERALS", "|".join(map(re.escape, ordered)) or r"(?!)")
    return re.compile(pattern, re.ASCII | re.IGNORECASE | re.VERBOSE)


def _secret_file(path: str) -> SecretFile | None:
    row = secret_files().get(path.rpartition("/")[2])
    return row if row is not None and path.endswith("/" + row.match) else None


def _routes(text: str, function: Callable[[int, int], int]) -> str:
    """/proc/net/route with its destination and gateway columns (hexadecimal, bytes swapped) through a function."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        cells = line.split("\t")
        try:
            destination, gateway, mask = (_swapped(int(cells[column], 16)) for column in (1, 2, 7))
        except (IndexError, ValueError, OverflowError):
            continue
        cells[1] = f"{_swapped(function(destination, mask)):08X}"
        cells[2] = f"{_swapped(function(gateway, 0xFFFFFFFF)):08X}"
        lines[number] = "\t".join(cells)
    return "\n".join(lines)


def _swapped(word: int) -> int:
    return int.from_bytes(word.to_bytes(4, "little"), "big")


def _toggled(digits: str) -> str:
    """The universal/local bit turned over."""
    return f"{int(digits[:2], 16) ^ 2:02x}" + digits[2:]


def _reshaped(text: str, digits: str) -> str:
    """Other hexadecimal digits in the same form: separators stay where they are."""
    fresh = iter(digits)
    return re.sub(r"[0-9A-Fa-f]", lambda _: next(fresh), text)
