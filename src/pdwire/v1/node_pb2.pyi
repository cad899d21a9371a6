from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KvLayout(_message.Message):
    __slots__ = ("model", "num_layers", "num_kv_heads", "head_dim", "page_tokens", "dtype")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    NUM_KV_HEADS_FIELD_NUMBER: _ClassVar[int]
    HEAD_DIM_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    model: str
    num_layers: int
    num_kv_heads: int
    head_dim: int
    page_tokens: int
    dtype: str
    def __init__(self, model: _Optional[str] = ..., num_layers: _Optional[int] = ..., num_kv_heads: _Optional[int] = ..., head_dim: _Optional[int] = ..., page_tokens: _Optional[int] = ..., dtype: _Optional[str] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("info", "load", "peers", "draining")
    INFO_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    info: NodeInfo
    load: NodeLoad
    peers: _containers.RepeatedCompositeFieldContainer[Peer]
    draining: bool
    def __init__(self, info: _Optional[_Union[NodeInfo, _Mapping]] = ..., load: _Optional[_Union[NodeLoad, _Mapping]] = ..., peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ..., draining: _Optional[bool] = ...) -> None: ...

class NodeInfo(_message.Message):
    __slots__ = ("name", "role", "address", "epoch", "layout", "model", "max_tokens", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    address: str
    epoch: int
    layout: KvLayout
    model: str
    max_tokens: int
    version: str
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., address: _Optional[str] = ..., epoch: _Optional[int] = ..., layout: _Optional[_Union[KvLayout, _Mapping]] = ..., model: _Optional[str] = ..., max_tokens: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class NodeLoad(_message.Message):
    __slots__ = ("num_queued", "num_running", "pages_free", "pages_cached", "pages_reserved", "pages_used", "pages_draining", "pages_promised", "num_transferring")
    NUM_QUEUED_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    PAGES_FREE_FIELD_NUMBER: _ClassVar[int]
    PAGES_CACHED_FIELD_NUMBER: _ClassVar[int]
    PAGES_RESERVED_FIELD_NUMBER: _ClassVar[int]
    PAGES_USED_FIELD_NUMBER: _ClassVar[int]
    PAGES_DRAINING_FIELD_NUMBER: _ClassVar[int]
    PAGES_PROMISED_FIELD_NUMBER: _ClassVar[int]
    NUM_TRANSFERRING_FIELD_NUMBER: _ClassVar[int]
    num_queued: int
    num_running: int
    pages_free: int
    pages_cached: int
    pages_reserved: int
    pages_used: int
    pages_draining: int
    pages_promised: int
    num_transferring: int
    def __init__(self, num_queued: _Optional[int] = ..., num_running: _Optional[int] = ..., pages_free: _Optional[int] = ..., pages_cached: _Optional[int] = ..., pages_reserved: _Optional[int] = ..., pages_used: _Optional[int] = ..., pages_draining: _Optional[int] = ..., pages_promised: _Optional[int] = ..., num_transferring: _Optional[int] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("name", "epoch")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    name: str
    epoch: int
    def __init__(self, name: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...
