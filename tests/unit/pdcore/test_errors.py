"""The tree of errors: what each class says at the edges, and which of several is the cause."""

import asyncio

import grpc
import pytest

from pdcore import errors
from pdcore.errors import (
    ChecksumMismatch,
    InternalError,
    InvalidRequest,
    NoCapacity,
    PdspanError,
    PeerUnavailable,
    RequestCancelled,
    TransferFailed,
    error_named,
    root_cause,
)


def tree(cls: type[PdspanError] = PdspanError) -> list[type[PdspanError]]:
    return [cls, *(deeper for child in cls.__subclasses__() for deeper in tree(child))]


@pytest.mark.parametrize("cls", tree())
def test_every_class_says_how_it_looks_at_the_edges(cls: type[PdspanError]) -> None:
    assert cls.grpc_code in grpc.StatusCode.__members__
    assert 400 <= cls.http_status < 600
    assert cls.error_type


@pytest.mark.parametrize("cls", tree())
def test_an_error_is_rebuilt_by_its_name(cls: type[PdspanError]) -> None:
    error = error_named(cls.__name__, "what was wrong")
    assert type(error) is cls
    assert str(error) == error.message == "what was wrong"


def test_a_name_that_we_do_not_know_is_an_internal_error() -> None:
    error = error_named("KeyError", "from a newer node")
    assert type(error) is InternalError
    assert error.message == "from a newer node"


def test_the_docstring_shows_the_whole_tree() -> None:
    words = set((errors.__doc__ or "").replace("├──", " ").replace("└──", " ").split())
    assert {cls.__name__ for cls in tree()} <= words


def test_an_error_can_name_a_field() -> None:
    assert InvalidRequest("too hot", param="temperature").param == "temperature"
    assert InvalidRequest("too hot").param is None


def test_what_may_help_elsewhere_is_retryable_and_a_bad_request_is_not() -> None:
    assert NoCapacity.retryable and PeerUnavailable.retryable and ChecksumMismatch.retryable
    assert not InvalidRequest.retryable and not InternalError.retryable


def group(*errors: BaseException) -> BaseExceptionGroup[BaseException]:
    return BaseExceptionGroup("tasks", errors)


def test_the_cause_is_the_first_error_of_ours() -> None:
    cause, later = NoCapacity("no room"), TransferFailed("broke")
    assert root_cause(group(cause, later)) is cause
    assert root_cause(group(KeyError("x"), cause)) is cause


def test_a_cancelled_call_is_an_echo_of_the_cause() -> None:
    echo, cause = RequestCancelled("cancelled"), PeerUnavailable("died")
    assert root_cause(group(echo, cause)) is cause
    assert root_cause(group(echo)) is echo


def test_a_foreign_error_is_no_echo() -> None:
    error = root_cause(group(RequestCancelled("cancelled"), KeyError("x")))
    assert type(error) is InternalError


def test_the_cause_is_found_in_nested_groups() -> None:
    cause = ChecksumMismatch("frame 3")
    assert root_cause(group(RequestCancelled("c"), group(group(cause)))) is cause


def test_a_foreign_error_becomes_an_internal_one_with_its_name() -> None:
    error = root_cause(group(KeyError("a secret")))
    assert type(error) is InternalError
    assert str(error) == "KeyError in this node; see its log"


async def test_the_cause_of_a_real_task_group() -> None:
    async def fails() -> None:
        raise NoCapacity("no room")

    with pytest.raises(BaseExceptionGroup) as caught:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails())
            await asyncio.get_running_loop().create_future()
    assert str(root_cause(caught.value)) == "no room"
