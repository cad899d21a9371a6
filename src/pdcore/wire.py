"""Our values to and from their protobuf messages, both ways side by side so that neither forgets.

What a peer sends is checked by ``from_proto`` functions only for what protobuf cannot say; ranges
that the router guarantees (``max_tokens`` >= 1, ...) are checked again here, since a node trusts no
network peer.
"""

from pdcore.cluster import Epoch, NodeInfo, NodeLoad, NodeName, NodeRole, NodeView
from pdcore.errors import InvalidRequest
from pdcore.generation import (
    FinishReason,
    GenerationRequest,
    RequestId,
    SamplingParams,
    TokenDelta,
    Usage,
)
from pdcore.kv_layout import KvLayout
from pdwire.v1 import decode_pb2, generation_pb2, node_pb2

# Bounds that hold whatever the router's own are: a node keeps ids, and works per choice.
MAX_CHOICES = 128
MAX_ID_BYTES = 128
MAX_SALT_BYTES = 4096

_FINISH = {
    FinishReason.STOP: decode_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: decode_pb2.FINISH_REASON_LENGTH,
}
_FINISH_BACK = {number: reason for reason, number in _FINISH.items()}


def request_to_proto(request: GenerationRequest) -> generation_pb2.GenerationRequest:
    sampling = request.sampling
    return generation_pb2.GenerationRequest(
        request_id=request.request_id,
        prompt_token_ids=request.prompt_token_ids,
        sampling=generation_pb2.SamplingParams(
            seed=sampling.seed,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
        ),
        max_tokens=request.max_tokens,
        min_tokens=request.min_tokens,
        num_choices=request.num_choices,
        stop_token_ids=request.stop_token_ids,
        cache_salt=request.cache_salt,
        timeout_s=request.timeout_s,
    )


def request_from_proto(message: generation_pb2.GenerationRequest) -> GenerationRequest:
    """Raises InvalidRequest for a message that no router of ours would send."""
    if not message.prompt_token_ids or message.max_tokens < 1:
        raise InvalidRequest("a request needs prompt tokens and max_tokens >= 1")
    if not 1 <= message.num_choices <= MAX_CHOICES:
        raise InvalidRequest(f"num_choices is {message.num_choices}; 1 to {MAX_CHOICES}")
    checked_id(message.request_id, "request_id")
    if len(message.cache_salt.encode()) > MAX_SALT_BYTES:
        raise InvalidRequest(f"cache_salt is longer than {MAX_SALT_BYTES} bytes")
    sampling = message.sampling
    if not (0 <= sampling.temperature < float("inf") and 0 < sampling.top_p <= 1):
        raise InvalidRequest("temperature must be finite and >= 0, top_p in (0, 1]")
    if not 0 <= sampling.min_p <= 1:
        raise InvalidRequest("min_p must be in [0, 1]")
    return GenerationRequest(
        request_id=RequestId(message.request_id),
        prompt_token_ids=tuple(message.prompt_token_ids),
        sampling=SamplingParams(
            seed=sampling.seed,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k if sampling.HasField("top_k") else None,
            min_p=sampling.min_p,
        ),
        max_tokens=message.max_tokens,
        min_tokens=message.min_tokens,
        num_choices=message.num_choices,
        stop_token_ids=tuple(message.stop_token_ids),
        cache_salt=message.cache_salt,
        timeout_s=message.timeout_s if message.HasField("timeout_s") else None,
    )


def checked_id(text: str, what: str) -> str:
    """``text`` itself. Raises InvalidRequest for an id that nobody should have to remember."""
    if len(text.encode()) > MAX_ID_BYTES:
        raise InvalidRequest(f"{what} is longer than {MAX_ID_BYTES} bytes")
    return text


def delta_to_proto(delta: TokenDelta) -> decode_pb2.TokenDelta:
    return decode_pb2.TokenDelta(
        choice=delta.choice,
        token_ids=delta.token_ids,
        finish_reason=_FINISH[delta.finish_reason] if delta.finish_reason else 0,  # type: ignore[arg-type]
    )


def delta_from_proto(message: decode_pb2.TokenDelta) -> TokenDelta:
    return TokenDelta(
        choice=message.choice,
        token_ids=tuple(message.token_ids),
        finish_reason=_FINISH_BACK.get(message.finish_reason),
    )


def usage_to_proto(usage: Usage) -> generation_pb2.Usage:
    return generation_pb2.Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
    )


def usage_from_proto(message: generation_pb2.Usage) -> Usage:
    return Usage(message.prompt_tokens, message.completion_tokens, message.cached_tokens)


def layout_to_proto(layout: KvLayout) -> node_pb2.KvLayout:
    return node_pb2.KvLayout(
        model=layout.model,
        num_layers=layout.num_layers,
        num_kv_heads=layout.num_kv_heads,
        head_dim=layout.head_dim,
        page_tokens=layout.page_tokens,
        dtype=layout.dtype,
    )


def layout_from_proto(message: node_pb2.KvLayout) -> KvLayout:
    return KvLayout(
        model=message.model,
        num_layers=message.num_layers,
        num_kv_heads=message.num_kv_heads,
        head_dim=message.head_dim,
        page_tokens=message.page_tokens,
        dtype=message.dtype,
    )


def status_to_proto(view: NodeView) -> node_pb2.NodeStatus:
    info, load = view.info, view.load
    return node_pb2.NodeStatus(
        info=node_pb2.NodeInfo(
            name=info.name,
            role=info.role,
            address=info.address,
            epoch=info.epoch,
            layout=layout_to_proto(info.layout),
            model=info.model,
            max_tokens=info.max_tokens,
            version=info.version,
        ),
        load=node_pb2.NodeLoad(
            num_queued=load.num_queued,
            num_running=load.num_running,
            pages_free=load.pages_free,
            pages_cached=load.pages_cached,
            pages_reserved=load.pages_reserved,
            pages_used=load.pages_used,
            pages_draining=load.pages_draining,
            pages_promised=load.pages_promised,
            num_transferring=load.num_transferring,
        ),
        peers=[node_pb2.Peer(name=name, epoch=epoch) for name, epoch in sorted(view.peers)],
        draining=view.draining,
    )


def status_from_proto(message: node_pb2.NodeStatus) -> NodeView:
    """Raises ValueError for a role that this version does not know."""
    info, load = message.info, message.load
    return NodeView(
        info=NodeInfo(
            name=NodeName(info.name),
            role=NodeRole(info.role),
            address=info.address,
            epoch=Epoch(info.epoch),
            layout=layout_from_proto(info.layout),
            model=info.model,
            max_tokens=info.max_tokens,
            version=info.version,
        ),
        load=NodeLoad(
            num_queued=load.num_queued,
            num_running=load.num_running,
            pages_free=load.pages_free,
            pages_cached=load.pages_cached,
            pages_reserved=load.pages_reserved,
            pages_used=load.pages_used,
            pages_draining=load.pages_draining,
            pages_promised=load.pages_promised,
            num_transferring=load.num_transferring,
        ),
        peers=frozenset((NodeName(peer.name), Epoch(peer.epoch)) for peer in message.peers),
        draining=message.draining,
    )
