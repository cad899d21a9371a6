"""A ``config.json`` as a table, as small as it can be."""

from typing import Any


def config_table(architecture: str = "LlamaForCausalLM", **fields: Any) -> dict[str, Any]:
    """Four layers, six heads of 16, two KV heads; ``fields`` are laid over it."""
    return {
        "architectures": [architecture],
        "vocab_size": 100,
        "hidden_size": 96,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        **fields,
    }
