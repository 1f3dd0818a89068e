"""What Storage Scale's own configuration says of RDMA."""

from __future__ import annotations

from gdsctl.collect.reader import Reader
from gdsctl.source.base import Missing

PATH = "/var/mmfs/gen/mmfs.cfg"
_LONGEST_LINE = 4096


def verbs_ports(reader: Reader) -> tuple[str, ...] | Missing:
    """VerbsPorts of the configuration that Storage Scale keeps on each node, () where it names none.

    Lines below a `[NODE]` heading hold for some nodes only, so that with one of those the node's own is not certain.
    """
    text = reader.text(PATH)
    if isinstance(text, Missing):
        return text
    lines = [line.split() for line in text.splitlines() if len(line) <= _LONGEST_LINE]
    settings = [(number, words[1:]) for number, words in enumerate(lines) if words[:1] == ["verbsPorts"]]
    headings = [number for number, words in enumerate(lines) if words and words[0].startswith("[")]
    first = min((n for n in headings if lines[n] != ["[common]"]), default=len(lines))
    if any(number > first for number, _ in settings):
        return Missing(status="error", detail=f"{PATH} sets verbsPorts by node")
    return tuple(port for port in " ".join(settings[-1][1]).replace(",", " ").split()) if settings else ()
