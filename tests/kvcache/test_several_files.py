"""Files that belong together: Dockerfiles, inspected containers, lists of a cluster, what one file names of another."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl import pipeline
from gdsctl.assess.assessment import assess
from gdsctl.cli import run
from gdsctl.cli.app_command import lacking
from gdsctl.collect.node import collect
from gdsctl.errors import InputError
from gdsctl.kvcache.app import AppReport, judge
from gdsctl.kvcache.launch import Launch
from gdsctl.kvcache.read import read
from gdsctl.kvcache.read_dockerfile import leaves, stages
from gdsctl.model.node import Tool
from gdsctl.source.opening import open_source
from tests.hang import no_hang

TOOL = Tool(name="gdsctl", version="0")
SLAB = '["lmcache", "server", "--l1-size-gb", "9", "--gds-l1-path", "/kv"]'


def app(files: dict[str, str], **options: Any) -> AppReport:
    return judge(list(files.items()), tool=TOOL, **options)


def only(text: str, name: str = "Dockerfile") -> Launch:
    (launch,) = read(text, name).launches
    return launch


def argv(launch: Launch) -> list[str]:
    return [word.text for word in launch.words]


# --- Dockerfiles ------------------------------------------------------------------------------------------------------


def test_dockerfile() -> None:
    text = """\
# syntax=docker/dockerfile:1
ARG TAG=v0.5.6
FROM lmcache/standalone:${TAG} AS base
ARG SIZE=64
ENV L1=$SIZE DIR="/kv dir" \\
    # a comment within
    Q='$SIZE'
ENV OLD form of it
FROM base
ENTRYPOINT ["lmcache", "server", \\
  "--port", "6000"]
CMD ["--l1-size-gb", "64"]
"""
    launch = only(text)
    assert argv(launch) == ["lmcache", "server", "--port", "6000", "--l1-size-gb", "64"]
    assert [word.line for word in launch.words] == [10, 10, 11, 11, 12, 12]
    assert {name: (word.text, word.line) for name, word in launch.env.items()} == {
        "L1": ("64", 5),
        "DIR": ("/kv dir", 5),
        "Q": ("$SIZE", 7),
        "OLD": ("form of it", 8),
    }
    assert launch.container is not None
    assert (launch.container.image, launch.container.kind) == ("lmcache/standalone:v0.5.6", "image")
    (stack,) = app({"Dockerfile": text}).stacks
    assert (stack.version, str(stack.source)) == ("0.5.6", "Dockerfile:10")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('ENTRYPOINT ["a"]\nCMD ["b"]', ["a", "b"]),
        ('ENTRYPOINT a $X\nCMD ["b"]', ["a", "1"]),  # the shell's form takes no CMD
        ("CMD a ${X}2", ["a", "12"]),
        ('CMD ["sh", "-c", "exec a $X"]', ["a", "1"]),
        ('CMD ["a", "$X"]', ["a", "$X"]),  # no shell, so nothing replaces it
        ("CMD ['a']", ["[a]"]),  # no JSON: a shell is told that
        ('CMD ["a"]\nENTRYPOINT ["b"]', ["b", "a"]),
        ("CMD a\nCMD b \\\n\n  c", ["b", "c"]),
        ("HEALTHCHECK CMD z\nCMD a", ["a"]),
    ],
)
def test_entrypoint_and_command(lines: str, words: list[str]) -> None:
    """As the table of docs.docker.com/reference/dockerfile has it (understand how CMD and ENTRYPOINT interact)."""
    assert argv(only(f"FROM x\nENV X=1\n{lines}\n")) == words


def test_an_entrypoint_drops_the_command_of_the_image_below() -> None:
    assert argv(only('FROM x AS a\nCMD ["c"]\nFROM a\nENTRYPOINT ["e"]\n')) == ["e"]


def test_stages() -> None:
    text = "FROM x AS base\nENV A=1\nFROM base AS one\nCMD a\nFROM base AS two\nCMD b\nFROM alpine\nCOPY --from=one /x /y\n"
    assert [stage.name for stage in leaves(text)] == ["one", "two", "3"]
    assert [stage.image for stage in stages(text)] == ["x", "x", "x", "alpine"]


def test_scripts_and_configurations_in_an_image() -> None:
    text = """\
