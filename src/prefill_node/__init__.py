"""The prefill node: computes prompts in batched chunks and ships their KV pages."""
