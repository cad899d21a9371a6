"""The HTTP edge of the error tree: OpenAI's shape, the right status, Retry-After where it helps.

Status and type come from the error's class (``pdcore.errors``); ``code`` is OpenAI's word where
there is one, else the class name in snake case.
"""

import logging
import re
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from pdcore.errors import (
    BodyTooLarge,
    BodyTooSlow,
    InternalError,
    InvalidRequest,
    PdspanError,
    PromptTooLong,
    UnknownModel,
    UnsupportedField,
)

log = logging.getLogger(__name__)

RETRY_AFTER_S = 1

_CODES: dict[type[PdspanError], str] = {
    InvalidRequest: "invalid_value",
    PromptTooLong: "context_length_exceeded",
    UnknownModel: "model_not_found",
    UnsupportedField: "unsupported",
}


def error_body(error: PdspanError) -> dict[str, Any]:
    """``{"error": {...}}``, for a whole response and for an event of a stream alike."""
    return _body(error.message, error.error_type, error.param, _code(error))


def error_response(error: PdspanError) -> JSONResponse:
    headers = {}
    if error.http_status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(error, BodyTooLarge | BodyTooSlow):
        headers["Connection"] = "close"  # the rest of the body is not waited for
    return JSONResponse(error_body(error), error.http_status, headers)


def install_error_handlers(app: FastAPI) -> None:
    """Every response that is not a success gets OpenAI's shape, whoever refused the request."""
    app.add_exception_handler(PdspanError, _on_pdspan_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_defect)


async def _on_pdspan_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PdspanError), "registered for this class"
    return error_response(error)


async def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException), "registered for this class"
    path = request.scope["path"]
    words = {
        404: f"there is nothing at {path}",
        405: f"{path} does not take {request.method}",
    }
    message = words.get(error.status_code, error.detail)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
    body = _body(message, InvalidRequest.error_type, None, code)
    return JSONResponse(body, error.status_code, error.headers)


async def _on_defect(request: Request, error: Exception) -> JSONResponse:
    log.error("request failed", exc_info=error)
    return error_response(InternalError("the router failed; its log says more"))


def _body(message: str, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _code(error: PdspanError) -> str:
    name = type(error).__name__
    return _CODES.get(type(error)) or re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
