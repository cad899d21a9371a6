"""Every error that crosses a boundary of ours, in one tree.

    PdspanError
    ├── ConfigError            a cluster file, a setting, a command-line value, a model directory
    ├── InvalidRequest         the client's request is wrong (``param`` names the field)
    │   ├── PromptTooLong
    │   ├── UnsupportedField   a field that would change the answer, and that we do not have
    │   ├── BodyTooLarge       the HTTP body exceeds router.max_body_bytes
    │   └── BodyTooSlow        the HTTP body was not there in time
    ├── UnknownModel
    ├── NoCapacity             no room now; another try later may fit
    ├── NodeDraining           the node is stopping and takes no new work
    ├── DeadlineExceeded       the client's own deadline passed
    ├── RequestCancelled       the client went away
    ├── PeerUnavailable        a node died or cannot be reached
    ├── TransferFailed         KV pages did not arrive whole
    │   ├── TransferStalled    no byte moved for ``stall_s`` though it could have
    │   ├── ChecksumMismatch
    │   └── ProtocolViolation  a peer said something that its state does not allow
    ├── TransferRefused        a peer refused a transfer by name, before any page moved
    │   ├── UnknownTransfer
    │   ├── EpochMismatch
    │   └── LayoutMismatch
    ├── ExperimentFailed       the laboratory could not measure
    │   ├── LinkFailed         an emulated link's process has ended, or does not answer
    │   ├── MeasurementFailed  nothing came through the link, or not in time
    │   └── NotOurs            an end of an experiment said what is no message of ours
    └── InternalError          our own defect

Class attributes say how an error looks at the two edges: ``grpc_code`` (a ``grpc.StatusCode``
name), ``http_status`` and ``error_type`` (OpenAI's words), ``retryable`` (whether the same request
may succeed elsewhere or later). The mapping itself happens only in ``pdcore.rpc_errors`` and in
``router.http_errors``. This module imports neither gRPC nor HTTP.
"""

from collections.abc import Iterator
from typing import ClassVar


class PdspanError(Exception):
    """Base of the tree. ``str(error)`` is one line that a user can act on."""

    grpc_code: ClassVar[str] = "INTERNAL"
    http_status: ClassVar[int] = 500
    error_type: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class ConfigError(PdspanError):
    """A setting, a cluster file or a model directory is wrong. Commands exit with status 2."""

    grpc_code = "FAILED_PRECONDITION"


class InvalidRequest(PdspanError):
    grpc_code = "INVALID_ARGUMENT"
    http_status = 400
    error_type = "invalid_request_error"


class PromptTooLong(InvalidRequest):
    """The prompt, or prompt and ``max_tokens``, exceed what the model or the pool can hold."""


class UnsupportedField(InvalidRequest):
    """Ignoring the field would give a wrong answer in silence, so it is refused by name."""


class BodyTooLarge(InvalidRequest):
    http_status = 413


class BodyTooSlow(InvalidRequest):
    http_status = 408


class UnknownModel(PdspanError):
    grpc_code = "NOT_FOUND"
    http_status = 404
    error_type = "invalid_request_error"


class NoCapacity(PdspanError):
    grpc_code = "RESOURCE_EXHAUSTED"
    http_status = 503
    error_type = "service_unavailable"
    retryable = True


class NodeDraining(PdspanError):
    grpc_code = "UNAVAILABLE"
    http_status = 503
    error_type = "service_unavailable"
    retryable = True


class DeadlineExceeded(PdspanError):
    grpc_code = "DEADLINE_EXCEEDED"
    http_status = 504
    error_type = "timeout_error"


class RequestCancelled(PdspanError):
    grpc_code = "CANCELLED"
    http_status = 499
    error_type = "cancelled"


class PeerUnavailable(PdspanError):
    grpc_code = "UNAVAILABLE"
    http_status = 503
    error_type = "service_unavailable"
    retryable = True


class TransferFailed(PdspanError):
    grpc_code = "ABORTED"
    http_status = 502
    error_type = "transfer_error"
    retryable = True


class TransferStalled(TransferFailed):
    """No byte was acknowledged for ``stall_s`` while credit and ready pages existed."""


class ChecksumMismatch(TransferFailed):
    grpc_code = "DATA_LOSS"


class ProtocolViolation(TransferFailed):
    """A message that the peer's state does not allow; the transfer ends, nothing is committed."""


class TransferRefused(PdspanError):
    grpc_code = "FAILED_PRECONDITION"
    http_status = 502
    error_type = "transfer_error"
    retryable = True


class UnknownTransfer(TransferRefused):
    """``Push`` came for an id that no ``Generate`` announced within ``park_s``."""


class EpochMismatch(TransferRefused):
    """The peer restarted since the sender learned its epoch, or the other way round."""


class LayoutMismatch(TransferRefused):
    """The message names the field of the KV layout or version that differs."""


class ExperimentFailed(PdspanError):
    """Never seen by a client: commands of the laboratory exit with status 1."""


class LinkFailed(ExperimentFailed):
    """The process that carries a link has ended, or does not answer."""


class MeasurementFailed(ExperimentFailed):
    """Nothing came through the link, or not in time."""


class NotOurs(ExperimentFailed):
    """A line that is no message: an end printed something else, or another version runs there."""


class InternalError(PdspanError):
    """A defect of ours. The message names the request, the log holds the traceback."""


def error_named(name: str, message: str) -> PdspanError:
    """Rebuild the error of class ``name`` (as sent by a peer); an unknown name is InternalError."""
    for cls in _walk(PdspanError):
        if cls.__name__ == name:
            return cls(message)
    return InternalError(message)


def _walk(cls: type[PdspanError]) -> list[type[PdspanError]]:
    return [cls, *(deeper for child in cls.__subclasses__() for deeper in _walk(child))]


def root_cause(group: BaseExceptionGroup[BaseException]) -> PdspanError:
    """The error to show for a task group that failed: what broke, not what was cancelled for it.

    Of several errors of ours the first one that is not itself an echo (a cancelled call) wins.
    """
    leaves = list(_leaves(group))
    ours = [leaf for leaf in leaves if isinstance(leaf, PdspanError)]
    foreign = [leaf for leaf in leaves if not isinstance(leaf, PdspanError)]
    causes = [error for error in ours if not isinstance(error, RequestCancelled)]
    if causes or not foreign:
        return (causes or ours)[0]
    return unexpected(foreign[0])


def unexpected(error: BaseException) -> InternalError:
    """For an error that is not ours: a client gets its name, the log of this node all of it."""
    return InternalError(f"{type(error).__name__} in this node; see its log")


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
