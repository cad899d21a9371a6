"""The converted default model, read by transformers: right weights, tokenizer and chat template."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
PROMPT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
    "<|im_start|>assistant\n"
)


@pytest.mark.model
def test_transformers_reads_it_and_knows_the_capital_of_france(default_model: Path) -> None:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(default_model)
    prompt = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)
    assert prompt == PROMPT
    model = AutoModelForCausalLM.from_pretrained(default_model, dtype=torch.bfloat16)
    token_ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    answer = model.generate(token_ids, do_sample=False, max_new_tokens=16)[0, token_ids.shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"
    assert model.config.tie_word_embeddings


@pytest.mark.model
@pytest.mark.parametrize(
    "text", ["naïve café 日本語 👩‍👩‍👧", "10,000 = 2½ * 4000\r\n\t x  ", "<|im_end|> in the text"]
)
def test_text_comes_back_from_its_tokens(default_model: Path, text: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(default_model)
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
