"""Docker compose files as the containers that they start (docs.docker.com/reference/compose-file)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from gdsctl.errors import InputError
from gdsctl.kvcache.beside import Beside
from gdsctl.kvcache.kubernetes import pairs
from gdsctl.kvcache.launch import Container, Found, Launch, Place, Volume, Word
from gdsctl.kvcache.read_dockerfile import Stage, stages
from gdsctl.kvcache.read_manifests import Mounted, config_file, script
from gdsctl.kvcache.read_shell import assigned, read_shell, started, volume
from gdsctl.kvcache.yaml_documents import Item, documents

_DEEPEST = 10
_VARIABLE = re.compile(r"\$(?:(\$)|\{([A-Za-z_]\w*)(?:(:?[-+?])([^{}]*))?\}|([A-Za-z_]\w*))")


def is_compose(item: Item) -> bool:
    keys = {key for key, _ in item.pairs()}
    return "kind" not in keys and ("services" in keys or ("include" in keys and keys <= {"include", "name", "version"}))


def read_compose(item: Item, place: Place, beside: Beside, depth: int = 0) -> Found:
    """The services of a file, of those that go over it and of those that it includes.

    Variables are replaced by `.env` and their defaults.
    """
    if place.file in beside.merged:
        return Found()
    fill = _filler(beside, place)
    item = item.filled(fill)
    over = _over(item, place, beside, fill) if depth == 0 else []
    if over is None:
        return Found()
    project = _Project([item, *(layer for _, layer in over)], place, beside, fill)
    found = Found()
    for layer in (item, *(layer for _, layer in over)) if depth < _DEEPEST else ():
        for name, line in _includes(layer):
            other = beside.file(name, place.at(line if layer is item else item.line))
            if other is not None and other[0] not in beside.texts:
                found += _included(other, beside, depth)
    for name in project.services:
        found += project.service(name)
    return found


def _includes(item: Item) -> Iterator[tuple[str, int]]:
    """The files of `include`, with the line that names them."""
    for entry in item.list("include"):
        paths = entry.get("path")
        for name in [entry.text] if entry.text else [paths.text, *(p.text for p in paths.items())] if paths else []:
            if name:
                yield name, entry.line


# docs.docker.com/compose/how-tos/multiple-compose-files/merge: what `docker compose` reads without -f.
_BASES = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
_OVERRIDES = (
    "compose.override.yml",
    "compose.override.yaml",
    "docker-compose.override.yml",
    "docker-compose.override.yaml",
)


def _over(item: Item, place: Place, beside: Beside, fill: Callable[[str], str]) -> list[tuple[str, Item]] | None:
    """The files that go over this one, in their order: those given with it as after `-f`, else what compose takes itself.

    None for a file that goes over another of those given. Files of one folder are one project, but for those that one
    of them includes or extends.
    """
    given = _project(item, place.file, beside, fill)
    if len(given) > 1:
        if given[0][0] != place.file:
            return None
        beside.merged |= {path for path, _ in given[1:]}
        beside.used |= {path for path, _ in given[1:]}
        return given[1:]
    folder, name = posixpath.split(place.file)
    named = _compose_file(beside, place)
    wanted = named[named.index(name) + 1 :] if name in named[:1] else _OVERRIDES if name in _BASES and not named else ()
    found = []
    for other in wanted:
        text = beside.optional(other, place.at(item.line))
        if text is not None:
            path = posixpath.join(folder, other)
            try:
                found += [(path, layer.filled(fill)) for layer in documents(text) if is_compose(layer)]
            except InputError as error:
                raise error.at(path) from None
        elif named:
            beside.lacks(other, place.at(item.line))
        if found and not named:
            break
    return found


def _project(item: Item, path: str, beside: Beside, fill: Callable[[str], str]) -> list[tuple[str, Item]]:
    """The given compose files of one folder in the order they count, this one among them."""
    folder = posixpath.dirname(path)
    files: dict[str, list[Item]] = {}
    for other, text in beside.texts.items():
        if other == path:
            files[other] = [item]
        elif posixpath.dirname(other) == folder and other.endswith((".yaml", ".yml")) and "services" in text:
            files[other] = _layers(text, fill)
    theirs = {
        posixpath.normpath(posixpath.join(folder, name))
        for layers in files.values()
        for layer in layers
        for name in (*(name for name, _ in _includes(layer)), *_extended(layer))
    }
    if path in theirs:
        return []
    mine = [
        (other, layer) for other, layers in files.items() if posixpath.normpath(other) not in theirs for layer in layers
    ]
    # A folder's own override comes last among its files where a shell's `*` puts it first.
    return sorted(mine, key=lambda one: posixpath.basename(one[0]) in _OVERRIDES)


def _extended(item: Item) -> Iterator[str]:
    for _, service in pairs(item.get("services")):
        file = service.word("extends", "file")
        if file is not None:
            yield file


def _layers(text: str, fill: Callable[[str], str]) -> list[Item]:
    """The compose documents of another file; what is wrong with it, its own reading tells."""
    try:
        return [item.filled(fill) for item in documents(text) if is_compose(item)]
    except InputError:
        return []


def _compose_file(beside: Beside, place: Place) -> list[str]:
    """The files that COMPOSE_FILE in `.env` lists."""
    text = beside.optional(".env", place)
    words = assigned(text, 1) if text is not None else {}
    listed = words["COMPOSE_FILE"].text if "COMPOSE_FILE" in words else ""
    separator = words["COMPOSE_PATH_SEPARATOR"].text if "COMPOSE_PATH_SEPARATOR" in words else ":"
    return [name.removeprefix("./") for name in listed.split(separator or ":") if name]


def _included(file: tuple[str, str], beside: Beside, depth: int) -> Found:
    path, text = file
    try:
        items = documents(text)
    except InputError as error:
        raise error.at(path) from None
    return sum((read_compose(i, Place(file=path), beside, depth + 1) for i in items if is_compose(i)), Found())


def _filler(beside: Beside, place: Place) -> Callable[[str], str]:
    """`${NAME:-default}` and its kin as compose replaces them; what nothing sets stays as it is written."""
    given = beside.optional(".env", place)
    known = {name: word.text for name, word in assigned(given, 1).items()} if given is not None else {}

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        found = known.get(match[2] or match[5])
        if match[3] in (":-", "-"):
            return found if found or (found is not None and match[3] == "-") else match[4]
        if match[3] in (":+", "+"):
            return match[4] if found else ""
        return found if found is not None else match[0]

    return lambda text: _VARIABLE.sub(value, text) if "$" in text else text


class _Service:
    """A service upon those that it extends, and under the files that go over its own.

    docs.docker.com/reference/compose-file/merge: the latest value counts, lists are joined, `!reset` takes away what came
    before and `!override` takes its place.
    """

    def __init__(self, chain: list[Item], line: int) -> None:
        self.chain = chain
        self.line = line

    def each(self, *path: str) -> list[Item]:
        """The values that count, the latest last."""
        found: list[Item] = []
        for item in self.chain:
            tags = {part.tag for depth in range(1, len(path) + 1) if (part := item.get(*path[:depth])) is not None}
            if tags & {"!reset", "!override"}:
                found = []
            value = item.get(*path)
            if value is not None and "!reset" not in tags:
                found.append(value)
        return found

    def get(self, *path: str) -> Item | None:
        return next(reversed(self.each(*path)), None)

    def word(self, *path: str) -> str | None:
        found = self.get(*path)
        return found.text if found is not None else None

    def list(self, *path: str) -> list[Item]:
        return [entry for found in self.each(*path) for entry in found.items()]


class _Project:
    """`layers`: the file at `place`, then those that go over it, whose lines become the service's own."""

    def __init__(self, layers: list[Item], place: Place, beside: Beside, fill: Callable[[str], str]) -> None:
        self.place = place
        self.beside = beside
        self.fill = fill
        self.services: dict[str, list[Item]] = {}
        first, *over = layers
        for name, item in pairs(first.get("services")):
            self.services[name] = [item]
        for layer in over:
            for name, item in pairs(layer.get("services")):
                below = self.services.setdefault(name, [])
                below.append(item.pinned(below[0].line if below else first.line))
        self.configs = {name: entry.word("file") for layer in layers for name, entry in pairs(layer.get("configs"))}
        self._files: dict[str, dict[str, Item]] = {}

    def service(self, name: str) -> Found:
        own = self.services[name]
        own_first = {key: items[0] for key, items in self.services.items()}
        chain = [base for item in own for base in self._chain(item, own_first, self.place)]
        service = _Service(chain, own[0].line)
        env = self._environment(service)
        box = _box(name, service, self.place, self.configs)
        built = self._built(service)
        entrypoint, command = service.get("entrypoint"), service.get("command")
        words = [*_words(entrypoint), *_words(command)]
        if built is not None:
            line = service.line
            if box.image is None:
                box = msgspec.structs.replace(box, image=built.image)
            env = {key: Word(text=word.text, line=line) for key, word in built.env.items()} | env
            theirs = [Word(text=word.text, line=line) for word in built.entrypoint or ()]
            last = _words(command) or (
                [] if built.shell else [Word(text=w.text, line=line) for w in built.command or ()]
            )
            words = words if entrypoint is not None else [*theirs, *last]
        found = self._config(env, box)
        named = next((word for word in words[:3] if word.text.startswith("/") and self._mounted(word.text, box)), None)
        if named is not None and (text := self._open(named, box)) is not None:
            return found + script(text, named, self.place, env, box, self.beside)
        if words:
            launches, _ = started(words, self.place, env, box, beside=self.beside)
            return found + Found(launches=launches)
        if env and not found.launches:
            found += Found(launches=(Launch(place=self.place.at(service.line), env=env, container=box),))
        return found

    def _chain(self, service: Item, services: Mapping[str, Item], place: Place, depth: int = 0) -> list[Item]:
        """What a service extends, the farthest first; lines of other files become the line that names them."""
        base = service.word("extends", "service") or service.word("extends")
        if base is None:
            return [service]
        file = service.word("extends", "file")
        extends = service.get("extends")
        line = extends.line if extends is not None else service.line
        if file is not None:
            other = self.beside.file(file, place.at(line)) if depth <= _DEEPEST else None
            if other is None:
                return [service]
            place, services = Place(file=other[0]), self._services(*other)
        if base not in services or depth > _DEEPEST:
            self.beside.lacks(f"service {base}" + (f" in {file}" if file else ""), self.place.at(line))
            return [service]
        below = self._chain(services[base], services, place, depth + 1)
        return [*([item.pinned(line) for item in below] if file is not None else below), service]

    def _services(self, path: str, text: str) -> dict[str, Item]:
        if path not in self._files:
            try:
                items = documents(text)
            except InputError as error:
                raise error.at(path) from None
            self._files[path] = {
                name: service for item in items for name, service in pairs(item.filled(self.fill).get("services"))
            }
        return self._files[path]

    def _environment(self, service: _Service) -> dict[str, Word]:
        """Its env files, and over them what it sets itself."""
        env: dict[str, Word] = {}
        for named in service.each("env_file"):
            for entry in [named, *named.items()]:
                file = entry.text or entry.word("path")
                text = self.beside.text(file, self.place.at(entry.line)) if file else None
                env |= assigned(text, entry.line) if text is not None else {}
        for environment in service.each("environment"):
            for key, value in environment.pairs():
                if value.tag == "!reset":
                    env.pop(key, None)
                elif value.text is not None:
                    env[key] = Word(text=value.text, line=value.text_line)
            for entry in environment.items():
                key, sign, text = (entry.text or "").partition("=")
                if sign:
                    env[key] = Word(text=text, line=entry.text_line)
        return env

    def _built(self, service: _Service) -> Stage | None:
        """The image of a service that is built here and does not say all of its command itself."""
        build = service.get("build")
        if build is None or service.get("entrypoint") is not None:
            return None
        context = build.text or service.word("build", "context") or "."
        inline = service.get("build", "dockerfile_inline")
        name = service.word("build", "dockerfile") or "Dockerfile"
        if inline is not None and inline.text is not None:
            path, text = self.place.file, inline.text
        else:
            file = self.beside.file(posixpath.join(context, name), self.place.at(build.line))
            if file is None:
                return None
            path, text = file
        try:
            every = stages(text)
        except InputError as error:
            raise error.at(path) from None
        target = service.word("build", "target")
        return next((stage for stage in every if stage.name == target), every[-1])

    def _config(self, env: Mapping[str, Word], box: Container) -> Found:
        named = env.get("LMCACHE_CONFIG_FILE")
        text = self._open(named, box) if named is not None else None
        return config_file(text, self.place, box) if text is not None else Found()

    def _mounted(self, path: str, box: Container) -> str | None:
        """The name that this folder has for a path in the container."""
        for entry in box.volumes:
            host = entry.host_path
            if host is not None and host.startswith(".") and (path == entry.path or path.startswith(entry.path + "/")):
                return posixpath.normpath(host + path[len(entry.path) :])
        return None

    def _open(self, word: Word, box: Container) -> Mounted | None:
        name = self._mounted(word.text, box)
        file = self.beside.file(name, self.place.at(word.line), owned=False) if name is not None else None
        return Mounted(Word(text=file[1], line=1), file[0]) if file is not None else None


