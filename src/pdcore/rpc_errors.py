"""The gRPC edge of the error tree: a PdspanError leaves as a status and comes back as itself.

The class name travels in trailing metadata, so that "no room" stays "no room" across two hops. An
error that is not ours becomes an InternalError; its traceback stays in this process's log.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import grpc

from pdcore.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    PdspanError,
    PeerUnavailable,
    RequestCancelled,
    error_named,
    root_cause,
)

log = logging.getLogger(__name__)

ERROR_KEY = "pdspan-error"
PARAM_KEY = "pdspan-param"

Context = grpc.aio.ServicerContext[Any, Any]


@asynccontextmanager
async def aborting(context: Context, request_id: str = "") -> AsyncIterator[None]:
    """Turn whatever leaves the block into the status of this RPC. Cancellation passes through."""
    try:
        yield
    except PdspanError as error:
        await abort_with(context, error)
    except BaseExceptionGroup as group:
        cause = root_cause(group)
        if isinstance(cause, InternalError):
            log.error("request failed", exc_info=group, extra={"request_id": request_id})
        await abort_with(context, cause)
    except (grpc.aio.AbortError, asyncio.CancelledError, GeneratorExit):
        raise
    except Exception as error:
        log.exception("request failed", extra={"request_id": request_id})
        await abort_with(
            context, InternalError(f"{type(error).__name__} in this node; see its log")
        )


async def abort_with(context: Context, error: PdspanError) -> NoReturn:
    metadata = [(ERROR_KEY, type(error).__name__)]
    if error.param is not None:
        metadata.append((PARAM_KEY, error.param))
    code = grpc.StatusCode[error.grpc_code]
    await context.abort(code, error.message, trailing_metadata=tuple(metadata))
    raise AssertionError("abort always raises")


def error_from_rpc(error: grpc.aio.AioRpcError, peer: str) -> PdspanError:
    """The error that ``peer`` (a name for messages) raised, or what its status says."""
    details = error.details() or error.code().name
    metadata = dict(error.trailing_metadata() or ())
    if ERROR_KEY in metadata:
        rebuilt = error_named(str(metadata[ERROR_KEY]), details)
        rebuilt.param = str(metadata[PARAM_KEY]) if PARAM_KEY in metadata else None
        return rebuilt
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            return PeerUnavailable(f"{peer} cannot be reached or died: {details}")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(f"the request's deadline passed at {peer}")
        case grpc.StatusCode.CANCELLED:
            return RequestCancelled(f"{peer} cancelled the call")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return InvalidRequest(f"{peer} refused a message: {details}")
        case _:
            return InternalError(f"{peer} failed: {error.code().name}: {details}")
