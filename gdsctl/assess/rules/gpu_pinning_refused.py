from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.kernel_log import events
from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy

_WORDS = {
    "get-pages-invalid": "the NVIDIA driver refused to pin GPU memory (-22)",
    "bar1-full": "the NVIDIA driver had no room left in BAR1 to pin GPU memory (-12)",
}
_ROOM = Remedy(
    text="Register fewer or smaller buffers, lower properties.max_device_cache_size_kb and "
    "properties.max_device_pinned_mem_size_kb, or give the GPU a larger BAR1 where its firmware can."
)


def check(view: View) -> Iterator[Verdict]:
    event = next(events(view, *_WORDS), None)
    if event is None or any(gpu.kind == "geforce" for gpu in view.gpus):  # there -22 is the rule, gpu.geforce tells it
        return
    yield Fail(
        subject="GPU memory",
        message=_WORDS[event.meaning],
        evidence=seen("kernel log", event.text, "dmesg"),
        remedy=_ROOM if event.meaning == "bar1-full" else None,
    )


RULE = Rule(
    id="gpu.pinning-refused",
    severity="warning",
    problem="the NVIDIA driver refused to pin GPU memory",
    why="nvidia_fs asks the driver for the pages of each registered buffer. -22 means that they may not be had: a GPU "
    "without GPUDirect RDMA, a virtual GPU without that right, memory of another process or of a kind that cannot be "
    "pinned; -12 that BAR1 has no room left. The request ends with 5036 or goes through host memory.",
    look_at=("dmesg | grep -i nvidia_p2p_get_pages", "nvidia-smi -q | grep -A3 'BAR1 Memory Usage'", "nvidia-smi -L"),
    remedy=Remedy(
        text="See which process registered what: memory from cudaMalloc can be pinned, managed and host memory cannot."
    ),
    not_to_conclude="One refusal does not speak against the GPU: it may be of a process that is long gone.",
    source="nvidia-fs src/nvfs-mmap.c; NVIDIA GPUDirect RDMA documentation, nvidia_p2p_get_pages",
    after=("gpu.geforce", "gpu.bar1-small"),
    check=check,
)
