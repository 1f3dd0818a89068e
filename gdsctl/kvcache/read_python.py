"""Python scripts: what they import and call by name, which environment they set, and which programs they list.

Nothing is run, and no value is followed through a program: a call that stands in a script may never be reached, and what it
is given is seen only where it is written down. That makes it weak evidence, as the rows of app_edges.toml for it say.
"""

from __future__ import annotations

import ast
import io
import json
import keyword
import re
import tokenize
from collections.abc import Iterator
from typing import Any

from gdsctl.errors import InputError
from gdsctl.kvcache.launch import Call, Launch, Place, Word

LARGEST = 4 << 20
_DEEPEST = 30
_SHEBANG = re.compile(r"#![^\n]*\bpython[\d.]*[^\n]*\n")
_PASSED_OVER = frozenset(
    [tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER]
)
_CONSTANTS = {"True": True, "False": False, "None": None}
# Calls whose keywords are an engine's options (vLLM's and SGLang's offline interfaces).
_ENGINES = {
    **dict.fromkeys(("LLM", "EngineArgs", "AsyncEngineArgs"), ("vllm", "serve")),
    **dict.fromkeys(("Engine", "ServerArgs"), ("sglang", "serve")),
}


def is_python(text: str, name: str) -> bool:
    return name.endswith(".py") or _SHEBANG.match(text) is not None


def read_python(text: str, place: Place) -> tuple[Launch, ...]:
    """Raises InputError (line) for what is no Python."""
    if len(text) > LARGEST:
        raise InputError(f"larger than {LARGEST} characters")
    return _Script(_tokens(text), place).launches()


def _tokens(text: str) -> list[tuple[int, str, int]]:
    """(type, text, line), without comments and layout; ends of lines are kept."""
    try:
        return [
            (token.type, token.string, token.start[0])
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type not in _PASSED_OVER
        ]
    except tokenize.TokenError as error:
        raise InputError(f"not valid Python: {error.args[0]}", line=error.args[1][0]) from None
    except SyntaxError as error:
        raise InputError(f"not valid Python: {error.msg}", line=error.lineno) from None


def _closing(tokens: list[tuple[int, str, int]]) -> dict[int, int]:
    """Index of each opening bracket -> that of the bracket that closes it, or the end."""
    found: dict[int, int] = {}
    waiting: list[int] = []
    for at, (kind, text, _) in enumerate(tokens):
        if kind == tokenize.OP and text in "([{":
            waiting.append(at)
        elif kind == tokenize.OP and text in ")]}" and waiting:
            found[waiting.pop()] = at
    return found | dict.fromkeys(waiting, len(tokens))


_MOST_SHOWN = 30
_OPENERS = ("(", "[", "{")
_CLOSERS = (")", "]", "}")
"""Each ends what it stands in, whether or not it is the one that was opened."""


class _OpenError(Exception):
    """Not a value that is written down."""


