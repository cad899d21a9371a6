"""Fields of OpenAI's and other servers' APIs that would change the answer and that we do not have.

Each is accepted with a value that asks for nothing, since clients send those unasked, and refused
by name with any other: a silently ignored ``response_format`` is a wrong answer.
"""

from typing import Any

from pdcore.errors import UnsupportedField
from router.bodies import Fields, shown

_OFF = (False,)
_NONE = ()
_ZERO = (0, 0.0)
_ONE = (1, 1.0)

# Field -> the values that ask for nothing, besides null.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": ([],),
    "audio": _NONE,
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": _NONE,
    "chat_template_kwargs": ({},),
    "continue_final_message": _OFF,
    "add_generation_prompt": (True,),
    "documents": ([],),
    "echo": _OFF,
    "frequency_penalty": _ZERO,
    "function_call": ("none", "auto"),
    "functions": ([],),
    "guided_choice": _NONE,
    "guided_grammar": _NONE,
    "guided_json": _NONE,
    "guided_regex": _NONE,
    "include_stop_str_in_output": _OFF,
    "length_penalty": _ONE,
    "logit_bias": ({},),
    "logprobs": _OFF,
    "modalities": (["text"],),
    "presence_penalty": _ZERO,
    "prompt_embeds": _NONE,
    "prompt_logprobs": _NONE,
    "repetition_penalty": _ONE,
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "stop_token_ids": ([],),
    "structured_outputs": _NONE,
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncate_prompt_tokens": _NONE,
    "use_beam_search": _OFF,
    "web_search_options": _NONE,
}


def refuse_unsupported(fields: Fields) -> None:
    """Raises UnsupportedField for the first field that asks for something."""
    for name, harmless in HARMLESS.items():
        value = fields.get(name)
        # 0 == False in Python, but ``"logprobs": 0`` asks for something that false does not.
        if value is not None and not any(
            type(value) is type(ok) and value == ok for ok in harmless
        ):
            raise UnsupportedField(f"{name} is not supported (got {shown(value)})", param=name)
