from pdwire.v1 import generation_pb2 as _generation_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunRequest(_message.Message):
    __slots__ = ("transfer_id", "request", "epoch", "decode_node", "decode_address", "decode_epoch", "mode")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DECODE_NODE_FIELD_NUMBER: _ClassVar[int]
    DECODE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DECODE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    transfer_id: str
    request: _generation_pb2.GenerationRequest
    epoch: int
    decode_node: str
    decode_address: str
    decode_epoch: int
    mode: str
    def __init__(self, transfer_id: _Optional[str] = ..., request: _Optional[_Union[_generation_pb2.GenerationRequest, _Mapping]] = ..., epoch: _Optional[int] = ..., decode_node: _Optional[str] = ..., decode_address: _Optional[str] = ..., decode_epoch: _Optional[int] = ..., mode: _Optional[str] = ...) -> None: ...

class RunResult(_message.Message):
    __slots__ = ("cached_tokens", "timeline")
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    cached_tokens: int
    timeline: _generation_pb2.NodeTimeline
    def __init__(self, cached_tokens: _Optional[int] = ..., timeline: _Optional[_Union[_generation_pb2.NodeTimeline, _Mapping]] = ...) -> None: ...
