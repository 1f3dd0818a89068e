"""Command lines, shell scripts and environment files as the programs that they start.

Nothing is run. Variables are replaced where the text itself sets them; what a command would print stays as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gdsctl.kvcache.beside import Beside
from gdsctl.kvcache.launch import Container, Launch, Place, Volume, Word
from gdsctl.record import Record

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_SEPARATORS = frozenset("\n;&|()")
_SPECIAL = _SEPARATORS | frozenset("\\#<>")  # what a command may meet outside of words
_PLAIN = re.compile(r"[^\s;&|()<>'\"\\$`]+")  # letters of a word that mean nothing else
_QUOTED = re.compile(r'[^"\\$]+')
_BACKTICKS = re.compile(r"`[^`\n]*`?")  # what a command would print, as `$(...)`
_HEREDOC = re.compile(r"[ \t]*(['\"]?)([^\s'\";|&]*)\1")
_SPREAD = re.compile(r'"?\$\{([A-Za-z_][A-Za-z0-9_]*)\[[@*]\]\}"?')
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?([-=])([^{}]*))?\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_DEEPEST = 4
_MOST_GROWTH = 4 << 20  # characters that variables may add to one text; a reference beyond stays as written
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})


class Embedded(Record, frozen=True, kw_only=True):
    """A here-document: text that the script writes somewhere."""

    text: str
    line: int


class _Reader:
    """One pass over the text, character by character; never further back than the word it is in."""

    def __init__(self, text: str, line: int, env: Mapping[str, Word]) -> None:
        self.text = text
        self.at = 0
        self.line = line
        self.env: dict[str, Word] = dict(env)
        self.arrays: dict[str, tuple[Word, ...]] = {}
        self.embedded: list[Embedded] = []
        self.growth = 0

    def _value(self, name: str) -> str | None:
        known = self.env.get(name)
        if known is None or self.growth + len(known.text) > _MOST_GROWTH:
            return None
        self.growth += len(known.text)
        return known.text

    def commands(self) -> Iterator[list[Word]]:
        words: list[Word] = []
        heredocs: list[tuple[str, bool]] = []
        text, size = self.text, len(self.text)
        while self.at < size:
            char = text[self.at]
            if char in " \t\r":
                self.at += 1
            elif char not in _SPECIAL:
                words += self._word()
            elif text.startswith("\\\n", self.at) or text.startswith("\\\r\n", self.at):
                self.at = text.index("\n", self.at) + 1
                self.line += 1
            elif char == "#":
                end = text.find("\n", self.at)
                self.at = size if end < 0 else end
            elif text.startswith("<<", self.at) and not text.startswith("<<<", self.at):
                heredocs.append(self._heredoc_word())
            elif char in "<>":
                self.at += 1
            elif char in _SEPARATORS:
                self.at += 1
                if words:
                    yield words
                    words = []
                if char == "\n":
                    self.line += 1
                    for delimiter, indented in heredocs:
                        self._heredoc(delimiter, indented=indented)
                    heredocs = []
            else:
                words += self._word()
        if words:
            yield words

    def _heredoc_word(self) -> tuple[str, bool]:
        indented = self.text.startswith("<<-", self.at)
        self.at += 3 if indented else 2
        match = _HEREDOC.match(self.text, self.at)
        if match is None:
            return "", indented
        self.at = match.end()
        return match[2], indented

    def _heredoc(self, delimiter: str, *, indented: bool) -> None:
        start = self.line
        lines = []
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            self.at = end + 1
            self.line += 1
            if (line.strip("\t") if indented else line).rstrip("\r") == delimiter:
                break
            lines.append(line)
        self.embedded.append(Embedded(text="\n".join(lines), line=start))

    def _word(self) -> list[Word]:
        """One word; none or several where it is an array's expansion."""
        start = self.line
        plain = _PLAIN.match(self.text, self.at)
        if plain and self.text[plain.end() : plain.end() + 1] in ("", " ", "\n"):
            self.at = plain.end()
            return [Word(text=plain[0], line=start)]
        match = _ASSIGN.match(self.text, self.at)
        if match and self.text.startswith("(", match.end()):
            return self._array(match[1], match.end() + 1)
        spread = _SPREAD.match(self.text, self.at)
        if spread:
            self.at = spread.end()
            return list(self.arrays.get(spread[1], ()))
        parts: list[str] = []
        text, size = self.text, len(self.text)
        while self.at < size:
            plain = _PLAIN.match(text, self.at)
            if plain:
                parts.append(plain[0])
                self.at = plain.end()
                continue
            char = text[self.at]
            if char in " \t\r<>" or char in _SEPARATORS:
                break
            if char == "'":
                end = text.find("'", self.at + 1)
                end = size if end < 0 else end
                self._take(parts, text[self.at + 1 : end])
                self.at = end + 1
            elif char == '"':
                self.at += 1
                self._double(parts)
            elif char == "\\":
                follows = text[self.at + 1 : self.at + 2]
                if follows == "\n":
                    self.line += 1
                else:
                    parts.append(follows)
                self.at += 2
            elif char == "$":
                self._dollar(parts)
            elif char == "`" and (within := _BACKTICKS.match(text, self.at)):
                parts.append(within[0])
                self.at = within.end()
            else:
                parts.append(char)
                self.at += 1
        return [Word(text="".join(parts), line=start)]

    def _take(self, parts: list[str], text: str) -> None:
        self.line += text.count("\n")
        parts.append(text)

    def _double(self, parts: list[str]) -> None:
        text, size = self.text, len(self.text)
        while self.at < size and text[self.at] != '"':
            quoted = _QUOTED.match(text, self.at)
            if quoted:
                self._take(parts, quoted[0])
                self.at = quoted.end()
                continue
            char = text[self.at]
            if char == "\\":
                follows = text[self.at + 1 : self.at + 2]
                if follows == "\n":
                    self.line += 1
                elif follows in ('"', "\\", "$", "`"):
                    parts.append(follows)
                else:
                    parts.append(char + follows)
                self.at += 2
            else:
                self._dollar(parts)
        self.at += 1

    def _dollar(self, parts: list[str]) -> None:
        text = self.text
        if text.startswith("$(", self.at):
            depth, end = 0, self.at + 1
            while end < len(text):
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
                if depth == 0:
                    break
            inside = text[self.at + 2 : end - 1]
            known = self._value(inside) if _NAME.fullmatch(inside) else None  # Kubernetes writes $(NAME)
            if known is not None:
                parts.append(known)
                self.line += text.count("\n", self.at, end)
            else:
                self._take(parts, text[self.at : end])
            self.at = end
            return
        match = _VARIABLE.match(text, self.at)
        if match is None:
            parts.append("$")
            self.at += 1
            return
        name = match[1] or match[4]
        known = self._value(name)
        if known is not None:
            parts.append(known)
        elif match[2] is not None:
            parts.append(match[3].strip("\"'"))
        else:
            parts.append(match[0])
        self.line += match[0].count("\n")
        self.at = match.end()

    def _array(self, name: str, start: int) -> list[Word]:
        self.at = start
        found: list[Word] = list(self.arrays.get(name, ())) if self.text[start - 3 : start - 2] == "+" else []
        while self.at < len(self.text) and self.text[self.at] != ")":
            char = self.text[self.at]
            if char == "\n":
                self.line += 1
                self.at += 1
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char in " \t\r;&|(<>":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
                self.line += 1
            else:
                found += self._word()
        self.at += 1
        self.arrays[name] = tuple(found)
        return []


