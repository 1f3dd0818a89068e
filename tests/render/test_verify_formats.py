"""The formats of `verify`, each read back by a reader that is not ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gdsctl.model.judgement import Route
from gdsctl.model.node import SourceInfo, Tool
from gdsctl.plan.documents import Drift, Requirement, VerifyReport
from gdsctl.plan.intent import Intent
from gdsctl.render import terminal
from gdsctl.render.junit import junit
from gdsctl.render.nagios import code, nagios
from gdsctl.render.prometheus import prometheus
from gdsctl.render.safe_text import safe
from gdsctl.render.sarif import sarif
from gdsctl.render.verify_report import verify_report

GPUS = {f"0000:{bus:02x}:00.0": index for index, bus in enumerate((0x18, 0x2A, 0x3A, 0x5D))}
FIRST = next(iter(GPUS))


def report(*requirements: Requirement, verdict: str = "fail", **more: Any) -> VerifyReport:
    return VerifyReport(
        tool=Tool(name="gdsctl", version="1.2.3"),
        source=SourceInfo(kind="snapshot", path="x", host="n1", captured_at="2026-01-15T12:00:00+00:00"),
        verdict=verdict,  # type: ignore[arg-type]  # a word of the document
        intent=Intent(),
        intent_from="a test",
        mode="nvidia-fs",
        gpus=GPUS,
        requirements=requirements,
        **{"routes": (), "drift": (), "findings": (), **more},
    )


def one(status: str, id_: str = "route:/m", subject: str = FIRST, evidence: str = "e", **more: Any) -> Requirement:
    return Requirement(id=id_, subject=subject, status=status, evidence=evidence, **more)  # type: ignore[arg-type]


MIXED = report(
    one("pass", subject="0000:18:00.0"),
    one("fail", subject="0000:2a:00.0", finding="nvme.unpatched"),
    one("unknown", subject="0000:3a:00.0", settle_with="lspci"),
    one("waived", "cufile:fs.nfs.rdma_dev_addr_list", "/etc/cufile.json", "accepted"),
)
HOSTILE = "\x00\x07\x1b[31m]]>&<\"'|\\ \n\r\t\x85\u2028\ud800\ufffe\U0001f4a9é`$(x)"
ESCAPED = r"""\x00\x07\x1b[31m]]>&<"'|\ \x0a\x0d\x09\x85\u2028\ud800""" + "\ufffe\U0001f4a9é`$(x)"
HOSTILE_REPORT = report(one("fail", f"route:{HOSTILE}", HOSTILE, HOSTILE), one("unknown", settle_with=HOSTILE))


# --- table ------------------------------------------------------------------------------------------------------------


def test_gpus_that_fare_alike_share_a_line() -> None:
    told = "wanted direct, gets compat, because the module nvme is the stock one"
    made = report(
        *(one("fail", subject=gpu, evidence=told, finding="nvme.unpatched") for gpu in GPUS), one("pass", "c")
    )
    text = terminal.plain(verify_report(made), 80)
    assert "FAIL     route:/m  GPUs 0-3\n         wanted direct, gets compat, because" in text
    assert "more: gdsctl explain nvme.unpatched" in text
    assert text.splitlines()[-2] == "4 requirements in 1 entry: those that fare alike share one."
    assert text.splitlines()[-1] == "FAIL: 4 of 5 requirements fail, 1 hold"


@pytest.mark.parametrize(
    ("statuses", "verdict", "last"),
    [
        (["pass"] * 3, "pass", "PASS: 3 of 3 requirements hold"),
        (["pass", "waived"], "pass", "PASS: 1 of 2 requirements hold, 1 waived"),
        (["pass", "unknown"], "unknown", "UNKNOWN: 1 of 2 requirements unknown, 1 hold"),
        (["waived"], "pass", "PASS: 1 of 1 requirements waived"),
        ([], "pass", "PASS: nothing was required"),
    ],
)
def test_the_last_line_is_the_verdict(statuses: list[str], verdict: str, last: str) -> None:
    made = report(*(one(status, f"r{n}") for n, status in enumerate(statuses)), verdict=verdict)
    assert terminal.plain(verify_report(made), 80).splitlines()[-1] == last