def _words(item: Item | None) -> list[Word]:
    """A list of words, or one text that is split as a shell would."""
    if item is None:
        return []
    if item.text is not None:
        launches, _ = read_shell(item.text, Place(file="", line=item.text_line))
        return [word for launch in launches for word in launch.words]
    return [Word(text=entry.text, line=entry.text_line) for entry in item.items() if entry.text is not None]


def _box(name: str, service: _Service, place: Place, configs: Mapping[str, str | None]) -> Container:
    volumes = []
    for entry in service.list("volumes"):
        if entry.text is not None:
            volumes.append(volume(entry.text))
        elif (target := entry.word("target")) is not None:
            source = entry.word("source")
            volumes.append(Volume(path=target, host_path=source if entry.word("type") == "bind" else None, kind="bind"))
    for entry in service.list("configs"):
        file, target = configs.get(entry.word("source") or ""), entry.word("target")
        if file is not None and target is not None:
            host = file if file.startswith((".", "/")) else f"./{file}"
            volumes.append(Volume(path=target, host_path=host, kind="config"))
    devices = [entry.text.partition(":")[0] for entry in service.list("devices") if entry.text]
    gpus = service.get("deploy", "resources", "reservations", "devices") or service.get("gpus")
    memlock = service.get("ulimits", "memlock")
    unlimited = memlock is not None and "-1" in (memlock.text, memlock.word("soft"), memlock.word("hard"))
    runtime = service.word("runtime")
    nvidia = any("nvidia.com/gpu" in device for device in devices)
    return Container(
        name=name,
        kind="compose",
        image=service.word("image"),
        volumes=tuple({entry.path: entry for entry in volumes}.values()),
        devices=tuple(devices),
        privileged=service.word("privileged") == "true",
        capabilities=tuple(entry.text for entry in service.list("cap_add") if entry.text),
        memlock_unlimited=unlimited,
        host_network=service.word("network_mode") == "host",
        resources=("gpu",) if gpus is not None or nvidia else (),
        toolkit=None if runtime is None else "nvidia" in runtime,
        place=place.at(service.line),
    )
