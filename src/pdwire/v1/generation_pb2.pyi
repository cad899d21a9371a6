from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SamplingParams(_message.Message):
    __slots__ = ("seed", "temperature", "top_p", "top_k", "min_p")
    SEED_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    seed: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    def __init__(self, seed: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ...) -> None: ...

class GenerationRequest(_message.Message):
    __slots__ = ("request_id", "prompt_token_ids", "sampling", "max_tokens", "min_tokens", "num_choices", "stop_token_ids", "cache_salt", "timeout_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_CHOICES_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: SamplingParams
    max_tokens: int
    min_tokens: int
    num_choices: int
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    cache_salt: str
    timeout_s: float
    def __init__(self, request_id: _Optional[str] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[SamplingParams, _Mapping]] = ..., max_tokens: _Optional[int] = ..., min_tokens: _Optional[int] = ..., num_choices: _Optional[int] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., cache_salt: _Optional[str] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "cached_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("name", "start_s", "duration_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    start_s: float
    duration_s: float
    def __init__(self, name: _Optional[str] = ..., start_s: _Optional[float] = ..., duration_s: _Optional[float] = ...) -> None: ...

class TransferReport(_message.Message):
    __slots__ = ("mode", "page_bytes", "wire_bytes", "frames", "round_trips", "stripes", "attempts", "duration_s", "producer_s", "prepare_s", "window_s", "transport_s", "max_in_flight_bytes", "verdict", "verdict_text", "frame_bytes", "window_bytes", "rtt_s", "rate_bytes_per_s", "frame_cost_s", "modelled_s", "auto_s", "exposed_s", "warmup_bytes")
    MODE_FIELD_NUMBER: _ClassVar[int]
    PAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WIRE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIPS_FIELD_NUMBER: _ClassVar[int]
    STRIPES_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_S_FIELD_NUMBER: _ClassVar[int]
    PREPARE_S_FIELD_NUMBER: _ClassVar[int]
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_S_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_TEXT_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    RTT_S_FIELD_NUMBER: _ClassVar[int]
    RATE_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    FRAME_COST_S_FIELD_NUMBER: _ClassVar[int]
    MODELLED_S_FIELD_NUMBER: _ClassVar[int]
    AUTO_S_FIELD_NUMBER: _ClassVar[int]
    EXPOSED_S_FIELD_NUMBER: _ClassVar[int]
    WARMUP_BYTES_FIELD_NUMBER: _ClassVar[int]
    mode: str
    page_bytes: int
    wire_bytes: int
    frames: int
    round_trips: int
    stripes: int
    attempts: int
    duration_s: float
    producer_s: float
    prepare_s: float
    window_s: float
    transport_s: float
    max_in_flight_bytes: int
    verdict: str
    verdict_text: str
    frame_bytes: int
    window_bytes: int
    rtt_s: float
    rate_bytes_per_s: float
    frame_cost_s: float
    modelled_s: float
    auto_s: float
    exposed_s: float
    warmup_bytes: int
    def __init__(self, mode: _Optional[str] = ..., page_bytes: _Optional[int] = ..., wire_bytes: _Optional[int] = ..., frames: _Optional[int] = ..., round_trips: _Optional[int] = ..., stripes: _Optional[int] = ..., attempts: _Optional[int] = ..., duration_s: _Optional[float] = ..., producer_s: _Optional[float] = ..., prepare_s: _Optional[float] = ..., window_s: _Optional[float] = ..., transport_s: _Optional[float] = ..., max_in_flight_bytes: _Optional[int] = ..., verdict: _Optional[str] = ..., verdict_text: _Optional[str] = ..., frame_bytes: _Optional[int] = ..., window_bytes: _Optional[int] = ..., rtt_s: _Optional[float] = ..., rate_bytes_per_s: _Optional[float] = ..., frame_cost_s: _Optional[float] = ..., modelled_s: _Optional[float] = ..., auto_s: _Optional[float] = ..., exposed_s: _Optional[float] = ..., warmup_bytes: _Optional[int] = ...) -> None: ...

class NodeTimeline(_message.Message):
    __slots__ = ("node", "spans", "transfer", "clock_s")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    CLOCK_S_FIELD_NUMBER: _ClassVar[int]
    node: str
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    transfer: TransferReport
    clock_s: float
    def __init__(self, node: _Optional[str] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., transfer: _Optional[_Union[TransferReport, _Mapping]] = ..., clock_s: _Optional[float] = ...) -> None: ...
