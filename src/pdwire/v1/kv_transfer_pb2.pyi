from pdwire.v1 import node_pb2 as _node_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttachRequest(_message.Message):
    __slots__ = ("node", "epoch", "layout", "protocol")
    NODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    node: str
    epoch: int
    layout: _node_pb2.KvLayout
    protocol: int
    def __init__(self, node: _Optional[str] = ..., epoch: _Optional[int] = ..., layout: _Optional[_Union[_node_pb2.KvLayout, _Mapping]] = ..., protocol: _Optional[int] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("node", "epoch", "layout", "protocol", "credit_bytes")
    NODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    node: str
    epoch: int
    layout: _node_pb2.KvLayout
    protocol: int
    credit_bytes: int
    def __init__(self, node: _Optional[str] = ..., epoch: _Optional[int] = ..., layout: _Optional[_Union[_node_pb2.KvLayout, _Mapping]] = ..., protocol: _Optional[int] = ..., credit_bytes: _Optional[int] = ...) -> None: ...

class PushMessage(_message.Message):
    __slots__ = ("header", "payload")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    header: PushHeader
    payload: bytes
    def __init__(self, header: _Optional[_Union[PushHeader, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class PushHeader(_message.Message):
    __slots__ = ("transfer_id", "attempt", "open", "frame", "handoff")
    class Open(_message.Message):
        __slots__ = ("sender_node", "sender_epoch", "receiver_epoch", "protocol", "layout", "num_tokens", "num_pages", "stripe", "num_stripes", "codec")
        SENDER_NODE_FIELD_NUMBER: _ClassVar[int]
        SENDER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        RECEIVER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        PROTOCOL_FIELD_NUMBER: _ClassVar[int]
        LAYOUT_FIELD_NUMBER: _ClassVar[int]
        NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
        NUM_PAGES_FIELD_NUMBER: _ClassVar[int]
        STRIPE_FIELD_NUMBER: _ClassVar[int]
        NUM_STRIPES_FIELD_NUMBER: _ClassVar[int]
        CODEC_FIELD_NUMBER: _ClassVar[int]
        sender_node: str
        sender_epoch: int
        receiver_epoch: int
        protocol: int
        layout: _node_pb2.KvLayout
        num_tokens: int
        num_pages: int
        stripe: int
        num_stripes: int
        codec: str
        def __init__(self, sender_node: _Optional[str] = ..., sender_epoch: _Optional[int] = ..., receiver_epoch: _Optional[int] = ..., protocol: _Optional[int] = ..., layout: _Optional[_Union[_node_pb2.KvLayout, _Mapping]] = ..., num_tokens: _Optional[int] = ..., num_pages: _Optional[int] = ..., stripe: _Optional[int] = ..., num_stripes: _Optional[int] = ..., codec: _Optional[str] = ...) -> None: ...
    class Frame(_message.Message):
        __slots__ = ("sequence", "runs", "checksum")
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        RUNS_FIELD_NUMBER: _ClassVar[int]
        CHECKSUM_FIELD_NUMBER: _ClassVar[int]
        sequence: int
        runs: _containers.RepeatedCompositeFieldContainer[PageRun]
        checksum: int
        def __init__(self, sequence: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[PageRun, _Mapping]]] = ..., checksum: _Optional[int] = ...) -> None: ...
    class Handoff(_message.Message):
        __slots__ = ("first_token_ids", "cached_tokens", "page_bytes")
        FIRST_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
        CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
        PAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
        first_token_ids: _containers.RepeatedScalarFieldContainer[int]
        cached_tokens: int
        page_bytes: int
        def __init__(self, first_token_ids: _Optional[_Iterable[int]] = ..., cached_tokens: _Optional[int] = ..., page_bytes: _Optional[int] = ...) -> None: ...
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_FIELD_NUMBER: _ClassVar[int]
    transfer_id: str
    attempt: int
    open: PushHeader.Open
    frame: PushHeader.Frame
    handoff: PushHeader.Handoff
    def __init__(self, transfer_id: _Optional[str] = ..., attempt: _Optional[int] = ..., open: _Optional[_Union[PushHeader.Open, _Mapping]] = ..., frame: _Optional[_Union[PushHeader.Frame, _Mapping]] = ..., handoff: _Optional[_Union[PushHeader.Handoff, _Mapping]] = ...) -> None: ...

class PageRun(_message.Message):
    __slots__ = ("first_page", "num_pages", "first_layer", "num_layers")
    FIRST_PAGE_FIELD_NUMBER: _ClassVar[int]
    NUM_PAGES_FIELD_NUMBER: _ClassVar[int]
    FIRST_LAYER_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    first_page: int
    num_pages: int
    first_layer: int
    num_layers: int
    def __init__(self, first_page: _Optional[int] = ..., num_pages: _Optional[int] = ..., first_layer: _Optional[int] = ..., num_layers: _Optional[int] = ...) -> None: ...

class PushReply(_message.Message):
    __slots__ = ("attempt", "acked_bytes", "acked_frames", "credit_bytes", "committed", "busy_s")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ACKED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ACKED_FRAMES_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    acked_bytes: int
    acked_frames: int
    credit_bytes: int
    committed: bool
    busy_s: float
    def __init__(self, attempt: _Optional[int] = ..., acked_bytes: _Optional[int] = ..., acked_frames: _Optional[int] = ..., credit_bytes: _Optional[int] = ..., committed: _Optional[bool] = ..., busy_s: _Optional[float] = ...) -> None: ...

class PingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PingReply(_message.Message):
    __slots__ = ("tcp_rmem_max_bytes",)
    TCP_RMEM_MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    tcp_rmem_max_bytes: int
    def __init__(self, tcp_rmem_max_bytes: _Optional[int] = ...) -> None: ...

class WarmMessage(_message.Message):
    __slots__ = ("filler",)
    FILLER_FIELD_NUMBER: _ClassVar[int]
    filler: bytes
    def __init__(self, filler: _Optional[bytes] = ...) -> None: ...

class WarmReply(_message.Message):
    __slots__ = ("received_bytes",)
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    received_bytes: int
    def __init__(self, received_bytes: _Optional[int] = ...) -> None: ...
