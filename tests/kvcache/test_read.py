"""Configurations as they are written: which program starts, with which arguments, on which line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.kvcache.launch import Launch
from gdsctl.kvcache.read import read
from tests.hang import no_hang


def launches(text: str, path: str = "f") -> tuple[Launch, ...]:
    return read(text, path).launches


def argv(launch: Launch) -> list[str]:
    return [word.text for word in launch.words]


def test_shell_script() -> None:
    text = """\
#!/bin/bash
# a comment with an apostrophe: don't
export PORT=6000 SIZE=${SIZE:-64}
EXTRA=(--eviction-policy LRU  # the only one
  --max-workers 4)
if true; then
  HF_TOKEN=x numactl -N 0 lmcache server --port "$PORT" --l1-size-gb ${SIZE} "${EXTRA[@]}" \\
    --l2-adapter '{"type": "fs",
      "base_path": "/kv"}' > log 2>&1 &
fi
"""
    server = next(launch for launch in launches(text) if "server" in argv(launch))
    assert argv(server) == [
        *(
            "lmcache",
            "server",
            "--port",
            "6000",
            "--l1-size-gb",
            "64",
            "--eviction-policy",
            "LRU",
            "--max-workers",
            "4",
        ),
        *("--l2-adapter", '{"type": "fs",\n      "base_path": "/kv"}', "log", "2"),
    ]
    assert server.place.line == 7
    assert server.env["HF_TOKEN"].text == "x"
    assert [word.line for word in server.words if word.text.startswith("{")] == [8]


def test_what_cannot_be_known_stays_as_written() -> None:
    (launch,) = launches("lmcache server --port $(pick port) --l1-size-gb $UNSET --a \"`x`\" --b '$HOME'\n")
    assert argv(launch)[2:] == ["--port", "$(pick port)", "--l1-size-gb", "$UNSET", "--a", "`x`", "--b", "$HOME"]


def test_nested_shells_and_heredocs() -> None:
    text = """\
cat > /etc/lmcache.yaml <<'EOF'
chunk_size: 256
gds_path: /mnt/nvme
EOF
bash -lc "cd /x && vllm serve m --kv-transfer-config '{}'"
"""
    found = launches(text)
    assert [argv(launch) for launch in found if launch.words] == [
        ["cat", "/etc/lmcache.yaml"],
        ["cd", "/x"],
        ["vllm", "serve", "m", "--kv-transfer-config", "{}"],
    ]
    (config,) = [launch for launch in found if launch.config]
    assert config.config["gds_path"].text == "/mnt/nvme"
    assert config.config["gds_path"].line == 3


def test_docker_run() -> None:
    text = (
        "docker run --rm --gpus all -e DYN_KVBM_DISK_CACHE_GB=100 --ulimit memlock=-1 --cap-add IPC_LOCK \\\n"
        " -v /mnt/nvme:/kv -v /run/udev:/run/udev:ro --device /dev/nvidia-fs0 --network=host img:1 vllm serve m\n"
    )
    (launch,) = launches(text)
    box = launch.container
    assert box is not None
    assert argv(launch) == ["vllm", "serve", "m"]
    assert launch.env["DYN_KVBM_DISK_CACHE_GB"].text == "100"
    assert [(v.path, v.host_path) for v in box.volumes] == [("/kv", "/mnt/nvme"), ("/run/udev", "/run/udev")]
    assert (box.image, box.devices, box.memlock_unlimited, box.host_network) == (
        "img:1",
        ("/dev/nvidia-fs0",),
        True,
        True,
    )


def test_environment_file() -> None:
    (launch,) = launches('# kvbm\nDYN_KVBM_CPU_CACHE_GB=10\nDYN_KVBM_DISK_CACHE_DIR="/mnt/a b"\n', "kvbm.env")
    assert {name: (word.text, word.line) for name, word in launch.env.items()} == {
        "DYN_KVBM_CPU_CACHE_GB": ("10", 2),
        "DYN_KVBM_DISK_CACHE_DIR": ("/mnt/a b", 3),
    }


def test_compose() -> None:
    text = """\
x-env: &env
  LMCACHE_LOCAL_CPU: "false"
