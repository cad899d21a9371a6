"""Compiles the FlashInfer kernels that the GPU check needs, all at once on all cores.

FlashInfer compiles a kernel when it is first used, one after the other. The tests would spend most
of their time so. What is missing here is still compiled then: only time is lost. Both of our
wrappers (prefill, and decode on tensor cores) use the same kernels.
"""

from itertools import product

import torch
from flashinfer.jit import build_jit_specs
from flashinfer.jit.attention import gen_batch_prefill_module

DTYPES = (torch.bfloat16, torch.float16)
# (head size, sliding window): the shapes of tests/gpu/test_flashinfer.py and of the served model.
SHAPES = ((64, False), (64, True), (128, False))
NO_POSITION_ENCODING = 0


def main() -> None:
    specs = [
        gen_batch_prefill_module(
            "fa2",
            dtype_q=dtype,
            dtype_kv=dtype,
            dtype_o=dtype,
            dtype_idx=torch.int32,
            head_dim_qk=head_dim,
            head_dim_vo=head_dim,
            pos_encoding_mode=NO_POSITION_ENCODING,
            use_sliding_window=window,
            use_logits_soft_cap=False,
            use_fp16_qk_reduction=False,
        )
        for dtype, (head_dim, window) in product(DTYPES, SHAPES)
    ]
    build_jit_specs(specs)
    print("\n".join(spec.name for spec in specs))


if __name__ == "__main__":
    main()
