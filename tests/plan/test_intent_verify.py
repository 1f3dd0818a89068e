"""The check of a plan judges by the intent that the plan was made for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gdsctl.plan.intent import STDIN, Intent, Wanted


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(intent=Intent()), "gdsctl verify"),
        (Wanted(intent=Intent(), path="my intent.yaml"), "gdsctl verify --intent 'my intent.yaml'"),
        (Wanted(intent=Intent(), path="$(rm x)"), "gdsctl verify --intent '$(rm x)'"),
        (Wanted(intent=Intent(), path=STDIN), "gdsctl verify --intent FILE"),
        (
            Wanted(intent=Intent(), path="i.yaml", mode_given="compat"),
            "gdsctl verify --intent i.yaml # after 'mode: compat' is in it",
        ),
    ],
)
def test_by_the_intent_of_the_plan(wanted: Wanted, expected: str) -> None:
    assert wanted.verify == expected


def test_a_mode_of_the_command_line_is_an_intent_for_verify() -> None:
    """The shell runs what the plan prints: compat on the example whose paths are direct, so verify tells the difference."""
    command = Wanted(intent=Intent(), mode_given="compat").verify
    assert command.endswith("gdsctl verify --intent -")
    run = command.replace("gdsctl verify", f"{sys.executable} -m gdsctl verify -S example:hgx-h100-vast --format json")
    done = subprocess.run(["sh", "-c", run], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    assert '"mode": "compat"' in done.stdout
