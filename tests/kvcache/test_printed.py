"""Words that another command prints: what hangs on them is unknown, by the name of the file, and nothing else is."""

from __future__ import annotations

import pytest

from gdsctl.kvcache.app import judge
from gdsctl.kvcache.launch import Place, Word
from gdsctl.kvcache.printed import printed
from gdsctl.kvcache.read_shell import read_shell
from gdsctl.model.node import Tool

TOOL = Tool(name="gdsctl", version="0")
SERVER = "lmcache server --eviction-policy LRU --l1-size-gb 64"
MP = """vllm serve m --kv-transfer-config '{"kv_connector":"LMCacheMPConnector","kv_role":"kv_both"}'"""


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ('vllm serve m --kv-transfer-config "$(cat /etc/kv.json)"', "--kv-transfer-config is the text of /etc/kv.json"),
        ('vllm serve m --kv-transfer-config="$(< kv.json)"', "--kv-transfer-config is the text of kv.json"),
        ("vllm serve m --kv-transfer-config `cat 'kv.json'`", "--kv-transfer-config is the text of kv.json"),
        ('vllm serve m --kv-transfer-config "$(jq -c . kv.json)"', "is what $(jq -c . kv.json) prints"),
        (f'A=$(cat l2.json)\n{SERVER} --l2-adapter "$A"', "--l2-adapter is the text of l2.json"),
        (f"{SERVER} $(cat args.txt)", "further words are the text of args.txt"),
        (f"{MP} --enable-prefix-caching $(cat args.txt)", "--enable-prefix-caching is the text of args.txt"),
        ("python -m sglang.launch_server --load-format $(cat format)", "--load-format is the text of format"),
    ],
)
def test_the_file_is_named_and_nothing_is_guessed(command: str, named: str) -> None:
    report = judge([("run.sh", command + "\n")], tool=TOOL)
    assert report.verdict == "unknown"
    (edge,) = [
        edge for stack in report.stacks for edge in stack.edges if edge.api == "unknown" and named in edge.because
    ]
    assert edge.gds_helps == "unknown"
    assert edge.because.endswith("which is not in this file: give the command with that in its place")


@pytest.mark.parametrize(
    "command",
    [
        f"{SERVER} --port $(pick port)",
        f"{SERVER} --port $(cat port)",
        f"{MP} --tensor-parallel-size $(nvidia-smi -L | wc -l) --api-key=$(cat key)",
        MP.replace(" m ", ' "$(cat model.txt)" '),
        f"echo $(cat motd)\n{SERVER}",
    ],
)
def test_what_decides_nothing_is_left_alone(command: str) -> None:
    report = judge([("run.sh", command + "\n")], tool=TOOL)
    assert report.verdict == "pass"


def test_a_program_that_is_not_ours_stays_unrecognised() -> None:
    assert list(printed([Word(text="nginx", line=1), Word(text="-c", line=1)])) == []


def test_backticks_are_one_word() -> None:
    launches, _ = read_shell('a `cat x y`z "`p q`" `open\nb', Place(file="f"))
    assert [[word.text for word in launch.words] for launch in launches] == [
        ["a", "`cat x y`z", "`p q`", "`open"],
        ["b"],
    ]