def test_no_word_is_broken_at_80_columns() -> None:
    words = "cufile:properties.max_device_pinned_mem_size_kb /sys/module/nvme_core/parameters/multipath " * 3
    drift = Drift(kind="cufile", key="execution.max_io_threads", installed=None, planned=4, why="w", required=False)
    text = terminal.plain(verify_report(report(one("fail", evidence=words), drift=(drift,))), 80)
    assert text.count("/sys/module/nvme_core/parameters/multipath") == 3
    assert max(map(len, text.splitlines())) <= 80
    assert "cufile execution.max_io_threads: is not set, planned 4" in text


def test_the_table_shows_no_control_characters() -> None:
    text = terminal.plain(verify_report(HOSTILE_REPORT, verbose=True), 80)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\ud800-\udfff]", text)


# --- JUnit ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def xsd() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(str(Path(__file__).with_name("junit.xsd")))


def test_junit(xsd: xmlschema.XMLSchema) -> None:
    text = junit(MIXED)
    xsd.validate(text)
    (suite,) = ET.fromstring(text.encode())  # noqa: S314 -- our own document
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    assert (suite.get("hostname"), suite.get("timestamp")) == ("n1", "2026-01-15T12:00:00")
    cases = suite.findall("testcase")
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["error"], ["skipped"]]
    assert "settle with: lspci" in (cases[2][0].text or "")


def test_junit_of_hostile_text(xsd: xmlschema.XMLSchema) -> None:
    text = junit(HOSTILE_REPORT)
    xsd.validate(text)
    case = ET.fromstring(text.encode("utf-8")).findall(".//testcase")[0]  # noqa: S314 -- our own document
    # XML 1.0: Char excludes C0 but tab, LF, CR; surrogates; FFFE. What a terminal acts on stands there escaped.
    kept = ESCAPED.replace("\ufffe", "")
    assert case.get("name") == f"route:{kept} [{kept}]"
    assert case[0].get("message") == kept


@given(st.text(alphabet=st.characters(codec=None)))
@settings(max_examples=60, deadline=None)
def test_junit_is_always_xml(text: str) -> None:
    ET.fromstring(junit(report(one("fail", text, text, text, settle_with=text))).encode("utf-8"))  # noqa: S314 -- our own document


# --- SARIF ------------------------------------------------------------------------------------------------------------

