"""Dockerfiles as the programs that their images start (docs.docker.com/reference/dockerfile)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from gdsctl.errors import InputError
from gdsctl.kvcache.json_text import json_value
from gdsctl.kvcache.launch import Container, Place, Word
from gdsctl.kvcache.yaml_documents import as_yaml, documents
from gdsctl.record import Record

_NAME = re.compile(r"(?:.*[/.])?(?:Dockerfile|Containerfile)(?:\.[\w.-]+)?", re.IGNORECASE)
_FIRST = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\n|[ \t]*ARG[ \t][^\n]*\n)*[ \t]*FROM[ \t]+(?:--platform=\S+[ \t]+)?[^\s:]+(?::\S*)?"
    r"(?:[ \t]+[Aa][Ss][ \t]+\S+)?[ \t]*(?:\r?\n|\Z)"
)
_ESCAPE = re.compile(r"(?:[ \t]*#[ \t]*\w+[ \t]*=[^\n]*\n)*?[ \t]*#[ \t]*escape[ \t]*=[ \t]*`", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_KEYWORD = re.compile(r"\s*(?:ONBUILD\s+)?([A-Za-z]+)(?:\s+|\Z)")
_PAIR = re.compile(r"([A-Za-z_][\w.-]*)=((?:\"(?:\\[\s\S]|[^\"\\])*\"|'[^']*'|\\[\s\S]|[^\s\"'\\])*)")
_PIECE = re.compile(r"\"((?:\\[\s\S]|[^\"\\])*)\"|'([^']*)'|(\\[\s\S])|([^\"'\\]+)|(.)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::?([-+])([^{}]*))?\}|\$([A-Za-z_]\w*)")
_TARGET = re.compile(r">\s*(/\S+)")
_MOST_INSTRUCTIONS = 10_000
_LONGEST = 1 << 16
_MOST_GROWTH = 1 << 20  # characters that variables may add to one file; a reference beyond stays as written


class Stage(Record, frozen=True, kw_only=True):
    """A stage of a build, upon the one that it starts from. `image`: the one that all of it starts from.

    `entrypoint`, `command`: words, of the shell's form `/bin/sh -c TEXT`, None: not set. `files`: path in the image -> a text
    that the Dockerfile holds itself; `copies`: path in the image -> source in the build's context.
    """

    name: str
    image: str
    line: int
    env: dict[str, Word] = {}
    entrypoint: tuple[Word, ...] | None = None
    command: tuple[Word, ...] | None = None
    shell: bool = False
    files: dict[str, Word] = {}
    copies: dict[str, str] = {}

    def words(self) -> list[Word]:
        """What a container of it starts; the shell's form of an ENTRYPOINT takes no CMD."""
        return [*(self.entrypoint or ()), *(() if self.shell else self.command or ())]


def is_dockerfile(text: str, name: str) -> bool:
    return _FIRST.match(text) is not None or (_NAME.fullmatch(name) is not None and "FROM" in text.upper())


def stages(text: str) -> tuple[Stage, ...]:
    """All of a Dockerfile's stages, in order. Raises InputError (line) for one that has none."""
    build = _Build()
    for count, (line, instruction, heredocs) in enumerate(_instructions(text)):
        if count > _MOST_INSTRUCTIONS:
            raise InputError(f"more than {_MOST_INSTRUCTIONS} instructions", line=line)
        build.take(line, instruction, heredocs)
    if not build.stages:
        raise InputError("not a Dockerfile: no FROM", line=1)
    return tuple(build.stages.values())


def leaves(text: str) -> tuple[Stage, ...]:
    """The stages that no other starts from: an image each, by --target or, the last, by default."""
    every, bases = stages(text), _bases(text)
    return tuple(stage for stage in every if stage.name not in bases) or every[-1:]


def _bases(text: str) -> frozenset[str]:
    found = set()
    for _, instruction, _ in _instructions(text):
        match = _KEYWORD.match(instruction)
        if match and match[1].upper() == "FROM":
            words = [word for word in instruction[match.end() :].split() if not word.startswith("--")]
            found.update(words[:1])
    return frozenset(found)


def _instructions(text: str) -> Iterator[tuple[int, str, tuple[Word, ...]]]:
    """(line, text, here-documents). A continued line keeps its backslash and newline; a comment in between becomes an empty one."""
    escape = "`" if _ESCAPE.match(text[:2000]) else "\\"
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        first = lines[at].strip()
        if not first or first.startswith("#"):
            at += 1
            continue
        start, goes_on = at + 1, True
        parts: list[str] = []
        while goes_on and at < len(lines):
            line = lines[at].rstrip()
            comment = bool(parts) and (not line.strip() or line.lstrip().startswith("#"))
            goes_on = comment or line.endswith(escape)
            parts.append("" if comment else line[:-1] if goes_on else line)
            at += 1
        instruction = "\\\n".join(parts)
        heredocs = []
        for match in (
            _HEREDOC.finditer(instruction[:_LONGEST]) if re.match(r"(?i)\s*(RUN|COPY|ADD)\s", instruction) else ()
        ):
            body, begins = [], at + 1
            while at < len(lines) and lines[at].strip() != match[2]:
                body.append(lines[at])
                at += 1
            at += 1
            heredocs.append(Word(text="\n".join(body), line=begins))
        yield start, instruction, tuple(heredocs)


