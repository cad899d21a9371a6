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
    unexpected,
)

log = logging.getLogger(__name__)

ERROR_KEY = "pdspan-error"
PARAM_KEY = "pdspan-param"
MAX_DETAILS_BYTES = 2000  # up to three times as long on the wire, where a peer takes 8 KiB

Context = grpc.aio.ServicerContext[Any, Any]


@asynccontextmanager
async def aborting(context: Context, request_id: str = "") -> AsyncIterator[None]:
    """Turn whatever leaves the block into the status of this RPC. Cancellation passes through."""
    try:
        yield
    except PdspanError as error:
        await _fail(context, error, error, request_id)
    except BaseExceptionGroup as group:
        await _fail(context, root_cause(group), group, request_id)
    except (grpc.aio.AbortError, asyncio.CancelledError, GeneratorExit):
        raise
    except Exception as error:
        await _fail(context, unexpected(error), error, request_id)


async def abort_with(context: Context, error: PdspanError) -> NoReturn:
    metadata = [(ERROR_KEY, type(error).__name__)]
    if error.param is not None:
        metadata.append((PARAM_KEY, error.param))
    code = grpc.StatusCode[error.grpc_code]
    await context.abort(code, _fitting(error.message), trailing_metadata=tuple(metadata))
    raise AssertionError("abort always raises")


async def _fail(
    context: Context, error: PdspanError, raised: BaseException, request_id: str
) -> NoReturn:
    extra = {"request_id": request_id, "error": type(error).__name__}
    if isinstance(error, InternalError):
        log.error("request failed", exc_info=raised, extra=extra)
    else:
        log.info("request failed: %s", error, extra=extra)
    await abort_with(context, error)


def _fitting(message: str) -> str:
    """A status that is too long is dropped whole by the other end, with the error's class."""
    data = message.encode()
    if len(data) <= MAX_DETAILS_BYTES:
        return message
    return data[:MAX_DETAILS_BYTES].decode(errors="ignore") + " ..."


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
