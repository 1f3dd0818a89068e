"""One severity, or a set of them, for each id: what the code may say, what `explain` and the page of findings tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gdsctl
from gdsctl.assess.rules import explained, explanation

PACKAGE = Path(gdsctl.__file__).parent
PAGE = PACKAGE.parent / "docs" / "findings.md"

# Where the severity is a variable: read by eye in the function or the table that is named.
ELSEWHERE = {
    "nfs.port": {"error", "warning"},  # data/nfs_ports.py, misplaced()
    "app.mount-port": {"error", "warning"},
    "cufile.static-routing": {"critical", "error", "warning"},  # assess/static_routing.py, _aborts, _refused, _warned
    "app.deprecated-backend": {"info", "warning"},  # data/app_names.toml
    "app.pod-lacks": {"error", "warning"},  # kvcache/on_node.py, _LACKING
}
FORWARDED = {
    "problem.severity",  # assess/lint_findings.py: what lint says
    "verdict.severity or rule.severity",  # assess/engine.py
    "severity or story.severity",  # kvcache/findings.py
    "rule.severity",  # assess/rules/__init__.py
    "row.severity",  # data/app_findings.py, and the table of deprecated names
}


def constants(node: ast.expr) -> Iterator[str | None]:
    """The values that an expression may have; None for a variable's, `usual` for a rule's own."""
    if isinstance(node, ast.IfExp):
        yield from constants(node.body)
        yield from constants(node.orelse)
    elif isinstance(node, ast.Constant):
        yield "usual" if node.value is None else str(node.value)
    else:
        yield None


def calls(tree: ast.Module) -> Iterator[tuple[str, dict[str, ast.expr], list[ast.expr]]]:
    """Calls and dictionaries with constant keys: name, keywords, positional arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            yield name, {word.arg: word.value for word in node.keywords if word.arg}, node.args
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield "", {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}, []


def text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def said_in(tree: ast.Module) -> Iterator[tuple[str | None, str | None, str]]:
    """(id, severity, expression): a None for what is no constant."""
    found = list(calls(tree))
    rule = next((text(words.get("id")) for name, words, _ in found if name == "Rule"), None)
    for name, words, arguments in found:
        if name == "Rule":
            continue
        if name == "Fail":
            id_, severity = rule, words.get("severity", ast.Constant(None))
        elif name == "finding":
            id_, severity = text(arguments[0]), words.get("severity", ast.Constant(None))
        elif "severity" in words:
            id_, severity = text(words.get("id")), words["severity"]
        else:
            continue
        for value in constants(severity):
            yield id_, value, ast.unparse(severity)


@pytest.fixture(scope="module")
def said() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {id_: set(severities) for id_, severities in ELSEWHERE.items()}
    for path in PACKAGE.rglob("*.py"):
        for id_, severity, _ in said_in(ast.parse(path.read_text("utf-8"))):
            if id_ is not None and severity is not None:
                found.setdefault(id_, set()).add(severity)
    return found


def test_variables_are_the_ones_read_by_eye() -> None:
    found = {
        (id_ or expression)
        for path in PACKAGE.rglob("*.py")
        for id_, severity, expression in said_in(ast.parse(path.read_text("utf-8")))
        if severity is None and expression not in FORWARDED
    }
    assert found == {"nfs.port", "app.mount-port", "app.pod-lacks", "severity"}  # the last: static_routing._problem


@pytest.mark.parametrize("id_", explained())
def test_code_story_and_page_agree(id_: str, said: dict[str, set[str]]) -> None:
    story = explanation(id_)
    assert story is not None
    usual, otherwise = story["severity"], set(story["otherwise"])
    assert usual not in otherwise
    can = {usual if severity == "usual" else severity for severity in said.get(id_, {"usual"})}
    assert can == {usual, *otherwise}
    listed = ", ".join((usual, *story["otherwise"]))
    row = next(line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(f"| [`{id_}`]"))
    assert row.split(" | ")[1] == listed
