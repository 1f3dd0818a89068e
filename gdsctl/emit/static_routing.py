"""The file that miscellaneous.static_routing_filepath names: nearest drives and NICs of each GPU, for libcufile."""

from __future__ import annotations

from gdsctl.emit.comment import comment
from gdsctl.plan import static_routing
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact


def applies(plan: Plan) -> bool:
    return plan.cufile.static.needed


def emit(plan: Plan) -> Artifact:
    """Plain JSON; where a fact for it is missing an empty object, below a comment that names it."""
    static = plan.cufile.static
    if not static.devices:
        said = comment(f"not written: {static.missing}").replace("#", "//", 1)
        return Artifact(path=static_routing.PATH, content=f"{said}\n{{}}\n", reasons={"": static.missing})
    why = static.why or "as asked; libcufile would choose as well by itself"
    reasons = {
        f"/{name}/preferences": f"nearest first, then widest; {why}"
        for name, row in static.devices.items()
        if "preferences" in row
    }
    return Artifact(path=static_routing.PATH, content=static.text, reasons=reasons)
