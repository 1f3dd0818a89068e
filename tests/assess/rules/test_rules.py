"""Every rule raised, nearly raised and undecided; what holds for all rules; damaged nodes."""

from __future__ import annotations

import functools
import os
import re
import subprocess

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gdsctl.assess import rules as package
from gdsctl.assess.assessment import Assessment, assess
from gdsctl.assess.engine import in_dependency_order
from gdsctl.assess.rule import Rule, Scope
from gdsctl.assess.rules import MODULES, explanation, ids, rules
from gdsctl.assess.view import gpu_key
from gdsctl.model.devices import Backing, Mount
from gdsctl.model.judgement import Finding, Remedy
from gdsctl.model.node import Node
from tests.assess.rules.cases import CASES, Case
from tests.assess.rules.nodes import NFS, NVME, but, cufile, healthy, mounted, on_array

DIRECT = {"nvidia-fs", "p2pdma", "c2c", "rdma"}
# The project's contract, findings that inspect raises; those of `app` belong to applications.
CONTRACT = [
    "nvidia-fs.not-loaded",
    "nvidia-fs.no-device-node",
    "nvidia-fs.version-too-old",
    "nvidia-fs.known-bad-version",
    "nvidia-fs.proprietary-driver",
    "nvidia-fs.symbol-version",
    "nvidia-fs.stats-disabled",
    "nvme.unpatched",
    "nvme.symbol-mismatch",
    "nvme.native-multipath",
    "nvme.integrity-capable",
    "nvme-rdma.unpatched",
    "rpcrdma.unpatched",
    "rpcrdma.non-gpl-symbol",
    "driver.proprietary",
    "driver.registry-key-missing",
    "driver.registry-key-conflict",
    "driver.pending-reboot",
    "driver.refcount-bug-kernel",
    "kernel.no-p2pdma",
    "kernel.p2pdma-host-bridge",
    "p2pdma.half-configured",
    "p2pdma.gpu-unsupported",
    "p2pdma.filesystem-unsupported",
    "gpu.geforce",
    "gpu.compute-capability",
    "gpu.bar1-small",
    "gpu.integrated",
    "iommu.translated",
    "iommu.passthrough",
    "acs.redirect-on-path",
    "acs.cmdline-not-effective",
    "acs.unreadable",
    "pci.cross-root",
    "pci.cross-socket",
    "pci.link-degraded",
    "pci.no-numa",
    "fs.overlay",
    "fs.tmpfs",
    "fs.unsupported",
    "fs.device-mapper",
    "fs.md-level",
    "fs.md-udev-rule",
    "fs.ext4-data-ordered",
    "nfs.tcp",
    "nfs.port",
    "nfs.vast-options-inbox-client",
    "nfs.localports-missing",
    "nfs.nconnect",
    "rdma.dev-addr-list-empty",
    "rdma.dev-addr-not-local",
    "rdma.dev-addr-not-ipv4",
    "rdma.peermem-missing",
    "gpfs.verbsports-mismatch",
    "routing.useless",
    "routing.policy-not-applicable",
    "cufile.syntax",
    "cufile.unknown-key",
    "cufile.label-not-key",
    "cufile.wrong-section",
    "cufile.type",
    "cufile.range",
    "cufile.alignment",
    "cufile.slab-lengths",
    "cufile.missing-path",
    "cufile.dead-key",
    "cufile.key-newer-than-library",
    "cufile.env-missing",
    "cufile.env-boolean",
    "cufile.compat-hides-failure",
    "container.no-udev",
    "container.no-cufile-json",
    "container.no-nvidia-fs-device",
    "gdscheck.false-positive-gpfs",
    "version.mismatch",
    "secure-boot.unsigned",
]


def found(assessment: Assessment, rule: str) -> list[Finding]:
    return [finding for finding in assessment.findings if finding.id == rule]


def covered(assessment: Assessment, scope: Scope) -> frozenset[tuple[str, str]]:
    node = assessment.node
    return frozenset(
        (gpu_key(gpu), mount.target)
        for gpu in node.gpus
        for mount in node.mounts
        if scope.covers(gpu_key(gpu), mount.target)
    )


