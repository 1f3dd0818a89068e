"""What each tool prints, read; forms as in the tools' sources and guides, values our own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.errors import UsageError
from gdsctl.probe.report import Latency
from gdsctl.probe.tools.elbencho import Elbencho
from gdsctl.probe.tools.fio import Fio
from gdsctl.probe.tools.gdsio import Gdsio
from gdsctl.probe.tools.nixlbench import Nixlbench
from gdsctl.probe.tools.run import TOOLS
from gdsctl.probe.tools.tool import Mode, Place, Tool, ToolError, Work, mode_of

MIB = 1 << 20
PLACE = Place(path="/mnt/x/.gdsctl-probe-1/file", folder="/mnt/x/.gdsctl-probe-1", results="/proc/self/fd/9")


def command(tool: Tool, mode: str | None, **work: Any) -> list[str]:
    made = Work(**work)
    return list(tool.command("/usr/bin/tool", mode_of(tool, mode, made), made, PLACE))


# --- gdsio: "Getting Started with GPUDirect Storage", section 2.1; the batch line has IoDepth, too

GDSIO = (
    "IoType: READ XferType: GPUD Threads: 4 DataSetSize: 4190208/4194304(KiB) IOSize: 1024(KiB) "
    "Throughput: 3.996094 GiB/sec, Avg_Latency: 975.250000 usecs ops: 4092 total_time 1.000000 secs \n"
)
GDSIO_BATCH = (
    "IoType: RANDWRITE XferType: GPU_BATCH Threads: 1 IoDepth: 16 DataSetSize: 8192/8192(KiB) IOSize: 64(KiB) "
    "Throughput: 0.500000 GiB/sec, Avg_Latency: 1500.000000 usecs ops: 128 total_time 0.015625 secs\n"
)


def test_gdsio() -> None:
    told = Gdsio().parse(GDSIO, "", Work(rw="read"))
    (side,) = told.sides
    assert (told.seconds, side.direction, side.bytes, side.blocks) == (1.0, "read", 4190208 * 1024, 4092)
    assert side.latency_us == Latency(mean=975.25)
    assert told.notes == ("gdsio tells the mean latency, no percentiles",)


def test_gdsio_of_a_batch() -> None:
    told = Gdsio().parse("\n" + GDSIO_BATCH, "", Work(rw="randwrite"))
    assert (told.bytes, told.blocks, told.seconds) == (8 * MIB, 128, 0.015625)
    assert told.sides[0].direction == "write"


@pytest.mark.parametrize("output", ["", "Error: file not found\n", GDSIO.replace("ops: 4092", "ops:")])
def test_gdsio_without_a_result(output: str) -> None:
    with pytest.raises(ToolError, match="gdsio tells no result"):
        Gdsio().parse(output, "", Work())


def test_gdsio_of_another_kind() -> None:
    with pytest.raises(ToolError, match="tells of READ, not of write"):
        Gdsio().parse(GDSIO, "", Work(rw="write"))


def test_gdsio_command() -> None:
    said = command(Gdsio(), None, rw="read", size_bytes=64 * MIB, threads=4, block_bytes=MIB, gpus=(2,), seconds=3.4)
    assert said[1:] == [
        "-D",
        "/mnt/x/.gdsctl-probe-1",
        "-d",
        "2",
        "-w",
        "4",
        "-s",
        "16384K",
        "-i",
        "1024K",
        "-x",
        "0",
        "-I",
        "0",
        "-T",
        "3",
    ]
    batch = command(Gdsio(), None, rw="randwrite", size_bytes=MIB, iodepth=8, block_bytes=65536, gpus=(0,), seed=5)
    assert batch[1:] == [
        "-D",
        "/mnt/x/.gdsctl-probe-1",
        "-d",
        "0",
        "-w",
        "8",
        "-s",
        "128K",
        "-i",
        "64K",
        "-x",
        "6",
        "-I",
        "3",
        "-k",
        "5",
    ]
    bare = command(Gdsio(), "0", rw="write", size_bytes=MIB, registered=False, gpus=(0,))
    assert bare[-1] == "-b"
    assert command(Gdsio(), None)[-3:] == ["1", "-I", "0"]  # no GPU: transfer type 1
    layout = Gdsio().layout("gdsio", Work(rw="randread", size_bytes=MIB, gpus=(0,)), PLACE)
    assert layout[-4:] == ("-x", "1", "-I", "1")


# --- elbencho: Statistics.cpp, printPhaseResultsAsJSON; Boost writes every value as a string, on one line a phase


def elbencho(last: dict[str, Any], first: dict[str, Any] | None = None) -> str:
    document = {
        "phase_type": "READ",
        "phase_id": "7b0b9a60-0000-0000-0000-000000000000",
        "iso_start_date": "2026-01-02T03:04:05.006+0000",
        "config": {"path_type": "file", "threads": "4", "file_size": "67108864", "version": "3.1-10", "command": "x"},
        "first_done": first or {"elapsed_time_ms": "900"},
        "last_done": last,
    }
    return json.dumps(document) + "\n"


ELBENCHO = {
    "elapsed_time_ms": "1250",
    "iops": "51",
    "bytes/s": "53687091",
    "bytes": "67108864",
    "cpu%": "12",
    "latency": {
        "IO": {
            "min_us": "300",
            "avg_us": "1100",
            "max_us": "9000",
            "histogram": [
                {"range": "304-362us", "count": "40"},
                {"range": "861-1024us", "count": "20"},
                {"range": "3444-4096us", "count": "3"},
                {"range": "8192-9742us", "count": "1"},
            ],
        }
    },
}


def test_elbencho() -> None:
    told = Elbencho().parse("", elbencho(ELBENCHO), Work(rw="read"))
    (side,) = told.sides
    assert (told.seconds, told.version, side.direction, side.bytes, side.blocks) == (
        1.25,
        "3.1-10",
        "read",
        64 * MIB,
        64,
    )
    # of 64 blocks the 32nd, the 58th (90 % is 57.6), the 64th (99 % is 63.36) and the 64th; never above the maximum
    assert side.latency_us == Latency(min=300, mean=1100, p50=362, p90=1024, p99=9000, p99_9=9000, max=9000)


def test_elbencho_mixed() -> None:
    """Boost's writer makes an object of a list that also has a name in it; its nameless members cannot be told apart."""
    found = json.loads(json.dumps(ELBENCHO))
    found["rwmix_read"] = {"iops": "30", "bytes/s": "1", "bytes": "33554432"}
    found["latency"]["IO"]["rwmix_read"] = {"min_us": "100", "avg_us": "200", "max_us": "400"}
    found["latency"]["IO"]["histogram"] = {
        "": {"range": "304-362us", "count": "40"},
        "rwmix_read": [{"range": "181-215us", "count": "9"}, {"range": "362-431us", "count": "1"}],
    }
    reads, writes = Elbencho().parse("", elbencho(found), Work(rw="rw")).sides
    assert (reads.direction, reads.bytes, writes.direction, writes.bytes) == ("read", 32 * MIB, "write", 64 * MIB)
    assert reads.latency_us == Latency(min=100, mean=200, p50=215, p90=215, p99=400, p99_9=400, max=400)
    assert writes.latency_us == Latency(min=300, mean=1100, max=9000)


