"""Writes a small random Llama checkpoint, so that serving can be checked where no model can be had.

    python deploy/gpu/tiny_model.py DIRECTORY

Heads of 64, which FlashInfer has kernels for, and 2 query heads for each KV head. Embeddings are
small and attention is sharp, so that the next token depends on tokens far back, through their KV:
wrong pages give wrong tokens. What it answers means nothing.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

LAYERS, HIDDEN, MLP, HEADS, KV_HEADS, HEAD_DIM = 4, 256, 512, 4, 2, 64
EOS = "<|end|>"
# name: (rows, columns, gain)
PROJECTIONS = {
    "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN, 2.0),
    "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN, 2.0),
    "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN, 1.0),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM, 1.0),
    "mlp.gate_proj": (MLP, HIDDEN, 1.0),
    "mlp.up_proj": (MLP, HIDDEN, 1.0),
    "mlp.down_proj": (HIDDEN, MLP, 1.0),
}


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": EOS}))
    vocab_size = tokenizer.get_vocab_size()
    (directory / "config.json").write_text(json.dumps(config(vocab_size)))
    save_file(weights(vocab_size), directory / "model.safetensors", metadata={"format": "pt"})


def byte_tokenizer() -> Tokenizer:
    """A token for each byte, and one for the end of a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: number for number, symbol in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([EOS])
    return tokenizer


def config(vocab_size: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "eos_token_id": vocab_size - 1,
        "torch_dtype": "bfloat16",
    }


def weights(vocab_size: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(0)

    def matrix(num_out: int, num_in: int, scale: float) -> torch.Tensor:
        return (torch.randn(num_out, num_in, generator=random) * scale).bfloat16()

    ones = torch.ones(HIDDEN, dtype=torch.bfloat16)
    tensors = {"model.embed_tokens.weight": matrix(vocab_size, HIDDEN, 0.1)}
    tensors["lm_head.weight"] = matrix(vocab_size, HIDDEN, HIDDEN**-0.5)
    tensors["model.norm.weight"] = ones.clone()
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for name, (num_out, num_in, gain) in PROJECTIONS.items():
            tensors[f"{prefix}.{name}.weight"] = matrix(num_out, num_in, gain * num_in**-0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{name}.weight"] = ones.clone()
    return tensors


if __name__ == "__main__":
    main(Path(sys.argv[1]))