@functools.cache
def _assessed(at: int) -> Assessment:
    return assess(CASES[at].node)


def assessed(case: Case) -> Assessment:
    """A case's assessment, made once."""
    return _assessed(next(at for at, other in enumerate(CASES) if other is case))


def everywhere(node: Node) -> frozenset[tuple[str, str]]:
    return frozenset((gpu_key(gpu), mount.target) for gpu in node.gpus for mount in node.mounts)


def of_kind(kind: str) -> pytest.MarkDecorator:
    rows = [case for case in CASES if case.kind == kind]
    return pytest.mark.parametrize("case", rows, ids=[f"{case.rule}-{n}" for n, case in enumerate(rows)])


# --- healthy nodes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p2pdma", [False, True])
def test_a_healthy_node_raises_no_warning_and_all_its_routes_are_direct(p2pdma: bool) -> None:
    judged = assess(healthy(p2pdma=p2pdma))
    assert [finding for finding in judged.findings if finding.severity != "info"] == []
    assert judged.verdicts.undecided == ()
    ways = {NVME: "p2pdma" if p2pdma else "nvidia-fs", NFS: "nvidia-fs"}
    assert {(route.mount, route.route) for route in judged.routes} == set(ways.items())
    assert all(route.blockers == () or p2pdma for route in judged.routes)


@pytest.mark.parametrize(
    ("changes", "route", "blocker"),
    [
        ({"nvidia_driver.registry_dwords": {}}, "compat", "driver.registry-key-missing"),
        ({"platform.symbols": {"pci_p2pdma_add_resource": False}}, "compat", "kernel.no-p2pdma"),
        ({"nvidia_driver.registry_dwords": None}, "unknown", "driver.registry-key-missing"),
        ({"container.has_udev_db": False}, "none", "container.no-udev"),
    ],
)
def test_a_drive_set_up_for_p2pdma_alone_does_not_fall_to_nvidia_fs(
    changes: dict[str, object], route: str, blocker: str
) -> None:
    """Its nvme is the stock one, so that nvidia-fs is no second way."""
    told = [r for r in assess(but(healthy(p2pdma=True), changes)).routes if r.mount == NVME]
    assert [(r.route, blocker in r.blockers) for r in told] == [(route, True)] * 2


def test_forbidden_compat_mode_leaves_no_route_where_none_is_direct() -> None:
    node = but(healthy(), {"nvidia_fs.loaded": False})
    assert {r.route for r in assess(node).routes} == {"compat"}
    strict = cufile(node, {"properties": {"allow_compat_mode": False}})
    assert {r.route for r in assess(strict).routes} == {"none"}


def test_many_small_mounts_make_one_finding_with_a_short_message() -> None:
    tmpfs = Backing(kind="tmpfs")
    targets = [f"/run/user/{number}" for number in range(40)]
    node = mounted(
        but(healthy(), {"gds.version": "1.17.0"}), *(Mount(target=t, fstype="tmpfs", backing=tmpfs) for t in targets)
    )
    told = [finding for finding in assess(node).findings if finding.severity == "info"]
    assert [finding.id for finding in told] == ["fs.tmpfs"]
    assert told[0].subject == ", ".join(targets)
    assert told[0].message == "files are in host memory at /run/user/0, /run/user/1 and 38 more"


def test_a_node_without_gpus_is_told_nothing_of_its_storage() -> None:
    node = healthy()
    bare = but(
        node,
        {
            "gpus": (),
            "pci.devices": tuple(device for device in node.pci.devices if device.vendor_id != "10de"),
            "nvidia_fs.loaded": False,
            "nvfs_hooks": {},
            "mounts.0.options": (),
            "mounts.1.backing.transport": "tcp",
        },
    )
    assert assess(bare).findings == ()
    assert assess(bare).verdicts.undecided == ()


# --- the table --------------------------------------------------------------------------------------------------------


