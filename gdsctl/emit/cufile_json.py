"""/etc/cufile.json: plain JSON, without the comments that some readers of it stumble over."""

from __future__ import annotations

import json

from gdsctl.assess.cufile_merge import get
from gdsctl.data import cufile_keys
from gdsctl.plan import cufile
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact


def applies(plan: Plan) -> bool:
    return bool(plan.cufile.settings)


def emit(plan: Plan) -> Artifact:
    """ASCII only, so that no name in it moves a cursor; the reasons stand beside it, by JSON pointer."""
    values = plan.written.values
    return Artifact(
        path=cufile.PATH,
        content=json.dumps(values, indent=2, ensure_ascii=True) + "\n",
        reasons={
            cufile_keys.pointer(setting.key): setting.why
            for setting in plan.written.settings
            if get(values, setting.key) is not None
        },
    )
