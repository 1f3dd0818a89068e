"""Files of modprobe.d. Grammar: modprobe.d(5) and kmod, libkmod/libkmod-config.c."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gdsctl.record import Record, Warned


class ModuleOption(Record, frozen=True, kw_only=True):
    """One option. `module` with underscores; `value` None: a bare flag; quotes are taken off."""

    module: str
    name: str
    value: str | None
    line: int


class ModuleCommand(Record, frozen=True, kw_only=True):
    """`command`: what `install`, `remove` or `softdep` run or name; "" for `blacklist`."""

    module: str
    command: str = ""
    line: int


class ModprobeFile(Record, frozen=True, kw_only=True):
    options: tuple[ModuleOption, ...] = ()
    blacklist: tuple[ModuleCommand, ...] = ()
    install: tuple[ModuleCommand, ...] = ()
    softdep: tuple[ModuleCommand, ...] = ()
    warnings: tuple[Warned, ...] = ()


class Setting(Record, frozen=True, kw_only=True):
    """An option in force, and where it stands."""

    value: str | None
    path: str
    line: int


class MergedOptions(Record, frozen=True, kw_only=True):
    """`options`: module -> option -> the setting that wins (the last). `overridden`: the settings that lost.

    `files`: paths in the order modprobe reads them; `shadowed`: left out, because an earlier folder has the name.
    """

    options: dict[str, dict[str, Setting]]
    overridden: tuple[tuple[str, str, Setting], ...] = ()
    files: tuple[str, ...] = ()
    shadowed: tuple[str, ...] = ()


# Order of kmod's default configuration folders, first wins; modprobe.d(5).
FOLDERS = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
_TOKEN = re.compile(r'(?:[^\s"]+|"[^"]*(?:"|\Z))+')
_OTHERS = frozenset({"alias", "remove", "weakdep", "config", "include"})


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    r"""Lines with `\` continuations joined, each with the number of its first line."""
    parts: list[str] = []
    first = 1
    for number, line in enumerate(text.split("\n"), 1):
        if not parts:
            first = number
        parts.append(line.rstrip("\r"))
        if parts[-1].endswith("\\"):
            parts[-1] = parts[-1][:-1]
            continue
        yield first, "".join(parts)
        parts = []
    if parts:
        yield first, "".join(parts)


def _option(module: str, token: str, line: int) -> ModuleOption:
    if token.startswith('"'):
        token = token[1:].removesuffix('"')
    name, equals, value = token.partition("=")
    if value.startswith('"'):
        value = value[1:].removesuffix('"')
    return ModuleOption(module=module, name=name.replace("-", "_"), value=value if equals else None, line=line)


def parse(text: str) -> ModprobeFile:
    """One file. Lines that are no command of modprobe go to `warnings`."""
    options: list[ModuleOption] = []
    commands: dict[str, list[ModuleCommand]] = {"blacklist": [], "install": [], "softdep": []}
    warnings: list[Warned] = []
    for number, line in _logical_lines(text):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        words = stripped.split(None, 2)
        verb, module, rest = words[0], words[1] if len(words) > 1 else "", words[2] if len(words) > 2 else ""
        module = module.replace("-", "_")
        if verb == "options" and module and rest:
            options += [_option(module, match[0], number) for match in _TOKEN.finditer(rest)]
            if rest.count('"') % 2:
                warnings.append(Warned(line=number, message="a quote is not closed"))
        elif verb in commands and module:
            commands[verb].append(ModuleCommand(module=module, command=rest, line=number))
        elif verb not in _OTHERS:
            warnings.append(Warned(line=number, message="not a command of modprobe.d"))
    return ModprobeFile(
        options=tuple(options),
        blacklist=tuple(commands["blacklist"]),
        install=tuple(commands["install"]),
        softdep=tuple(commands["softdep"]),
        warnings=tuple(warnings),
    )


def in_force(paths: Iterable[str]) -> tuple[str, ...]:
    """The `.conf` files that modprobe reads, in its order: by name over all folders, an earlier folder's first."""
    chosen: dict[str, tuple[int, str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder in FOLDERS and name.endswith(".conf"):
            chosen[name] = min(chosen.get(name, (len(FOLDERS), "")), (FOLDERS.index(folder), path))
    return tuple(chosen[name][1] for name in sorted(chosen))


def merge_options(files: Iterable[tuple[str, str]]) -> MergedOptions:
    """The options of (path, text) pairs given in any order, as the next load of each module would get them."""
    texts = dict(files)
    order = in_force(texts)
    options: dict[str, dict[str, Setting]] = {}
    overridden: list[tuple[str, str, Setting]] = []
    for path in order:
        for option in parse(texts[path]).options:
            settings = options.setdefault(option.module, {})
            if option.name in settings:
                overridden.append((option.module, option.name, settings[option.name]))
            settings[option.name] = Setting(value=option.value, path=path, line=option.line)
    return MergedOptions(
        options=options,
        overridden=tuple(overridden),
        files=order,
        shadowed=tuple(path for path in texts if path not in order),
    )
