"""From a well-formed body to a GenerationRequest: tokens, defaults, and the limits of this model.

What is checked here depends on more than the body: the served model's name and vocabulary, the
context that the nodes can hold, the most choices that the settings allow. The result is complete: a
seed is drawn, ``max_tokens`` is clipped to what the context has left.
"""

import secrets
from dataclasses import dataclass

from pdcore.errors import InvalidRequest, NoCapacity, PromptTooLong, UnknownModel
from pdcore.generation import GenerationRequest, RequestId, SamplingParams
from pdcore.settings import RouterSettings
from router.bodies import shown
from router.model_info import ModelInfo
from router.openai_api import ApiRequest, ChatPrompt, CommonFields, TokenPrompt
from router.placement.policy import Arm
from router.text import ModelText, TokenIds


@dataclass(frozen=True, slots=True)
class Preparer:
    """Everything that stays the same from request to request."""

    text: ModelText
    model: ModelInfo
    settings: RouterSettings

    async def prepare(
        self, api: ApiRequest, request_id: RequestId, context_tokens: int | None
    ) -> GenerationRequest:
        """``context_tokens`` bounds prompt + generated tokens now; None when no node answers.

        Raises UnknownModel, InvalidRequest, PromptTooLong or NoCapacity.
        """
        fields = api.fields
        self._check_fields(api)
        if context_tokens is None:
            raise NoCapacity("no node that serves this model answers; try again")
        token_ids = await self._encode(api.prompt, context_tokens)
        left = context_tokens - len(token_ids)
        _check_length(len(token_ids), left, fields.min_tokens)
        return GenerationRequest(
            request_id=request_id,
            prompt_token_ids=token_ids,
            sampling=self._sampling(fields),
            max_tokens=min(api.max_tokens or left, left),
            min_tokens=fields.min_tokens,
            num_choices=fields.n,
            stop_token_ids=() if fields.ignore_eos else self.model.eos_token_ids,
            cache_salt=fields.cache_salt,
            timeout_s=fields.timeout or self.settings.default_timeout_s,
        )

    def _check_fields(self, api: ApiRequest) -> None:
        fields = api.fields
        if fields.model not in (None, self.model.name):
            raise UnknownModel(
                f"there is no model {shown(fields.model)}; this server has {self.model.name!r}",
                param="model",
            )
        if fields.n > self.settings.max_choices:
            raise InvalidRequest(
                f"n must be at most {self.settings.max_choices}, not {shown(fields.n)}", param="n"
            )
        if api.max_tokens is not None and fields.min_tokens > api.max_tokens:
            raise InvalidRequest(
                f"min_tokens ({shown(fields.min_tokens)}) is more than max_tokens"
                f" ({shown(api.max_tokens)})",
                param="min_tokens",
            )
        params = fields.kv_transfer_params
        if params.mode and params.placement is None and self.settings.placement == Arm.COLOCATED:
            raise InvalidRequest(
                f"kv_transfer_params.mode is {shown(params.mode)}, but this cluster's"
                " router.placement is colocated: nothing is transferred unless"
                " kv_transfer_params.placement is 'disaggregated'",
                param="kv_transfer_params.mode",
            )

    async def _encode(
        self, prompt: str | TokenPrompt | ChatPrompt, context_tokens: int
    ) -> TokenIds:
        match prompt:
            case ChatPrompt(messages):
                token_ids = await self.text.encode_chat(messages, context_tokens)
                return self._known(token_ids, "messages")
            case TokenPrompt(token_ids):
                return self._known(token_ids, "prompt")
        return self._known(await self.text.encode_completion(prompt, context_tokens), "prompt")

    def _known(self, token_ids: TokenIds, field: str) -> TokenIds:
        """``token_ids`` if the model has an embedding for each: a tokenizer may know more."""
        for token_id in (min(token_ids, default=0), max(token_ids, default=0)):
            if not 0 <= token_id < self.model.vocab_size:
                raise InvalidRequest(
                    f"token id {shown(token_id)} in {field}; this model's are"
                    f" 0 to {self.model.vocab_size - 1}",
                    param=field,
                )
        return token_ids

    def _sampling(self, fields: CommonFields) -> SamplingParams:
        seed = secrets.randbits(64) if fields.seed is None else fields.seed % 2**64
        return SamplingParams(
            seed=seed,
            temperature=fields.temperature,
            top_p=fields.top_p,
            top_k=fields.top_k if 0 < fields.top_k < self.model.vocab_size else None,
            min_p=fields.min_p,
        )


def _check_length(num_prompt: int, left: int, min_tokens: int) -> None:
    context = num_prompt + left
    if num_prompt == 0:
        raise InvalidRequest("prompt has no tokens; it must have at least one", param="prompt")
    if left < 1:
        raise PromptTooLong(
            f"the prompt has {num_prompt} tokens; this model's context holds {context} tokens,"
            " prompt and answer together",
            param="prompt",
        )
    if min_tokens > left:
        raise PromptTooLong(
            f"min_tokens is {shown(min_tokens)}, but a prompt of {num_prompt} tokens leaves {left}"
            f" of the context's {context}",
            param="min_tokens",
        )
