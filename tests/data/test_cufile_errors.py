from __future__ import annotations

import pytest

from gdsctl.assess.rules import ids
from gdsctl.cli import run
from gdsctl.data.cufile_errors import error, errors
from gdsctl.parse.cufile_log import messages

# CUfileOpError of cufile.h 1.20: 5001 to 5050 without 5021 and 5032, and the two RDMA codes.
CODES = [code for code in range(5001, 5051) if code not in {5021, 5032}] + [6001, 6002]


def test_the_codes_are_those_of_the_header() -> None:
    assert [row.code for row in errors()] == CODES
    assert len({row.name for row in errors()}) == len(CODES)


def test_causes_name_findings_that_exist_and_log_lines_that_the_reader_knows() -> None:
    patterns = [pattern for message in messages() for pattern in message.patterns]
    for row in errors():
        for cause in row.causes:
            assert cause.finding is None or cause.finding in ids(), (row.code, cause.finding)
            said = cause.tell.partition("cufile.log says: ")[2]
            known = any(pattern in said for pattern in patterns)
            assert not said or known or said == "missing cuda symbols while dynamic loading", (row.code, said)


def test_look_up() -> None:
    for word in ("5030", "-5030", "INTERNAL_ERROR", "CU_FILE_INTERNAL_ERROR", "cu_file_internal_error"):
        found = error(word)
        assert found is not None
        assert found.code == 5030
    assert error("5021") is None
    assert error("5032") is None


def test_5030_has_three_causes_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Field reports: one number for an overlay, for a missing udev database and for device mapper."""
    assert run(["explain", "5030"]) == 0
    text = capsys.readouterr().out
    for words in ("dev_no: 0:", "ID_FS_USAGE", "dm-N", "fs.overlay", "container.no-udev", "fs.device-mapper"):
        assert words in text
    assert run(["explain", "5021"]) == 2
    assert run(["explain", "5030", "--format", "json"]) == 0