class _Build:
    def __init__(self) -> None:
        self.stages: dict[str, Stage] = {}
        self.now = ""
        self.outer: dict[str, str] = {}  # ARGs before the first FROM
        self.args: dict[str, str] = {}
        self.growth = 0

    def take(self, line: int, instruction: str, heredocs: tuple[Word, ...]) -> None:
        match = _KEYWORD.match(instruction)
        if match is None:
            return
        rest, keyword = instruction[match.end() :][:_LONGEST], match[1].upper()
        line += instruction.count("\n", 0, match.end())
        if keyword == "FROM":
            self._from(line, rest)
        elif keyword == "ARG":
            for name, value, _ in self._pairs(rest, line, bare=True):
                holder = self.args if self.stages else self.outer
                if value is not None:
                    holder[name] = value
                elif self.stages and name in self.outer:
                    holder[name] = self.outer[name]
        elif self.stages:
            self._within(keyword, line, rest, heredocs)

    def _from(self, line: int, rest: str) -> None:
        words = [word for word in rest.replace("\\\n", " ").split() if not word.startswith("--")]
        image = self._filled(words[0], self.outer) if words else ""
        name = words[2] if len(words) > 2 and words[1].upper() == "AS" else str(len(self.stages))
        base = self.stages.get(image)
        self.args = {}
        self.now = name
        self.stages[name] = Stage(
            name=name,
            line=line,
            image=base.image if base is not None else image,
            env=dict(base.env) if base is not None else {},
            entrypoint=base.entrypoint if base is not None else None,
            command=base.command if base is not None else None,
            shell=base is not None and base.shell,
            files=dict(base.files) if base is not None else {},
            copies=dict(base.copies) if base is not None else {},
        )

    def _within(self, keyword: str, line: int, rest: str, heredocs: tuple[Word, ...]) -> None:
        stage = self.stages[self.now]
        if keyword == "ENV":
            stage.env.update((n, Word(text=v, line=at)) for n, v, at in self._pairs(rest, line) if v is not None)
        elif keyword in ("CMD", "ENTRYPOINT"):
            listed = _listed(rest, line)
            shell = [Word(text="/bin/sh", line=line), Word(text="-c", line=line), Word(text=rest, line=line)]
            words = tuple(shell if listed is None else listed)
            facts: dict[str, object] = (
                {"command": words} if keyword == "CMD" else {"entrypoint": words, "shell": listed is None}
            )
            if keyword == "ENTRYPOINT" and not any(w.line >= stage.line for w in stage.command or ()):
                facts["command"] = None  # what the image below it would have been told
            self._replace(stage, facts)
        elif keyword in ("COPY", "ADD"):
            words_of = [word for word in rest.replace("\\\n", " ").split() if not word.startswith("--")]
            if len(words_of) == 2 and heredocs:
                stage.files[words_of[1].strip('"')] = heredocs[0]
            elif len(words_of) >= 2:
                for source in words_of[:-1]:
                    end = words_of[-1].strip('"')
                    path = end.rstrip("/") + "/" + source.rpartition("/")[2] if end.endswith("/") else end
                    stage.copies[path] = source
        elif keyword == "RUN" and heredocs:
            target = _TARGET.search(rest)
            if target is not None:
                stage.files[target[1]] = heredocs[0]

    def _replace(self, stage: Stage, facts: Mapping[str, object]) -> None:
        self.stages[self.now] = msgspec.structs.replace(stage, **facts)

    def _pairs(self, rest: str, line: int, *, bare: bool = False) -> Iterator[tuple[str, str | None, int]]:
        """(name, value, line) of `NAME=value ...`, of ENV's old form `NAME value`, and of ARG's `NAME`."""
        joined = rest.replace("\\\n", "\n")
        if not re.match(r"[\w.-]+=", joined):
            name, _, value = joined.strip().partition("\n" if bare else " ")
            if re.fullmatch(r"[A-Za-z_][\w.-]*", name):
                yield name, None if bare else self._filled(value.strip(), self._known()), line
            return
        for match in _PAIR.finditer(joined):
            value = "".join(self._piece(piece) for piece in _PIECE.finditer(match[2]))
            yield match[1], value, line + joined.count("\n", 0, match.start())

    def _piece(self, piece: re.Match[str]) -> str:
        if piece[2] is not None:
            return piece[2]
        if piece[3] is not None:
            return piece[3][1:]
        text = piece[1] if piece[1] is not None else piece[4] or piece[5] or ""
        if piece[1] is not None:
            text = re.sub(r"\\([\"\\])", r"\1", text)
        return self._filled(text, self._known())

    def _known(self) -> dict[str, str]:
        env = self.stages[self.now].env if self.stages else {}
        return {**(self.args if self.stages else self.outer), **{name: word.text for name, word in env.items()}}

    def _filled(self, text: str, known: Mapping[str, str]) -> str:
        def value(match: re.Match[str]) -> str:
            name = match[1] or match[4]
            found = known.get(name)
            if match[2] == "+":
                found = match[3] if found else ""
            elif found is None and match[2] == "-":
                found = match[3]
            if found is None or self.growth + len(found) > _MOST_GROWTH:
                return match[0]
            self.growth += len(found)
            return found

        return _VARIABLE.sub(value, text)


def _listed(rest: str, line: int) -> list[Word] | None:
    """The exec form, a JSON list of texts; None for the shell's form."""
    joined = rest.replace("\\\n", "\n").strip()
    if not joined.startswith("["):
        return None
    try:
        json_value(joined)
        (item,) = documents(as_yaml(joined))
    except (InputError, ValueError):
        return None
    return [Word(text=entry.text, line=line + entry.line - 1) for entry in item.items() if entry.text is not None]


def container(stage: Stage, place: Place) -> Container:
    """An image: what it is given on a node is not said in it."""
    name = stage.name if not stage.name.isdecimal() else ""
    return Container(name=name or "image", kind="image", image=stage.image, place=place.at(stage.line))
