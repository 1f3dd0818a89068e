"""The ACS script run by a real shell, against a setpci that keeps registers in files."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from gdsctl import emit
from gdsctl.assess.assessment import assess
from gdsctl.plan.desired import Plan, plan
from gdsctl.plan.intent import Intent, Wanted
from tests.assess.rules.nodes import PORT0, but, healthy, redirecting

PORTS = ("0000:17:00.0", "0000:18:01.0", "10000:01:02.3")
# Registers as files named by port; writes are logged; a port named in stuck keeps its value, one in broken fails.
SETPCI = """#!/bin/sh
dir=$(dirname "$0")
[ "$1" = -s ] || exit 9
file=$dir/registers/$2
case $3 in
ECAP_ACS+6.w) [ -e "$file" ] || { echo "setpci: $2: Instance #0 of ECAP_ACS not found" >&2; exit 1; }; cat "$file" ;;
ECAP_ACS+6.w=*)
    echo "$2 ${3#*=}" >>"$dir/log"
    [ ! -e "$dir/broken/$2" ] || exit 1
    [ -e "$dir/stuck/$2" ] || echo "${3#*=}" >"$file"
    ;;
*) exit 9 ;;
esac
"""


@functools.cache
def made(*ports: str, blocking: bool = True) -> str:
    drawn = plan(assess(healthy(p2pdma=True)), Wanted(intent=Intent(), path="i"))
    assert drawn.driver.redirecting == ()
    driver = msgspec.structs.replace(drawn.driver, redirecting=ports, clear_acs=ports if blocking else ())
    return emit.EMITTERS["acs"].emit(msgspec.structs.replace(drawn, driver=driver)).content


class Bench:
    """A folder with the script and, before all else on PATH, its setpci and id."""

    def __init__(self, folder: Path, script: str, registers: dict[str, str], *, uid: int = 0) -> None:
        self.folder = folder
        self.registers = folder / "registers"
        for name in ("registers", "stuck", "broken"):
            (folder / name).mkdir()
        for port, value in registers.items():
            (self.registers / port).write_text(value + "\n")
        for name, text in (("setpci", SETPCI), ("id", f"#!/bin/sh\necho {uid}\n")):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / "acs.sh").write_text(script)

    def run(self, *arguments: str, shell: str = "sh") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [shell, "acs.sh", *arguments],
            cwd=self.folder,
            env={"PATH": f"{self.folder}:/usr/bin:/bin", "GDSCTL_ACS_STATE": str(self.folder / "state")},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    @property
    def values(self) -> dict[str, str]:
        return {path.name: path.read_text().strip() for path in self.registers.iterdir()}

    @property
    def written(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []


# 0x5f less ReqRedir 0x04 and CmpltRedir 0x08 is 0x53; 0x2d less those and EgressCtrl 0x20 is 0x01; 0x1d leaves 0x11.
OLD = dict(zip(PORTS, ("005f", "002d", "001d"), strict=True))
NEW = dict(zip(PORTS, ("0053", "0001", "0011"), strict=True))
SHELLS = [shell for shell in ("sh", "dash", "bash") if shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_clears_redirection_only_and_undoes_it(tmp_path, shell):
    other = {"0000:99:00.0": "005f"}
    bench = Bench(tmp_path, made(*PORTS), {**OLD, **other})
    done = bench.run(shell=shell)
    assert done.returncode == 0, done.stderr
    assert bench.values == {**NEW, **other}
    assert bench.written == [f"{port} {NEW[port]}" for port in PORTS]
    assert "isolation" in done.stderr
    again = bench.run(shell=shell)
    assert again.returncode == 0
    assert again.stderr.count("left alone") == 3
    undone = bench.run("--undo", shell=shell)
    assert undone.returncode == 0, undone.stderr
    assert bench.values == {**OLD, **other}
    assert "nothing to undo" in bench.run("--undo", shell=shell).stderr


def test_first_values_survive_a_second_run(tmp_path):
    """The kernel may have set the bits again meanwhile; what stood there at first is what is written back."""
    bench = Bench(tmp_path, made(*PORTS), OLD)
    bench.run()
    (bench.registers / PORTS[0]).write_text("0057\n")
    assert bench.run().returncode == 0
    assert bench.values[PORTS[0]] == "0053"
    bench.run("--undo")
    assert bench.values == OLD


def test_dry_run_writes_nothing(tmp_path):
    bench = Bench(tmp_path, made(*PORTS), OLD)
    told = bench.run("--dry-run")
    assert told.returncode == 0
    assert bench.values == OLD
    assert not bench.written
    assert not (tmp_path / "state").exists()
    assert all(f"{port} is {OLD[port]} and would become {NEW[port]}" in told.stderr for port in PORTS)


def test_one_port_of_the_plan(tmp_path):
    bench = Bench(tmp_path, made(*PORTS), OLD)
    assert bench.run(PORTS[1]).returncode == 0
    assert bench.values == {**OLD, PORTS[1]: NEW[PORTS[1]]}
    assert bench.run("0000:99:00.0").returncode == 2
    assert bench.run(PORTS[0][:-1] + "*").returncode == 2
    assert bench.run("--sideways").returncode == 2
    assert bench.written == [f"{PORTS[1]} {NEW[PORTS[1]]}"]


@pytest.mark.parametrize("trouble", ["stuck", "broken"])
def test_stops_at_the_first_failure(tmp_path, trouble):
    bench = Bench(tmp_path, made(*PORTS), OLD)
    (tmp_path / trouble / PORTS[1]).touch()
    failed = bench.run()
    assert failed.returncode == 1
    assert PORTS[1] in failed.stderr
    assert bench.values == {**OLD, PORTS[0]: NEW[PORTS[0]]}
    (tmp_path / trouble / PORTS[1]).unlink()
    assert bench.run("--undo").returncode == 0
    assert bench.values == OLD


@pytest.mark.parametrize("value", ["ffff", "", "1d", "001D x", "zzzz"])
def test_an_odd_reading_is_not_worked_on(tmp_path, value):
    bench = Bench(tmp_path, made(*PORTS), {**OLD, PORTS[0]: value})
    assert bench.run().returncode == 1
    assert not bench.written


def test_a_port_without_the_capability(tmp_path):
    bench = Bench(tmp_path, made(*PORTS), {PORTS[1]: "005f", PORTS[2]: "005f"})
    failed = bench.run()
    assert failed.returncode == 1
    assert "not found" in failed.stderr
    assert not bench.written


def test_needs_root_and_setpci(tmp_path):
    bench = Bench(tmp_path, made(*PORTS), OLD, uid=1000)
    assert bench.run().returncode == 1
    assert "needs root" in bench.run().stderr
    assert not bench.written


def test_no_old_value_kept_no_write(tmp_path):
    bench = Bench(tmp_path, made(*PORTS), OLD)
    (tmp_path / "state").mkdir()
    assert bench.run().returncode == 1
    assert not bench.written


def test_told_in_the_script():
    script = made(*PORTS)
    for word in (
        "virtual machines",
        "has taken drives down",
        "Not persistent",
        "nvidia-fs",
        "P2PDMA",
        "disable_acs_redir",
    ):
        assert word in script
    assert "advised, not needed" not in script
    assert "advised, not needed" in made(*PORTS, blocking=False)
    assert "=0000" not in script


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="no shellcheck here")
@pytest.mark.parametrize("ports", [PORTS, PORTS[:1], ()])
def test_shellcheck(tmp_path, ports):
    (tmp_path / "acs.sh").write_text(made(*ports))
    checked = subprocess.run(
        ["shellcheck", "-s", "sh", tmp_path / "acs.sh"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


def test_ports_are_addresses():
    with pytest.raises(ValueError, match="touch"):
        made("0000:17:00.0; touch /x")


# --- in a plan --------------------------------------------------------------------------------------------------------


def planned(cmdline: str = "quiet", *, listed: bool = False) -> Plan:
    """Both GPUs and the drive below one switch whose first port redirects; the host bridge is no listed one."""
    node = redirecting(healthy(p2pdma=True), PORT0)
    changes: dict[str, object] = {"platform.cmdline": cmdline}
    if not listed:
        changes["pci.devices.0.device_id"] = "ffff"
    return plan(assess(but(node, changes)), Wanted(intent=Intent(), path="i"), "p2pdma")


def test_only_the_redirecting_port_on_the_way_is_named():
    drawn = planned()
    assert drawn.driver.clear_acs == drawn.driver.redirecting == (PORT0,)
    artifact = emit.EMITTERS["acs"].emit(drawn)
    (line,) = artifact.reasons
    assert artifact.content.splitlines()[int(line) - 1] == PORT0
    step = next(step for step in drawn.steps if "sh acs.sh" in step.commands)
    assert step.undo == ("sh acs.sh --undo",)
    assert step.risk is not None
    assert "isolation" in step.risk


def test_advised_only_where_no_route_hangs_on_it():
    drawn = planned(listed=True)
    assert drawn.driver.redirecting == (PORT0,)
    assert drawn.driver.clear_acs == ()
    assert not emit.EMITTERS["acs"].applies(drawn)
    assert PORT0 in emit.EMITTERS["acs"].emit(drawn).content


@pytest.mark.parametrize(
    ("cmdline", "word", "told"),
    [
        ("quiet", f"pci=disable_acs_redir={PORT0}", ""),
        ("quiet pci=noaer", f"pci=disable_acs_redir={PORT0}", ""),
        (
            "quiet pci=disable_acs_redir=pci:8086:1",
            f'pci="disable_acs_redir=pci:8086:1;{PORT0}"',
            "take the old one out",
        ),
        (f"quiet pci=disable_acs_redir={PORT0}", f"pci=disable_acs_redir={PORT0}", "take the old one out"),
        ("quiet pci=disable_acs_redir=garbage", f"pci=disable_acs_redir={PORT0}", "take the old one out"),
        (f"quiet pci=config_acs=xx1x@{PORT0}", f"pci=disable_acs_redir={PORT0}", "beats disable_acs_redir"),
    ],
)
def test_merged_with_what_stands_on_the_command_line(cmdline, word, told):
    drawn = planned(cmdline)
    words = [argument.word for argument in drawn.driver.arguments if argument.word.startswith("pci=")]
    assert words == [word]
    assert emit.EMITTERS["kernel-cmdline"].emit(drawn).content.strip() == word
    assert told in " ".join(drawn.notes)
    assert bool(told) == ("disable_acs_redir" in " ".join(drawn.notes))


def test_grub_reads_the_word_whole(tmp_path):
    """The step's file is sourced by a shell, its value goes into grub.cfg, where a `;` outside quotes ends the command."""
    drawn = planned("quiet pci=disable_acs_redir=pci:8086:1")
    step = next(step for step in drawn.steps if "update-grub" in step.commands)
    write = next(command for command in step.commands if "printf" in command)
    snippet = tmp_path / "gdsctl.cfg"
    told = write.replace("/etc/default/grub.d", str(tmp_path))
    script = f'{told}; GRUB_CMDLINE_LINUX="ro"; . "$1"; printf %s "$GRUB_CMDLINE_LINUX"'
    value = subprocess.run(["sh", "-c", script, "sh", snippet], capture_output=True, text=True, check=True).stdout
    assert value == f'ro pci="disable_acs_redir=pci:8086:1;{PORT0}"'
    assert os.path.getsize(snippet) > 0


def test_ports_on_no_mounts_way_are_named_and_left_alone():
    bare = but(redirecting(healthy(), PORT0), {"mounts": ()})
    script = emit.EMITTERS["acs"].emit(plan(assess(bare), Wanted(intent=Intent(), path="i"))).content
    assert PORT0 in script
    assert "setpci" not in script
