"""Bodies as clients send them: what is taken, what is refused, and how that is said."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcore.errors import InvalidRequest, UnsupportedField
from router.bodies import _head, shown
from router.chat_template import ChatMessage
from router.openai_api import ChatPrompt, TokenPrompt, read_chat, read_completion
from router.placement import Arm
from router.unsupported import HARMLESS


def completion(**fields: Any) -> bytes:
    return json.dumps({"prompt": "hi", **fields}).encode()


def chat(*messages: Any, **fields: Any) -> bytes:
    return json.dumps({"messages": list(messages), **fields}).encode()


def test_defaults() -> None:
    api = read_completion(completion())
    assert api.prompt == "hi"
    assert api.max_tokens == 16
    assert (api.fields.temperature, api.fields.n, api.fields.stop) == (1.0, 1, [])
    assert read_chat(chat({"role": "user", "content": "hi"})).max_tokens is None


def test_null_means_absent() -> None:
    fields = dict.fromkeys(
        ("max_tokens", "temperature", "stop", "n", "stream_options", "logprobs", "user")
    )
    assert read_completion(completion(**fields)) == read_completion(completion())
    params = {"mode": None, "placement": None}
    assert read_completion(completion(kv_transfer_params=params)).arm is None


def test_unknown_fields_are_ignored() -> None:
    assert read_completion(completion(brand_new=[1, {}])) == read_completion(completion())


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("text", "text"),
        (["text"], "text"),
        ([1, 2, 3], TokenPrompt((1, 2, 3))),
        ([[1, 2]], TokenPrompt((1, 2))),
    ],
)
def test_prompts(prompt: Any, expected: Any) -> None:
    assert read_completion(completion(prompt=prompt)).prompt == expected


def test_messages_are_text_or_text_parts() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    api = read_chat(
        chat(
            {"role": "system", "content": "be kind", "name": None},
            {"role": "assistant", "content": "ok", "tool_calls": []},
            {"role": "user", "content": parts},
        )
    )
    assert api.prompt == ChatPrompt(
        (
            ChatMessage("system", "be kind"),
            ChatMessage("assistant", "ok"),
            ChatMessage("user", "one\ntwo"),
        )
    )


def test_what_experiments_ask_for() -> None:
    params = {"mode": "sequential", "placement": "disaggregated"}
    api = read_completion(completion(kv_transfer_params=params, timeline=True))
    assert api.fields.kv_transfer_params.mode == "sequential"
    assert api.arm is Arm.DISAGGREGATED
    assert api.fields.timeline
    colocated = completion(kv_transfer_params={"placement": "colocated"})
    assert read_completion(colocated).arm is Arm.COLOCATED


def test_max_completion_tokens_is_the_newer_name() -> None:
    assert read_completion(completion(max_tokens=3, max_completion_tokens=5)).max_tokens == 5


@pytest.mark.parametrize("stop", ["a", ["a"]])
def test_stop_is_a_string_or_a_list(stop: Any) -> None:
    assert read_completion(completion(stop=stop)).fields.stop == ["a"]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": None}, "prompt", "prompt is missing"),
    ({"prompt": ""}, "prompt", "prompt is empty"),
    ({"prompt": []}, "prompt", "prompt is empty"),
    ({"prompt": 5}, "prompt", "must be a string or a list of token ids, not 5"),
    ({"prompt": [1, "a"]}, "prompt", "must hold token ids .*, not 'a'"),
    ({"prompt": [True]}, "prompt", "must hold token ids .*, not True"),
    ({"prompt": [1.0]}, "prompt", "must hold token ids .*, not 1.0"),
    ({"prompt": ["a", "b"]}, "prompt", "holds 2 prompts; send one request per prompt"),
    ({"model": 7}, "model", "model must be a string, not 7"),
    ({"max_tokens": 0}, "max_tokens", "max_tokens must be at least 1, not 0"),
    ({"max_tokens": "9"}, "max_tokens", "max_tokens must be a whole number, not '9'"),
    ({"max_tokens": 1.5}, "max_tokens", "max_tokens must be a whole number, not 1.5"),
    ({"max_tokens": True}, "max_tokens", "max_tokens must be a whole number, not True"),
    ({"min_tokens": -1}, "min_tokens", "min_tokens must be at least 0"),
    ({"temperature": 2.5}, "temperature", "temperature must be at most 2, not 2.5"),
    ({"temperature": "hot"}, "temperature", "temperature must be a number, not 'hot'"),
    ({"top_p": 0}, "top_p", "top_p must be greater than 0"),
    ({"top_p": 1.1}, "top_p", "top_p must be at most 1"),
    ({"top_k": -2}, "top_k", "top_k must be at least -1"),
    ({"min_p": -0.1}, "min_p", "min_p must be at least 0"),
    ({"seed": 2**64}, "seed", "seed must be less than 18446744073709551616"),
    ({"stop": 5}, "stop", "stop must be a string or a list of strings, not 5"),
    ({"stop": [""]}, "stop", "1 to 256 characters"),
    ({"stop": ["a"] * 17}, "stop", "holds 17 strings; at most 16"),
    ({"n": 0}, "n", "n must be at least 1"),
    ({"ignore_eos": "yes"}, "ignore_eos", "ignore_eos must be true or false, not 'yes'"),
    ({"cache_salt": "x" * 1025}, "cache_salt", "at most 1024 characters long"),
    ({"timeout": 0}, "timeout", "timeout must be greater than 0"),
    ({"stream": 1}, "stream", "stream must be true or false"),
    ({"stream_options": {}}, "stream_options", "needs stream: true"),
    ({"stream": True, "stream_options": 3}, "stream_options", "must be an object, not 3"),
    (
        {"stream": True, "stream_options": {"include_usage": 1}},
        "stream_options.include_usage",
        "must be true or false",
    ),
    ({"kv_transfer_params": {"mod": "x"}}, "kv_transfer_params.mod", "is unknown"),
    ({"kv_transfer_params": {"mode": ""}}, "kv_transfer_params.mode", "at least 1 characters"),
    (
        {"kv_transfer_params": {"placement": "here"}},
        "kv_transfer_params.placement",
        "must be one of 'colocated' or 'disaggregated', not 'here'",
    ),
    (
        {"kv_transfer_params": {"placement": "colocated", "mode": "bulk"}},
        "kv_transfer_params.mode",
        "kv_transfer_params.mode is 'bulk', but with kv_transfer_params.placement 'colocated'"
        " nothing is transferred",
    ),
]


@pytest.mark.parametrize(("fields", "param", "message"), WRONG)
def test_wrong_fields_are_named(fields: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        read_completion(completion(**fields))
    assert caught.value.param == param
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("messages", "param", "message"),
    [
        (None, "messages", "messages is missing"),
        ([], "messages", "at least 1 item"),
        ("hi", "messages", "messages must be a list, not 'hi'"),
        ([3], "messages[0]", "must be an object, not 3"),
        ([{"content": "x"}], "messages[0].role", "is missing"),
        ([{"role": "user"}], "messages[0].content", "is missing"),
        ([{"role": "user", "content": None}], "messages[0].content", "is missing"),
        ([{"role": "user", "content": 4}], "messages[0].content", "must be a string, not 4"),
        ([{"role": "user", "content": [4]}], "messages[0].content", "list of parts"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content", "without text"),
    ],
)
def test_wrong_messages_are_named(messages: Any, param: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        read_chat(json.dumps({"messages": messages}).encode())
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (chat(*[1] * 4097), "messages holds 4097 messages; at most 4096"),
        (completion(odd=[[]] * 65_536), "the body holds more than 65536 lists and objects"),
        (
            completion(kv_transfer_params={f"k{i}": 1 for i in range(17)}),
            "kv_transfer_params holds 17 fields; it has mode, placement",
        ),
    ],
)
def test_crowds_are_refused_before_each_is_looked_at(body: bytes, message: str) -> None:
    read = read_chat if b'"messages"' in body else read_completion
    with pytest.raises(InvalidRequest, match=message):
        read(body)


def test_brackets_in_text_are_no_crowd() -> None:
    text = '["\\' * 40_000 + '{"' * 40_000
    assert read_completion(completion(prompt=text)).prompt == text


def test_what_is_shown_of_a_value_is_short_and_cheap_to_say() -> None:
    values: list[Any] = ["x" * 10**6, [1] * 10**6, {str(i): [i] for i in range(10**5)}, [["a"]]]
    assert [shown(value) for value in values] == [
        "'" + "x" * 36 + "...",
        "[" + "1, " * 12 + "...",
        "{'0': [0], '1': [1], '2': [2], '3': [...",
        "[['a']]",
    ]
    assert sum(len(repr(_head(value))) for value in values) < 400


def test_what_only_other_models_can_do_is_unsupported() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    with pytest.raises(UnsupportedField, match="'image_url'; only text is supported"):
        read_chat(chat(image))
    calls = {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}
    with pytest.raises(UnsupportedField, match=r"messages\[0\].tool_calls are not supported"):
        read_chat(chat(calls))


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_fields_that_would_change_the_answer(name: str) -> None:
    for harmless in HARMLESS[name]:
        read_completion(completion(**{name: harmless}))
    with pytest.raises(UnsupportedField, match=f"{name} is not supported") as caught:
        read_completion(completion(**{name: {"anything": 1}}))
    assert caught.value.param == name


def test_zero_is_not_false() -> None:
    read_completion(completion(logprobs=False))
    with pytest.raises(UnsupportedField, match="logprobs"):
        read_completion(completion(logprobs=0))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1]",
        b'"text"',
        b"null",
        b"\xff\xfe",
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "hi", "temperature": NaN}',
        b'{"prompt": "hi", "temperature": Infinity}',
        b'{"prompt": "hi", "temperature": 1e999}',
        b'{"prompt": "hi", "max_tokens": ' + b"9" * 5000 + b"}",
        b'{"prompt": ' + b"[" * 100_000,
        b'{"prompt": ' + b"[" * 150 + b"]" * 150 + b"}",
    ],
)
def test_bodies_that_are_no_request(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_completion(body)
    assert len(caught.value.message) < 200


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
FIELD_NAMES = sorted([*(name for case, _, _ in WRONG for name in case), *HARMLESS, "messages"])


@given(st.dictionaries(st.sampled_from(FIELD_NAMES), json_values, max_size=4), st.booleans())
@settings(max_examples=400, deadline=None)
def test_any_json_is_read_or_refused_by_name(fields: dict[str, Any], is_chat: bool) -> None:
    body = json.dumps({"prompt": "hi", "messages": [{"role": "u", "content": "x"}]} | fields)
    try:
        (read_chat if is_chat else read_completion)(body.encode())
    except InvalidRequest as error:
        assert error.param and error.message
