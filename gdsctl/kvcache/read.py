"""Any file that may configure a KV cache: which reader takes it, by what it holds."""

from __future__ import annotations

import json
import re

from gdsctl.data import app_edges
from gdsctl.errors import InputError
from gdsctl.kvcache.beside import Beside
from gdsctl.kvcache.json_text import json_value
from gdsctl.kvcache.launch import Found, Launch, Place, Word
from gdsctl.kvcache.read_compose import is_compose, read_compose
from gdsctl.kvcache.read_dockerfile import container, is_dockerfile, leaves
from gdsctl.kvcache.read_manifests import Known, Mounted, config_file, read_document, script
from gdsctl.kvcache.read_python import is_python, read_python
from gdsctl.kvcache.read_shell import as_shell, read_shell, started
from gdsctl.kvcache.yaml_documents import as_yaml, documents

_DEEPEST = 3
_JSON_START = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*[{\"\]\d])")  # not a shell's test or group, nor a unit's section
_MOST_EMBEDDED = 200
_YAML_START = re.compile(
    r"(?:[^\S\n]*(?:#[^\n]*)?\n)*[^\S\n]*(?:---|%YAML|- |[\"']?[A-Za-z_][A-Za-z0-9_.-]*[\"']?\s*:(?:\s|$))"
)


def read(text: str, path: str, beside: Beside | None = None) -> Found:
    """Raises InputError (FILE:LINE) for a file that is broken; one that configures nothing gives nothing.

    `beside`: the files that this one may name; what it names in vain is noted there.
    """
    try:
        return _read(text.removeprefix("\ufeff"), Place(file=path), path, 0, beside or Beside())
    except InputError as error:
        if "{{" in text and "YAML" in error.reason:
            error = InputError(
                f"{error.reason}. A template: give what it renders to (helm template), - for standard input",
                line=error.line,
            )
        raise error.at(path) from None


def _read(text: str, place: Place, name: str, depth: int, beside: Beside) -> Found:
    if is_python(text, name):
        return Found(launches=read_python(text, place))
    if is_dockerfile(text, name):
        return _dockerfile(text, place, depth, beside)
    if name.endswith(".json") or _JSON_START.match(text):
        found = _json(text, place)
        if found is not None:
            return found
        text = as_yaml(text)
    elif not name.endswith((".yaml", ".yml")) and not _YAML_START.match(text):
        return _shell(text, place, depth, beside)
    found = Found()
    items = documents(text)
    known = Known(items, beside, place.file)
    for number, item in enumerate(items, 1):
        if is_compose(item):
            found += read_compose(item, Place(file=place.file, document=place.document or number), beside)
            continue
        launches, embedded = read_document(
            item, Place(file=place.file, line=item.line, document=place.document or number), known
        )
        found += launches
        for part in embedded[:_MOST_EMBEDDED]:
            found += _embedded(part.name, part.text, part.place, depth, beside)
    return found


def _embedded(name: str, text: str, place: Place, depth: int, beside: Beside) -> Found:
    """A file within a file. What cannot be read there is no fault of the file around it."""
    if depth >= _DEEPEST or "\n" not in text:
        return Found()
    padded = "\n" * ((place.line or 1) - 1) + text  # so that its lines count as those of the file around it
    try:
        return _read(padded, Place(file=place.file, document=place.document), name, depth + 1, beside)
    except InputError:
        return Found()


def _dockerfile(text: str, place: Place, depth: int, beside: Beside) -> Found:
    """What the images of its last stages start; scripts that it copies in are looked for beside it."""
    found = Found()
    for stage in leaves(text):
        box = container(stage, place)
        words, env = stage.words(), stage.env
        files = {path: Mounted(word, place.file) for path, word in stage.files.items()}
        wanted = {word.text: word for word in words[:3]} | {
            w.text: w for n, w in env.items() if n == "LMCACHE_CONFIG_FILE"
        }
        for path, word in wanted.items():
            source = stage.copies.get(path)
            file = beside.file(source, place.at(word.line)) if source is not None and path not in files else None
            if file is not None:
                files[path] = Mounted(Word(text=file[1], line=1), file[0])
        config = env.get("LMCACHE_CONFIG_FILE")
        if config is not None and config.text in files:
            found += config_file(files[config.text], place, box)
        named = next((word for word in words[:3] if word.text in files), None)
        if named is not None:
            found += script(files[named.text], named, place, env, box, beside)
        elif words:
            launches, embedded = started(words, place, env, box, beside=beside)
            found += Found(launches=launches)
            for part in embedded[:_MOST_EMBEDDED]:
                found += _embedded("", part.text, place.at(part.line), depth, beside)
        elif env:
            found += Found(launches=(Launch(place=place.at(stage.line), env=env, container=box),))
    return found


def _shell(text: str, place: Place, depth: int, beside: Beside) -> Found:
    launches, embedded = read_shell(as_shell(text), place, beside=beside)
    found = Found(launches=launches)
    for path, launch in {
        word.text: launch for launch in launches if launch.words and (word := launch.env.get("LMCACHE_CONFIG_FILE"))
    }.items():
        word = launch.env["LMCACHE_CONFIG_FILE"]
        near = beside.file(path, place.at(word.line), owned=False) if launch.container is None else None
        if near is not None:
            found += config_file(Mounted(Word(text=near[1], line=1), near[0]), place, None)
    for part in embedded[:_MOST_EMBEDDED]:
        found += _embedded("", part.text, place.at(part.line), depth, beside)
    return found


# What a JSON text alone must hold to be taken for the value of an option.
_JSON_OPTIONS = (("kv_connector", "--kv-transfer-config"), ("tag", "--l1-manager"), ("type", "--l2-adapter"))


def _is_value(entry: object, key: str) -> bool:
    """The value of an option, and not one of the many other objects with a `type` (a JSON schema, an event)."""
    if not isinstance(entry, dict) or key not in entry:
        return False
    kind = str(entry.get("type", ""))
    if key == "tag":
        return kind.upper() in ("GDS", "DRAM", "DEVDAX")
    return key != "type" or app_edges.is_adapter(kind)


def _json(text: str, place: Place) -> Found | None:
    """A model's config.json or the value of an option; None for JSON that the YAML readers may know (a manifest)."""
    value = json_value(text)
    if isinstance(value, dict) and ("kind" in value or "services" in value or "ociVersion" in value):
        return None
    if any(isinstance(entry, dict) and "Config" in entry for entry in (value if isinstance(value, list) else [value])):
        return None
    if isinstance(value, dict) and ("num_hidden_layers" in value or "text_config" in value or "n_layer" in value):
        return Found(models=((place, text),))
    line = text[: len(text) - len(text.lstrip())].count("\n") + 1
    words: list[Word] = []
    for entry in value if isinstance(value, list) else [value]:
        option = next((name for key, name in _JSON_OPTIONS if _is_value(entry, key)), None)
        if option is not None:
            words += [Word(text=option, line=line), Word(text=json.dumps(entry), line=line)]
    if not words:
        return Found()
    program = ("vllm", "serve") if words[0].text == "--kv-transfer-config" else ("lmcache", "server")
    head = [Word(text=name, line=line) for name in program]
    return Found(launches=(Launch(place=place.at(line), words=(*head, *words), partial=True),))
