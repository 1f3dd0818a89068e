"""A model's config.json (Hugging Face) as what its attention layers keep for each token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from gdsctl.errors import InputError, UsageError
from gdsctl.kvcache.json_text import json_object
from gdsctl.record import Record

# Bytes of one element. fp8_ds_mla and nvfp4 keep scales beside the elements: see `Layers.rank_bytes`.
_DTYPES: dict[str, float] = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "fp8": 1,
    "int8": 1,
    "nvfp4": 0.5 + 1 / 16,  # one FP8 scale for 16 elements (NVIDIA TensorRT Model Optimizer, NVFP4)
    "fp8_ds_mla": 1,
}
_DTYPE_NAMES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
    "float8_e4m3fn": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_inc": "fp8",
    "fp4": "nvfp4",
}
KV_DTYPES = ("auto", *_DTYPES, *_DTYPE_NAMES)
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num", "n_head_kv")
_LARGEST = 10**7
_MOST_LAYERS = 10_000
# Where a multimodal model keeps the language model's part.
_NESTED = ("text_config", "llm_config", "language_config", "language_model_config")


class Layers(Record, frozen=True, kw_only=True):
    """Layers that keep the same for each token. Elements per KV head: `key_dim` + `value_dim`.

    `window_tokens`: the engine needs no older ones (None: all); `latent`: MLA, one latent vector of `key_dim` = rank and
    rope part of `rope_dim`, the same on each tensor-parallel rank; `index_dim`: a sparse-attention indexer's key, kept as
    FP8 with one 4-byte scale for 128 (DeepSeek-V3.2).
    """

    count: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window_tokens: int | None = None
    latent: bool = False
    rope_dim: int = 0
    index_dim: int = 0

    def heads_per_rank(self, tp: int) -> int:
        """With more ranks than KV heads each keeps a copy of one."""
        return max(1, self.kv_heads // tp)

    def rank_bytes(self, tp: int, dtype: str) -> float:
        """Bytes a token that one rank keeps in these layers."""
        size = _DTYPES[dtype]
        index = self.index_dim + self.index_dim / 128 * 4
        if dtype == "fp8_ds_mla":  # vLLM: the latent in FP8, a 4-byte scale for 128, the rope part as bfloat16
            return self.count * (self.key_dim + self.key_dim / 128 * 4 + self.rope_dim * 2 + index)
        elements = self.heads_per_rank(tp) * (self.key_dim + self.value_dim) + self.rope_dim
        return self.count * (elements * size + index)

    def told(self, tp: int, dtype: str) -> str:
        size = f"{_DTYPES[dtype]:g} bytes ({dtype})"
        heads = self.heads_per_rank(tp)
        index = f" + {self.index_dim + self.index_dim // 32} bytes of index key" if self.index_dim else ""
        if dtype == "fp8_ds_mla":
            inner = f"({self.key_dim} + {self.key_dim // 32} bytes of scales + {self.rope_dim} x 2 bytes{index})"
            return f"{self.count} layers x {inner}"
        if self.latent:
            inner = f"({self.key_dim} kv_lora_rank + {self.rope_dim} qk_rope_head_dim) x {size}"
        else:
            sides = (
                f"2 (K, V) x {heads} KV heads x {self.key_dim} head_dim"
                if self.key_dim == self.value_dim
                else f"{heads} KV heads x ({self.key_dim} K + {self.value_dim} V)"
            )
            inner = f"{sides} x {size}"
        window = f" [window of {self.window_tokens} tokens]" if self.window_tokens else ""
        return f"{self.count} layers{window} x " + (f"({inner}{index})" if index else inner)


class Attention(Record, frozen=True, kw_only=True):
    """`stateful`: layers whose state does not grow with the tokens (Mamba, linear attention), not counted anywhere.

    `dtype_said`: where the element type comes from; `kv_heads_said`: False where the file does not tell the KV heads, so that
    as many as attention heads were taken; `position_tokens`: max_position_embeddings, None: not said.
    """

    model_type: str
    heads: int
    layers: tuple[Layers, ...]
    stateful: int
    dtype: str
    dtype_said: str
    kv_heads_said: bool = True
    position_tokens: int | None = None

    def check_tp(self, tp: int) -> None:
        """Raises UsageError for a tensor-parallel size that engines refuse (vLLM: heads and KV heads must divide)."""
        if self.heads % tp:
            raise UsageError(f"--tp {tp} does not divide the {self.heads} attention heads")
        for group in self.layers:
            if not group.latent and group.kv_heads % tp and tp % group.kv_heads:
                raise UsageError(f"--tp {tp} and {group.kv_heads} KV heads do not divide each other")

    def rank_bytes(self, tp: int) -> float:
        return sum(group.rank_bytes(tp, self.dtype) for group in self.layers)

    def storing_ranks(self, tp: int) -> int:
        """A latent is the same on all ranks, and LMCache stores it once."""
        return 1 if all(group.latent for group in self.layers) else tp


class _Config:
    """Fields of a config.json by any of their names, faults with the name that is missing or wrong."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def number(self, *names: str) -> int | None:
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _LARGEST:
                raise InputError(f"{name}: a positive whole number is wanted, not {str(value)[:40]!r}")
            return value
        return None

    def needed(self, *names: str) -> int:
        value = self.number(*names)
        if value is None:
            raise InputError(
                f"the field {names[0]} is missing" + (f" (nor is there {', '.join(names[1:])})" if names[1:] else "")
            )
        return value

    def words(self, name: str) -> list[str] | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise InputError(f"{name}: a list of words is wanted")
        return value

    def numbers(self, name: str) -> list[int] | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(n, int) and not isinstance(n, bool) for n in value):
            raise InputError(f"{name}: a list of whole numbers is wanted")
        return value

    def flag(self, name: str) -> bool:
        return self.values.get(name) is True


