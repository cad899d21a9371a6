"""The bodies of OpenAI's two generation endpoints.

Types and ranges are checked here; limits that depend on the model, the cluster or the settings in
``router.prepare``, once the prompt is token ids. Fields of our own: ``min_tokens``, ``top_k``,
``min_p``, ``ignore_eos``, ``cache_salt``, ``timeout`` (seconds), ``timeline``,
``return_token_ids`` and ``kv_transfer_params``. Unknown fields are ignored, as OpenAI's clients
expect; those that would change the answer are refused (``router.unsupported``).
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pdcore.errors import InvalidRequest
from router.bodies import (
    Fields,
    read_fields,
    read_object,
    shown,
    unsupported,
    without_nulls,
    wrong,
)
from router.chat_template import ChatMessage
from router.placement.policy import Arm
from router.unsupported import refuse_unsupported

COMPLETION_MAX_TOKENS = 16  # OpenAI's default for /v1/completions
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_MESSAGES = 4096
MAX_PARAMS = 16  # fields of kv_transfer_params, known or not
MAX_TIMEOUT_S = 86_400.0

_STRICT = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)
_STRICT_KNOWN = ConfigDict(strict=True, frozen=True, extra="forbid")


def _one_prompt(value: Any) -> Any:
    """A string or a list of token ids; a batch of one is that one."""
    if isinstance(value, list) and value and isinstance(value[0], str | list):
        if len(value) > 1:
            raise unsupported(f"holds {len(value)} prompts; send one request per prompt")
        value = value[0]
    if not isinstance(value, str | list):
        raise wrong(f"must be a string or a list of token ids, not {shown(value)}")
    if not value:
        raise wrong("is empty; it must hold at least one token")
    for item in value if isinstance(value, list) else ():
        if type(item) is not int:
            raise wrong(f"must hold token ids (whole numbers), not {shown(item)}")
    return value


def _stop_list(value: Any) -> Any:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise wrong(f"must be a string or a list of strings, not {shown(value)}")
    if len(stops) > MAX_STOPS:
        raise wrong(f"holds {len(stops)} strings; at most {MAX_STOPS}")
    if not all(0 < len(stop) <= MAX_STOP_CHARS for stop in stops):
        raise wrong(f"strings must be 1 to {MAX_STOP_CHARS} characters long")
    return stops


def _joined_text(value: Any) -> Any:
    """A string, or OpenAI's list of content parts, of which only text is known."""
    if not isinstance(value, list):
        return value
    texts = []
    for part in value:
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise wrong("must be a string or a list of parts with a type")
        if part["type"] != "text":
            raise unsupported(f"has a part of type {shown(part['type'])}; only text is supported")
        if not isinstance(part.get("text"), str):
            raise wrong("has a text part without text")
        texts.append(part["text"])
    return "\n".join(texts)


def _few_messages(value: Any) -> Any:
    """Counted before any is looked at: a body has room for a million, each with its error."""
    if isinstance(value, list) and len(value) > MAX_MESSAGES:
        raise wrong(f"holds {len(value)} messages; at most {MAX_MESSAGES}")
    return value


def _few_params(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > MAX_PARAMS:
        raise wrong(f"holds {len(value)} fields; it has {', '.join(TransferParams.model_fields)}")
    return value


def _no_tool_calls(value: Any) -> Any:
    if value:
        raise unsupported("are not supported")
    return value


class MessageFields(BaseModel):
    model_config = _STRICT

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: Annotated[str, BeforeValidator(_joined_text)]
    tool_calls: Annotated[Any, BeforeValidator(_no_tool_calls)] = None


Message = Annotated[MessageFields, BeforeValidator(without_nulls)]


class ChatFields(BaseModel):
    model_config = _STRICT

    messages: Annotated[list[Message], BeforeValidator(_few_messages), Field(min_length=1)]


class CompletionFields(BaseModel):
    model_config = _STRICT

    prompt: Annotated[str | list[int], BeforeValidator(_one_prompt)]


class StreamOptions(BaseModel):
    model_config = _STRICT

    include_usage: bool = False


class TransferParams(BaseModel):
    """An experiment's wishes, so a field that is misspelled is an error."""

    model_config = _STRICT_KNOWN

    mode: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    placement: Literal["colocated", "disaggregated"] | None = None


class CommonFields(BaseModel):
    """What both endpoints take. ``top_k`` 0 and -1 mean "all", as clients of other servers say."""

    model_config = _STRICT

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] = 0
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=-1)] = -1
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Annotated[list[str], BeforeValidator(_stop_list)] = []
    ignore_eos: bool = False
    n: Annotated[int, Field(ge=1)] = 1
    cache_salt: Annotated[str, Field(max_length=1024)] = ""
    stream: bool = False
    stream_options: Annotated[StreamOptions, BeforeValidator(without_nulls)] | None = None
    kv_transfer_params: Annotated[TransferParams, BeforeValidator(_few_params)] = TransferParams()
    timeline: bool = False
    return_token_ids: bool = False
    timeout: Annotated[float, Field(gt=0, le=MAX_TIMEOUT_S)] | None = None


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    messages: tuple[ChatMessage, ...]


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A body that is well-formed by itself, its prompt still as the client wrote it.

    ``default_max_tokens`` None: as many as the context has left.
    """

    prompt: str | TokenPrompt | ChatPrompt
    fields: CommonFields
    default_max_tokens: int | None = None

    @property
    def max_tokens(self) -> int | None:
        asked = self.fields.max_completion_tokens or self.fields.max_tokens
        return asked or self.default_max_tokens

    @property
    def include_usage(self) -> bool:
        options = self.fields.stream_options
        return options is not None and options.include_usage

    @property
    def arm(self) -> Arm | None:
        placement = self.fields.kv_transfer_params.placement
        return None if placement is None else Arm(placement)


def read_completion(body: bytes) -> ApiRequest:
    """Raises InvalidRequest or UnsupportedField, naming the field."""
    fields, common = _read(body)
    prompt = read_fields(CompletionFields, fields).prompt
    if not isinstance(prompt, str):
        return ApiRequest(TokenPrompt(tuple(prompt)), common, COMPLETION_MAX_TOKENS)
    return ApiRequest(prompt, common, COMPLETION_MAX_TOKENS)


def read_chat(body: bytes) -> ApiRequest:
    """Raises InvalidRequest or UnsupportedField, naming the field."""
    fields, common = _read(body)
    messages = read_fields(ChatFields, fields).messages
    prompt = ChatPrompt(tuple(ChatMessage(message.role, message.content) for message in messages))
    return ApiRequest(prompt, common)


def _read(body: bytes) -> tuple[Fields, CommonFields]:
    fields = read_object(body)
    refuse_unsupported(fields)
    common = read_fields(CommonFields, fields)
    if common.stream_options is not None and not common.stream:
        raise InvalidRequest(
            "stream_options needs stream: true; leave it out otherwise", param="stream_options"
        )
    params = common.kv_transfer_params
    if params.mode is not None and params.placement == "colocated":
        raise InvalidRequest(
            f"kv_transfer_params.mode is {shown(params.mode)}, but with"
            " kv_transfer_params.placement 'colocated' nothing is transferred",
            param="kv_transfer_params.mode",
        )
    return fields, common
