"""How a running program has its files open, from /proc: what it says of itself is no evidence."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator

_FLAGS = re.compile(r"^flags:\s*([0-7]+)$", re.MULTILINE)  # proc_pid_fdinfo(5): octal


class Watch:
    """Looks at a process and its children. `direct`: was every descriptor of the files that was seen open with O_DIRECT?
    None: none was seen, or some were and some not.
    """

    def __init__(self, paths: Collection[str], besides: Collection[int]) -> None:
        """`paths`: of the files, or of folders they lie in; `besides`: descriptors that the program was given open."""
        self._paths = tuple(paths)
        self._besides = frozenset(map(str, besides))
        self._seen: set[bool] = set()

    @property
    def direct(self) -> bool | None:
        return next(iter(self._seen)) if len(self._seen) == 1 else None

    def look(self, process: int) -> bool:
        """Was anything seen so far?"""
        files = set(self._files())
        for one in family(process):
            with contextlib.suppress(OSError):  # gone meanwhile
                for name in set(os.listdir(f"/proc/{one}/fd")) - self._besides:
                    with contextlib.suppress(OSError):
                        self._descriptor(one, name, files)
        return bool(self._seen)

    def _descriptor(self, process: int, name: str, files: set[tuple[int, int]]) -> None:
        facts = os.stat(f"/proc/{process}/fd/{name}")
        if (facts.st_dev, facts.st_ino) not in files:
            return
        with open(f"/proc/{process}/fdinfo/{name}", encoding="ascii") as stream:
            flags = _FLAGS.search(stream.read())
        if flags is not None:
            self._seen.add(bool(int(flags[1], 8) & os.O_DIRECT))

    def _files(self) -> Iterator[tuple[int, int]]:
        for path in self._paths:
            with contextlib.suppress(OSError):
                names = [entry.path for entry in os.scandir(path)] if os.path.isdir(path) else [path]
                for facts in map(os.stat, names):
                    yield facts.st_dev, facts.st_ino


def family(process: int) -> Iterator[int]:
    """The process and all below it (proc_pid_task(5): children, which kernels for containers have)."""
    yield process
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{task}/children", encoding="ascii") as stream:
                children = stream.read().split()
            for child in children:
                yield from family(int(child))
