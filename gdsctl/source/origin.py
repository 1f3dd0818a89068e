"""Which machine each of several pasted texts is of: everything in them that tells one machine, boot or kernel from another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gdsctl.record import Record

_HEX = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_BUS = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
# Of one machine alone: where two texts differ, they are of two.
_LASTING = ("machine-id", "DMI UUID", "serial number", "host name", "GPU UUIDs")
_FILES = {
    "/etc/machine-id": "machine-id",
    "/var/lib/dbus/machine-id": "machine-id",
    "/sys/class/dmi/id/product_uuid": "DMI UUID",
    "/sys/class/dmi/id/product_serial": "serial number",
    "/sys/devices/virtual/dmi/id/product_uuid": "DMI UUID",
    "/sys/devices/virtual/dmi/id/product_serial": "serial number",
    "/proc/sys/kernel/random/boot_id": "boot id",
    "/proc/sys/kernel/osrelease": "kernel release",
    "/proc/sys/kernel/hostname": "host name",
    "/etc/hostname": "host name",
}
_RELEASE = r"\d+\.\d+[\w.+~-]*"
_TEXTS = (
    ("host name", r"^Linux (\S+) \d+\.\d+\S* #\d"),  # uname -a
    ("kernel release", rf"^Linux \S+ ({_RELEASE}) #\d"),
    ("host name", r"^\s*Static hostname: (\S+)$"),  # hostnamectl
    ("machine-id", r"^\s*Machine ID: ([0-9a-f]{32})$"),
    ("boot id", r"^\s*Boot ID: ([0-9a-f]{32})$"),
    ("host name", r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (\S+) kernel:"),  # journalctl -k, syslog
    ("kernel release", rf"\bLinux version ({_RELEASE}) "),  # dmesg, /proc/version
    ("kernel release", rf"\bBOOT_IMAGE=\S*/vmlinuz-({_RELEASE})"),
    ("kernel release", rf"\bArch: \w+\(Linux ({_RELEASE})\)"),  # gdscheck
    ("DMI UUID", rf"^System Information\n(?:\s.*\n){{0,8}}?\s+UUID: ({_HEX})$"),  # dmidecode
    ("serial number", r"^System Information\n(?:\s.*\n){0,8}?\s+Serial Number: (\S+)$"),
    ("host of the prompt", r"^\[?[a-z_][\w-]*@([\w.-]+)[: ][^\n$#]{0,100}[$#] "),
    ("GPU UUIDs", rf"\bGPU-({_HEX})\b"),
)
_PATTERNS = tuple((kind, re.compile(text, re.MULTILINE | re.IGNORECASE)) for kind, text in _TEXTS)
_LSPCI = re.compile(rf"^({_BUS}) \S", re.MULTILINE | re.IGNORECASE)
_NAMED = re.compile(rf"(?:^GPU |\bbusid=\"|\bBus Id\s*: )({_BUS})", re.MULTILINE | re.IGNORECASE)
_MEANS_NOTHING = frozenset(
    ("localhost", "(none)", "none", "unknown", "not specified", "default string", "to be filled by o.e.m.", "n/a", "0")
)
_CONTAINER = re.compile(r"[0-9a-f]{12}")  # Docker's default name of a container
_LOOKED_AT = 1 << 20  # characters of each text: who it is of stands in lines that come early or often
_MOST = 4096


class Contradiction(Record, frozen=True, kw_only=True):
    """Two texts that name different values. `certain`: they are of two machines, and not of one before and after a change."""

    kind: str
    first: str
    first_value: str
    other: str
    other_value: str
    certain: bool

    @property
    def said(self) -> str:
        """One sentence."""
        whose = "are of different machines" if self.certain else "may be of different machines, or of one at two times"
        return f"{self.first} and {self.other} {whose}: {self.kind} {self.first_value} and {self.other_value}"


def contradictions(texts: Mapping[str, tuple[str, str]]) -> tuple[Contradiction, ...]:
    """`texts`: path or command's name -> (what to call it, its text). The first of each kind, those that are certain first."""
    seen: dict[str, dict[str, set[str]]] = {}
    listed: dict[str, set[str]] = {}
    named: dict[str, set[str]] = {}
    for path, (label, text) in texts.items():
        head = text[:_LOOKED_AT]
        for kind, value in _told(path, head):
            values = seen.setdefault(kind, {}).setdefault(label, set())
            if len(values) < _MOST:
                values.add(value)
        if path == "lspci":
            listed[label] = {_full(address) for address in _LSPCI.findall(text)}
        else:
            found = {_full(address) for address in _NAMED.findall(head)}
            named |= {label: found} if found else {}
    found_ones = [one for kind, by_label in seen.items() for one in _differing(kind, by_label)]
    for label, addresses in listed.items():
        for other, wanted in named.items():
            if label != other and addresses and wanted - addresses:
                shown = ", ".join(sorted(wanted - addresses)[:3])
                found_ones.append(
                    Contradiction(
                        kind="PCI addresses",
                        first=label,
                        first_value="without",
                        other=other,
                        other_value=shown,
                        certain=not wanted & addresses,
                    )
                )
    return tuple(sorted(found_ones, key=lambda one: not one.certain))


def _told(path: str, text: str) -> Iterator[tuple[str, str]]:
    kind = _FILES.get(path)
    if kind is not None:
        yield from _plain(kind, text.strip("\0 \n\t"))
        return
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            yield from _plain(kind, match[1])


def _plain(kind: str, value: str) -> Iterator[tuple[str, str]]:
    value = value.lower()
    if kind in ("host name", "host of the prompt"):
        value = value.partition(".")[0]
        if _CONTAINER.fullmatch(value):
            return
    elif kind in ("machine-id", "boot id", "DMI UUID", "GPU UUIDs"):
        value = value.replace("-", "")
    if value and value not in _MEANS_NOTHING and len(set(value)) > 1:
        yield kind, value


def _differing(kind: str, by_label: dict[str, set[str]]) -> Iterator[Contradiction]:
    """A text may show some of the GPUs; of all else it shows the one value."""
    (first, values), *others = by_label.items()
    for other, found in others:
        if not values & found:
            yield Contradiction(
                kind=kind,
                first=first,
                first_value=min(values),
                other=other,
                other_value=min(found),
                certain=kind in _LASTING,
            )
            return


def _full(address: str) -> str:
    """With a domain of four digits, as lspci -D has it."""
    *domain, bus, rest = address.lower().split(":")
    return f"{int(domain[0], 16) if domain else 0:04x}:{bus}:{rest}"