# The constraints of the OASIS schema (2.1.0, errata 01) on the properties that we write; nothing else is allowed.
_MESSAGE = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
SARIF: dict[str, Any] = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"enum": ["2.1.0"]},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"type": "string"},
                                    "version": {"type": "string"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "additionalProperties": False,
                                            "properties": {
                                                "id": {"type": "string"},
                                                "shortDescription": _MESSAGE,
                                                "fullDescription": _MESSAGE,
                                                "help": _MESSAGE,
                                                "defaultConfiguration": {
                                                    "type": "object",
                                                    "additionalProperties": False,
                                                    "properties": {
                                                        "level": {"enum": ["none", "note", "warning", "error"]}
                                                    },
                                                },
                                            },
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": -1},
                                "kind": {"enum": ["notApplicable", "pass", "fail", "review", "open", "informational"]},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": _MESSAGE,
                                "locations": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "additionalProperties": False,
                                        "properties": {
                                            "physicalLocation": {
                                                "type": "object",
                                                "required": ["artifactLocation"],
                                                "properties": {
                                                    "artifactLocation": {
                                                        "properties": {
                                                            "uri": {"type": "string", "pattern": "^file:///"}
                                                        }
                                                    }
                                                },
                                            },
                                            "logicalLocations": {
                                                "type": "array",
                                                "items": {
                                                    "type": "object",
                                                    "additionalProperties": False,
                                                    "properties": {
                                                        "fullyQualifiedName": {"type": "string"},
                                                        "kind": {"type": "string"},
                                                    },
                                                },
                                            },
                                        },
                                    },
                                },
                                "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
                                "suppressions": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "required": ["kind"],
                                        "properties": {
                                            "kind": {"enum": ["inSource", "external"]},
                                            "status": {"enum": ["accepted", "underReview", "rejected"]},
                                            "justification": {"type": "string"},
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def test_sarif() -> None:
    log = json.loads(sarif(MIXED))
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == ["route", "nvme.unpatched", "cufile"]
    results = run["results"]
    assert [rules[result["ruleIndex"]] == result["ruleId"] for result in results] == [True] * 4
    assert [(result["kind"], result["level"]) for result in results] == [
        ("pass", "none"),
        ("fail", "error"),
        ("open", "none"),
        ("fail", "error"),
    ]
    assert ["suppressions" in result for result in results] == [False, False, False, True]
    place = results[3]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert place == "file:///etc/cufile.json"


def test_sarif_of_hostile_text() -> None:
    log = json.loads(sarif(HOSTILE_REPORT))
    jsonschema.validate(log, SARIF)
    assert "\\ud800" in log["runs"][0]["results"][0]["message"]["text"]


# --- Prometheus -------------------------------------------------------------------------------------------------------


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_prometheus() -> None:
    routes = (
        Route(gpu="g0", mount="/m", route="nvidia-fs", ceiling_gbs=25.5),
        Route(gpu="g1", mount="/m", route="rdma", dynamic_routing="SYS_MEM"),
        Route(gpu="g2", mount="/m", route="compat"),
        Route(gpu="g3", mount="/m"),
    )
    text = prometheus(report(*MIXED.requirements, routes=routes))
    found = families(text)
    assert all(family.type == "gauge" and family.documentation for family in found.values())
    assert all(sample.timestamp is None for family in found.values() for sample in family.samples)
    assert text.endswith("\n")
    direct = {sample.labels["gpu"]: sample.value for sample in found["gdsctl_route_direct"].samples}
    assert direct == {"g0": 1, "g1": 0, "g2": 0}
    (ceiling,) = found["gdsctl_route_ceiling_bytes_per_second"].samples
    assert (ceiling.labels["gpu"], ceiling.value) == ("g0", 25.5e9)
    verdicts = {sample.labels["verdict"]: sample.value for sample in found["gdsctl_verify_verdict"].samples}
    assert verdicts == {"pass": 0, "fail": 1, "unknown": 0}
    counts = {sample.labels["status"]: sample.value for sample in found["gdsctl_verify_requirements"].samples}
    assert counts == {"pass": 1, "fail": 1, "unknown": 1, "waived": 1}


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
@settings(max_examples=60, deadline=None)
def test_prometheus_labels_come_back(text: str) -> None:
    made = prometheus(report(one("pass", "r", text)))
    samples = families(made)["gdsctl_verify_requirement"].samples
    assert {sample.labels["subject"] for sample in samples} == {safe(text)}


def test_prometheus_of_hostile_text() -> None:
    samples = families(prometheus(HOSTILE_REPORT))["gdsctl_verify_requirement"].samples
    assert samples[0].labels["subject"] == ESCAPED


# --- Nagios -----------------------------------------------------------------------------------------------------------

# Monitoring Plugins development guidelines: 'label'=value[UOM];[warn];[crit];[min];[max]
PERFDATA = re.compile(r"(?:[a-z]+=\d+;\d*;\d*;\d*;\d*)(?: [a-z]+=\d+;\d*;\d*;\d*;\d*)*")


@pytest.mark.parametrize(
    ("statuses", "verdict", "state", "exit_code"),
    [
        (["pass"], "pass", "OK", 0),
        (["pass", "waived"], "pass", "WARNING", 1),
        (["fail", "unknown"], "fail", "CRITICAL", 2),
        (["pass", "unknown"], "unknown", "UNKNOWN", 3),
    ],
)
def test_nagios(statuses: list[str], verdict: str, state: str, exit_code: int) -> None:
    made = report(*(one(status, f"r{n}") for n, status in enumerate(statuses)), verdict=verdict)
    line = nagios(made)
    assert line.startswith(f"GDS {state} - ")
    assert code(made) == exit_code
    text, _, data = line.rstrip("\n").partition(" | ")
    assert "|" not in text
    assert PERFDATA.fullmatch(data)


def test_nagios_of_hostile_text_is_one_line() -> None:
    line = nagios(HOSTILE_REPORT)
    assert line.count("\n") == 1
    assert line.endswith("\n")
    assert line.count("|") == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\ud800-\udfff]", line)