services:
  cache:
    image: lmcache/standalone:v0.4.7
    command: >-
      lmcache server --port 6000
    environment:
      <<: *env
      A: "1"
    volumes: [/mnt/nvme:/kv, {type: bind, source: /run/udev, target: /run/udev}]
    ulimits: {memlock: {soft: -1, hard: -1}}
    devices: ["/dev/nvidia-fs0:/dev/nvidia-fs0"]
  engine:
    entrypoint: ["vllm"]
    command: [serve, m]
    environment: [B=2]
"""
    cache, engine = launches(text, "compose.yaml")
    assert argv(cache) == ["lmcache", "server", "--port", "6000"]
    assert {name: word.text for name, word in cache.env.items()} == {"LMCACHE_LOCAL_CPU": "false", "A": "1"}
    assert cache.container is not None
    assert cache.container.memlock_unlimited
    assert [v.host_path for v in cache.container.volumes] == ["/mnt/nvme", "/run/udev"]
    assert argv(engine) == ["vllm", "serve", "m"]
    assert engine.env["B"].text == "2"


def test_manifests() -> None:
    text = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: env}
data: {PORT: "7000", "single": "lmcache server"}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: job}
spec:
  jobTemplate:
    spec:
      template:
        spec:
          initContainers:
            - name: first
              command: [sh, -c]
              args:
                - |
                  echo hello
                  lmcache server --port $(PORT) --x "$$(date)"
              envFrom: [{configMapRef: {name: env}}]
              volumeMounts: [{name: kv, mountPath: /kv, subPath: deep}]
              securityContext: {capabilities: {add: [IPC_LOCK]}}
              resources: {limits: {nvidia.com/gpu: 1}, claims: [{name: c}]}
          volumes: [{name: kv, hostPath: {path: /mnt/nvme}}]
"""
    found = launches(text, "m.yaml")
    server = found[-1]
    assert argv(server) == ["lmcache", "server", "--port", "7000", "--x", "$(date)"]
    assert (server.place.line, server.place.document) == (20, 2)
    box = server.container
    assert box is not None
    assert box.name == "job/first"
    assert box.volumes[0].host_path == "/mnt/nvme/deep"
    assert box.capabilities == ("IPC_LOCK",)
    assert box.resources == ("claim", "nvidia.com/gpu")


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("a: [1,\nb: }", "x.yaml", "x.yaml:2: not valid YAML"),
        ("a: &a [*a]\nkind: Pod\nspec: *a\nservices: *a", "x.yaml", None),
        ("{\n bad", "x.json", "x.json:2: not valid JSON"),
        ("- " * 50 + "x", "x.yaml", "nested deeper"),
        ("a: \tb: c\nkind: [", "x.yaml", "not valid YAML"),
    ],
)
def test_broken_files(text: str, name: str, words: str | None) -> None:
    if words is None:
        read(text, name)
        return
    with pytest.raises(InputError) as raised:
        read(text, name)
    assert words in str(raised.value)


def test_alias_bombs_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    bomb = "\n".join([*lines, "kind: Pod", "spec: {containers: *a11, volumes: *a11}"])
    with no_hang():
        read(bomb, "bomb.yaml")
    merged = "\n".join(["m0: &m0 {a: 1, b: 2}", *(f"m{i}: &m{i} {{<<: [*m{i - 1}, *m{i - 1}]}}" for i in range(1, 15))])
    with no_hang(), pytest.raises(InputError, match=r"expands to more|nested deeper"):
        read(f"{merged}\nkind: Pod\nspec:\n  <<: *m14\n", "bomb.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "A=" + "x" * 1000 + "\n" + "A=$A$A\n" * 60 + "lmcache server $A",
        "'" * 100_001,
        '"$(' * 30_000,
        "((((" * 30_000,
        "x" * 300_000,
        "cat <<E\n" * 20_000,
        "\\" * 100_001,
        "\0a\ud800\n" * 1000,
        "${" * 50_000,
        "bash -c '" * 2000,
    ],
)
def test_hostile_scripts_end_soon(text: str) -> None:
    with no_hang():
        found = read(text, "x.sh")
    assert all(launch.place.file == "x.sh" for launch in found.launches)


