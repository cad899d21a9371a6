"""The router's Prometheus metrics: what a client sees, from the edge's side."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class RouterMetrics:
    """``registry`` is passed in, so two routers in one process do not meet in a global one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.requests = Counter(
            "pdspan_router_requests",
            "HTTP requests by endpoint and status; a stream that broke counts as its error.",
            ["endpoint", "status"],
            registry=registry,
        )
        self.in_flight = Gauge(
            "pdspan_router_in_flight", "Generation requests being served.", registry=registry
        )
        self.prompt_tokens = Counter(
            "pdspan_router_prompt_tokens", "Prompt tokens of finished requests.", registry=registry
        )
        self.generated_tokens = Counter(
            "pdspan_router_generated_tokens", "Tokens that clients were given.", registry=registry
        )
        self.first_token_s = Histogram(
            "pdspan_router_first_token_seconds",
            "From a request's arrival to its first token.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.inter_token_s = Histogram(
            "pdspan_router_inter_token_seconds",
            "Between two tokens of one choice, as they reach the router.",
            buckets=_TOKEN_SECONDS,
            registry=registry,
        )
        self.request_s = Histogram(
            "pdspan_router_request_seconds",
            "From a request's arrival to its last token.",
            buckets=_SECONDS,
            registry=registry,
        )
