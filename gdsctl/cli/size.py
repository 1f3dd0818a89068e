from __future__ import annotations

from enum import Enum
from typing import Annotated, Optional

import typer

from gdsctl.cli.options import NoColor, Output
from gdsctl.errors import InputError, UsageError


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
        Optional[int], typer.Option(metavar="N", help="Tokens of one request.", show_default=False)
    ] = None,
    volume_gib: Annotated[
        Optional[float], typer.Option(metavar="V", help="GiB to keep sessions in.", show_default=False)
    ] = None,
    context: Annotated[
        Optional[int], typer.Option(metavar="N", help="Tokens of one session.", show_default=False)
    ] = None,
    l1_gib: Annotated[
        Optional[float],
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

    for name, value in {
        "tokens-per-gib": tokens_per_gib,
        "tp": tp,
        "tokens": tokens,
        "volume-gib": volume_gib,
        "context": context,
        "l1-gib": l1_gib,
        "chunk-tokens": chunk_tokens,
        "bandwidth-gbs": bandwidth_gbs,
        "prefill-tokens-per-s": prefill_tokens_per_s,
    }.items():
        if value is not None and not 1e-9 <= value <= 1e15:
            raise UsageError(f"--{name} {value}: a positive number is wanted")
    asked = Asked(
        tokens=tokens,
        volume_gib=volume_gib,
        context_tokens=context,
        l1_gib=l1_gib,
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

        if volume_gib is None or context is None:
            raise UsageError("--format lmcache-bench needs --volume-gib and --context, the tokens of one document")
        values = lmcache_bench.configuration(volume_gib, context, report.tokens_per_gib)
        documents.deliver(lmcache_bench.text(values), output)
    else:
        documents.deliver(documents.ENCODERS[format.value](report), output)