@settings(max_examples=80, deadline=None)
@given(
    st.text(alphabet="ab='\"\\$(){}<>&|;#\n \t-[]:*,E", max_size=120),
    st.sampled_from(["x.sh", "x.yaml", "x.json", "x"]),
)
def test_no_other_exception(text: str, name: str) -> None:
    told = None
    try:
        found = read(text, name)
    except InputError as error:
        told = str(error)
    assert told.startswith(name) if told is not None else isinstance(found.launches, tuple)


def test_a_script_far_down_in_a_file_takes_no_time() -> None:
    """Its text is padded to its line; a pattern that may split blank lines in many ways would take for ever."""
    lines = 20_000
    text = (
        "# a line\n" * lines
        + "kind: ConfigMap\nmetadata: {name: m}\ndata:\n  run.sh: |\n    #!/bin/sh\n    lmcache server --l1-size-gb 1\n"
    )
    (launch,) = read(text, "m.yaml").launches
    assert launch.place.line == lines + 6


def test_environment_file_with_values_as_they_stand() -> None:
    """`docker run --env-file` knows no quotes: JSON and `;` are the value."""
    (launch,) = launches(
        '# for docker\nexport A="1"\nLMCACHE_EXTRA_CONFIG={"nixl_backend": "GDS", "x": "it\'s"}\nDIRS=/a;/b\n'
    )
    assert {name: word.text for name, word in launch.env.items()} == {
        "A": "1",
        "LMCACHE_EXTRA_CONFIG": '{"nixl_backend": "GDS", "x": "it\'s"}',
        "DIRS": "/a;/b",
    }
    (command,) = launches("A=1 B=2 lmcache server\n")  # no environment file: a command with its variables
    assert argv(command) == ["lmcache", "server"]
    assert {name: word.text for name, word in command.env.items()} == {"A": "1", "B": "2"}


def test_systemd_unit() -> None:
    text = """\
[Unit]
Description=lmcache server --port 1
[Service]
Environment=SIZE=64 "DIR=/mnt/a b"
ExecStartPre=-/bin/lmcache server --port 2
ExecStart=-/usr/bin/lmcache server --l1-size-gb ${SIZE} \\
  --gds-l1-path "${DIR}"
Restart=always \\
  lmcache server --port 3
"""
    (launch,) = [launch for launch in launches(text) if launch.words]
    assert argv(launch) == ["/usr/bin/lmcache", "server", "--l1-size-gb", "64", "--gds-l1-path", "/mnt/a b"]
    assert [word.line for word in launch.words] == [6, 6, 6, 6, 7, 7]


@pytest.mark.parametrize(
    "before",
    ["srun --ntasks 1 --container-image=x", "mpirun -np 2", "ssh node", "kubectl exec pod -c c --", "chroot /x"],
)
def test_a_shell_behind_another_program(before: str) -> None:
    (launch,) = launches(f"{before} bash -lc 'exec lmcache server --port 6000'\n")
    assert argv(launch) == ["lmcache", "server", "--port", "6000"]


@pytest.mark.parametrize("start", ["\ufeff", "[ -d /kv ] && ", "{ ", "[[ -n $X ]] && ", "\n\n\t"])
def test_what_no_json_begins_with(start: str) -> None:
    assert "lmcache" in [word for launch in launches(f"{start}lmcache server --port 6000\n") for word in argv(launch)]
    assert launches("") == ()
    assert launches("\ufefflocal_cpu: false\ngds_path: /kv\n")[0].config["gds_path"].text == "/kv"


def test_a_template_is_told_as_one() -> None:
    with pytest.raises(InputError, match="A template: give what it renders to"):
        read("kind: Pod\nspec:\n  {{- if .Values.gpu }}\n  a: 1\n  {{- end }}\n", "t.yaml")


def test_many_commands_of_other_programs() -> None:
    """A megabyte of commands, and each launch shares one environment."""
    text = "export DYN_KVBM_DISK_CACHE_GB=1\n" + 'echo hello "$X" again\n' * 45_000
    with no_hang(20):
        found = launches(text)
    assert len({id(launch.env) for launch in found}) == 1
