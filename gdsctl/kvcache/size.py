"""Arithmetic of a KV cache: from bytes per token to requests, sessions, chunk files and the time to fetch them.

GiB is 2^30 bytes; bandwidth in GB/s is 10^9 bytes a second.
"""

from __future__ import annotations

import math
from fractions import Fraction

import msgspec

from gdsctl.errors import UsageError
from gdsctl.kvcache.model_config import Attention
from gdsctl.model.node import SCHEMA_VERSION
from gdsctl.record import Record

GIB = 1 << 30


class Asked(Record, frozen=True, kw_only=True):
    """What to work out. `context_tokens`: of one session; `l1_gib`: memory tier above the volume."""

    tokens: int | None = None
    volume_gib: float | None = None
    context_tokens: int | None = None
    l1_gib: float | None = None
    chunk_tokens: int = 256
    bandwidth_gbs: float | None = None
    prefill_tokens_per_s: float | None = None


class Size(Record, frozen=True, kw_only=True):
    """The `size` document. None: not asked for.

    `bytes_per_token`: what a store keeps for one token of one request, all tensor-parallel ranks together;
    `bytes_per_token_per_gpu`: one rank's part; `tokens_per_gib`: whole tokens;
    `chunk_bytes`: one chunk of one rank, which is one file or object; `chunk_files`: of one request, all ranks;
    `volume_chunk_files`: that fill the volume, so inodes where each is a file;
    `sessions_in_l1`: of those, how many the memory tier holds;
    `windowed_*`: where layers have a sliding window and the engine or cache drops what lies outside it;
    `break_even_*`: at this bandwidth, or prefill rate, fetching a prefix takes as long as computing it anew.
    """

    schema_version: str = SCHEMA_VERSION
    bytes_per_token: float
    bytes_per_token_per_gpu: float
    tokens_per_gib: float
    windowed_bytes_per_token: float | None = None
    request_gib: float | None = None
    windowed_request_gib: float | None = None
    sessions: int | None = None
    sessions_exact: float | None = None
    sessions_in_l1: int | None = None
    chunk_tokens: int
    chunk_bytes: int
    chunk_files: int | None = None
    volume_chunk_files: int | None = None
    fetch_seconds: float | None = None
    recompute_seconds: float | None = None
    break_even_bandwidth_gbs: float | None = None
    break_even_prefill_tokens_per_s: float | None = None
    formula: str
    notes: tuple[str, ...] = ()


