"""`verify` as a file for node_exporter's textfile collector: HELP and TYPE, no timestamps, one family together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from gdsctl.assess.routes import DIRECT
from gdsctl.plan.documents import Status, VerifyReport
from gdsctl.render.safe_text import safe

Sample = tuple[dict[str, str], float | int]


def prometheus(report: VerifyReport) -> str:
    """Label sets stay the same from run to run: each status is a series of its own, 0 or 1."""
    statuses: tuple[str, ...] = get_args(Status)
    found: list[str] = [requirement.status for requirement in report.requirements]
    families: list[tuple[str, str, list[Sample]]] = [
        ("build_info", "The gdsctl that wrote this.", [({"version": report.tool.version}, 1)]),
        (
            "verify_verdict",
            "The verdict of gdsctl verify, 1 for the one that holds.",
            [({"verdict": name}, int(name == report.verdict)) for name in ("pass", "fail", "unknown")],
        ),
        (
            "verify_requirements",
            "Requirements by status.",
            [({"status": status}, found.count(status)) for status in statuses],
        ),
        (
            "verify_requirement",
            "A requirement's status, 1 for the one that holds.",
            [
                ({"id": one.id, "subject": one.subject, "status": status}, int(one.status == status))
                for one in report.requirements
                for status in statuses
            ],
        ),
        (
            "route_direct",
            "Does a GPU reach a mount without the bytes passing host memory? Absent where that is not known.",
            [
                (
                    {"gpu": route.gpu, "mount": route.mount},
                    int(route.route in DIRECT and route.dynamic_routing in (None, "P2P", "GPU_MEM", "GPU_MEM_NVLINKS")),
                )
                for route in report.routes
                if route.route != "unknown"
            ],
        ),
        (
            "route_ceiling_bytes_per_second",
            "The most that the links between a GPU and a mount can carry.",
            [
                ({"gpu": route.gpu, "mount": route.mount}, round(route.ceiling_gbs * 1e9))
                for route in report.routes
                if route.ceiling_gbs is not None
            ],
        ),
        (
            "findings",
            "Findings by severity.",
            [
                ({"severity": severity}, [finding.severity for finding in report.findings].count(severity))
                for severity in ("critical", "error", "warning", "info")
            ],
        ),
    ]
    return "".join(_family(f"gdsctl_{name}", told, samples) for name, told, samples in families)


def _family(name: str, told: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {told}", f"# TYPE {name} gauge"]
    lines += [
        f"{name}{{{','.join(f'{key}={_quoted(text)}' for key, text in labels.items())}}} {value}"
        for labels, value in {tuple(labels.items()): (labels, value) for labels, value in samples}.values()
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    r"""Text format 0.0.4: `\\` and `\"` are escaped, all else is UTF-8; control and hidden characters as `\xNN`."""
    return '"' + safe(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