def test_elbencho_whose_histogram_was_too_small() -> None:
    found = json.loads(json.dumps(ELBENCHO))
    found["latency"]["IO"]["histogram"] = {"histo_max_exceeded": "Histogram not available because .."}
    (side,) = Elbencho().parse("", elbencho(found), Work()).sides
    assert (side.latency_us.p50, side.latency_us.max) == (None, 9000)


@pytest.mark.parametrize("results", ["", "{}", "[]", "null", "not json", elbencho({})])
def test_elbencho_without_a_result(results: str) -> None:
    with pytest.raises(ToolError, match="elbencho's result file"):
        Elbencho().parse("", results, Work())


def test_elbencho_command() -> None:
    said = command(
        Elbencho(), None, rw="randread", size_bytes=10 * MIB, threads=3, block_bytes=MIB, gpus=(0, 1), seconds=2
    )
    expected = "--read --direct --nolive --threads 3 --block 1048576 --size 9437184 --iodepth 1 --lat --lathisto"
    expected += " --jsonfile /proc/self/fd/9 --rand --infloop --timelimit 2 --gpuids 0,1 --cufile --gdsbufreg"
    assert said[1:-1] == expected.split()
    assert said[-1] == PLACE.path
    mixed = command(Elbencho(), "staged", rw="rw", read_percent=70, gpus=(1,))
    assert mixed[1] == "--write"
    assert "--rwmixpct 70 --gpuids 1" in " ".join(mixed)
    assert "--gdsbufreg" not in command(Elbencho(), "cufile", gpus=(0,), registered=False)