class _Script:
    def __init__(self, tokens: list[tuple[int, str, int]], place: Place) -> None:
        self.tokens = tokens
        self.closing = _closing(tokens)
        self.place = place
        self.names: dict[str, str] = {}  # local name -> what it was imported as
        self.env: dict[str, Word] = {}
        self.calls: list[Call] = []
        self.constants: dict[str, str | None] = {}  # of a name that is given one text only, else None
        self.programs: list[tuple[Word, ...]] = []

    def launches(self) -> tuple[Launch, ...]:
        at = 0
        while at < len(self.tokens):
            at = self._step(at)
        own = () if not (self.calls or self.env) else (self._launch((), tuple(self.calls)),)
        return (*own, *(self._launch(words, ()) for words in self.programs))

    def _launch(self, words: tuple[Word, ...], calls: tuple[Call, ...]) -> Launch:
        lines = [word.line for word in words] or [call.line for call in calls] or [w.line for w in self.env.values()]
        return Launch(place=self.place.at(min(lines)), words=words, env=self.env, calls=calls)

    def _text(self, at: int) -> str:
        return self.tokens[at][1] if at < len(self.tokens) else ""

    def _step(self, at: int) -> int:
        kind, text, line = self.tokens[at]
        starts = at == 0 or self.tokens[at - 1][0] == tokenize.NEWLINE or self._text(at - 1) in (";", ":")
        if starts and text in ("import", "from"):
            return self._import(at)
        if text == "[" and not self._subscripts(at):
            self._program(at)
        if kind != tokenize.NAME:
            return at + 1
        if at and self._text(at - 1) == ".":
            if self._text(at + 1) == "(":
                self._call(f".{text}", at + 1, line)
            return at + 1
        end, dotted = self._dotted(at)
        name = self._resolved(dotted)
        if starts and dotted == text and self._text(end) == "=":
            self._constant(text, end + 1)
        if name == "os.environ" and self._text(end) == "[":
            self._assigned(end)
        elif self._text(end) == "(":
            self._call(name, end, line)
        return end

    def _subscripts(self, at: int) -> bool:
        """Does this `[` follow a value?"""
        kind, before, _ = self.tokens[at - 1] if at else (tokenize.NEWLINE, "", 0)
        return before in ("]", ")") or (kind == tokenize.NAME and not keyword.iskeyword(before))

    def _import(self, at: int) -> int:
        """`import a.b as c, d` and `from a.b import c as d, (e)`; the end of its line."""
        source = ""
        at += 1
        if self._text(at - 1) == "from":
            at, source = self._dotted(at)
            at += self._text(at) == "import"
        while at < len(self.tokens) and self.tokens[at][0] != tokenize.NEWLINE and self._text(at) != ";":
            if self.tokens[at][0] != tokenize.NAME:
                at += 1
                continue
            at, name = self._dotted(at)
            local = name if source else name.partition(".")[0]
            whole = f"{source}.{name}" if source else local
            if self._text(at) == "as":
                local, whole = self._text(at + 1), f"{source}.{name}" if source else name
                at += 2
            self.names[local] = whole
        return at

    def _dotted(self, at: int) -> tuple[int, str]:
        """The end of `a.b.c` and the name; another token counts as one name."""
        parts = [self._text(at)]
        at += 1
        while self._text(at) == "." and at + 1 < len(self.tokens) and self.tokens[at + 1][0] == tokenize.NAME:
            parts.append(self._text(at + 1))
            at += 2
        return at, ".".join(parts)

    def _resolved(self, dotted: str) -> str:
        first, dot, rest = dotted.partition(".")
        return self.names.get(first, first) + dot + rest

    def _assigned(self, at: int) -> None:
        """os.environ["NAME"] = "value", from its `[`."""
        try:
            name, at = self._value(at + 1)
            if self._text(at) == "]" and self._text(at + 1) == "=":
                value, _ = self._value(at + 2)
                self.env[str(name)] = Word(text=str(value), line=self.tokens[at][2])
        except _OpenError:
            return

    def _constant(self, name: str, at: int) -> None:
        try:
            value, end = self._value(at)
        except _OpenError:
            value, end = None, at
        plain = isinstance(value, str) and (end >= len(self.tokens) or self.tokens[end][0] == tokenize.NEWLINE)
        same = self.constants.get(name, value) == value
        self.constants[name] = value if plain and same else None

    def _call(self, name: str, at: int, line: int) -> None:
        unread: dict[str, str] = {}
        given = dict(self._arguments(at, unread))
        plain = {key: str(value) for key, value in given.items() if not isinstance(value, (dict, list))}
        plain |= {key: known for key, text in unread.items() if (known := self.constants.get(text)) is not None}
        left = {key: text for key, text in unread.items() if key not in plain}
        self.calls.append(Call(name=name, line=line, arguments=plain, open=left))
        last = name.rpartition(".")[2]
        if name in ("os.environ.setdefault", "os.putenv") and {"0", "1"} <= plain.keys():
            self.env.setdefault(plain["0"], Word(text=plain["1"], line=line))
        program = _ENGINES.get(last) if name.partition(".")[0] in ("vllm", "sglang") else None
        if program is not None:
            words = [Word(text=part, line=line) for part in program]
            for key, value in given.items():
                text = json.dumps(value) if isinstance(value, (dict, list)) else str(value)
                words += [Word(text=f"--{key.replace('_', '-')}", line=line), Word(text=text, line=line)]
            self.programs.append(tuple(words))

    def _arguments(self, at: int, unread: dict[str, str]) -> Iterator[tuple[str, Any]]:
        """Those of a call that are written down, from its `(`: by keyword, or by position as "0", "1". Others: `unread`."""
        position, at = 0, at + 1
        while at < len(self.tokens) and self._text(at) not in _CLOSERS:
            named = self.tokens[at][0] == tokenize.NAME and self._text(at + 1) == "="
            key = self._text(at) if named else str(position)
            position += not named
            start = at + 2 * named
            try:
                value, end = self._value(start)
                if self._text(end) in (",", ")"):
                    yield key, value
                else:
                    unread[key] = self._shown(start)
                at = end
            except _OpenError:
                unread[key] = self._shown(start)
                at = start
            at = self._past(at)

    def _shown(self, at: int) -> str:
        """The first tokens of an argument, up to the comma or bracket that ends it."""
        parts: list[str] = []
        depth = 0
        while at < len(self.tokens) and len(parts) < _MOST_SHOWN:
            text = self._text(at)
            depth += (text in _OPENERS) - (text in _CLOSERS)
            if depth < 0 or (depth == 0 and text == ","):
                break
            parts.append(text)
            at += 1
        return " ".join(parts)

    def _past(self, at: int) -> int:
        """Behind the next comma on this level, or at the bracket that closes it."""
        while at < len(self.tokens):
            text = self._text(at)
            if text in _CLOSERS:
                return at
            if text == ",":
                return at + 1
            at = self.closing.get(at, at) + 1
        return at

    def _program(self, at: int) -> None:
        """A list of texts: the words of a command line, as subprocess takes them. A word that is none stays open."""
        words: list[Word] = []
        at += 1
        while at < len(self.tokens) and self._text(at) not in _CLOSERS and len(words) < 200:
            line = self.tokens[at][2]
            try:
                value, at = self._value(at)
            except _OpenError:
                value = "$(...)"
            if isinstance(value, (dict, list)):
                return
            words.append(Word(text=str(value), line=line))
            at = self._past(at)
        if len(words) > 1:
            self.programs.append(tuple(words))

    def _value(self, at: int, depth: int = 0) -> tuple[Any, int]:
        """A constant, list, dictionary or KVTransferConfig(...), and where it ends. Raises _OpenError."""
        if at >= len(self.tokens) or depth > _DEEPEST:
            raise _OpenError
        kind, text, _ = self.tokens[at]
        if kind == tokenize.STRING:
            return self._string(at)
        if kind == tokenize.NUMBER or text in _CONSTANTS:
            return _CONSTANTS.get(text, text), at + 1
        if text in ("[", "("):
            return self._items(at, depth)
        if text == "{":
            return self._pairs(at, depth)
        if kind == tokenize.NAME:
            end, dotted = self._dotted(at)
            if self._resolved(dotted).rpartition(".")[2] == "KVTransferConfig" and self._text(end) == "(":
                return self._keywords(end, depth)
        raise _OpenError

    def _string(self, at: int) -> tuple[str, int]:
        parts = []
        while at < len(self.tokens) and self.tokens[at][0] == tokenize.STRING:
            try:
                value = ast.literal_eval(self.tokens[at][1])
            except (SyntaxError, ValueError):  # an f-string, an escape that is none
                raise _OpenError from None
            if not isinstance(value, str):
                raise _OpenError
            parts.append(value)
            at += 1
        return "".join(parts).encode("utf-8", "replace").decode(), at

    def _items(self, at: int, depth: int) -> tuple[list[Any], int]:
        close, found = {"[": "]", "(": ")"}[self._text(at)], []
        at += 1
        while self._text(at) != close:
            value, at = self._value(at, depth + 1)
            found.append(value)
            at = self._comma(at, close)
        return found, at + 1

    def _pairs(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at += 1
        while self._text(at) != "}":
            key, at = self._value(at, depth + 1)
            if self._text(at) != ":" or not isinstance(key, str):
                raise _OpenError
            found[key], at = self._value(at + 1, depth + 1)
            at = self._comma(at, "}")
        return found, at + 1

    def _keywords(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at += 1
        while self._text(at) != ")":
            if self._text(at + 1) != "=":
                raise _OpenError
            key = self._text(at)
            found[key], at = self._value(at + 2, depth + 1)
            at = self._comma(at, ")")
        return found, at + 1

    def _comma(self, at: int, close: str) -> int:
        if self._text(at) == ",":
            return at + 1
        if self._text(at) != close:
            raise _OpenError
        return at