@of_kind("raised")
def test_raised(case: Case) -> None:
    judged = assessed(case)
    told = [(v.finding, covered(judged, v.scope)) for v in judged.verdicts.judged if v.finding.id == case.rule]
    assert [finding.subject for finding, _ in told] == [case.subject]
    finding, pairs = told[0]
    assert pairs == (everywhere(case.node) if case.on is None else case.on)
    assert case.severity in (None, finding.severity)
    assert case.blocks in (None, finding.blocks)
    assert finding.message
    assert finding.evidence
    assert all(evidence.value and evidence.source for evidence in finding.evidence)


@of_kind("raised")
def test_what_blocks_a_route_is_named_in_it(case: Case) -> None:
    judged = assessed(case)
    for verdict in judged.verdicts.judged:
        if verdict.finding.id != case.rule:
            continue
        for route in judged.routes:
            if verdict.scope.covers(route.gpu, route.mount):
                assert route.route not in verdict.finding.blocks


@of_kind("near miss")
def test_near_miss(case: Case) -> None:
    judged = assessed(case)
    assert found(judged, case.rule) == []
    assert [undecided for undecided in judged.verdicts.undecided if undecided.id == case.rule] == []


@of_kind("unsure")
def test_unsure(case: Case) -> None:
    judged = assessed(case)
    open_ = [undecided for undecided in judged.verdicts.undecided if undecided.id == case.rule]
    assert len(open_) == 1
    assert [finding for finding in found(judged, case.rule) if finding.blocks] == []
    assert open_[0].cannot.fact
    assert open_[0].cannot.settle_with
    pairs = covered(judged, open_[0].cannot.scope)
    assert pairs == (everywhere(case.node) if case.on is None else case.on)
    assert case.blocks in (None, open_[0].blocks)
    for route in judged.routes:
        if (route.gpu, route.mount) in pairs:
            assert route.route not in open_[0].blocks


@of_kind("silent")
def test_silent_where_it_does_not_know(case: Case) -> None:
    judged = assessed(case)
    assert found(judged, case.rule) == []
    assert [undecided for undecided in judged.verdicts.undecided if undecided.id == case.rule] == []


# --- all rules --------------------------------------------------------------------------------------------------------


def test_every_rule_has_a_case_of_each_kind() -> None:
    kinds = {rule.id: {case.kind for case in CASES if case.rule == rule.id} for rule in rules()}
    assert {id_ for id_, have in kinds.items() if "raised" not in have or "near miss" not in have} == set()
    assert {id_ for id_, have in kinds.items() if have.isdisjoint({"unsure", "silent"})} == set()
    assert {case.rule for case in CASES} <= set(ids())


def test_who_blocks_nothing_may_be_silent_and_who_blocks_says_why() -> None:
    blocking = {rule.id for rule in rules() if rule.blocks}
    assert [c.rule for c in CASES if c.kind == "silent" and not c.note] == []
    never_unsure = blocking - {case.rule for case in CASES if case.kind == "unsure"}
    reasons = {case.rule: case.note for case in CASES if case.kind == "silent" and case.rule in never_unsure}
    assert set(reasons) == never_unsure
    assert len(never_unsure) < 25


def test_every_file_is_in_the_list_and_is_named_after_its_rule() -> None:
    folder = os.path.dirname(package.__file__)
    files = sorted(name[:-3] for name in os.listdir(folder) if name.endswith(".py") and name != "__init__.py")
    assert list(MODULES) == files
    assert sorted(rule.id.replace(".", "_").replace("-", "_") for rule in rules()) == files


def test_every_finding_of_the_contract_exists() -> None:
    assert set(CONTRACT) - set(ids()) == set()


