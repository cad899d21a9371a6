"""Small random models of every family, made and computed by transformers: the measure of ours."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

VOCAB = 199


@dataclass(frozen=True)
class TinyModel:
    """``options`` are laid over a small base config of ``family``."""

    family: str
    num_heads: int = 6
    num_kv_heads: int = 2
    options: dict[str, Any] = field(default_factory=dict)

    def build(self, seed: int = 0) -> PreTrainedModel:
        config = AutoConfig.for_model(
            self.family,
            vocab_size=VOCAB,
            hidden_size=self.num_heads * 16,
            intermediate_size=112,
            num_hidden_layers=3,
            num_attention_heads=self.num_heads,
            num_key_value_heads=self.num_kv_heads,
            **{"head_dim": 16, "max_position_embeddings": 512, **self.options},
        )
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        for name, parameter in model.named_parameters():
            # transformers starts biases at 0 and norms at 1, where a forgotten one goes unseen; its
            # small weights would hide an attention that sees the wrong tokens.
            if name.endswith(".bias"):
                torch.nn.init.normal_(parameter, std=0.3)
            elif "norm" in name:
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
            else:
                torch.nn.init.normal_(parameter, std=0.15)
        return model.eval()

    def save(self, model_dir: Path, *, shard_bytes: int | None = None) -> PreTrainedModel:
        """Write the model as a Hugging Face directory; also gives it back."""
        model = self.build()
        model.save_pretrained(model_dir, max_shard_size=shard_bytes or "5GB")
        return model


@torch.inference_mode()
def transformers_logits(model: PreTrainedModel, token_ids: list[int]) -> Tensor:
    """[len(token_ids), vocab], float32, without any cache."""
    return model(torch.tensor([token_ids]), use_cache=False).logits[0].float()


def greedy_tokens(model: PreTrainedModel, prompt: list[int], num_tokens: int) -> list[int]:
    token_ids = list(prompt)
    for _ in range(num_tokens):
        token_ids.append(int(transformers_logits(model, token_ids)[-1].argmax()))
    return token_ids[len(prompt) :]
