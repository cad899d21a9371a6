"""The endpoints that say something of the server itself: models, health, version, metrics."""

from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from pdcore.errors import UnknownModel
from pdcore.version import __version__
from router.endpoint import Service
from router.placement import Placer
from router.responses import model_json


@dataclass(frozen=True, slots=True)
class InfoEndpoints:
    """``created`` is when this router started, in Unix seconds."""

    service: Service
    placer: Placer
    created: int

    async def models(self) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, model_id: str) -> Response:
        name = self.service.preparer.model.name
        if model_id != name:
            raise UnknownModel(
                f"there is no model {model_id!r}; this server has {name!r}", param="model"
            )
        return JSONResponse(self._model())

    async def health(self) -> Response:
        """200 exactly when a request can be served, else 503 with the reason."""
        if self.service.drain.started:
            reason: str | None = "the router is stopping"
        else:
            reason = self.placer.obstacle(self.service.cluster.view())
        if reason is not None:
            return JSONResponse({"status": "unavailable", "reason": reason}, 503)
        return JSONResponse({"status": "ok"})

    async def version(self) -> Response:
        return JSONResponse({"version": __version__})

    async def metrics(self) -> Response:
        text = generate_latest(self.service.metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    def _model(self) -> dict[str, object]:
        name = self.service.preparer.model.name
        return model_json(name, self.created, self.service.context_tokens())