@pytest.mark.parametrize("rule", rules(), ids=[rule.id for rule in rules()])
def test_a_rule_tells_its_whole_story(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", rule.id)
    assert rule.problem
    assert not rule.problem.endswith(".")
    assert rule.why.endswith((".", ";"))
    assert rule.look_at
    assert rule.source
    assert rule.remedy.text.endswith((".", ":"))
    assert set(rule.after) <= set(ids()) - {rule.id}
    story = explanation(rule.id)
    assert story is not None
    assert story["problem"] == rule.problem
    assert "clear all" not in rule.remedy.text.lower()


@pytest.mark.parametrize("rule", rules(), ids=[rule.id for rule in rules()])
def test_a_remedy_with_commands_or_a_reboot_says_what_it_risks(rule: Rule) -> None:
    kept: list[Remedy] = [
        rule.remedy,
        *(f.remedy for case in CASES if case.rule == rule.id for f in found(assessed(case), rule.id)),
    ]
    for remedy in kept:
        assert remedy.text
        acts = [command for command in remedy.commands if not command.startswith(("gdsctl ", "sudo gdsctl "))]
        assert remedy.risk or not (acts or remedy.needs_reboot), remedy
        if any(re.match(r"(setpci|mount -o remount|echo [01] >)", command) for command in remedy.commands):
            assert not remedy.persistent


def test_root_causes_come_first() -> None:
    order = {rule.id: at for at, rule in enumerate(rules())}
    assert [(rule.id, cause) for rule in rules() for cause in rule.after if order[cause] > order[rule.id]] == []
    wrong = but(healthy(), {"nvidia_driver.kind": "proprietary", "nvidia_fs.loaded": False, "nvfs_hooks": {}})
    told = [finding.id for finding in assess(wrong).findings]
    assert told.index("driver.proprietary") < told.index("nvidia-fs.proprietary-driver")
    blockers = next(route.blockers for route in assess(wrong).routes if route.mount == NVME)
    assert blockers.index("nvidia-fs.proprietary-driver") >= 0


def test_rules_that_wait_for_each_other_are_a_fault() -> None:
    one, two = rules()[:2]
    circle = (msgspec.structs.replace(one, after=(two.id,)), msgspec.structs.replace(two, after=(one.id,)))
    with pytest.raises(AssertionError):
        in_dependency_order(circle)


# --- what stands in commands ------------------------------------------------------------------------------------------

HOSTILE = "/mnt/a b;$(reboot)`id`'\n#"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"mounts.0.target": HOSTILE, "mounts.0.options": ("rw",)}, "remedy"),
        ({"mounts.0.target": HOSTILE, "mounts.0.options": ("rw", "data=journal")}, "remedy"),
        ({"mounts.0.target": HOSTILE, "mounts.0.device": None, "mounts.0.backing.kind": "other"}, "settle_with"),
        ({"mounts.1.target": HOSTILE, "mounts.1.backing.transport": None}, "settle_with"),
        (
            {"block.1.name": HOSTILE, "mounts.0.device": HOSTILE, "block.1.udev": None, "gds.udev_rule_md": None},
            "settle_with",
        ),
    ],
)
def test_names_from_the_node_are_quoted_in_commands(changes: dict[str, object], where: str) -> None:
    judged = assess(but(on_array(healthy()) if "block.1.name" in changes else healthy(), changes))
    if where == "remedy":
        commands = [command for finding in judged.findings for command in finding.remedy.commands]
    else:
        commands = [undecided.cannot.settle_with or "" for undecided in judged.verdicts.undecided]
    hit = [command for command in commands if "reboot" in command]
    assert hit
    for command in hit:
        assert "\n" not in command
        # bash itself says what the words are: the name must come out whole, and nothing else run
        words = subprocess.run(
            ["bash", "-c", f"printf '%s\\0' {re.split(' [|&]', command)[0]}"],
            capture_output=True,
            check=True,
            text=True,
        )
        assert any(HOSTILE in word for word in words.stdout.split("\0"))


# --- damage -----------------------------------------------------------------------------------------------------------

OPTIONAL = [
    f"{section}.{field}"
    for section, fields in {
        "platform": "kernel kernel_version arch cmdline cpu_vendor cpu_family virtualization secure_boot kernel_config symbols kernel_log",
        "nvidia_driver": "version params registry_dwords modprobe_registry_dwords modprobe_files",
        "nvidia_fs": "loaded version device_nodes registered acs_bridges rw_stats_enabled",
        "gds": "version libcufile gdscheck udev_rule_md gpfs_verbs_ports",
        "gds.cufile_config": "files",
        "container": "kind has_udev_db has_cufile_json",
        "gpus.0": "address name bar1_bytes memory_bytes compute_capability c2c",
        "gpus.1": "address name compute_capability",
        "nics.0": "address rdma_device rate_gbps",
        "nvme.0": "address transport multipath",
        "block.0": "integrity udev",
        "mounts.0": "device source",
        "mounts.1.backing": "transport server",
    }.items()
    for field in fields.split()
]
LISTS = ("gpus", "nics", "nvme", "block", "numa.nodes", "pci.devices", "mounts")
DICTS = ("modules", "nvfs_hooks")