FROM x
COPY <<EOF /etc/lmcache.yaml
local_cpu: false
gds_path: /kv
EOF
COPY scripts/start.sh /opt/
ENV LMCACHE_CONFIG_FILE=/etc/lmcache.yaml DYN_KVBM_DISK_CACHE_GB=9
CMD ["bash", "/opt/start.sh"]
"""
    script = "#!/bin/bash\nexec vllm serve m --load-format fastsafetensors\n"
    report = app({"d/Dockerfile": text, "d/scripts/start.sh": script})
    assert [(s.software, str(s.source)) for s in report.stacks] == [
        ("LMCache in-process", "d/Dockerfile:3"),
        ("Dynamo KVBM", "d/Dockerfile:7"),
        ("fastsafetensors", "d/Dockerfile:8"),  # the line that names the script
    ]
    assert app({"d/Dockerfile": text}).unread == ("d/Dockerfile:8: scripts/start.sh",)


@pytest.mark.parametrize("name", ["Dockerfile", "x/Dockerfile.cuda", "Containerfile", "serve.Dockerfile", "f"])
def test_names_of_dockerfiles(name: str) -> None:
    assert argv(only("FROM x:1 AS y\nCMD a\n", name)) == ["a"]


def test_an_image_on_a_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A Dockerfile does not say what is mounted, so the route is not known, and the image lacks nothing."""
    path = tmp_path / "Dockerfile"
    path.write_text(f"FROM x\nCMD {SLAB}\n")
    assert run(["app", str(path), "--snapshot", "example:hgx-h100-vast"]) == 3
    told = capsys.readouterr()
    assert "what is mounted at /kv is said where the image is started" in told.err
    assert "app.pod-lacks" not in told.out


# --- inspected containers ---------------------------------------------------------------------------------------------


def inspected(**host: Any) -> str:
    config = {
        "Image": "lmcache/standalone:v0.5.6",
        "Env": ["PATH=/bin", "DYN_KVBM_DISK_CACHE_GB=9"],
        "Entrypoint": ["lmcache", "server"],
        "Cmd": ["--l1-size-gb", "9", "--gds-l1-path", "/kv"],
    }
    return json.dumps([{"Id": "0", "Name": "/kv \U0001f600", "Config": config, "HostConfig": host}], indent=4)


FULL = {
    "Binds": ["/vast/kv:/kv:rw", "/run/udev:/run/udev:ro"],
    "Mounts": [{"Type": "bind", "Source": "/etc/cufile.json", "Target": "/etc/cufile.json"}],
    "Devices": [{"PathOnHost": f"/dev/nvidia-fs{n}"} for n in range(16)],
    "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}],
    "DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}],
    "NetworkMode": "host",
    "CapAdd": ["CAP_IPC_LOCK"],
}


def test_docker_inspect() -> None:
    (launch, *_) = read(inspected(**FULL), "c.json").launches
    box = launch.container
    assert box is not None
    assert argv(launch) == ["lmcache", "server", "--l1-size-gb", "9", "--gds-l1-path", "/kv"]
    assert launch.words[0].text == inspected(**FULL).split("\n")[launch.words[0].line - 1].strip('", ')
    assert (box.name, box.memlock_unlimited, box.host_network, box.capabilities, box.resources) == (
        "kv \U0001f600",
        True,
        True,
        ("IPC_LOCK",),
        ("gpu",),
    )
    assert [(v.path, v.host_path) for v in box.volumes] == [
        ("/kv", "/vast/kv"),
        ("/run/udev", "/run/udev"),
        ("/etc/cufile.json", "/etc/cufile.json"),
    ]


