"""Writes plan-examples.md: what `gdsctl plan` prints for five nodes.

python docs/build_plan_examples.py            writes it
python docs/build_plan_examples.py --check    exit code 1 where it is not current
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gdsctl import pipeline  # noqa: E402 -- after the path to the tests
from gdsctl.assess.assessment import Assessment, assess  # noqa: E402
from gdsctl.model.node import Pci, SourceInfo  # noqa: E402
from gdsctl.model.pci import Link  # noqa: E402
from gdsctl.model.software import Iommu  # noqa: E402
from gdsctl.plan.desired import plan  # noqa: E402
from gdsctl.plan.intent import Intent, Wanted  # noqa: E402
from gdsctl.render import terminal  # noqa: E402
from gdsctl.render.plan_report import plan_report  # noqa: E402
from tests.planned_nodes import changed, example, local  # noqa: E402

PAGE = ROOT / "docs" / "plan-examples.md"
_HEAD = """\
# Plans for five nodes

<!-- Written by docs/build_plan_examples.py. -->

Without an intent, so for the node's own data mounts. The first four are the examples that ship with gdsctl:
`gdsctl plan -S example:NAME` prints the same.
"""
_WIDTH = 118
_EXAMPLES = ("hgx-h100-vast", "pcie-nvme-raid", "nvme-unpatched", "vm-flattened")


def grace_hopper() -> Assessment:
    """One GH200 with a drive (PCIe 5.0 x4) on another root port, nvidia_fs loaded over the stock nvme module."""
    node = local(arch="aarch64", hook="stock", gpu="NVIDIA GH200 480GB")
    gpu = msgspec.structs.replace(node.gpus[0], c2c=True, bar1_bytes=None)
    root, function, drive = node.pci.devices
    other = msgspec.structs.replace(root, address="0008:00:00.0", root_bus="0008:00")
    link = Link(speed_gts=32.0, width=4, max_speed_gts=32.0, max_width=4)
    drive = msgspec.structs.replace(drive, address="0008:01:00.0", parent=other.address, root_bus="0008:00", link=link)
    nvme = (msgspec.structs.replace(node.nvme[0], address=drive.address),)
    note = "synthetic: made by gdsctl's own generator, no such machine was captured"
    source = SourceInfo(kind="snapshot", path="GH200", host="gh200-01", note=note)
    # NVIDIA's guides want the IOMMU of Grace on, and not passed through.
    return assess(
        changed(
            node,
            source=source,
            gpus=(gpu,),
            nvme=nvme,
            pci=Pci(devices=(root, function, other, drive)),
            iommu=Iommu(state="translated"),
        )
    )


def page() -> str:
    parts = [_HEAD]
    nodes = {name: example(name) for name in _EXAMPLES} | {"GH200": grace_hopper()}
    for name, assessment in nodes.items():
        report = pipeline.planned(plan(assessment, Wanted(intent=Intent())), [])
        shown = terminal.plain(plan_report(report), _WIDTH).strip()
        parts.append(f"## {name}\n\n```\n{shown}\n```\n")
    return "\n".join(parts)


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text("utf-8") != text)
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
