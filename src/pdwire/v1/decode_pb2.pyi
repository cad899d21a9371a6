from pdwire.v1 import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason

class GenerateCommand(_message.Message):
    __slots__ = ("open", "stop_choice")
    class Open(_message.Message):
        __slots__ = ("transfer_id", "request", "epoch", "local_prefill")
        TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
        REQUEST_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        LOCAL_PREFILL_FIELD_NUMBER: _ClassVar[int]
        transfer_id: str
        request: _generation_pb2.GenerationRequest
        epoch: int
        local_prefill: bool
        def __init__(self, transfer_id: _Optional[str] = ..., request: _Optional[_Union[_generation_pb2.GenerationRequest, _Mapping]] = ..., epoch: _Optional[int] = ..., local_prefill: _Optional[bool] = ...) -> None: ...
    class StopChoice(_message.Message):
        __slots__ = ("choice",)
        CHOICE_FIELD_NUMBER: _ClassVar[int]
        choice: int
        def __init__(self, choice: _Optional[int] = ...) -> None: ...
    OPEN_FIELD_NUMBER: _ClassVar[int]
    STOP_CHOICE_FIELD_NUMBER: _ClassVar[int]
    open: GenerateCommand.Open
    stop_choice: GenerateCommand.StopChoice
    def __init__(self, open: _Optional[_Union[GenerateCommand.Open, _Mapping]] = ..., stop_choice: _Optional[_Union[GenerateCommand.StopChoice, _Mapping]] = ...) -> None: ...

class GenerateEvent(_message.Message):
    __slots__ = ("accepted", "tokens", "finished")
    class Accepted(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Tokens(_message.Message):
        __slots__ = ("deltas",)
        DELTAS_FIELD_NUMBER: _ClassVar[int]
        deltas: _containers.RepeatedCompositeFieldContainer[TokenDelta]
        def __init__(self, deltas: _Optional[_Iterable[_Union[TokenDelta, _Mapping]]] = ...) -> None: ...
    class Finished(_message.Message):
        __slots__ = ("usage", "timeline")
        USAGE_FIELD_NUMBER: _ClassVar[int]
        TIMELINE_FIELD_NUMBER: _ClassVar[int]
        usage: _generation_pb2.Usage
        timeline: _generation_pb2.NodeTimeline
        def __init__(self, usage: _Optional[_Union[_generation_pb2.Usage, _Mapping]] = ..., timeline: _Optional[_Union[_generation_pb2.NodeTimeline, _Mapping]] = ...) -> None: ...
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    accepted: GenerateEvent.Accepted
    tokens: GenerateEvent.Tokens
    finished: GenerateEvent.Finished
    def __init__(self, accepted: _Optional[_Union[GenerateEvent.Accepted, _Mapping]] = ..., tokens: _Optional[_Union[GenerateEvent.Tokens, _Mapping]] = ..., finished: _Optional[_Union[GenerateEvent.Finished, _Mapping]] = ...) -> None: ...

class TokenDelta(_message.Message):
    __slots__ = ("choice", "token_ids", "finish_reason")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    choice: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    finish_reason: FinishReason
    def __init__(self, choice: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ...) -> None: ...
