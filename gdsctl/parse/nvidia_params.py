"""/proc/driver/nvidia/params: the options the loaded NVIDIA driver runs with, registry keys included."""

from __future__ import annotations

import re

from gdsctl.errors import InputError
from gdsctl.parse import pasted, terminal
from gdsctl.record import Record, Warned


class NvidiaParams(Record, frozen=True, kw_only=True):
    """`params`: values as printed, without quotes. `registry_dwords`: key -> value as written, decimal or 0x.

    `registry_dwords_per_device`: what follows each `pci=` of RegistryDwordsPerDevice, by the address as written.
    """

    params: dict[str, str]
    registry_dwords: dict[str, str]
    registry_dwords_per_device: dict[str, dict[str, str]] = {}
    truncated: bool = False
    warnings: tuple[Warned, ...] = ()


_PARAM = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]{0,63})\s*:(?:[ \t]+(.*))?", re.ASCII)
_QUOTES = "\"'\u201c\u201d"
_BLANKS = re.compile(r"\s+")


def _pairs(text: str) -> list[tuple[str, str]]:
    """The driver drops blanks, takes `;` between pairs, and passes over what is not `key=value`."""
    tokens = (token.strip(_QUOTES) for token in _BLANKS.sub("", text).strip(_QUOTES).split(";"))
    split = (token.split("=") for token in tokens)
    return [(pair[0], pair[1]) for pair in split if len(pair) == 2 and all(pair)]


def parse_registry_dwords(text: str) -> dict[str, str]:
    """`"A=1;B=0x2;"` -> {"A": "1", "B": "0x2"}; the last of a repeated key holds. Case of keys is kept."""
    return dict(_pairs(text))


def parse_registry_dwords_per_device(text: str) -> dict[str, dict[str, str]]:
    """`"pci=0000:3b:00.0;A=1;pci=..."` -> {address: {key: value}}; keys before the first `pci=` belong to no device."""
    devices: dict[str, dict[str, str]] = {}
    keys: dict[str, str] = {}
    for key, value in _pairs(text):
        if key == "pci":
            keys = devices.setdefault(value, {})
        else:
            keys[key] = value
    return devices


def _unquoted(value: str) -> str | None:
    """None: the closing quote is missing."""
    if value[:1] in ('"', "\u201c"):
        return value[1:-1] if len(value) > 1 and value[-1] in '"\u201d' else None
    return value


def parse(text: str) -> NvidiaParams:
    """Raises InputError where no line is `Name: value`."""
    params: dict[str, str] = {}
    warnings: list[Warned] = []
    open_name, open_parts, open_line = "", [""], 0
    truncated = False
    for number, line in enumerate(pasted.lines(text), 1):
        stripped = line.strip()
        if not stripped or terminal.is_chrome(line):
            continue
        if open_name and _PARAM.fullmatch(line) is None:
            open_parts.append(stripped)
            if stripped[-1] in '"\u201d':
                params[open_name], open_name = "".join(open_parts), ""
            continue
        if open_name:
            warnings.append(Warned(line=open_line, message=f"{open_name} has no closing quote"))
            open_name = ""
        match = _PARAM.fullmatch(line)
        truncated = match is None
        if match is None:
            warnings.append(Warned(line=number, message="not `Name: value`"))
            continue
        written = (match[2] or "").strip()
        value = _unquoted(written)
        if value is None:
            open_name, open_parts, open_line = match[1], [written[1:]], number
        else:
            params[match[1]] = value
    if open_name:
        truncated = True
        warnings.append(Warned(line=open_line, message=f"{open_name} has no closing quote"))
    if not params:
        raise InputError("not the text of /proc/driver/nvidia/params", line=1)
    params = {
        name: value.rstrip('"\u201d') if name.startswith("RegistryDwords") else value for name, value in params.items()
    }
    return NvidiaParams(
        params=params,
        registry_dwords=parse_registry_dwords(params.get("RegistryDwords", "")),
        registry_dwords_per_device=parse_registry_dwords_per_device(params.get("RegistryDwordsPerDevice", "")),
        truncated=truncated,
        warnings=tuple(warnings),
    )
