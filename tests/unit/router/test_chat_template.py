"""The template sees what transformers shows it, in a sandbox."""

from pathlib import Path

import pytest

from pdcore.errors import ConfigError, InvalidRequest
from router.chat_template import ChatMessage, load_chat_template
from tiny_text import CHATML, TOKENIZER_CONFIG

HELLO = (ChatMessage("system", "be kind"), ChatMessage("user", "{{ 1 + 1 }}"))


def render(source: object, messages: tuple[ChatMessage, ...] = HELLO) -> str:
    template = load_chat_template(Path("nowhere"), TOKENIZER_CONFIG | {"chat_template": source})
    assert template is not None
    return template.render(messages)


def test_chatml_with_special_tokens_and_generation_prompt() -> None:
    assert render(CHATML) == (
        "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\n{{ 1 + 1 }}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_blocks_are_trimmed_and_stripped() -> None:
    assert render("  {% if true %}\nyes\n  {% endif %}\nend") == "yes\nend"


def test_tojson_keeps_html_and_unicode() -> None:
    assert render("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'


def test_generation_blocks_and_loop_controls() -> None:
    body = "{% generation %}{{ m.role }}{% endgeneration %}{% break %}"
    source = "{% for m in messages %}" + body + "{% endfor %}"
    assert render(source) == "system"


def test_strftime_now() -> None:
    assert len(render("{{ strftime_now('%Y-%m-%d') }}")) == 10


def test_of_several_templates_the_default_one() -> None:
    several = [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}]
    assert render(several) == "yes"


def test_a_template_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("from the file")
    template = load_chat_template(tmp_path, TOKENIZER_CONFIG)
    assert template is not None and template.render(HELLO) == "from the file"


def test_a_model_without_a_template() -> None:
    assert load_chat_template(Path("nowhere"), {}) is None


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages[0].content.nothing.more }}",
        "{{ range(10 ** 6) }}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 // 0 }}",
    ],
)
def test_what_the_template_or_the_sandbox_refuses_is_the_clients_error(source: str) -> None:
    with pytest.raises(InvalidRequest, match="chat template refuses") as caught:
        render(source)
    assert caught.value.param == "messages"


def test_a_broken_template_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="line 2"):
        render("fine\n{% if %}")


@pytest.mark.parametrize(
    "value",
    [
        5,
        {"default": "x"},
        [1],
        [{"name": "default"}],
        [{"name": "default", "template": 5}],
        [["x"]],
    ],
)
def test_a_template_of_another_type_is_refused_at_start(value: object) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer_config\.json: chat_template is .*; expected"):
        render(value)


@pytest.mark.parametrize("source", ["{{" + "(" * 3000, "{{ 1 | nothing }}", "{% extends %}"])
def test_what_jinja_cannot_compile_is_refused_at_start(source: str) -> None:
    with pytest.raises(ConfigError, match="the chat template is not valid"):
        render(source)


def test_a_template_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"chat_template\.jinja: not valid UTF-8"):
        load_chat_template(tmp_path, {})
