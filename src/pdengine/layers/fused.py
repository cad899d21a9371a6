"""All layers in one call of our kernels, on a CPU: bit by bit what ``StagedLayers`` computes with
the same kernels, without a call and a gathering of threads for each product."""

import torch
from torch import Tensor

from pdengine.attention.cpu import CpuAttention
from pdengine.batch import StepBatch
from pdengine.config import ModelConfig
from pdengine.elementwise import CpuElementwise, elementwise_for
from pdengine.kernels.library import Decoder, DecoderLayer, DecoderStep, Matrix, Plan, kernel
from pdengine.kernels.linear import Packed
from pdengine.layers.staged import Rotation
from pdengine.projection import Projection
from pdengine.weights import LayerWeights, ModelWeights


def fits(config: ModelConfig, weights: ModelWeights) -> bool:
    """Whether our kernels take every part of these layers."""
    device, dtype = weights.embedding.device, weights.embedding.dtype
    widths = (config.hidden_size, config.intermediate_size)
    by = elementwise_for(device, dtype, config.rms_norm_eps, config.head_dim, *widths)
    return isinstance(by, CpuElementwise) and all(
        isinstance(matrix, Packed) for layer in weights.layers for matrix in _matrices(layer)
    )


class FusedLayers:
    """For weights that ``fits`` has found good."""

    def __init__(self, config: ModelConfig, weights: ModelWeights, backend: CpuAttention) -> None:
        self._config = config
        self._weights = weights
        self._backend = backend
        self._windows = tuple(dict.fromkeys(config.layer_windows))
        self._layers = (DecoderLayer * config.num_layers)(
            *(
                self._layer(layer, window)
                for layer, window in zip(weights.layers, config.layer_windows, strict=True)
            )
        )
        self._kernel = kernel("layers", weights.embedding.dtype)

    def run(self, batch: StepBatch, x: Tensor, rotation: Rotation) -> Tensor:
        config, backend, (cos, sin) = self._config, self._backend, rotation
        backend.plan(batch)
        query_size = config.num_heads * config.head_dim
        kv_size = config.num_kv_heads * config.head_dim
        inner = config.intermediate_size
        normed, delta = torch.empty_like(x), torch.empty_like(x)
        qkv, queries, attended, gate_up, gated = (
            x.new_empty(len(x), size)
            for size in (query_size + 2 * kv_size, query_size, query_size, 2 * inner, inner)
        )
        plans = (Plan * len(self._windows))(*map(backend.plan_of, self._windows))
        decoder = Decoder(
            layers=self._layers,
            final_norm=self._weights.final_norm.data_ptr(),
            layer_stride=backend.layer_stride,
            num_layers=config.num_layers,
            epsilon=config.rms_norm_eps,
        )
        step = DecoderStep(
            x=x.data_ptr(),
            normed=normed.data_ptr(),
            qkv=qkv.data_ptr(),
            queries=queries.data_ptr(),
            attended=attended.data_ptr(),
            delta=delta.data_ptr(),
            gate_up=gate_up.data_ptr(),
            inner=gated.data_ptr(),
            cosine=cos.data_ptr(),
            sine=sin.data_ptr(),
            key_rows=backend.key_rows.data_ptr(),
            tables=backend.tables.ctypes.data,
            plans=plans,
            table_stride=backend.tables.shape[1],
            num_rows=len(x),
            num_threads=torch.get_num_threads(),
        )
        self._kernel(decoder, backend.cache(0), step)
        return normed

    def _layer(self, layer: LayerWeights, window: int | None) -> DecoderLayer:
        qkv, output, gate_up, down = map(_matrix, _matrices(layer))
        return DecoderLayer(
            input_norm=layer.input_norm.data_ptr(),
            query_norm=_address(layer.query_norm),
            key_norm=_address(layer.key_norm),
            mlp_norm=layer.mlp_norm.data_ptr(),
            qkv=qkv,
            output=output,
            gate_up=gate_up,
            down=down,
            plan=self._windows.index(window),
        )


def _matrices(layer: LayerWeights) -> tuple[Projection, ...]:
    return layer.qkv, layer.output, layer.gate_up, layer.down


def _matrix(projection: Projection) -> Matrix:
    assert isinstance(projection, Packed), "fits has looked"
    return projection.matrix


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
