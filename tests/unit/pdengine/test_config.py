"""What a ``config.json`` means, and which ones are refused, by which name."""

import json
from pathlib import Path
from typing import Any

import pytest

from pdcore.errors import ConfigError
from pdengine.config import FAMILIES, ModelConfig, config_from_table, load_config
from tiny_configs import config_table

YARN = {"rope_type": "yarn", "factor": 4.0}


def config(architecture: str = "LlamaForCausalLM", **fields: Any) -> ModelConfig:
    return config_from_table(config_table(architecture, **fields))


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_family_is_read(architecture: str) -> None:
    read = config(architecture, head_dim=16)
    assert read.family == FAMILIES[architecture]
    assert (read.num_layers, read.num_heads, read.num_kv_heads) == (4, 6, 2)
    assert (read.head_dim, read.num_groups, read.max_tokens) == (16, 3, 512)


def test_the_model_type_serves_where_no_architecture_is_named() -> None:
    table = config_table(model_type="qwen2")
    del table["architectures"]
    assert config_from_table(table).family == "qwen2"


def test_what_each_family_switches_on() -> None:
    llama = config(attention_bias=True, mlp_bias=True)
    assert (llama.qkv_bias, llama.output_bias, llama.mlp_bias, llama.qk_norm) == (
        True,
        True,
        True,
        False,
    )
    qwen2 = config("Qwen2ForCausalLM")
    assert (qwen2.qkv_bias, qwen2.output_bias) == (True, False)
    qwen3 = config("Qwen3ForCausalLM")
    assert (qwen3.qkv_bias, qwen3.qk_norm, qwen3.head_dim) == (False, True, 128)


def test_absent_fields_take_transformers_defaults() -> None:
    table = config_table()
    del table["num_key_value_heads"]
    read = config_from_table(table)
    assert read.num_kv_heads == 6
    assert read.head_dim == 16
    assert read.rms_norm_eps == 1e-6
    assert read.rope.inverse_frequencies[1] == pytest.approx(10000 ** (-1 / 8))
    assert not read.tied_embeddings


@pytest.mark.parametrize(
    ("architecture", "fields", "windows"),
    [
        ("LlamaForCausalLM", {}, (None,) * 4),
        ("MistralForCausalLM", {"sliding_window": 64}, (64,) * 4),
        ("MistralForCausalLM", {"sliding_window": None}, (None,) * 4),
        ("MistralForCausalLM", {}, (4096,) * 4),
        ("Qwen2ForCausalLM", {"sliding_window": 64}, (None,) * 4),
        (
            "Qwen2ForCausalLM",
            {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 3},
            (None, None, None, 64),
        ),
        (
            "Qwen3ForCausalLM",
            {
                "use_sliding_window": True,
                "sliding_window": 64,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            (64, None, 64, None),
        ),
    ],
)
def test_sliding_windows(
    architecture: str, fields: dict[str, Any], windows: tuple[int | None, ...]
) -> None:
    assert config(architecture, **fields).layer_windows == windows


def test_old_and_new_rope_fields_mean_the_same() -> None:
    old = config(rope_theta=500000.0, rope_scaling={"type": "linear", "factor": 2.0})
    new = config(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500000.0})
    assert old.rope == new.rope
    assert old.rope.inverse_frequencies[0] == 0.5


def test_dynamic_rope_is_default_within_the_context() -> None:
    dynamic = config(rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    assert dynamic.rope.inverse_frequencies == config().rope.inverse_frequencies
    assert dynamic.max_tokens == 512


def test_yarn_reaches_beyond_the_original_length() -> None:
    assert config(rope_scaling=YARN).max_tokens == 2048
    stretched = {**YARN, "original_max_position_embeddings": 128}
    assert config(rope_scaling=stretched).max_tokens == 512


def test_end_of_text_ids_come_from_the_generation_config_first() -> None:
    table = config_table(eos_token_id=2)
    assert config_from_table(table).eos_token_ids == (2,)
    assert config_from_table(table, {"eos_token_id": [5, 6]}).eos_token_ids == (5, 6)
    assert config_from_table(table, {"temperature": 0.6}).eos_token_ids == (2,)
    assert config().eos_token_ids == ()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architectures is .*GPT2.*LlamaForCausalLM"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; supported: 'silu' only"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is .*; supported: none"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
        ({"num_local_experts": 8}, "num_local_experts is 8"),
        ({"rope_scaling": {"type": "longrope"}}, "rope_type is 'longrope'; .*yarn, llama3"),
        ({"rope_scaling": {"type": "linear"}}, "factor is None"),
        ({"rope_scaling": "yarn"}, "rope_scaling is 'yarn'"),
        ({"rope_parameters": {"full_attention": {}}}, "rope_parameters .*one table"),
        ({"num_key_value_heads": 4}, "num_key_value_heads is 4; supported: a divisor of the 6"),
        ({"head_dim": 15}, "head_dim is 15; supported: an even number"),
        ({"hidden_size": None}, "hidden_size is None; supported: a whole number"),
        ({"hidden_size": "96"}, "hidden_size is '96'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"rms_norm_eps": "tiny"}, "rms_norm_eps is 'tiny'; supported: a number"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1; supported: true or false"),
        ({"vocab_size": 2**18 + 1}, "vocab_size is 262145; supported: at most 262144"),
        ({"layer_types": ["linear_attention"] * 4}, "layer_types is .*4 times full_attention"),
        ({"eos_token_id": "</s>"}, "eos_token_id is '</s>'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**fields)


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        ("MistralForCausalLM", {"layer_types": ["full_attention"] * 4}),
        ("Qwen2ForCausalLM", {"layer_types": ["sliding_attention"] * 4}),
        ("Qwen3ForCausalLM", {"layer_types": ["full_attention"] * 3}),
    ],
)
def test_layer_types_that_contradict_the_family_are_refused(
    architecture: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="layer_types"):
        config(architecture, **fields)


def test_a_directory_is_read_with_its_generation_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_table()))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert load_config(tmp_path).eos_token_ids == (7,)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no config.json"), ("{", "not valid JSON"), ("[]", "expected a JSON object")],
)
def test_a_directory_without_a_usable_config_is_one_clear_error(
    content: str | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=message) as error:
        load_config(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)