_UNIT = re.compile(r"\s*(?:[#;][^\n]*\n\s*)*\[(?:Unit|Service)\]")
_DIRECTIVE = re.compile(r"(Environment|EnvironmentFile|ExecStart)\s*=\s*[-@:+!|]*(.*)", re.DOTALL)
_ENV_LINE = re.compile(r"(?:#.*)?|((?:export\s+)?[A-Za-z_][A-Za-z0-9_]*=)(.*)", re.DOTALL)
_PLAIN_VALUE = re.compile(r"\S*|[{\[].*[}\]]", re.DOTALL)


def as_shell(text: str) -> str:
    """An environment file or a systemd unit as a shell would have to be told the same; any other text as it is.

    `docker run --env-file` takes a value as it stands, so JSON and `;` need no quotes there. A file counts as one where
    every line assigns, and no value could be the beginning of a command (`NAME=value program ...`).
    """
    if _UNIT.match(text):
        return _unit(text)
    lines = []
    for line in text.split("\n"):
        match = _ENV_LINE.fullmatch(line.strip())
        if match is None:
            return text
        value = match[2]
        if not value or value[0] in "'\"":
            lines.append(line)
        elif not _PLAIN_VALUE.fullmatch(value):
            return text
        else:
            bare = not _SEPARATORS.isdisjoint(value) or value[0] in "{["
            lines.append(match[1] + ("'" + value.replace("'", "'\\''") + "'" if bare and "$(" not in value else value))
    return "\n".join(lines)


