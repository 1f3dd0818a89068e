from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Optional

import typer

from gdsctl.cli.options import NoColor, Output
from gdsctl.errors import InputError, UsageError

_NUMBER = re.compile(r"(-?\d{1,18}(?:\.\d{1,9})?(?:e\d{1,2})?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)
_COUNTS = {"": 1, "k": 1 << 10, "m": 1 << 20}  # as the context lengths of models are named: 128k is 131,072
_GIB = {
    "": 1.0,
    "mib": 1 / 1024,
    "gib": 1,
    "tib": 1 << 10,
    "pib": 1 << 20,
    "m": 1 / 1024,
    "g": 1,
    "t": 1 << 10,
    "p": 1 << 20,
}


def _tokens(name: str, text: str | None) -> int | None:
    """A whole number of tokens. Raises UsageError for anything else."""
    if text is None:
        return None
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2].lower() not in _COUNTS:
        raise UsageError(f"--{name} {text!r}: tokens such as 32000 or 128k (128 x 1024) are wanted")
    count = float(match[1]) * _COUNTS[match[2].lower()]
    if count != int(count):
        raise UsageError(f"--{name} {text!r} is not a whole number of tokens")
    return int(count)


def _gib(name: str, text: str | None) -> float | None:
    """GiB of `640`, `640GiB`, `20TiB`. Raises UsageError for anything else; TB is 10^12 bytes to some and 2^40 to others."""
    if text is None:
        return None
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2].lower() not in _GIB:
        raise UsageError(f"--{name} {text!r}: GiB such as 640, or 512GiB or 20TiB (powers of 1024) are wanted")
    return float(match[1]) * _GIB[match[2].lower()]


class Format(str, Enum):
    table = "table"
    json = "json"
    yaml = "yaml"
    lmcache_bench = "lmcache-bench"


def size(  # noqa: PLR0917 -- options, named on the command line
    tokens_per_gib: Annotated[
        Optional[float],
        typer.Option(metavar="N", help="Measured: tokens of KV cache in one GiB.", show_default=False),
    ] = None,
    model: Annotated[
        Optional[str],
        typer.Option(metavar="CONFIG.json", help="A model's config.json; - for standard input.", show_default=False),
    ] = None,
    kv_dtype: Annotated[
        Optional[str],
        typer.Option(
            metavar="T",
            help="Element type of the cache: bfloat16, float16, fp8, ... Default: auto, as the model says.",
            show_default=False,
        ),
    ] = None,
    tp: Annotated[
        Optional[int], typer.Option(metavar="N", help="Tensor-parallel ranks. Default: 1.", show_default=False)
    ] = None,
    tokens: Annotated[
        Optional[str],
        typer.Option(metavar="N", help="Tokens of one request; 128k is 128 x 1024.", show_default=False),
    ] = None,
    volume_gib: Annotated[
        Optional[str],
        typer.Option(metavar="V", help="GiB to keep sessions in, or 20TiB, 512GiB.", show_default=False),
    ] = None,
    context: Annotated[
        Optional[str], typer.Option(metavar="N", help="Tokens of one session; 128k as well.", show_default=False)
    ] = None,
    l1_gib: Annotated[
        Optional[str],
        typer.Option(
            metavar="G", help="GiB of the memory tier above: how many of the sessions it holds.", show_default=False
        ),
    ] = None,
    chunk_tokens: Annotated[int, typer.Option(metavar="N", help="Tokens of one chunk.")] = 256,
    bandwidth_gbs: Annotated[
        Optional[float],
        typer.Option(metavar="B", help="Storage bandwidth, 10^9 bytes a second.", show_default=False),
    ] = None,
    prefill_tokens_per_s: Annotated[
        Optional[float],
        typer.Option(metavar="P", help="Rate at which the engine computes a prefix.", show_default=False),
    ] = None,
    format: Annotated[  # noqa: A002 -- the option's name
        Format, typer.Option(help="lmcache-bench: a configuration for lmcache bench engine (with --volume-gib).")
    ] = Format.table,
    output: Output = None,
    no_color: NoColor = False,
) -> None:
    """Size a KV cache: bytes per token, requests, sessions, chunk files, and fetching against computing anew."""
    from gdsctl.cli.text_files import read_text
    from gdsctl.kvcache.model_config import read_model_config
    from gdsctl.kvcache.size import Asked, size_of_model, size_of_rate
    from gdsctl.render import documents

    request_tokens, context_tokens = _tokens("tokens", tokens), _tokens("context", context)
    volume, l1 = _gib("volume-gib", volume_gib), _gib("l1-gib", l1_gib)
    for name, value in {
        "tokens-per-gib": tokens_per_gib,
        "tp": tp,
        "tokens": request_tokens,
        "volume-gib": volume,
        "context": context_tokens,
        "l1-gib": l1,
        "chunk-tokens": chunk_tokens,
        "bandwidth-gbs": bandwidth_gbs,
        "prefill-tokens-per-s": prefill_tokens_per_s,
    }.items():
        if value is not None and not 1e-9 <= value <= 1e15:
            raise UsageError(f"--{name} {value}: a positive number is wanted")
    asked = Asked(
        tokens=request_tokens,
        volume_gib=volume,
        context_tokens=context_tokens,
        l1_gib=l1,
        chunk_tokens=chunk_tokens,
        bandwidth_gbs=bandwidth_gbs,
        prefill_tokens_per_s=prefill_tokens_per_s,
    )
    if (model is None) == (tokens_per_gib is None):
        raise UsageError("one of --model CONFIG.json and --tokens-per-gib N is wanted")
    if model is None and tokens_per_gib is not None:
        for name, given in (("kv-dtype", kv_dtype), ("tp", tp)):
            if given is not None:
                raise UsageError(f"--{name} goes with --model")
        report = size_of_rate(tokens_per_gib, asked)
    elif model is not None:
        try:
            attention = read_model_config(read_text(model), kv_dtype or "auto")
        except InputError as error:
            raise error.at("<stdin>" if model == "-" else model) from None
        report = size_of_model(attention, tp or 1, asked)
    if format is Format.table:
        from gdsctl.render import size_report, terminal

        terminal.deliver(size_report.size_report(report), output, no_color=no_color)
    elif format is Format.lmcache_bench:
        from gdsctl.emit import lmcache_bench

        if volume is None or context_tokens is None:
            raise UsageError("--format lmcache-bench needs --volume-gib and --context, the tokens of one document")
        values = lmcache_bench.configuration(volume, context_tokens, report.tokens_per_gib)
        documents.deliver(lmcache_bench.text(values), output)
    else:
        documents.deliver(documents.ENCODERS[format.value](report), output)