def read_model_config(text: str, kv_dtype: str = "auto") -> Attention:
    """Pure. Raises InputError for what is no such config.json (with the line of a JSON fault, or naming the field)."""
    outer = json_object(text)
    values = _language_part(outer)
    config = _Config(values)
    if values.get("compress_ratios") is not None:
        raise InputError("compress_ratios: compressed attention (DeepSeek-V4) is not sized yet")
    count = config.needed("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if count > _MOST_LAYERS:
        raise InputError(f"num_hidden_layers: {count} are more than any model has")
    heads = config.needed("num_attention_heads", "n_head", "n_heads")
    kinds = _kinds(config, count)
    shared = config.number("num_kv_shared_layers") or 0  # the last ones use the keys and values of earlier ones
    if shared >= count:
        raise InputError("num_kv_shared_layers: not fewer than the layers")
    kinds = kinds[: count - shared]
    groups = _grouped(config, kinds, heads)
    dtype, said = _dtype(outer, values, kv_dtype)
    if dtype == "fp8_ds_mla" and not all(group.latent for group in groups):
        raise UsageError("--kv-dtype fp8_ds_mla is for models with a latent cache (kv_lora_rank)")
    positions = (values.get("max_position_embeddings"), outer.get("max_position_embeddings"))
    return Attention(
        model_type=str(values.get("model_type") or outer.get("model_type") or "?")[:60],
        heads=heads,
        layers=groups,
        stateful=sum(kind == "state" for kind in kinds),
        dtype=dtype,
        dtype_said=said,
        kv_heads_said=isinstance(values.get("block_configs"), list)
        or config.flag("multi_query")
        or any(values.get(name) is not None for name in _KV_HEADS)
        or not any(not group.latent and group.kv_heads == heads for group in groups),
        position_tokens=next((n for n in positions if isinstance(n, int) and not isinstance(n, bool) and n > 0), None),
    )


def _language_part(outer: dict[str, Any]) -> dict[str, Any]:
    thinker = outer.get("thinker_config")  # Qwen-Omni
    for holder in (outer, thinker if isinstance(thinker, dict) else {}):
        for name in _NESTED:
            part = holder.get(name)
            if isinstance(part, dict) and any(key in part for key in ("num_hidden_layers", "hidden_size")):
                return part
    return outer


_Kind = Literal["full", "window", "state", "none"]
# Words of `layer_types`, `layers_block_type` and `block_types` in transformers' configurations.
_KINDS: dict[str, _Kind] = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "hybrid": "full",
    "sliding_attention": "window",
    "sliding_window": "window",
    "chunked_attention": "window",
    "local_attention": "window",
    "linear_attention": "state",
    "recurrent": "state",
    "mamba": "state",
    "mamba2": "state",
    "conv": "state",
    "mlp": "none",
    "moe": "none",
}


