"""Renders a model's chat template as transformers does, in jinja2's immutable sandbox.

The template comes with the model (``chat_template.jinja``, or ``chat_template`` in
``tokenizer_config.json``); what it sees are plain strings, so no message can become template code.
A template may refuse a conversation (``raise_exception``): that is the client's error.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pdcore.errors import ConfigError, InvalidRequest
from router.bodies import shown
from router.model_info import read_text

# A template is a program: what it does with a conversation that it was not made for may fail in
# any of these ways (a range beyond the sandbox's limit is an OverflowError).
_REFUSALS = (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: str
    content: str


class ChatTemplate:
    """One model's template with the special tokens that it may name."""

    def __init__(self, template: Template, special_tokens: Mapping[str, str]) -> None:
        self._template = template
        self._special_tokens = dict(special_tokens)

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """The prompt's text, up to where the assistant begins. Raises InvalidRequest."""
        plain = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return self._template.render(
                messages=plain,
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except _REFUSALS as error:
            raise InvalidRequest(
                f"messages: the model's chat template refuses them: {error}", param="messages"
            ) from None


def load_chat_template(model_dir: Path, config: Mapping[str, Any]) -> ChatTemplate | None:
    """None where the model has no template. ``config`` is ``tokenizer_config.json``."""
    source = _source(model_dir, config)
    if source is None:
        return None
    try:
        template = _environment().from_string(source)
    except TemplateSyntaxError as error:
        raise ConfigError(
            f"{model_dir}: the chat template is not valid: line {error.lineno}: {error.message}"
        ) from None
    except (TemplateError, RecursionError, SyntaxError, ValueError) as error:
        raise ConfigError(f"{model_dir}: the chat template is not valid: {error}") from None
    return ChatTemplate(template, _special_tokens(config))


def _source(model_dir: Path, config: Mapping[str, Any]) -> str | None:
    """A file of its own comes first; of several named templates, ``default``."""
    file = model_dir / "chat_template.jinja"
    if file.exists():
        return read_text(file)
    value = config.get("chat_template")
    if isinstance(value, list):
        entries = [entry for entry in value if isinstance(entry, Mapping)]
        named = {str(entry.get("name")): entry.get("template") for entry in entries}
        if len(entries) < len(value) or not all(isinstance(text, str) for text in named.values()):
            raise ConfigError(
                f"{model_dir}/tokenizer_config.json: chat_template is {shown(value)}; expected"
                " a string or a list of objects with name and template"
            )
        value = named.get("default")
    if not isinstance(value, str | None):
        raise ConfigError(
            f"{model_dir}/tokenizer_config.json: chat_template is {shown(value)}; expected a string"
        )
    return value


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token`` and its like: a string, or an object that holds it as ``content``."""
    tokens: dict[str, str] = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, Mapping) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _GenerationBlock(Extension):
    """``{% generation %}`` marks what to train on; for rendering it is only its content."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own attribute)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """jinja2's own filter escapes HTML, which no model was trained on."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
