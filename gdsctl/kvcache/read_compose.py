"""Docker compose files as the containers that they start (docs.docker.com/reference/compose-file)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping

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
    """The services of a file and of those that it includes. Variables are replaced by `.env` and their defaults."""
    fill = _filler(beside, place)
    project = _Project(item.filled(fill), place, beside, fill)
    found = Found()
    for entry in item.filled(fill).list("include") if depth < _DEEPEST else ():
        paths = entry.get("path")
        for name in [entry.text] if entry.text else [paths.text, *(p.text for p in paths.items())] if paths else []:
            other = beside.file(name, place.at(entry.line)) if name else None
            if other is not None and other[0] not in beside.texts:
                found += _included(other, beside, depth)
    for name in project.services:
        found += project.service(name)
    return found


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
    """A service upon those that it extends."""

    def __init__(self, chain: list[Item]) -> None:
        self.chain = chain
        self.line = chain[-1].line

    def get(self, *path: str) -> Item | None:
        return next((found for item in reversed(self.chain) if (found := item.get(*path)) is not None), None)

    def word(self, *path: str) -> str | None:
        found = self.get(*path)
        return found.text if found is not None else None

    def list(self, *path: str) -> list[Item]:
        return [entry for item in self.chain for entry in item.list(*path)]


class _Project:
    def __init__(self, item: Item, place: Place, beside: Beside, fill: Callable[[str], str]) -> None:
        self.place = place
        self.beside = beside
        self.fill = fill
        self.services = dict(pairs(item.get("services")))
        self.configs = {name: entry.word("file") for name, entry in pairs(item.get("configs"))}
        self._files: dict[str, dict[str, Item]] = {}

    def service(self, name: str) -> Found:
        service = _Service(self._chain(self.services[name], self.services, self.place))
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
        for own in service.chain:
            named = own.get("env_file")
            for entry in [named, *named.items()] if named is not None else []:
                file = entry.text or entry.word("path")
                text = self.beside.text(file, self.place.at(entry.line)) if file else None
                env |= assigned(text, entry.line) if text is not None else {}
        for own in service.chain:
            environment = own.get("environment")
            if environment is None:
                continue
            for key, value in environment.pairs():
                if value.text is not None:
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
        context = build.text or build.word("context") or "."
        inline = build.get("dockerfile_inline")
        name = build.word("dockerfile") or "Dockerfile"
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
        target = build.word("target")
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
        volumes=tuple(volumes),
        devices=tuple(devices),
        privileged=service.word("privileged") == "true",
        capabilities=tuple(entry.text for entry in service.list("cap_add") if entry.text),
        memlock_unlimited=unlimited,
        host_network=service.word("network_mode") == "host",
        resources=("gpu",) if gpus is not None or nvidia else (),
        toolkit=None if runtime is None else "nvidia" in runtime,
        place=place.at(service.line),
    )