# --- nixlbench: utils.cpp, printStatsHeader and printStats; columns of 20 and 15 characters

NIXL_HEAD = (
    f"{'Block Size (B)':20}{'Batch Size':15}{'B/W (GB/Sec)':15}{'Avg Lat. (us)':15}{'Avg Prep (us)':15}"
    f"{'P99 Prep (us)':15}{'Avg Post (us)':15}{'P99 Post (us)':15}{'Avg Tx (us)':15}{'P99 Tx (us)':15}\n{'-' * 80}\n"
)


def nixl(batch: int, gbs: str) -> str:
    row = f"{1048576:<20}{batch:<15}{gbs:15}{'210.5':15}{'1.0':15}{'2.0':15}{'40.0':15}{'55.0':15}{'170.0':15}{'333.3':15}"
    return f"Opening file: /x\n{'*' * 70}\n{NIXL_HEAD}{row}\n"


def test_nixlbench() -> None:
    told = Nixlbench().parse(nixl(1, "2.097152"), "", Work(rw="read", size_bytes=256 * MIB, threads=2))
    (side,) = told.sides
    assert (side.blocks, side.bytes) == (256, 256 * MIB)
    assert told.seconds == pytest.approx(256 * MIB / 2.097152e9)
    assert side.latency_us == Latency(mean=210.5, p99=333.3)
    assert "the same 2 blocks" in told.notes[0]


def test_nixlbench_of_batches_tells_no_block_s_percentile() -> None:
    told = Nixlbench().parse(nixl(8, "2.000000"), "", Work(rw="write", size_bytes=128 * MIB, iodepth=8))
    assert told.sides[0].latency_us == Latency(mean=210.5)
    assert told.blocks == 128


@pytest.mark.parametrize(
    "output", ["", "Failed to open file\n", NIXL_HEAD, nixl(1, "0.000000"), nixl(1, "1.0").replace("333.3", "")]
)
def test_nixlbench_without_a_result(output: str) -> None:
    with pytest.raises(ToolError, match="nixlbench"):
        Nixlbench().parse(output, "", Work(size_bytes=64 * MIB))


def test_nixlbench_command() -> None:
    said = command(Nixlbench(), None, rw="read", size_bytes=64 * MIB, threads=2, iodepth=4, gpus=(0,))
    expected = """--backend=GDS --initiator_seg_type=VRAM --op_type=READ --filenames=/mnt/x/.gdsctl-probe-1/file
        --num_files=1 --storage_enable_direct=true --total_buffer_size=67108864 --start_block_size=1048576
        --max_block_size=1048576 --start_batch_size=4 --max_batch_size=4 --num_threads=2 --num_iter=16 --warmup_iter=2
        --large_blk_iter_ftr=1"""
    assert said[1:] == expected.split()
    assert "--initiator_seg_type=DRAM" in command(Nixlbench(), None, rw="write")


# --- fio: stat.c, show_thread_status_json


def fio(**job: Any) -> str:
    side = {"io_bytes": 4096000, "total_ios": 1000, "runtime": 500, "short_ios": 0}
    percentile = {"50.000000": 90112, "90.000000": 120320, "99.000000": 250000, "99.900000": 401408}
    side["lat_ns"] = {"min": 41000, "max": 400500, "mean": 99500.25, "stddev": 1.0, "N": 1000, "percentile": percentile}  # type: ignore[assignment]
    none = {"io_bytes": 0, "total_ios": 0, "runtime": 0, "lat_ns": {"min": 0, "max": 0, "mean": 0.0, "N": 0}}
    made = {"jobname": "gdsctl", "error": 0, "read": side, "write": none, "usr_cpu": 10.0, "sys_cpu": 30.0}
    document = {"fio version": "fio-3.99", "jobs": [made | {"job_runtime": 500} | job], "disk_util": []}
    return f"fio: a remark\n{json.dumps(document)}\n\n"


