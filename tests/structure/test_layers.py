"""Arrows go one way (docs/decisions/0001), and only three modules ask the machine through a library."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "gdsctl"

# What each stage may import besides itself, `errors` and `record`.
_FACTS = {"data", "model"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "record": set(),
    "data": {"model"},
    "model": set(),
    "source": _FACTS,
    "parse": _FACTS,
    "collect": _FACTS | {"source", "parse"},
    "assess": _FACTS | {"parse"},
    "kvcache": _FACTS | {"parse"},
    "container": _FACTS | {"parse", "kvcache"},
    "plan": _FACTS | {"parse", "assess"},
    "diff": _FACTS | {"assess"},
    "emit": _FACTS | {"assess", "plan"},
    "probe": _FACTS | {"source", "parse", "collect", "assess"},
    "render": _FACTS | {"source", "assess", "diff", "kvcache", "plan", "probe"},
    "pipeline": _FACTS
    | {"source", "parse", "collect", "assess", "diff", "plan", "emit", "kvcache", "container", "probe"},
}
EXCEPTIONS = {
    ("source/assemble.py", "parse"),  # a pasted text that its own parser refuses must not become a snapshot
}
LIBRARIES = {"pynvml": "source/nvml.py", "pyudev": "source/udev.py", "psutil": "source/host.py"}


def _imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names of all imports, those inside functions too; `from gdsctl import x` as gdsctl.x."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "gdsctl":
            yield from (f"gdsctl.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_to_earlier_stages_only(module: str) -> None:
    stage = module.partition("/")[0].removesuffix(".py")
    if stage in {"cli", "__main__", "__init__"}:
        return
    assert stage in ALLOWED, f"which stages may {stage} import? add a row"
    for name in _imports(ast.parse((PACKAGE / module).read_text("utf-8"))):
        first, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if first != "gdsctl" or target in {stage, "errors", "record", "__version__"} or (module, target) in EXCEPTIONS:
            continue
        assert target in ALLOWED[stage], f"gdsctl/{module} imports {name}"


@pytest.mark.parametrize("module", MODULES)
def test_only_three_modules_import_live_libraries(module: str) -> None:
    for name in _imports(ast.parse((PACKAGE / module).read_text("utf-8"))):
        owner = LIBRARIES.get(name.partition(".")[0])
        assert owner in {None, module}, f"gdsctl/{module} imports {name}"


def test_exceptions_are_still_needed() -> None:
    for module, target in EXCEPTIONS:
        names = _imports(ast.parse((PACKAGE / module).read_text("utf-8")))
        assert any(name.startswith(f"gdsctl.{target}") for name in names)
