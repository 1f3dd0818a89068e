"""YAML documents with comment lines above each, in plain ASCII."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from gdsctl.emit.comment import comment


def yaml_stream(*parts: tuple[Iterable[str], Any]) -> str:
    """(comments, value) pairs, `---` between them; characters beyond ASCII are escaped, so that none moves a cursor."""
    documents = [
        "".join(f"{comment(line)}\n" for line in comments)
        + yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=1000, default_flow_style=False)
        for comments, value in parts
    ]
    return "---\n".join(documents)
