"""Words of a command line that another command prints when it starts: `$(cat FILE)`. They are named, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gdsctl.kvcache.launch import Word

_COMMAND = re.compile(r"\$\(([^()]*[\s<][^()]*)\)|`([^`]*\s[^`]*)`")
_FILE = re.compile(r"\s*(?:cat\s+|<\s*)[\"']?([^\s\"'|;&<>]+)[\"']?\s*")
# Values that decide where bytes go, and those that never do; of others a file's text is doubtful.
_DECIDING = frozenset(
    {
        "--kv-transfer-config",
        "--kv-offloading-backend",
        "--l1-manager",
        "--l2-adapter",
        "--gds-l1-path",
        "--gds-l1-backend",
        "--load-format",
        "--model-loader-extra-config",
        "--hicache-storage-backend",
        "--hicache-storage-backend-extra-config",
        "--modelexpress-config",
    }
)
_INDIFFERENT = frozenset(
    [
        "--model",
        "--model-path",
        "--served-model-name",
        "--tokenizer",
        "--chat-template",
        "--api-key",
        "--host",
        "--port",
        "--tensor-parallel-size",
        "--tp",
        "--tp-size",
        "--max-model-len",
        "--max-num-seqs",
        "--gpu-memory-utilization",
        "--l1-size-gb",
        "--chunk-size",
        "--hicache-size",
    ]
)


def printed(words: Iterable[Word]) -> Iterator[tuple[Word, str]]:
    """Each such word that may decide where bytes go, and what is not known of it, as a sentence. `vllm serve MODEL` names a model."""
    option = before = ""
    for word in words:
        name, sign, _ = word.text.partition("=")
        own = name if sign and name.startswith("--") else option
        option = word.text if word.text.startswith("--") and not sign else ""
        model, before = before == "serve", word.text
        found = _COMMAND.search(word.text)
        if found is None:
            continue
        file = _FILE.fullmatch(found[1] or found[2] or "")
        normal = own.replace("_", "-")
        whole = not own and found.start() == 0
        if model or normal in _INDIFFERENT or not (whole or file is not None or normal in _DECIDING):
            continue
        what = f"the text of {file[1]}" if file is not None else f"what {found[0][:80]} prints"
        says = f"{own} is" if own else "further words are"
        yield word, f"{says} {what}, which is not in this file: give the command with that in its place"