@pytest.mark.parametrize(
    ("without", "lacks"),
    [
        (None, None),
        ("Devices", "/dev/nvidia-fs*"),
        ("Ulimits", None),  # NFS: the host's kernel does the RDMA
        ("DeviceRequests", "GPU"),
        ("Mounts", "cufile.json"),
    ],
)
def test_an_inspected_container_on_a_node(without: str | None, lacks: str | None) -> None:
    host = assess(collect(open_source("example:hgx-h100-vast")))
    node, lacks_there = pipeline.report(host), lacking(host.node)
    text = inspected(**{key: value for key, value in FULL.items() if key != without})
    found = [f.message for f in app({"c": text}, node=node, lacking=lacks_there).findings if f.id == "app.pod-lacks"]
    assert bool(found) is (lacks is not None)
    assert all((lacks or "") in message for message in found)


def test_an_inspected_image_and_an_oci_runtime() -> None:
    image = json.dumps([{"Id": "x", "RepoTags": ["lmcache/standalone:v0.4.7"], "Config": {"Cmd": json.loads(SLAB)}}])
    (stack,) = app({"i": image}).stacks
    assert (stack.software, stack.version) == ("LMCache server", "0.4.7")
    limits = [{"type": "RLIMIT_MEMLOCK", "soft": 18446744073709551615}]
    oci = {
        "ociVersion": "1.0.2",
        "process": {"args": json.loads(SLAB), "env": ["A=1"], "rlimits": limits},
        "mounts": [{"destination": "/kv", "type": "bind", "source": "/vast/kv"}],
        "linux": {"devices": [{"path": "/dev/nvidia0"}]},
    }
    launch = read(json.dumps(oci), "config.json").launches[0]
    assert launch.container is not None
    assert (launch.container.memlock_unlimited, launch.container.resources) == (True, ("gpu",))


# --- lists of a cluster -----------------------------------------------------------------------------------------------


def kubernetes(kind: str, name: str, owner: tuple[str, str] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "command": json.loads(SLAB)}]}
    meta: dict[str, Any] = {"name": name}
    if owner is not None:
        meta["ownerReferences"] = [{"kind": owner[0], "name": owner[1]}]
    return {"kind": kind, "metadata": meta, "spec": spec if kind == "Pod" else {"template": {"spec": spec}}}