def _kinds(config: _Config, count: int) -> list[_Kind]:
    """What each layer keeps. The names of the fields are those of transformers' configuration classes."""
    for name in ("layer_types", "layers_block_type"):
        words = config.words(name)
        if words is not None:
            unknown = sorted(set(words) - set(_KINDS))
            if unknown:
                raise InputError(f"{name}: what a layer of type {unknown[0][:40]!r} keeps is not known")
            if len(words) != count:
                raise InputError(f"{name}: {len(words)} layers, but num_hidden_layers is {count}")
            return [_KINDS[word] for word in words]
    period = config.number("attn_layer_period")
    if period is not None:  # Jamba
        offset = config.values.get("attn_layer_offset", 0)
        return ["full" if index % period == offset else "state" for index in range(count)]
    pattern = config.values.get("hybrid_override_pattern")
    if isinstance(pattern, str):  # Nemotron-H: * attention, M Mamba-2, - and E feed-forward
        letters: dict[str, _Kind] = {"*": "full", "M": "state"}
        return [letters.get(letter, "none") for letter in pattern[:_MOST_LAYERS]]
    kinds = config.numbers("attn_type_list")
    if kinds is not None:  # MiniMax: 1 softmax attention, 0 lightning attention
        return ["full" if kind == 1 else "state" for kind in kinds[:count]]
    indices = config.numbers("attn_layer_indices")
    if indices is not None:  # Bamba
        return ["full" if index in set(indices) else "state" for index in range(count)]
    linear = config.values.get("linear_attn_config")
    if isinstance(linear, dict) and isinstance(linear.get("full_attn_layers"), list):  # Kimi Linear, counted from 1
        return ["full" if index + 1 in linear["full_attn_layers"] else "state" for index in range(count)]
    interval = config.number("full_attention_interval")
    if interval is not None:  # Qwen3-Next
        return ["full" if (index + 1) % interval == 0 else "state" for index in range(count)]
    return _windowed(config, count)


def _windowed(config: _Config, count: int) -> list[_Kind]:
    model_type = config.values.get("model_type")
    if config.number("attention_chunk_size") is not None:  # Llama 4: layers without rope see everything
        nope = config.numbers("no_rope_layers") or []
        if len(nope) == count:
            return ["window" if rope else "full" for rope in nope]
        interval = config.number("no_rope_layer_interval") or 4
        return ["full" if (index + 1) % interval == 0 else "window" for index in range(count)]
    if config.number("sliding_window") is None or config.values.get("use_sliding_window") is False:
        return ["full"] * count
    pattern = config.number("sliding_window_pattern") or {"gemma2": 2, "gemma3_text": 6, "cohere2": 4}.get(
        str(model_type)
    )
    if pattern is not None:  # every pattern-th layer is a global one
        return ["full" if (index + 1) % pattern == 0 else "window" for index in range(count)]
    if config.flag("use_sliding_window"):  # Qwen2: the layers below max_window_layers see everything
        first = config.values.get("max_window_layers", 0)
        first = first if isinstance(first, int) else 0
        return ["full" if index < first else "window" for index in range(count)]
    return ["window"] * count  # Mistral 7B v0.1


def _grouped(config: _Config, kinds: list[_Kind], heads: int) -> tuple[Layers, ...]:
    blocks = config.values.get("block_configs")
    if isinstance(blocks, list):
        return _blocks(config, blocks, heads)
    found = []
    for kind in ("full", "window"):
        count = kinds.count(kind)
        if count:
            found.append(_layers(config, count, heads, windowed=kind == "window"))
    if not found:
        raise InputError("no layer keeps keys and values: there is no KV cache to size")
    return tuple(found)