def size_of_model(attention: Attention, tp: int, asked: Asked) -> Size:
    """Sizes from a model's layers. Raises UsageError for a `tp` that engines refuse."""
    attention.check_tp(tp)
    ranks = attention.storing_ranks(tp)
    rank = Fraction(attention.rank_bytes(tp))
    total = rank * ranks
    terms = " + ".join(group.told(tp, attention.dtype) for group in attention.layers)
    spread = f" x {ranks} ranks" if ranks > 1 else ""
    said = f"({terms}){spread}" if spread and len(attention.layers) > 1 else f"{terms}{spread}"
    formula = f"{said} = {_n(total)} bytes/token; 2^30 / {_n(total)} = {_n(GIB / total)} tokens/GiB"
    notes = [f"element type: {attention.dtype} ({attention.dtype_said})"]
    if not attention.kv_heads_said:
        notes.append(
            f"num_key_value_heads is not in the file: as many KV heads as attention heads are counted ({attention.heads}, "
            "multi-head attention), as transformers does; a model with grouped heads keeps a fraction of that"
        )
    most = max(asked.tokens or 0, asked.context_tokens or 0)
    if attention.position_tokens is not None and most > attention.position_tokens:
        notes.append(
            f"{most} tokens are more than max_position_embeddings, {attention.position_tokens}: engines refuse so long a request "
            "unless they are told to extend it"
        )
    copies = max((tp // group.kv_heads for group in attention.layers if not group.latent), default=1)
    if copies > 1:
        notes.append(f"--tp {tp} is more than the KV heads: each is kept {copies} times")
    if ranks < tp:
        notes.append(f"the latent is the same on all {tp} ranks; LMCache stores it once")
    if attention.stateful:
        notes.append(
            f"{attention.stateful} layers keep a state of fixed size (Mamba, linear attention), which is not counted"
        )
    windowed = tuple(group for group in attention.layers if group.window_tokens)
    if windowed:
        notes.append(
            "layers with a window count in full in bytes_per_token: a store that knows no windows keeps all of them; "
            "the windowed figures are an engine's that drops what no layer looks at any more"
        )
    found = _size(rank, ranks, asked, rate=math.floor(GIB / total), formula=formula, notes=tuple(notes))
    if not windowed:
        return found
    unbounded = sum(
        Fraction(group.rank_bytes(tp, attention.dtype)) for group in attention.layers if group.window_tokens is None
    )
    changes = {"windowed_bytes_per_token": _number(Fraction(unbounded) * ranks)}
    if asked.tokens is not None:
        kept = sum(
            Fraction(group.rank_bytes(tp, attention.dtype)) * min(asked.tokens, group.window_tokens or asked.tokens)
            for group in attention.layers
        )
        changes["windowed_request_gib"] = float(Fraction(kept) * ranks / GIB)
    return msgspec.structs.replace(found, **changes)


def size_of_rate(tokens_per_gib: float, asked: Asked) -> Size:
    """Sizes from a measured rate: LMCache's status, or an engine's tokens divided by its GiB of KV cache."""
    rate = Fraction(tokens_per_gib)
    total = GIB / rate
    formula = f"2^30 / {_n(rate)} tokens/GiB = {_n(total)} bytes/token"
    return _size(total, 1, asked, rate=_number(rate), formula=formula)


def _size(rank: Fraction, ranks: int, asked: Asked, *, rate: float, formula: str, notes: tuple[str, ...] = ()) -> Size:
    total = rank * ranks
    context = asked.context_tokens or asked.tokens
    if asked.volume_gib is not None and context is None:
        raise UsageError("--volume-gib needs --context, the tokens of one session")
    if asked.volume_gib is None:
        for option, value in (("--context", asked.context_tokens), ("--l1-gib", asked.l1_gib)):
            if value is not None:
                raise UsageError(f"{option} goes with --volume-gib")
    chunk = rank * asked.chunk_tokens
    steps = [formula]
    request = sessions = l1 = volume_files = files = fetch = recompute = None
    if asked.tokens is not None:
        request = total * asked.tokens / GIB
        files = math.ceil(Fraction(asked.tokens, asked.chunk_tokens)) * ranks
        steps.append(f"{asked.tokens} tokens x {_n(total)} bytes / 2^30 = {_n(request)} GiB")
    if asked.volume_gib is not None and context is not None:
        volume = Fraction(asked.volume_gib)
        sessions = volume * GIB / (total * context)
        volume_files = math.floor(volume * GIB / chunk)
        steps.append(f"{_n(volume)} GiB x {_n(GIB / total)} tokens/GiB / {context} tokens = {_n(sessions)} sessions")
        if asked.l1_gib is not None:
            l1 = math.floor(Fraction(asked.l1_gib) * GIB / (total * context))
    one = asked.tokens or asked.context_tokens
    if one is not None and asked.bandwidth_gbs is not None:
        fetch = total * one / (Fraction(asked.bandwidth_gbs) * 10**9)
        steps.append(f"{one} tokens x {_n(total)} bytes / {asked.bandwidth_gbs:g} GB/s = {_n(fetch)} s to fetch")
    if one is not None and asked.prefill_tokens_per_s is not None:
        recompute = Fraction(one) / Fraction(asked.prefill_tokens_per_s)
        steps.append(f"{one} tokens / {asked.prefill_tokens_per_s:g} tokens/s = {_n(recompute)} s to compute anew")
    return Size(
        bytes_per_token=_number(total),
        bytes_per_token_per_gpu=_number(rank),
        tokens_per_gib=rate,
        request_gib=None if request is None else float(request),
        sessions=None if sessions is None else math.floor(sessions),
        sessions_exact=None if sessions is None else float(sessions),
        sessions_in_l1=l1,
        chunk_tokens=asked.chunk_tokens,
        chunk_bytes=math.ceil(chunk),
        chunk_files=files,
        volume_chunk_files=volume_files,
        fetch_seconds=None if fetch is None else float(fetch),
        recompute_seconds=None if recompute is None else float(recompute),
        break_even_bandwidth_gbs=None
        if asked.prefill_tokens_per_s is None
        else float(total * Fraction(asked.prefill_tokens_per_s) / 10**9),
        break_even_prefill_tokens_per_s=None
        if asked.bandwidth_gbs is None
        else float(Fraction(asked.bandwidth_gbs) * 10**9 / total),
        formula="; ".join(steps),
        notes=notes,
    )


def _number(value: Fraction) -> float:
    return value.numerator if value.denominator == 1 else float(value)


def _n(value: Fraction) -> str:
    """Whole numbers in full, others with the digits that matter."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.2f}" if value >= 100 else f"{float(value):.4g}"
