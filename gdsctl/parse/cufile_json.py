"""cufile.json as libcufile reads it: the grammar of JsonCpp's old `Json::Reader`, found by asking the library.

It is JSON with these differences: `//` and `/* */` comments wherever a value, a member or a comma may begin; what follows
the root value is not read; a repeated key replaces the earlier value whole; control characters may stand in strings;
`01`, `1.`, `-.5` and a lone `-` are numbers; a byte 0xFF ends the text, other bytes are not checked for UTF-8; values
nested deeper than 1000, and roots other than an object, `[]` and null, abort the process. All versions 1.11 to 1.20 agree.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any

from gdsctl.record import Record

DEEPEST = 1000  # JsonCpp's stackLimit_g; "Exceeded stackLimit in readValue()"
_MOST_DUPLICATES = 100

_BLANKS = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NUMBER = re.compile(r"[-0-9][0-9]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]*)?")
_INTEGER = re.compile(r"-?0*([0-9]*)")
_REAL = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LINE_COMMENT = re.compile(r"//[^\r\n]*(?:\r\n|\r|\n)?")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.)|$)", re.DOTALL)
_PAIR = re.compile(r"\\u([0-9A-Fa-f]{4})")
_SURROGATES = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")

_PLAIN_ESCAPES = {'"': '"', "/": "/", "\\": "\\", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}

# A container's positions: key or index -> (offset of the key or item, positions inside it).
_Places = dict[Any, tuple[int, Any]]


class JsonError(Record, frozen=True, kw_only=True):
    """`line` and `column` count from 1, columns in characters."""

    line: int
    column: int
    message: str


class CufileJson(Record, frozen=True, kw_only=True):
    """`valid`: libcufile would read this text. `value`: what it makes of it, None where it is not valid.

    `duplicates`: JSON pointers of keys given more than once (the last one counts), each once, the first 100.
    `comments`: the text has some. Bytes that are not UTF-8 stand as U+FFFD in `value`.
    """

    valid: bool
    error: JsonError | None = None
    value: Any = None
    duplicates: tuple[str, ...] = ()
    comments: bool = False


class Positions:
    """Where each key and array item of a parsed text stands."""

    def __init__(self, text: str, places: _Places) -> None:
        self._places = places
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def line_column(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def of(self, pointer: str) -> tuple[int, int] | None:
        """(line, column), from 1, of the key or item that a JSON pointer names; None for what is not in the text."""
        offset, places = 0, self._places
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = places.get(name) if places else None
            if found is None and places and name.isdecimal():
                found = places.get(int(name[:9]))
            if found is None:
                return None
            offset, places = found
        return self.line_column(offset)


def escape(name: str) -> str:
    """A key as one part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def parse(text: str) -> CufileJson:
    """The verdict of libcufile's reader on `text`; never raises.

    Decode files with `errors="surrogateescape"`, so that the byte 0xFF, which ends the text for the library, is seen.
    """
    return parse_with_positions(text)[0]


def parse_with_positions(text: str) -> tuple[CufileJson, Positions]:
    """`parse`, and where the keys and items stand."""
    reader = _Reader(text)
    error = None
    try:
        value = reader.root()
    except _Bad as bad:
        value, error = None, bad
    positions = Positions(text, reader.places)
    fault = None
    if error is not None:
        line, column = positions.line_column(error.offset)
        fault = JsonError(line=line, column=column, message=error.message)
    return (
        CufileJson(
            valid=fault is None,
            error=fault,
            value=value,
            duplicates=tuple(reader.duplicates),
            comments=reader.comments,
        ),
        positions,
    )