def test_fio() -> None:
    told = Fio().parse(fio(), "", Work(rw="randread"))
    (side,) = told.sides
    assert (told.version, told.seconds, told.cpu_seconds) == ("3.99", 0.5, 0.2)
    assert (side.direction, side.bytes, side.blocks) == ("read", 4096000, 1000)
    assert side.latency_us == Latency(min=41.0, mean=99.5, p50=90.112, p90=120.32, p99=250.0, p99_9=400.5, max=400.5)


def test_fio_of_which_one_side_moved_nothing() -> None:
    reads, writes = Fio().parse(fio(), "", Work(rw="rw")).sides
    assert (reads.blocks, writes.blocks, writes.latency_us) == (1000, 0, Latency())


@pytest.mark.parametrize("output", ["", "fio: no such engine\n", "{}", '{"jobs": []}', fio(read={}), fio(error=5)])
def test_fio_without_a_result(output: str) -> None:
    with pytest.raises(ToolError, match="fio"):
        Fio().parse(output, "", Work())


def test_fio_command_for_gpus() -> None:
    said = command(Fio(), None, rw="read", gpus=(0, 3), threads=2, size_bytes=8 * MIB)
    assert {"--ioengine=libcufile", "--cuda_io=cufile", "--gpu_dev_ids=0:3", "--direct=1", "--thread"} <= set(said)
    assert {"--numjobs=2", "--size=4194304", "--offset_increment=4194304"} <= set(said)
    posix = command(Fio(), "libcufile-posix", gpus=(0,))
    assert {"--ioengine=libcufile", "--cuda_io=posix"} <= set(posix)


# --- all of them


@pytest.mark.parametrize("tool", TOOLS.values(), ids=list(TOOLS))
@given(output=st.text(max_size=300), results=st.text(max_size=300))
@settings(max_examples=50, deadline=None)
def test_whatever_is_printed_no_other_error_comes(tool: Tool, output: str, results: str) -> None:
    with pytest.raises(ToolError):
        tool.parse(output, results, Work())


@pytest.mark.parametrize("tool", TOOLS.values(), ids=list(TOOLS))
def test_the_usual_mode_is_one_of_the_tools_own(tool: Tool) -> None:
    for work in (Work(), Work(iodepth=4), Work(gpus=(0,)), Work(gpus=(0,), iodepth=4)):
        assert mode_of(tool, None, work).gpu == bool(work.gpus)
    with pytest.raises(UsageError, match=f"{tool.name} has no mode none"):
        mode_of(tool, "none", Work())


@pytest.mark.parametrize(
    ("tool", "mode", "work", "said"),
    [
        ("gdsio", "0", {"rw": "rw"}, "does not mix"),
        ("gdsio", "0", {"gpus": (0, 1)}, "takes one GPU"),
        ("gdsio", "0", {"block_bytes": 512}, "whole KiB"),
        ("gdsio", "0", {"iodepth": 2}, "one block at a time"),
        ("gdsio", "6", {"iodepth": 2, "threads": 2}, "in one thread"),
        ("elbencho", "cufile", {"iodepth": 2}, "one block at a time"),
        ("nixlbench", "GDS", {"seconds": 1}, "counts blocks, not seconds"),
        ("nixlbench", "GDS", {"gpus": (1,)}, "takes the first GPU"),
        ("nixlbench", "GDS", {"block_bytes": 3 << 19}, "a power of two"),
        ("nixlbench", "GDS", {"rw": "randrw"}, "does not mix"),
    ],
)
def test_what_a_tool_cannot_do(tool: str, mode: str, work: dict[str, Any], said: str) -> None:
    asked = Work(**work)
    with pytest.raises(UsageError, match=said):
        TOOLS[tool].require("/bin/false", Mode(name=mode, what="", gpu=True, cufile=True), asked)
