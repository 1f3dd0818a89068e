"""/proc/cmdline, as the kernel reads it: Linux, lib/cmdline.c next_arg() and Documentation/admin-guide/kernel-parameters."""

from __future__ import annotations

import itertools
import re

from gdsctl.errors import InputError
from gdsctl.parse import pasted, terminal
from gdsctl.record import Record, Warned


class Parameter(Record, frozen=True, kw_only=True):
    """`value` None: a bare flag; quotes are taken off."""

    name: str
    value: str | None = None


class IommuParameters(Record, frozen=True, kw_only=True):
    """Values as written, the last of each; None: not given, which does not mean off. `passthrough`, `strict`: of `iommu.`"""

    intel_iommu: str | None = None
    amd_iommu: str | None = None
    iommu: str | None = None
    passthrough: str | None = None
    strict: str | None = None


class PciParameters(Record, frozen=True, kw_only=True):
    """Options of all `pci=`. `disable_acs_redir`, `config_acs`: entries of the last one given, split at `;`."""

    options: tuple[str, ...] = ()
    disable_acs_redir: tuple[str, ...] = ()
    config_acs: tuple[str, ...] = ()


class Cmdline(Record, frozen=True, kw_only=True):
    """`parameters`: all, repeated ones too, in order; `init_arguments`: what follows ` -- ` and is not the kernel's."""

    parameters: tuple[Parameter, ...]
    iommu: IommuParameters
    pci: PciParameters
    init_arguments: tuple[str, ...] = ()
    truncated: bool = False
    warnings: tuple[Warned, ...] = ()


_PREFIX = re.compile(r"^.{0,200}?(?:Kernel c|C)ommand line: ")
_NAME = re.compile(r"[A-Za-z_][\w.:-]*", re.ASCII)
_BARE = frozenset({"ro", "rw", "quiet", "splash", "debug", "nokaslr", "nosmp", "single"})
_TOKEN = re.compile(r'(?:[^\s"]+|"[^"]*(?:"|\Z))+', re.ASCII)


def _parameter(token: str) -> Parameter:
    if token.startswith('"'):
        token = token[1:].removesuffix('"')
    name, equals, value = token.partition("=")
    if not equals:
        return Parameter(name=token)
    if value.startswith('"'):
        value = value[1:].removesuffix('"')
    return Parameter(name=name, value=value)


def _unwrapped(lines: list[tuple[int, str]], warnings: list[Warned]) -> str:
    """One line from several. Lines of one length were broken by a terminal; other breaks are taken as blanks."""
    if len(lines) < 2:
        return lines[0][1] if lines else ""
    bodies = [line for _, line in lines]
    width = len(bodies[0])
    if width >= 40 and all(len(body) == width for body in bodies[:-1]) and len(bodies[-1]) <= width:
        return "".join(bodies)
    warnings.extend(
        Warned(line=number, message="line break taken as a blank")
        for (_, before), (number, after) in itertools.pairwise(lines)
        if not before.endswith(" ") and not after.startswith(" ")
    )
    return " ".join(bodies)


def parse(text: str) -> Cmdline:
    """An empty text is an empty command line. `-` and `_` in names mean the same; names are kept as written."""
    warnings: list[Warned] = []
    kept = [
        (number, _PREFIX.sub("", line))
        for number, line in enumerate(pasted.lines(text.replace("\0", " ")), 1)
        if line.strip() and not terminal.is_chrome(line)
    ]
    joined = _unwrapped(kept, warnings).rstrip()
    tokens = [match[0] for match in _TOKEN.finditer(joined)]
    own, rest = (tokens[: tokens.index("--")], tokens[tokens.index("--") + 1 :]) if "--" in tokens else (tokens, [])
    parameters = tuple(_parameter(token) for token in own)
    named = sum(_NAME.fullmatch(parameter.name) is not None for parameter in parameters)
    if tokens and (
        named * 2 < len(parameters)
        or not any(parameter.value is not None or parameter.name in _BARE for parameter in parameters)
    ):
        raise InputError("not a kernel command line", line=kept[0][0])

    last = {p.name.replace("-", "_"): p.value for p in parameters}
    pci = [option for p in parameters if p.name == "pci" and p.value for option in p.value.split(",") if option]
    keyed = dict(option.split("=", 1) for option in pci if "=" in option)
    truncated = joined.count('"') % 2 == 1 or joined.endswith(("...", "\u2026"))
    if truncated:
        warnings.append(Warned(line=kept[-1][0], message="the end is missing: its last parameter is not whole"))
        parameters = parameters if rest else parameters[:-1]
    return Cmdline(
        parameters=parameters,
        iommu=IommuParameters(
            intel_iommu=last.get("intel_iommu"),
            amd_iommu=last.get("amd_iommu"),
            iommu=last.get("iommu"),
            passthrough=last.get("iommu.passthrough"),
            strict=last.get("iommu.strict"),
        ),
        pci=PciParameters(
            options=tuple(pci),
            disable_acs_redir=tuple(entry for entry in keyed.get("disable_acs_redir", "").split(";") if entry),
            config_acs=tuple(entry for entry in keyed.get("config_acs", "").split(";") if entry),
        ),
        init_arguments=tuple(rest),
        truncated=truncated,
        warnings=tuple(warnings),
    )
