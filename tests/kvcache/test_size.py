"""Sizes of public models against hand calculations, and against the figures of a published experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.cli import run
from gdsctl.errors import GdsctlError
from gdsctl.kvcache.model_config import read_model_config
from gdsctl.kvcache.size import Asked, size_of_model, size_of_rate
from gdsctl.render.schemas import schema

LLAMA_3_1_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
}
QWEN3_235B_FP8 = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 94,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "hidden_size": 4096,
    "head_dim": 128,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 94,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "hidden_size": 7168,
    "torch_dtype": "bfloat16",
}
MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "Llama-2-7B, MHA": (
        {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096, "torch_dtype": "float16"},
        524_288,  # 2 x 32 layers x 32 heads x 4096/32 x 2 bytes
    ),
    "Llama-3.1-8B, GQA": (LLAMA_3_1_8B, 131_072),  # 2 x 32 x 8 x 128 x 2
    "Qwen3-235B-A22B-FP8, weights in FP8, cache in bfloat16": (QWEN3_235B_FP8, 192_512),  # 2 x 94 x 4 x 128 x 2
    "DeepSeek-V3, MLA": (DEEPSEEK_V3, 70_272),  # 61 x (512 + 64) x 2
    "DeepSeek-V3.2, MLA and an index": (
        DEEPSEEK_V3 | {"index_head_dim": 128},
        78_324,  # 61 x (576 x 2 + 128 + one 4-byte scale)
    ),
    "Falcon-7B, one KV head": (
        {
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "hidden_size": 4544,
            "multi_query": True,
            "torch_dtype": "bfloat16",
        },
        8_192,  # 2 x 32 x 1 x 4544/71 x 2
    ),
    "Jamba-v0.1, one layer in eight": (
        LLAMA_3_1_8B | {"model_type": "jamba", "attn_layer_period": 8, "attn_layer_offset": 4},
        16_384,  # 2 x 4 x 8 x 128 x 2
    ),
    "Qwen3-Next-80B-A3B, one layer in four": (
        {
            "num_hidden_layers": 48,
            "full_attention_interval": 4,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "torch_dtype": "bfloat16",
        },
        24_576,  # 2 x 12 x 2 x 256 x 2
    ),
    "Gemma-3-27B, within text_config": (
        {
            "model_type": "gemma3",
            "torch_dtype": "bfloat16",
            "text_config": {
                "model_type": "gemma3_text",
                "num_hidden_layers": 62,
                "num_attention_heads": 32,
                "num_key_value_heads": 16,
                "head_dim": 128,
                "hidden_size": 5376,
                "sliding_window": 1024,
                "sliding_window_pattern": 6,
            },
            "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152},
        },
        507_904,  # 2 x 62 x 16 x 128 x 2
    ),
    "GPT-2, old names": (
        {"n_layer": 12, "n_head": 12, "n_embd": 768, "torch_dtype": "float32"},
        36_864,  # 2 x 12 x 12 x 64 x 2: engines serve float32 as float16
    ),
}


def sized(config: dict[str, Any], *, tp: int = 1, dtype: str = "auto", **asked: Any) -> Any:
    return size_of_model(read_model_config(json.dumps(config), dtype), tp, Asked(**asked))


@pytest.mark.parametrize("name", list(MODELS))
def test_bytes_per_token_of_public_models(name: str) -> None:
    config, expected = MODELS[name]
    assert sized(config).bytes_per_token == expected


def test_the_published_experiment() -> None:
    """Qwen3-235B-A22B FP8: 5,577 tokens/GiB; 32,128 tokens are 5.76 GiB; 640 GiB hold 111 sessions of 32,000."""
    for found in (
        sized(QWEN3_235B_FP8, tokens=32128, volume_gib=640, context_tokens=32000),
        size_of_rate(5577, Asked(tokens=32128, volume_gib=640, context_tokens=32000)),
    ):
        assert found.tokens_per_gib == 5577
        assert round(found.request_gib or 0, 2) == 5.76
        assert found.sessions == 111
        assert found.sessions_exact == pytest.approx(640 * 5577.5 / 32000, rel=1e-4)
        assert found.chunk_files == 126  # 125 whole chunks of 256 and a half one
        assert "sessions" in found.formula


def test_formula_shows_the_numbers() -> None:
    assert sized(QWEN3_235B_FP8).formula == (
        "94 layers x 2 (K, V) x 4 KV heads x 128 head_dim x 2 bytes (bfloat16) = 192512 bytes/token; "
        "2^30 / 192512 = 5577.53 tokens/GiB"
    )


def test_windows() -> None:
    """gpt-oss-20b: 24 layers by turns with a window of 128 tokens; 8 KV heads of 64."""
    config = {
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
    }
    found = sized(config, dtype="bf16", tokens=10_000)
    assert found.bytes_per_token == 2 * 24 * 8 * 64 * 2
    assert found.windowed_bytes_per_token == 2 * 12 * 8 * 64 * 2
    assert found.windowed_request_gib == pytest.approx((12 * 2048 * 10_000 + 12 * 2048 * 128) / 2**30)
    mistral = sized(LLAMA_3_1_8B | {"sliding_window": 4096}, tokens=32_768)  # 7B v0.1: every layer
    assert mistral.windowed_bytes_per_token == 0
    assert mistral.request_gib == 4
    assert mistral.windowed_request_gib == 0.5
    gemma = sized(MODELS["Gemma-3-27B, within text_config"][0])
    assert gemma.windowed_bytes_per_token == 10 * 2 * 16 * 128 * 2  # every sixth of 62 sees everything
    scout = sized(LLAMA_3_1_8B | {"num_hidden_layers": 48, "attention_chunk_size": 8192, "no_rope_layers": []})
    assert scout.windowed_bytes_per_token == 12 * 2 * 8 * 128 * 2
    unused = sized(LLAMA_3_1_8B | {"sliding_window": 4096, "use_sliding_window": False})
    assert unused.windowed_bytes_per_token is None


def test_layers_of_unlike_width() -> None:
    block = {"attention": {"n_heads_in_group": 8, "no_op": False}}
    nothing = {"attention": {"n_heads_in_group": None, "no_op": True}}
    wide = {"attention": {"n_heads_in_group": 4, "no_op": False}}
    found = sized(LLAMA_3_1_8B | {"num_hidden_layers": 3, "block_configs": [block, nothing, wide]})
    assert found.bytes_per_token == 2 * 128 * 2 * (32 // 8 + 32 // 4)


def test_element_types() -> None:
    assert sized(LLAMA_3_1_8B, dtype="fp8").bytes_per_token == 65_536
    assert sized(LLAMA_3_1_8B, dtype="nvfp4").bytes_per_token == 65_536 * 0.5625
    assert sized(DEEPSEEK_V3, dtype="fp8_ds_mla").bytes_per_token == 61 * 656  # vLLM: 656 bytes a token and layer
    scheme = {"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}}
    assert sized(LLAMA_3_1_8B | scheme).bytes_per_token == 65_536


def test_tensor_parallel() -> None:
    eight = sized(LLAMA_3_1_8B, tp=8, tokens=512)
    assert (eight.bytes_per_token, eight.bytes_per_token_per_gpu) == (131_072, 16_384)
    assert eight.chunk_bytes == 256 * 16_384
    assert eight.chunk_files == 2 * 8
    sixteen = sized(LLAMA_3_1_8B, tp=16)  # 8 KV heads on 16 ranks: each twice
    assert (sixteen.bytes_per_token, sixteen.bytes_per_token_per_gpu) == (262_144, 16_384)
    latent = sized(DEEPSEEK_V3, tp=8, tokens=512)
    assert (latent.bytes_per_token, latent.bytes_per_token_per_gpu, latent.chunk_files) == (70_272, 70_272, 2)


def test_fetching_against_computing_anew() -> None:
    """1 GiB at 2 GB/s takes 0.537 s; 8192 tokens at 4096 tokens/s take 2 s."""
    found = sized(LLAMA_3_1_8B, tokens=8192, bandwidth_gbs=2, prefill_tokens_per_s=4096)
    assert found.request_gib == 1
    assert found.fetch_seconds == pytest.approx(2**30 / 2e9)
    assert found.recompute_seconds == 2
    assert found.break_even_bandwidth_gbs == pytest.approx(2**29 / 1e9)
    assert found.break_even_prefill_tokens_per_s == pytest.approx(2e9 / 131_072)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(QWEN3_235B_FP8))
    command = ["size", "--model", str(config), "--tokens", "32128", "--volume-gib", "640", "--context", "32000"]
    assert run([*command, "--l1-gib", "64", "--bandwidth-gbs", "20", "--prefill-tokens-per-s", "8000"]) == 0
    shown = capsys.readouterr().out
    assert "192,512" in shown
    assert "5.76 GiB" in shown
    assert "111 (111.55)" in shown
    assert run([*command, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("size"), jsonschema.Draft202012Validator)
    assert (found["sessions"], found["tokens_per_gib"], found["bytes_per_token"]) == (111, 5577, 192512)
    assert run(["size", "--tokens-per-gib", "5577", "--tokens", "32128", "--format", "json"]) == 0
    assert round(json.loads(capsys.readouterr().out)["request_gib"], 2) == 5.76


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{\n "num_hidden_layers": 32,\n}', "config.json:3: not valid JSON"),
        ("[]", "config.json: a JSON object is wanted"),
        ("{}", "the field num_hidden_layers is missing"),
        ('{"num_hidden_layers": "32"}', "num_hidden_layers: a positive whole number"),
        ('{"num_hidden_layers": -1}', "num_hidden_layers: a positive whole number"),
        ('{"num_hidden_layers": 2}', "the field num_attention_heads is missing"),
        ('{"num_hidden_layers": 2, "num_attention_heads": 8}', "hidden_size"),
        ('{"num_hidden_layers": 2, "num_attention_heads": 8, "head_dim": 64}', "torch_dtype"),
        ('{"num_hidden_layers": 2, "num_attention_heads": 8, "kv_lora_rank": 512}', "qk_rope_head_dim is missing"),
        ('{"num_hidden_layers": 2, "num_attention_heads": 8, "layer_types": ["new", "full_attention"]}', "'new'"),
        ('{"num_hidden_layers": 2, "num_attention_heads": 8, "layer_types": ["full_attention"]}', "1 layers"),
        ("[" * 100_000, "nested too deep"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"a": NaN}', "NaN is no JSON number"),
    ],
)
def test_faults_of_the_config(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, words: str) -> None:
    config = tmp_path / "config.json"
    config.write_text(content)
    assert run(["size", "--model", str(config)]) == 4
    told = capsys.readouterr()
    assert told.out == ""
    assert words in told.err
    assert str(config) in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--tokens-per-gib", "5", "--model", "x.json"],
        ["--tokens-per-gib", "5", "--tp", "2"],
        ["--tokens-per-gib", "5", "--kv-dtype", "fp8"],
        ["--tokens-per-gib", "0"],
        ["--tokens-per-gib", "nan"],
        ["--tokens-per-gib", "5", "--volume-gib", "640"],
        ["--tokens-per-gib", "5", "--context", "640"],
        ["--tokens-per-gib", "5", "--tokens", "-1"],
        ["--model", "LLAMA", "--kv-dtype", "fp7"],
        ["--model", "LLAMA", "--kv-dtype", "fp8_ds_mla"],
        ["--model", "LLAMA", "--tp", "3"],
    ],
)
def test_what_does_not_go_together(capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA_3_1_8B))
    assert run(["size", *(str(config) if word == "LLAMA" else word for word in arguments)]) == 2
    assert capsys.readouterr().err.startswith("gdsctl: ")


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [*QWEN3_235B_FP8, "text_config", "layer_types", "kv_lora_rank", "block_configs", "index_head_dim"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
            max_leaves=4,
        ),
    )
)
def test_odd_configs_are_explained(changes: dict[str, Any]) -> None:
    told = None
    try:
        found = sized(LLAMA_3_1_8B | changes)
    except GdsctlError as error:
        told = str(error)
    assert told if told is not None else found.bytes_per_token > 0


# 32 layers x 2 x 8 heads x 128 x 2 bytes = 131,072 bytes a token, 8,192 tokens/GiB
PLAIN = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 131072,
}


def document(capsys: pytest.CaptureFixture[str], folder: Path, config: dict[str, Any], *arguments: str) -> Any:
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    assert run(["size", "--model", str(file), *arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_suffixes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """128k tokens are 131,072, so 16 GiB; 20 TiB are 20,480 GiB, so 1,280 sessions of that."""
    found = document(capsys, tmp_path, PLAIN, "--tokens", "128k", "--volume-gib", "20TiB", "--context", "128K")
    assert (found["request_gib"], found["sessions"]) == (16, 1280)
    assert not [note for note in found["notes"] if "max_position" in note]
    for volume in ("16384GiB", "16384", "16T", "16tib", "1.6384e4"):
        assert document(capsys, tmp_path, PLAIN, "--volume-gib", volume, "--context", "128k")["sessions"] == 1024


@pytest.mark.parametrize(
    "arguments",
    [["--tokens", "128kb"], ["--tokens", "0.5"], ["--tokens", "x"], ["--tokens", "inf"], ["--tokens", "-1k"]]
    + [["--context", "1k", "--volume-gib", size] for size in ("20TB", "1GB", "-1", "0TiB", "nan", "")],
)
def test_amounts_that_are_none(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["size", "--tokens-per-gib", "8192", *arguments]) == 2
    assert arguments[-2].removeprefix("--") in capsys.readouterr().err


def test_what_a_config_does_not_say_is_noted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = {key: value for key, value in PLAIN.items() if key != "num_key_value_heads"}
    found = document(capsys, tmp_path, config, "--tokens", "256k")
    assert found["bytes_per_token"] == 32 * 2 * 32 * 128 * 2
    assert any("num_key_value_heads is not in the file" in note and "(32," in note for note in found["notes"])
    assert any("262144 tokens are more than max_position_embeddings, 131072" in note for note in found["notes"])
    assert not [n for n in document(capsys, tmp_path, PLAIN)["notes"] if "num_key_value_heads" in n or "position" in n]


def test_a_chunk_is_one_rank_s(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(PLAIN))
    for tp, label in (("1", "one chunk (256 tokens)"), ("4", "one chunk (256 tokens, one rank)")):
        assert run(["size", "--model", str(file), "--tp", tp]) == 0
        assert label in capsys.readouterr().out