def _unit(text: str) -> str:
    """Environment=, EnvironmentFile= and ExecStart= as a shell's lines (systemd.exec, systemd.service); what else there is, empty."""
    lines = []
    goes_on = taken = False
    for line in text.split("\n"):
        match = _DIRECTIVE.fullmatch(line.strip()) if not goes_on else None
        if not goes_on:
            taken = match is not None
        if match is not None:
            lines.append({"Environment": "export ", "EnvironmentFile": ". "}.get(match[1], "") + match[2])
        else:
            lines.append(line if taken else "")
        goes_on = line.rstrip().endswith("\\")
    return "\n".join(lines)


def assigned(text: str, line: int) -> dict[str, Word]:
    """What a file of assignments sets, all at the line where it is named."""
    reader = _Reader(as_shell(text).replace("\0", ""), 1, {})
    for words in reader.commands():
        given, rest = _assignments(words)
        more, _ = _assignments(rest[1:]) if rest and rest[0].text == "export" else ({}, [])
        reader.env |= given | more
    return {name: Word(text=word.text, line=line) for name, word in reader.env.items()}


def read_shell(  # noqa: PLR0917 -- a place in a container, and how deep
    text: str,
    place: Place,
    env: Mapping[str, Word] | None = None,
    container: Container | None = None,
    depth: int = 0,
    beside: Beside | None = None,
) -> tuple[tuple[Launch, ...], tuple[Embedded, ...]]:
    """The programs of a text, first the file's own assignments as one without words, and its here-documents."""
    reader = _Reader(text.replace("\0", ""), place.line or 1, env or {})
    found: list[Launch] = []
    own: dict[str, Word] = {}
    now = dict(reader.env)  # one for all commands between two assignments
    for words in reader.commands():
        given, rest = _assignments(words)
        if not rest or rest[0].text in ("export", "declare", "set", "local", "readonly"):
            more, _ = _assignments(rest[1:]) if rest else ({}, [])
            own |= given | more
            reader.env |= given | more
            now = dict(reader.env)
            continue
        if rest[0].text in (".", "source") and len(rest) > 1 and beside is not None:
            named = beside.text(rest[1].text, place.at(rest[1].line))
            if named is not None:
                own |= assigned(named, rest[1].line)
                reader.env |= own
                now = dict(reader.env)
            continue
        launches, embedded = started(rest, place, {**now, **given} if given else now, container, depth, beside)
        found += launches
        reader.embedded += embedded
    if own and not found:
        found.append(
            Launch(
                place=place.at(min(word.line for word in own.values())), env={**(env or {}), **own}, container=container
            )
        )
    return tuple(found), tuple(reader.embedded)


def started(  # noqa: PLR0917 -- a place in a container, and how deep
    words: list[Word],
    place: Place,
    env: dict[str, Word],
    container: Container | None = None,
    depth: int = 0,
    beside: Beside | None = None,
) -> tuple[tuple[Launch, ...], tuple[Embedded, ...]]:
    """One command: the script of `sh -c`, a container of `docker run`, or itself."""
    while words:
        first = words[0].text.rpartition("/")[2]
        if first in ("sudo", "nohup", "exec", "time", "stdbuf", "numactl", "taskset", "env", "command", "timeout"):
            given, words = _assignments(_past_options(words[1:]))
            env = {**env, **given} if given else env
            continue
        break
    if not words:
        return (), ()
    first = words[0].text.rpartition("/")[2]
    if first in _SHELLS and depth < _DEEPEST:
        script = _script(words)
        if script is not None:
            return read_shell(script.text, place.at(script.line), env, container, depth + 1, beside)
    behind = _behind(words) if depth < _DEEPEST else []
    if first in ("docker", "podman", "nerdctl") and any(word.text in ("run", "create") for word in words[1:3]):
        return _docker(words, place, env, depth, beside)
    if behind:
        return started(behind, place, env, container, depth + 1, beside)
    return (Launch(place=place.at(words[0].line), words=tuple(words), env=env, container=container),), ()


def _behind(words: list[Word]) -> list[Word]:
    """`sh -c SCRIPT` behind a program that starts it (srun, mpirun, ssh, kubectl exec POD --); none: empty."""
    for index, word in enumerate(words[1:], 1):
        if word.text.rpartition("/")[2] in _SHELLS and _script(words[index:]) is not None:
            return words[index:]
    return []