def _layers(config: _Config, count: int, heads: int, *, windowed: bool) -> Layers:
    window = config.number("sliding_window", "attention_chunk_size") if windowed else None
    if windowed and window is None:
        raise InputError("the field sliding_window is missing, though layers have a window")
    index = config.number("index_head_dim") or 0
    rank = config.number("kv_lora_rank")
    if rank is not None:
        rope = config.needed("qk_rope_head_dim")
        return Layers(
            count=count,
            kv_heads=1,
            key_dim=rank,
            value_dim=0,
            rope_dim=rope,
            latent=True,
            index_dim=index,
            window_tokens=window,
        )
    prefix = "swa_" if windowed else "global_"
    kv_heads = config.number(f"{prefix}num_key_value_heads", *(() if windowed else ("num_global_key_value_heads",)))
    kv_heads = kv_heads or _kv_heads(config, heads)
    key_dim = config.number(f"{prefix}head_dim") or _head_dim(config, heads)
    value_dim = config.number(f"{prefix}v_head_dim", "v_head_dim") or key_dim
    return Layers(
        count=count, kv_heads=kv_heads, key_dim=key_dim, value_dim=value_dim, index_dim=index, window_tokens=window
    )


def _kv_heads(config: _Config, heads: int) -> int:
    given = config.number(*_KV_HEADS)
    if given is None:
        return 1 if config.flag("multi_query") else heads  # as transformers takes its absence: MHA
    if heads % given:
        raise InputError(f"num_key_value_heads: {given} does not divide num_attention_heads, {heads}")
    return given


def _head_dim(config: _Config, heads: int) -> int:
    given = config.number("head_dim", "kv_channels", "attention_head_dim")
    if given is not None:
        return given
    hidden = config.number("hidden_size", "n_embd", "d_model", "dim")
    if hidden is None:
        raise InputError("the field head_dim is missing, and hidden_size too")
    if hidden % heads:
        raise InputError(
            f"hidden_size: {hidden} is not a multiple of num_attention_heads, {heads}; head_dim is missing"
        )
    return hidden // heads


def _blocks(config: _Config, blocks: list[Any], heads: int) -> tuple[Layers, ...]:
    """Layers of unlike width (Llama-Nemotron NAS): the KV heads are the heads divided by each group's size."""
    counts: dict[int, int] = {}
    for block in blocks[:_MOST_LAYERS]:
        attention = block.get("attention") if isinstance(block, dict) else None
        size = attention.get("n_heads_in_group") if isinstance(attention, dict) else None
        if isinstance(size, int) and not isinstance(size, bool) and 0 < size <= heads:
            counts[heads // size] = counts.get(heads // size, 0) + 1
    if not counts:
        raise InputError("block_configs: no block with attention.n_heads_in_group")
    width = _head_dim(config, heads)
    return tuple(
        Layers(count=count, kv_heads=kv_heads, key_dim=width, value_dim=width)
        for kv_heads, count in sorted(counts.items(), reverse=True)
    )


def _dtype(outer: dict[str, Any], values: dict[str, Any], asked: str) -> tuple[str, str]:
    """Element type of the cache and who said so, as vLLM's `--kv-cache-dtype auto` takes it."""
    if asked != "auto":
        return _known_dtype(asked, "--kv-dtype"), "--kv-dtype"
    for holder in (outer, values):
        quantization = holder.get("quantization_config")
        if isinstance(quantization, dict):
            scheme = quantization.get("kv_cache_scheme")
            eight = isinstance(scheme, dict) and scheme.get("num_bits") == 8
            if eight or str(quantization.get("kv_cache_quant_algo")).upper() == "FP8":
                return "fp8", "quantization_config"
    for name, holder in _pairs(("dtype", "torch_dtype"), (values, outer)):
        given = holder.get(name)
        if isinstance(given, str):
            dtype = _known_dtype(given.removeprefix("torch."), name)
            if dtype == "float32":
                return "float16", f"{name} float32, which engines serve as float16"
            return dtype, name
    raise InputError("the field torch_dtype (or dtype) is missing; name the element type with --kv-dtype")


def _pairs(names: Iterable[str], holders: tuple[dict[str, Any], ...]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, holder) for holder in holders for name in names]


def _known_dtype(name: str, field: str) -> str:
    dtype = _DTYPE_NAMES.get(name, name)
    if dtype not in _DTYPES:
        if field == "--kv-dtype":
            raise UsageError(f"--kv-dtype {name[:40]!r} is not one of {', '.join(KV_DTYPES)}")
        raise InputError(f"{field}: {name[:40]!r} is no element type that a KV cache has")
    return dtype