def test_a_list_of_a_cluster() -> None:
    """`kubectl get deployments,replicasets,pods -o json`: each program once, and one pod of several alike."""
    entries = [
        kubernetes("Deployment", "d"),
        kubernetes("ReplicaSet", "d-1", ("Deployment", "d")),
        kubernetes("Pod", "d-1-a", ("ReplicaSet", "d-1")),
        kubernetes("Pod", "s-0", ("StatefulSet", "s")),
        kubernetes("Pod", "s-1", ("StatefulSet", "s")),
        kubernetes("Pod", "p"),
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": entries}, indent="\t")
    report = app({"-": text})
    assert [stack.container for stack in report.stacks] == ["d/c", "s-0/c", "p/c"]
    line = report.stacks[0].source.line or 0
    assert '"lmcache"' in text.split("\n")[line - 1]


# --- one file names what another holds --------------------------------------------------------------------------------

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: c
    command: COMMAND
    env:
    - name: DYN_KVBM_DISK_CACHE_GB
      valueFrom: {configMapKeyRef: {name: kv, key: size}}
    - {name: LMCACHE_CONFIG_FILE, value: /etc/l/renamed.yaml}
    envFrom: [{prefix: DYN_KVBM_DISK_, configMapRef: {name: more}}, {secretRef: {name: token}}]
    volumeMounts: [{name: l, mountPath: /etc/l}, {name: s, mountPath: /run.sh, subPath: run}]
  volumes:
  - {name: l, projected: {sources: [{configMap: {name: kv, items: [{key: conf, path: renamed.yaml}]}}]}}
  - {name: s, secret: {secretName: token}}
"""
MAPS = f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: kv}}
data:
  size: "7"
  conf: |
    local_cpu: false
    gds_path: /kv
---
kind: ConfigMap
apiVersion: v1
metadata: {{name: more}}
data: {{CACHE_DIR: /kv/disk}}
---
kind: Secret
apiVersion: v1
metadata: {{name: token}}
data: {{run: {base64.b64encode(b"exec lmcache server --gds-l1-path /kv").decode()}}}
"""


@pytest.mark.parametrize("first", [True, False])
def test_config_maps_and_secrets_of_another_file(first: bool) -> None:
    pod = POD.replace("COMMAND", "[sh, /run.sh]")
    files = {"m.yaml": MAPS, "p.yaml": pod} if first else {"p.yaml": pod, "m.yaml": MAPS}
    report = app(files)
    found = {stack.software: stack for stack in report.stacks}
    assert set(found) == {"LMCache in-process", "Dynamo KVBM", "LMCache server"}
    assert len(report.stacks) == 3
    assert {stack.container for stack in report.stacks} == {"p/c"}
    assert str(found["LMCache in-process"].source) == "m.yaml:7"
    assert str(found["Dynamo KVBM"].source) == "p.yaml:9"  # where the value is asked for
    assert (found["Dynamo KVBM"].tiers[0].size_gib, found["Dynamo KVBM"].tiers[0].path) == (7, "/kv/disk")
    assert str(found["LMCache server"].source) == "p.yaml:7"
    assert report.unread == ()
    alone = app({"p.yaml": pod.replace("[sh, /run.sh]", SLAB)})
    assert set(alone.unread) == {
        "p.yaml:12: configMap more",
        "p.yaml:12: secret token",
        "p.yaml:9: configMap kv",
        "p.yaml:15: configMap kv",
    }


def test_a_map_that_no_program_needs_is_not_missed() -> None:
    """Each live pod mounts the cluster's own certificate."""
    text = f"""\
kind: Pod
spec:
  containers:
  - name: c
    command: {SLAB}
    volumeMounts: [{{name: k, mountPath: /var/run/secrets}}]
  volumes: [{{name: k, projected: {{sources: [{{configMap: {{name: kube-root-ca.crt}}}}]}}}}]
"""
    assert app({"p": text}).unread == ()


COMPOSE = """\
services:
  a:
    extends: {file: common/base.yml, service: base}
    environment: [B=2]
"""
BASE = """\
services:
  base:
    extends: {service: root}
    command: ["lmcache", "server", "--gds-l1-path", "${DIR:-/kv}", "--l1-size-gb", "$SIZE"]
  root:
    image: lmcache/standalone:v0.5.6
    environment: {DYN_KVBM_DISK_CACHE_GB: "9"}
"""


def test_a_service_of_another_file_that_was_given() -> None:
    report = app({"c/compose.yml": COMPOSE, "c/common/base.yml": BASE, ".env": "SIZE=64\n"})
    extended = [stack for stack in report.stacks if stack.source.file == "c/compose.yml"]
    assert [(s.software, str(s.source)) for s in extended] == [
        ("LMCache server", "c/compose.yml:3"),
        ("Dynamo KVBM", "c/compose.yml:3"),
    ]


def test_what_lies_beside_a_compose_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "p"
    (folder / "common").mkdir(parents=True)
    (folder / "compose.yml").write_text(COMPOSE)
    (folder / "common" / "base.yml").write_text(BASE)
    (folder / ".env").write_text("SIZE=64\n")
    path = str(folder / "compose.yml")
    assert run(["app", path, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(s["software"], s["source"]["line"], s["container"]) for s in found["stacks"]] == [
        ("LMCache server", 3, "a"),
        ("Dynamo KVBM", 3, "a"),
    ]
    tier = found["stacks"][0]["tiers"][0]
    assert (found["stacks"][0]["version"], tier["path"], tier["size_gib"]) == ("0.5.6", "/kv", 64)
    assert sorted(found["followed"]) == [
        f"{folder}/.env, named in {path}",
        f"{folder}/common/base.yml, named in {path}:3",
    ]
    run(["app", path])
    assert "Read as well:" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["../outside.yml", "link.yml", "/etc/hostname", "none.yml"])
def test_nothing_outside_the_folder_is_read(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (tmp_path / "outside.yml").write_text(BASE)
    (folder / "link.yml").symlink_to(tmp_path / "outside.yml")
    own = f"services:\n  a:\n    extends: {{file: {name}, service: base}}\n    command: {SLAB}\n"
    (folder / "compose.yml").write_text(own)
    assert run(["app", str(folder / "compose.yml"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [stack["software"] for stack in found["stacks"]] == ["LMCache server"]
    assert found["followed"] == []
    (told,) = found["unread"]
    assert f"compose.yml:3: {name}" in told


def test_services_that_extend_each_other_end() -> None:
    loop = "services:\n  a:\n    extends: {file: F, service: a}\n    command: " + SLAB + "\n"
    with no_hang():
        report = app({"x.yml": loop.replace("F", "y.yml"), "y.yml": loop.replace("F", "x.yml")})
    assert {stack.software for stack in report.stacks} == {"LMCache server"}


def test_included_files_and_built_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "more.yml").write_text("services:\n  b: {environment: [DYN_KVBM_DISK_CACHE_GB=1]}\n")
    (tmp_path / "img").mkdir()
    dockerfile = 'FROM lmcache/standalone:v0.5.6\nENTRYPOINT ["lmcache", "server"]\nCMD ["x"]\n'
    (tmp_path / "img" / "Dockerfile").write_text(dockerfile)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "l.yaml").write_text("local_cpu: false\ngds_path: /kv\n")
    (tmp_path / "compose.yml").write_text("""\
include: [more.yml]
services:
  a:
    build: img
    command: [--gds-l1-path, /kv]
    environment: {LMCACHE_CONFIG_FILE: /etc/l/l.yaml}
    volumes: ["./conf:/etc/l"]
""")
    assert run(["app", str(tmp_path / "compose.yml"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    told = [
        (s["software"], Path(s["source"]["file"]).name, s["source"]["line"], s["container"]) for s in found["stacks"]
    ]
    assert told == [
        ("Dynamo KVBM", "more.yml", 2, "b"),
        ("LMCache in-process", "l.yaml", 1, "a"),
        ("LMCache server", "compose.yml", 4, "a"),
    ]
    assert found["stacks"][2]["version"] == "0.5.6"


def test_a_script_that_names_its_configuration() -> None:
    engine = """vllm serve m --kv-transfer-config '{"kv_connector":"LMCacheConnectorV1"}'"""
    script = f"export LMCACHE_CONFIG_FILE=conf/l.yaml\n{engine}\n"
    config = "local_cpu: false\ngds_path: /kv\n"
    report = app({"run.sh": script, "conf/l.yaml": config})
    assert [(s.software, str(s.source)) for s in report.stacks] == [("LMCache in-process", "conf/l.yaml:1")]


def test_an_options_value_is_no_server_beside_a_server() -> None:
    """A ConfigMap that keeps the adapter's JSON is a part of the server that is started, not another one."""
    adapter = '{"type": "fs", "base_path": "/kv"}'
    config = f"kind: ConfigMap\napiVersion: v1\nmetadata: {{name: a}}\ndata:\n  a.json: |\n    {adapter}\n    \n"
    pod = f"kind: Pod\nspec: {{containers: [{{name: c, command: {SLAB}}}]}}\n"
    assert [str(stack.source) for stack in app({"m": config + "---\n" + pod}).stacks] == ["m:10"]
    (alone,) = app({"m": config}).stacks
    assert (alone.software, str(alone.source)) == ("LMCache server", "m:6")


# --- hostile inputs ---------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 99) | st.text(alphabet="ab/:=$}{", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)


def told(files: dict[str, str]) -> str:
    """The reason of a refusal; empty where they are read."""
    reason, path = "", None
    try:
        app(files)
    except InputError as error:
        reason, path = str(error), error.path
    assert path is None or path in files
    return reason


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="FROMENVCDARGab=$\"'\\\n {}[],#<>", max_size=120))
def test_odd_dockerfiles(text: str) -> None:
    assert "\n" not in told({"Dockerfile": text})
    assert "\n" not in told({"Dockerfile": f"FROM x\n{text}\nCMD {SLAB}\n"})


KEYS = ["Env", "Cmd", "Entrypoint", "Image", "Binds", "Mounts", "Devices", "Ulimits", "DeviceRequests", "NetworkMode"]


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES), st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_odd_inspections(config: dict[str, Any], host: dict[str, Any]) -> None:
    found = {"Id": "x", "Config": config, "HostConfig": host, "Mounts": host.get("Mounts")}
    assert "\n" not in told({"c": json.dumps([found])})


SERVICE = ["extends", "env_file", "environment", "build", "command", "entrypoint", "volumes", "configs", "ulimits"]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from(SERVICE), VALUES | st.just({"file": "b", "service": "a"})),
    st.text(alphabet="ab:\n -", max_size=30),
)
def test_odd_services(service: dict[str, Any], other: str) -> None:
    text = json.dumps({"services": {"a": service}, "include": service.get("env_file")})
    assert "\n" not in told({"a": text, "b": text, "c": other or "x"})


@pytest.mark.parametrize(
    "text",
    [
        "FROM x\n" * 50_000,
        "FROM x\nENV " + 'A="' * 20_000,
        "FROM x\n" + "ENV A=$A$A$A\n" * 5_000,
        "FROM x\nRUN " + "<<E " * 20_000,
        "FROM x\nCMD " + "[" * 50_000,
        "FROM x\nCMD " + "\\\n" * 100_000,
        "#\n" * 100_000 + "FROM x\n",
        "\n" * 100_000 + "FROM x",
        "ARG a\n" * 100_000,
        "FROM x\n" + "COPY a b\n" * 9_000,
    ],
)
def test_hostile_dockerfiles_end_soon(text: str) -> None:
    with no_hang(15):
        assert told({"Dockerfile": text}).startswith("Dockerfile")


def test_a_variable_wins_over_the_file() -> None:
    """LMCache 0.4.1 to 0.5.6 integration/vllm/utils.py: from_file, then update_config_from_env."""
    compose = """\
services:
  kv:
    image: lmcache/vllm-openai:v0.5.6
    command: vllm serve m --kv-transfer-config '{"kv_connector":"LMCacheConnectorV1"}'
    environment:
      LMCACHE_CONFIG_FILE: /etc/lmcache.yaml
      LMCACHE_GDS_PATH: /data/b
    volumes: [./lmcache.yaml:/etc/lmcache.yaml]
"""
    files = {"compose.yaml": compose, "lmcache.yaml": "local_cpu: false\ngds_path: /data/a\n"}
    report = app(files)
    stored = [stack for stack in report.stacks if stack.software == "LMCache in-process"]
    assert [[(tier.type, tier.path) for tier in stack.tiers] for stack in stored] == [[("gds_path", "/data/b")]]
    (found,) = (f for f in report.findings if f.id == "app.environment-over-file")
    assert found.subject == "compose.yaml:7"
    assert "LMCACHE_GDS_PATH=/data/b replaces gds_path: /data/a" in found.message
    same = app(files | {"compose.yaml": compose.replace("/data/b", "/data/a")})
    assert not [f for f in same.findings if f.id == "app.environment-over-file"]
