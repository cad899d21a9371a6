"""Values cross the wire as they are; what no router of ours would send is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdcore.cluster import Epoch, NodeInfo, NodeLoad, NodeName, NodeRole, NodeView
from pdcore.errors import InvalidRequest
from pdcore.generation import (
    FinishReason,
    GenerationRequest,
    RequestId,
    SamplingParams,
    TokenDelta,
    Usage,
)
from pdcore.kv_layout import KvLayout
from pdcore.wire import (
    delta_from_proto,
    delta_to_proto,
    layout_from_proto,
    layout_to_proto,
    request_from_proto,
    request_to_proto,
    status_from_proto,
    status_to_proto,
    usage_from_proto,
    usage_to_proto,
)
from pdwire.v1 import decode_pb2, generation_pb2, node_pb2

uint32 = st.integers(0, 2**32 - 1)
uint64 = st.integers(0, 2**64 - 1)
at_least_one = st.integers(1, 2**32 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
token_ids = st.lists(uint32, max_size=20).map(tuple)
layouts = st.builds(KvLayout, text, uint32, uint32, uint32, uint32, text)
requests = st.builds(
    GenerationRequest,
    request_id=text.map(RequestId),
    prompt_token_ids=st.lists(uint32, min_size=1, max_size=20).map(tuple),
    sampling=st.builds(
        SamplingParams,
        seed=uint64,
        temperature=st.floats(0, 1e300),
        top_p=st.floats(0, 1, exclude_min=True),
        top_k=st.none() | uint32,
        min_p=st.floats(0, 1),
    ),
    max_tokens=at_least_one,
    min_tokens=uint32,
    num_choices=st.integers(1, 128),
    stop_token_ids=token_ids,
    cache_salt=text,
    timeout_s=st.none() | st.floats(0, 1e6),
)
views = st.builds(
    NodeView,
    info=st.builds(
        NodeInfo,
        name=text.map(NodeName),
        role=st.sampled_from(NodeRole),
        address=text,
        epoch=uint64.map(Epoch),
        layout=layouts,
        model=text,
        max_tokens=uint32,
        version=text,
    ),
    load=st.builds(NodeLoad, *([uint32] * 8)),
    peers=st.frozensets(st.tuples(text.map(NodeName), uint64.map(Epoch)), max_size=4),
    draining=st.booleans(),
)


@given(requests)
def test_a_request(request: GenerationRequest) -> None:
    data = request_to_proto(request).SerializeToString()
    assert request_from_proto(generation_pb2.GenerationRequest.FromString(data)) == request


@given(st.builds(TokenDelta, uint32, token_ids, st.none() | st.sampled_from(FinishReason)))
def test_a_delta(delta: TokenDelta) -> None:
    data = delta_to_proto(delta).SerializeToString()
    assert delta_from_proto(decode_pb2.TokenDelta.FromString(data)) == delta


@given(st.builds(Usage, uint32, uint32, uint32))
def test_usage(usage: Usage) -> None:
    data = usage_to_proto(usage).SerializeToString()
    assert usage_from_proto(generation_pb2.Usage.FromString(data)) == usage


@given(layouts)
def test_a_layout(layout: KvLayout) -> None:
    data = layout_to_proto(layout).SerializeToString()
    assert layout_from_proto(node_pb2.KvLayout.FromString(data)) == layout


@given(views)
def test_a_status(view: NodeView) -> None:
    data = status_to_proto(view).SerializeToString()
    assert status_from_proto(node_pb2.NodeStatus.FromString(data)) == view


def message(request_id: str = "r", cache_salt: str = "") -> generation_pb2.GenerationRequest:
    sampling = SamplingParams(seed=1)
    return request_to_proto(
        GenerationRequest(RequestId(request_id), (1, 2), sampling, 3, cache_salt=cache_salt)
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.inf),
        ("temperature", math.nan),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", math.nan),
    ],
)
def test_sampling_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    wrong = message()
    setattr(wrong.sampling, field, value)
    with pytest.raises(InvalidRequest, match=field):
        request_from_proto(wrong)


@pytest.mark.parametrize("field", ["max_tokens", "num_choices", "prompt_token_ids"])
def test_a_request_that_asks_for_nothing_is_refused(field: str) -> None:
    wrong = message()
    wrong.ClearField(field)
    with pytest.raises(
        InvalidRequest, match=r"prompt tokens and max_tokens >= 1|num_choices is 0; 1 to 128"
    ):
        request_from_proto(wrong)


def test_ids_and_salts_that_nobody_should_remember_are_refused() -> None:
    for wrong, name in (
        (message(request_id="é" * 65), "request_id is longer than 128 bytes"),
        (message(cache_salt="x" * 4097), "cache_salt is longer than 4096 bytes"),
    ):
        with pytest.raises(InvalidRequest, match=name):
            request_from_proto(wrong)
    request_from_proto(message(request_id="é" * 64, cache_salt="x" * 4096))


def test_a_role_of_another_version_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="'cache'"):
        status_from_proto(node_pb2.NodeStatus(info=node_pb2.NodeInfo(name="n", role="cache")))
