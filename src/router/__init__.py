"""The edge of the cluster: OpenAI's HTTP API outside, token ids and two RPCs inside. No torch."""