class _Bad(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message


class _Reader:
    """Json::Reader without its recursion. Tokens are (kind, start): a punctuation mark, or `string`, `number`, `word`,
    `comment`, `end`, `bad`; the token's text is `text[start:self.at]`.
    """

    def __init__(self, text: str) -> None:
        cut = text.find("\udcff")  # getline(stream, document, char(EOF)) stops at the byte 0xFF
        self.text = text if cut < 0 else text[:cut]
        self.cut = cut >= 0
        self.at = 0
        self.comments = False
        self.places: _Places = {}
        self.duplicates: dict[str, None] = {}

    def root(self) -> Any:
        if self.text.startswith("\ufeff"):
            raise _Bad(0, "a byte order mark stands before the text")
        value = self._value_tree()
        self._token()  # sets `comments` where one follows; its kind does not matter
        if not isinstance(value, dict) and value is not None and value != []:
            raise _Bad(0, "the root is not an object: libcufile aborts the process")
        return value

    def _token(self) -> tuple[str, int]:
        text = self.text
        blanks = _BLANKS.match(text, self.at)
        start = blanks.end() if blanks else self.at
        char = text[start : start + 1]
        self.at = start + 1
        if not char:
            self.at = start
            return "end", start
        if char == "\0":
            return "end", start
        if char in "{}[],:":
            return char, start
        if char == '"':
            found = _STRING.match(text, start)
            self.at = found.end() if found else len(text)
            return ("string" if found else "bad"), start
        if char == "-" or "0" <= char <= "9":
            found = _NUMBER.match(text, start)
            self.at = found.end() if found else self.at
            return "number", start
        if char == "/":
            return self._comment(start), start
        for word in _WORDS:
            if text.startswith(word, start):
                self.at = start + len(word)
                return "word", start
        return "bad", start

    def _comment(self, start: int) -> str:
        if self.text.startswith("//", start):
            found = _LINE_COMMENT.match(self.text, start)
            self.at = found.end() if found else len(self.text)
        elif self.text.startswith("/*", start):
            end = self.text.find("*/", start + 2)
            self.at = len(self.text) if end < 0 else end + 2
            if end < 0:
                return "bad"
        else:
            self.at = min(start + 2, len(self.text))
            return "bad"
        self.comments = True
        return "comment"

    def _several_bytes(self, at: int) -> bool:
        """Whether the character is more than one byte; a surrogate stands for one byte that is not UTF-8."""
        return self.text[at] > "\x7f" and not _SURROGATES.match(self.text, at)

    def _past_comments(self) -> tuple[str, int]:
        kind, start = self._token()
        while kind == "comment":
            kind, start = self._token()
        return kind, start

    def _value_tree(self) -> Any:
        top: dict[str, Any] = {}
        top_places: _Places = {}
        # One frame a container that is open: [container, its places, the last key].
        stack: list[list[Any]] = [[top, top_places, ""]]
        where = 0
        while True:
            frame = stack[-1]
            if len(stack) > DEEPEST:
                raise _Bad(self.at, f"nested deeper than {DEEPEST}: libcufile aborts the process")
            kind, start = self._past_comments()
            places: _Places | None = None
            value: Any
            if kind in "{[":
                value, places = ({} if kind == "{" else []), {}
            else:
                value = self._scalar(kind, start)
            self._put(frame, value, places, where if isinstance(frame[0], dict) and len(stack) > 1 else start, stack)
            if places is not None:
                stack.append([value, places, ""])
                if kind == "[":
                    blanks = _BLANKS.match(self.text, self.at)
                    inner = blanks.end() if blanks else self.at
                    if not self.text.startswith("]", inner):
                        continue
                    self.at = inner + 1
                    stack.pop()
                else:
                    where = self._member(stack[-1], first=True)
                    if where >= 0:
                        continue
                    stack.pop()
            # A value is complete: close containers until another value is due.
            while len(stack) > 1:
                frame = stack[-1]
                if isinstance(frame[0], list):
                    kind, start = self._past_comments()
                    if kind == ",":
                        break
                    if kind != "]":
                        raise _Bad(start, self._expected("',' or ']'", kind, start))
                else:
                    where = self._member(frame, first=False)
                    if where >= 0:
                        break
                stack.pop()
            else:
                self.places = top_places[""][1] or {}
                return top[""]

    def _put(self, frame: list[Any], value: Any, places: _Places | None, where: int, stack: list[list[Any]]) -> None:
        container, container_places, name = frame
        if isinstance(container, list):
            container_places[len(container)] = (where, places)
            container.append(value)
            return
        if name in container and len(self.duplicates) < _MOST_DUPLICATES:
            parts = [len(f[0]) - 1 if isinstance(f[0], list) else escape(f[2]) for f in stack[1:]]
            self.duplicates["".join(f"/{part}" for part in parts)] = None
        container[name] = value
        container_places[name] = (where, places)

    def _member(self, frame: list[Any], *, first: bool) -> int:
        """Read up to the colon of an object's next member; its key's offset, or -1 where the object ends here."""
        comma = -1
        if not first:
            kind, start = self._token()
            if kind == "comment":
                kind, start = self._past_comments()  # whatever token stands here passes for the comma
                if kind == "bad" and self._several_bytes(self.at - 1):
                    # The library reads bytes: the character's first one passes for the comma, its second is no key.
                    raise _Bad(start, self._expected("',' or '}'", kind, start))
            elif kind not in ",}":
                raise _Bad(start, self._expected("',' or '}'", kind, start))
            if kind == "}":
                return -1
            comma = start
        kind, start = self._past_comments()
        if kind == "}" and frame[2] == "":
            return -1
        if kind != "string":
            if kind == "}" and comma >= 0:
                raise _Bad(comma, "a comma stands before '}'")
            raise _Bad(start, self._expected("a key in double quotes", kind, start))
        frame[2] = self._string(start)
        colon, after = self._token()
        if colon != ":":
            raise _Bad(after, self._expected("':'", colon, after))
        return start

    def _scalar(self, kind: str, start: int) -> Any:
        if kind == "string":
            return self._string(start)
        if kind == "number":
            return self._number(start)
        if kind == "word":
            return _WORDS[self.text[start : self.at]]
        if kind == "]" and self.text[:start].rstrip(" \t\r\n").endswith(","):
            raise _Bad(start, "a comma stands before ']'")
        raise _Bad(start, self._expected("a value", kind, start))

    def _number(self, start: int) -> float | int:
        token = self.text[start : self.at]
        integer = _INTEGER.fullmatch(token)
        if integer:
            digits = integer[1]
            if len(digits) <= 20:  # 2**64 has 20 digits
                number = int(digits or "0") * (-1 if token[0] == "-" else 1)
                if -(2**63) <= number < 2**64:
                    return number
        elif not _REAL.fullmatch(token):
            raise _Bad(start, f"{token[:40]} is not a number")
        real = float(token)
        if real in (float("inf"), float("-inf")):
            raise _Bad(start, "the number is too large")
        return real

    def _string(self, start: int) -> str:
        raw = self.text[start + 1 : self.at - 1]
        if "\\" in raw:
            raw = self._unescaped(raw, start + 1)
        return _SURROGATES.sub("\ufffd", raw)

    def _unescaped(self, raw: str, base: int) -> str:
        out, done = [], 0
        while found := _ESCAPE.search(raw, done):
            out.append(raw[done : found.start()])
            done = found.end()
            if found[1]:
                code = int(found[1], 16)
                if 0xD800 <= code <= 0xDBFF:  # any second \uXXXX is taken for the low half
                    low = _PAIR.match(raw, done)
                    if not low:
                        raise _Bad(base + found.start(), "the second half of a surrogate pair is missing")
                    code = 0x10000 + ((code & 0x3FF) << 10) + (int(low[1], 16) & 0x3FF)
                    done = low.end()
                out.append(chr(code))
            elif found[2] in _PLAIN_ESCAPES:
                out.append(_PLAIN_ESCAPES[found[2]])
            else:
                raise _Bad(base + found.start(), f"unknown escape {found[0]}")
        out.append(raw[done:])
        return "".join(out)

    def _expected(self, wanted: str, kind: str, start: int) -> str:
        char = self.text[start : start + 1]
        if not char:
            return (
                f"expected {wanted}, but a byte 0xFF ends the text" if self.cut else f"expected {wanted}, the text ends"
            )
        if char == "#":
            return "libcufile takes no # comments, only // and /* */"
        if char == "'":
            return "libcufile takes double quotes only"
        if char == "\0":
            return f"expected {wanted}, found a NUL byte"
        if kind == "comment":
            return f"expected {wanted}, found a comment"
        if kind == "bad" and char in '"/':
            return "a string without its end" if char == '"' else "a comment without its end"
        word = _WORD.match(self.text, start)
        if word and word[0].lower() in _WORDS and word[0] not in _WORDS:
            return f"{word[0]} is to be written {word[0].lower()}"
        return f"expected {wanted}, found {(word[0] if word else char)[:40]!r}"
