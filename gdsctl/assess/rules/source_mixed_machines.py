from __future__ import annotations

from collections.abc import Iterator, Mapping

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data import gpus
from gdsctl.model.judgement import Remedy
from gdsctl.model.pci import PciDevice
from gdsctl.model.topology import is_gpu

_TREE, _TOPO, _GDSCHECK = "PCI functions", "nvidia-smi topo -m", "gdscheck -p"
_NVIDIA = "10de"


def check(view: View) -> Iterator[Verdict]:
    """Only pasted outputs can come from different machines. What one of them does not tell is not held against it."""
    if view.node.source.kind != "assembled":
        return
    report = view.node.gds.gdscheck or {}
    told: dict[str, Mapping[str, object]] = {
        "number of GPUs": _counts(view, report),
        "GPU model": _models(view, report),
        "kernel": {
            "/proc and dmesg": view.node.platform.kernel,
            _GDSCHECK: report.get("platform_info", {}).get("kernel"),
        },
    }
    for subject, by_source in told.items():
        known = {source: value for source, value in by_source.items() if value}
        if len(set(known.values())) > 1:
            shown = ", ".join(f"{value} by {source}" for source, value in known.items())
            evidence = [piece for source, value in known.items() for piece in seen(subject, value, source)]
            yield Fail(subject=subject, message=f"the {subject} differs: {shown}", evidence=tuple(evidence))


def _functions(view: View) -> list[PciDevice]:
    return [d for d in view.node.pci.devices if is_gpu(d) and d.vendor_id == _NVIDIA and not d.sriov.is_vf]


def _counts(view: View, report: dict[str, object]) -> dict[str, int | None]:
    rows = (view.node.smi_topo or {}).get("devices", ())
    listed = report.get("gpus") if not report.get("truncated") else None
    return {
        _TREE: len(_functions(view)),
        _TOPO: sum(1 for name in rows if name.removeprefix("GPU").isdecimal()),
        _GDSCHECK: len(listed) if isinstance(listed, (list, tuple)) else None,
    }


def _models(view: View, report: dict[str, object]) -> dict[str, str | None]:
    tree = {gpus.by_device_id(d.device_id or "") or gpus.by_name(d.name or "") for d in _functions(view)}
    listed = report.get("gpus")
    named = {gpus.by_name(row.get("name") or "") for row in listed} if isinstance(listed, (list, tuple)) else set()
    return {
        source: ", ".join(sorted(model.name for model in models if model)) if None not in models else None
        for source, models in ((_TREE, tree), (_GDSCHECK, named))
    }


RULE = Rule(
    id="source.mixed-machines",
    severity="warning",
    problem="the outputs put together do not describe the same machine",
    why="A snapshot put together from pasted outputs joins them by PCI address and GPU index. Where they come from different "
    "machines, or from before and after a change, it describes a machine that does not exist.",
    look_at=("lspci -D -nn | grep -i nvidia", "nvidia-smi topo -m", "gdscheck -p"),
    remedy=Remedy(
        text="Take all outputs on one machine, at one time and outside containers, or run gdsctl snapshot there."
    ),
    not_to_conclude="A container or CUDA_VISIBLE_DEVICES also hides GPUs from gdscheck and nvidia-smi, but not from lspci.",
    source="lspci(8); CUDA C++ Programming Guide, CUDA_VISIBLE_DEVICES",
    check=check,
)
