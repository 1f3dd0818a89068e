"""Commands of plans, run in a guest: NVMe over RDMA is connected, now and at boot, and udev learns of an md array."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gdsctl import emit
from gdsctl.assess.assessment import assess
from gdsctl.model.devices import Nic
from gdsctl.plan.desired import Plan, plan
from tests.planned_nodes import changed, example, local, wanted
from tests.vm import machines

pytestmark = pytest.mark.vm

ROOT = Path(__file__).resolve().parents[2]
# What guest/rdma.sh serves, and where.
NQN, ADDRESS = "nqn.2024-01.lab.gds:disk1", "10.9.0.1"


def guest(topology: str, script: str, folder: Path) -> dict[str, list[str]]:
    """Run a script in a guest; lines of its output below each line `== NAME`. The host's files are at /host there."""
    why = machines.missing()
    if why:
        pytest.skip(f"no virtual machine: {why}")
    (folder / "script.sh").write_text(script)
    command = [sys.executable, "-m", "tests.vm.gdsvm", "--topology", topology, "--", f"bash /host{folder}/script.sh"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found: dict[str, list[str]] = {}
    for line in ran.stdout.splitlines():
        if line.startswith("== "):
            found[line.removeprefix("== ")] = lines = []
        elif found:
            lines.append(line.strip())
    return found


def test_nvme_over_rdma_is_connected_now_and_at_boot(tmp_path: Path) -> None:
    """`nvme connect-all` is what nvmf-autoconnect.service runs; the kernel shows a timeout of -1 as `off`."""
    asked = f"{{nqn: '{NQN}', traddr: {ADDRESS}, nr_io_queues: 2}}"
    text = f"mounts: [{{target: /kv, type: xfs, source: /dev/disk/by-id/x, nvme_of: {asked}}}]"
    nic = Nic(address=None, rdma_device="rxe0", netdevs=("eth0",), ipv4=(ADDRESS,))
    made: Plan = plan(assess(changed(local(), nics=(nic,))), wanted(text))
    (step,) = (step for step in made.steps if step.what.startswith("Connect "))
    (tmp_path / "nvme-connect.sh").write_text(emit.EMITTERS["nvme-connect"].emit(made).content)
    (tmp_path / "undo.sh").write_text("\n".join(step.undo))
    look = """
for c in /sys/class/nvme/nvme*; do
    [ "$(cat "$c/transport")" != rdma ] || cat "$c"/{address,subsysnqn,cntrltype,ctrl_loss_tmo,queue_count}
done
"""
    found = guest(
        "cascade",
        f"""
set -e
bash /host{ROOT}/tests/vm/guest/rdma.sh target
rm -f /etc/nvme/discovery.conf
systemctl() {{ :; }}
mkdir -p /dev/disk/by-id
(sleep 2; : >/dev/disk/by-id/x) &  # what the script waits for
. /host{tmp_path}/nvme-connect.sh
test -e /dev/disk/by-id/x
echo == now
{look}
nvme disconnect --nqn={NQN} >/dev/null
echo == none
{look}
nvme connect-all >/dev/null
echo == boot
{look}
sh /host{tmp_path}/undo.sh >/dev/null
echo == undone
{look}
cat /etc/nvme/discovery.conf
""",
        tmp_path,
    )
    # Two I/O queues and the one for administration.
    standing = [f"traddr={ADDRESS},trsvcid=4420,host_traddr={ADDRESS}", NQN, "io", "off", "3"]
    assert found["now"] == found["boot"] == standing
    assert not any("traddr" in line for line in found["none"])
    assert not any("traddr" in line for line in found["undone"])


def test_udev_learns_of_an_array(tmp_path: Path) -> None:
    """The distribution's own rules are masked, as on RHEL 8.3 they lack the import."""
    node = example("pcie-nvme-raid").node
    block = tuple(msgspec.structs.replace(b, udev={}) if b.kind == "md" else b for b in node.block)
    platform = msgspec.structs.replace(node.platform, kernel_version=(7, 1, 0), kernel="7.1.0")
    made = plan(assess(changed(node, block=block, platform=platform)), wanted("mode: p2pdma"))
    (step,) = (step for step in made.steps if "mdadm" in step.what)
    (tmp_path / "do.sh").write_text("set -e\n" + "\n".join(step.commands))
    (tmp_path / "undo.sh").write_text("set -e\n" + "\n".join(step.undo))
    look = "udevadm info --query=property /dev/md0 | grep -E '^MD_(LEVEL|DEVICES)=' || :"
    found = guest(
        "drives",
        f"""
set -e
bash /host{ROOT}/tests/vm/guest/storage.sh
mkdir -p /etc/udev/rules.d
for rules in /lib/udev/rules.d/*md*.rules; do : >"/etc/udev/rules.d/${{rules##*/}}"; done
udevadm control --reload
udevadm trigger --action=change --sysname-match=md0
udevadm settle
echo == masked
{look}
sh /host{tmp_path}/do.sh
echo == done
{look}
sh /host{tmp_path}/undo.sh
echo == undone
{look}
ls /etc/udev/rules.d
""",
        tmp_path,
    )
    assert found["masked"] == []
    assert found["done"] == ["MD_LEVEL=raid0", "MD_DEVICES=2"]
    assert not any("MD_" in line or "gdsctl" in line for line in found["undone"])