@st.composite
def damaged(draw: st.DrawFn) -> Node:
    """Fields unknown, then list and dict entries lost."""
    node = healthy(p2pdma=draw(st.booleans()))
    node = but(node, dict.fromkeys(draw(st.lists(st.sampled_from(OPTIONAL), unique=True, max_size=8)), None))
    if draw(st.booleans()):
        node = but(
            node, {"nvidia_driver.kind": "unknown", "iommu.state": draw(st.sampled_from(["unknown", "translated"]))}
        )
    for name in DICTS:
        entries = getattr(node, name)
        lost = draw(st.sets(st.sampled_from(sorted(entries)), max_size=3))
        node = but(node, {name: {key: value for key, value in entries.items() if key not in lost}})
    for name in draw(st.lists(st.sampled_from(LISTS), unique=True, max_size=3)):
        section, _, field = name.partition(".")
        entries = getattr(getattr(node, section), field) if field else getattr(node, section)
        kept = draw(st.lists(st.booleans(), min_size=len(entries), max_size=len(entries)))
        node = but(node, {name: tuple(entry for entry, keep in zip(entries, kept, strict=True) if keep)})
    return node


def doubts(node: Node, gpu_name: str, target: str, way: str) -> list[str]:
    """Facts without which nobody can be sure of a direct route, and which this node does not have."""
    gpu = next(gpu for gpu in node.gpus if gpu_key(gpu) == gpu_name)
    mount = next(mount for mount in node.mounts if mount.target == target)
    hook = "rpcrdma" if mount.fstype == "nfs" else "nvme"
    facts: dict[str, object] = {
        "configuration": node.gds.cufile_config.files,
        "model": gpu.name or gpu.compute_capability or gpu.address,
        "transport": mount.backing.transport,
    }
    if mount.fstype != "nfs":
        facts["device"] = mount.device
    if way == "nvidia-fs":
        facts |= {"nvidia_fs": node.nvidia_fs.loaded, "hook": node.nvfs_hooks.get(hook)}
    if way == "p2pdma":
        facts |= {
            "driver": None if node.nvidia_driver.kind == "unknown" else node.nvidia_driver.kind,
            "registry": node.nvidia_driver.registry_dwords,
            "kernel": node.platform.symbols or node.platform.kernel_config,
            "place of the drive": node.nvme and node.nvme[0].address,
            "place of the GPU": gpu.address,
        }
    return [name for name, value in facts.items() if not value and value != {}]


@settings(max_examples=120, deadline=None)
@given(damaged())
@example(healthy())
def test_a_damaged_node_is_judged_and_nothing_is_certain_that_is_not_known(node: Node) -> None:
    judged = assess(node)
    assert len(judged.routes) == len(node.gpus) * len(node.mounts)
    for route in judged.routes:
        if route.route in DIRECT and route.confidence == "certain":
            assert doubts(node, route.gpu, route.mount, route.route) == []
        if route.route in DIRECT and route.mount in (NVME, NFS):
            assert [d for d in doubts(node, route.gpu, route.mount, route.route) if d != "configuration"] == []


@settings(max_examples=60, deadline=None)
@given(damaged(), st.sampled_from(OPTIONAL))
def test_what_is_not_known_never_turns_a_blocked_route_direct(node: Node, path: str) -> None:
    """Losing a fact may turn an answer into `unknown`; from not direct to certainly direct it never goes."""
    before = {(r.gpu, r.mount): r for r in assess(node).routes}
    try:
        less = but(node, {path: None})
    except IndexError:  # the record itself is lost
        return
    for route in assess(less).routes:
        was = before.get((route.gpu, route.mount))
        if was is not None and was.route in ("compat", "none") and was.confidence == "certain":
            assert not (route.route in DIRECT and route.confidence == "certain")