def _assignments(words: list[Word]) -> tuple[dict[str, Word], list[Word]]:
    """Leading NAME=value words, and what follows them."""
    found: dict[str, Word] = {}
    for index, word in enumerate(words):
        match = _ASSIGN.match(word.text)
        if not match:
            return found, words[index:]
        found[match[1]] = Word(text=word.text[match.end() :], line=word.line)
    return found, []


def _past_options(words: list[Word]) -> list[Word]:
    index = 0
    while index < len(words) and (words[index].text.startswith("-") or words[index].text[:1].isdigit()):
        index += 1
    return words[index:]


def _script(words: list[Word]) -> Word | None:
    for index, word in enumerate(words[1:], 1):
        if word.text.startswith("-") and not word.text.startswith("--"):
            if "c" in word.text:
                return words[index + 1] if index + 1 < len(words) else None
        elif not word.text.startswith("-"):
            return None
    return None


# Options of `docker run` that take a value in the next word (docs.docker.com, docker container run).
_DOCKER_VALUED = frozenset(
    [
        "-e",
        "--env",
        "--env-file",
        "-v",
        "--volume",
        "--mount",
        "--device",
        "--gpus",
        "--name",
        "--ulimit",
        "--shm-size",
        "--network",
        "--net",
        "--ipc",
        "--cap-add",
        "--cap-drop",
        "-p",
        "--publish",
        "--entrypoint",
        "-w",
        "--workdir",
        "-u",
        "--user",
        "--runtime",
        "--security-opt",
        "-h",
        "--hostname",
        "-l",
        "--label",
        "--memory",
        "-m",
        "--cpus",
        "--cpuset-cpus",
        "--cpuset-mems",
        "--restart",
        "--pid",
        "--tmpfs",
        "--add-host",
        "--group-add",
        "--log-driver",
        "--log-opt",
    ]
)


def _docker(
    words: list[Word], place: Place, env: Mapping[str, Word], depth: int, beside: Beside | None
) -> tuple[tuple[Launch, ...], tuple[Embedded, ...]]:
    index = next(i for i, word in enumerate(words) if word.text in ("run", "create")) + 1
    inside: dict[str, Word] = {}
    given: dict[str, list[str]] = {}
    while index < len(words) and words[index].text.startswith("-"):
        name, sign, value = words[index].text.partition("=")
        if not sign and name in _DOCKER_VALUED and index + 1 < len(words):
            index += 1
            value = words[index].text
        if name in ("-e", "--env"):
            variable, has_value, text = value.partition("=")
            if has_value:
                inside[variable] = Word(text=text, line=words[index].line)
            elif variable in env:
                inside[variable] = env[variable]
        if name == "--env-file" and beside is not None:
            listed = beside.text(value, place.at(words[index].line))
            inside = assigned(listed or "", words[index].line) | inside
        given.setdefault(name, []).append(value)
        index += 1
    image = words[index].text if index < len(words) else None
    runtime = given["--runtime"][-1] if "--runtime" in given else None
    box = Container(
        name=(given.get("--name") or [""])[0],
        kind="docker",
        image=image,
        volumes=tuple(volume(text) for text in (*given.get("-v", ()), *given.get("--volume", ()))),
        devices=tuple(text.partition(":")[0] for text in given.get("--device", ())),
        privileged="--privileged" in given,
        capabilities=tuple(given.get("--cap-add", ())),
        memlock_unlimited=any(text.replace(" ", "").startswith("memlock=-1") for text in given.get("--ulimit", ())),
        host_network="host" in (*given.get("--network", ()), *given.get("--net", ())),
        resources=("gpu",)
        if "--gpus" in given or any("nvidia.com/gpu" in text for text in given.get("--device", ()))
        else (),
        toolkit=None if runtime is None else "nvidia" in runtime,
        place=place.at(words[0].line),
    )
    rest = words[index + 1 :]
    entry = given.get("--entrypoint")
    if entry:
        rest = [Word(text=entry[0], line=words[0].line), *rest]
    if not rest:
        return (Launch(place=place.at(words[0].line), env=inside, container=box),), ()
    return started(rest, place, inside, box, depth, beside)


def volume(text: str) -> Volume:
    """`HOST:PATH[:ro]` of docker and compose; a HOST that is no path is a named volume."""
    host, sign, rest = text.partition(":")
    if not sign:
        return Volume(path=host, kind="anonymous")
    path = rest.partition(":")[0]
    return Volume(path=path, host_path=host if host.startswith(("/", ".", "~")) else None, kind="bind")
