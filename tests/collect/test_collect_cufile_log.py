from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl import pipeline
from gdsctl.collect import gds
from gdsctl.collect.reader import Reader
from gdsctl.source.assemble import assemble
from gdsctl.source.opening import open_source
from tests.sound import Sound

LINE = " {day}-01-2026 {time}:7 [pid={pid} tid={pid}] ERROR  cufio:1 {text}\n"
NOT_LOADED = "nvidia-fs.ko driver not loaded"
UNPATCHED = "NVMe Driver not registered with nvidia-fs!!!"


def line(day: int, pid: int, text: str, time: str = "09:00:00") -> str:
    return LINE.format(day=f"{day:02d}", time=time, pid=pid, text=text)


Machine = Callable[..., Reader]
IN_FOLDER = '{"logging": {"dir": "/var/log/cufile/"}}'


def test_the_newest_file_of_the_folder_counts(machine: Machine) -> None:
    found = gds.collect(
        machine(
            {
                "/etc/cufile.json": IN_FOLDER,
                "/var/log/cufile/cufile_20_2026-01-14.10.00.00.log": line(14, 20, UNPATCHED),
                "/var/log/cufile/cufile_9_2026-01-13.10.00.00.log": line(13, 9, NOT_LOADED),
                "/var/log/cufile/other.log": line(15, 7, NOT_LOADED),
            }
        )
    ).last_run
    assert found is not None
    assert (found.pid, found.last, found.findings) == (20, "2026-01-14T09:00:00.007", ("nvme.unpatched",))


def test_the_variable_beats_the_folder(machine: Machine) -> None:
    files = {"/etc/cufile.json": IN_FOLDER, "/x/my.log": line(14, 5, NOT_LOADED) + line(14, 6, UNPATCHED)}
    environment = {"host": {"cufile_environment": {"CUFILE_LOGFILE_PATH": "/x/my.log"}}}
    found = gds.collect(machine(files, answers=environment)).last_run
    assert found is not None
    assert (found.pid, found.meanings) == (6, {"nvme-not-registered": 1})


def test_no_log_is_named(machine: Machine) -> None:
    reader = machine({"/etc/cufile.json": "{}", "/cufile.log": line(14, 5, NOT_LOADED)})
    assert gds.collect(reader).last_run is None
    for text in ("", "no log at all\n"):
        reader = machine({"/etc/cufile.json": IN_FOLDER, "/var/log/cufile/cufile_1_2.log": text})
        assert gds.collect(reader).last_run is None


@pytest.mark.parametrize(
    ("uptime", "stale"),
    [
        (3 * 86400.0, False),  # up since 12 January, 12:00 UTC; the line is of the 14th
        (
            86400.0,
            False,
        ),  # since the 14th, 12:00 UTC, which is 22:00 on the 13th in Hawaii and 02:00 on the 15th in Kiribati
        (3600.0, True),  # since the 15th, 11:00 UTC
    ],
)
def test_what_was_written_before_the_boot_is_stale(uptime: float, stale: bool, tmp_path: Path) -> None:
    made = Sound(tmp_path, config=IN_FOLDER)  # captured on 15 January 2026, 12:00 UTC
    made.file("/var/log/cufile/cufile_1_2.log", line(14, 1, UNPATCHED))
    made.file("/proc/uptime", f"{uptime} 1.0")
    report = pipeline.inspect(made.source())
    assert (report.gds.last_run is None) is stale
    told: list[Any] = [finding for finding in report.findings if finding.id == "cufile.log-tells"]
    assert len(told) == (not stale)
    if told:
        assert told[0].severity == "info"
        assert "nvme.unpatched" in told[0].message
        assert {route.route for route in report.routes if route.mount == "/mnt"} == {"nvidia-fs"}


def test_pasted(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(line(14, 5, UNPATCHED))
    assemble(str(tmp_path / "out"), commands=[("cufile-log", str(tmp_path / "log"))])
    report = pipeline.inspect(open_source(str(tmp_path / "out")))
    assert report.gds.last_run is not None
    assert report.gds.last_run.pid == 5
