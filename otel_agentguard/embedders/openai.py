"""An embedder behind an endpoint that speaks the protocol of OpenAI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from otel_agentguard.endpoints import OpenAIEndpoint
from otel_agentguard.errors import ConfigError, EndpointError
from otel_agentguard.vectors import LateVectors


class OpenAIEmbedder(LateVectors):
    """Asks an endpoint, in batches and out of band. The texts leave the process: arguments in free text.

    Args:
        base_url: Where the model is, up to the version: `http://localhost:11434/v1`.
        model: Its name there.
        api_key: Sent as bearer token; read from nowhere else.
        timeout_s: Time limit of one request, seconds.
        batch: Most texts of one request.
        max_chars: Characters of a text that are sent.
        options: Further members of the request, such as `{"dimensions": 256}`.
        headers: Sent with every request.

    Raises:
        ConfigError: An argument cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 5.0,
        batch: int = 64,
        max_chars: int = 2000,
        options: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if not model:
            raise ConfigError("the embedder has no model; give the name that the endpoint knows it by")
        super().__init__(self._ask, max_chars=max_chars, batch=batch)
        self._endpoint = OpenAIEndpoint(base_url, api_key=api_key, timeout_s=timeout_s, headers=headers)
        self._model = model
        self._options = dict(options or {})

    def _ask(self, texts: list[str]) -> Sequence[Sequence[float]]:
        body = {"model": self._model, "input": texts, **self._options}
        answer = self._endpoint.post("/embeddings", body)
        try:
            rows = answer["data"]  # type: ignore[index]  # whatever it is, what does not fit ends below
            placed = {int(row["index"]): row["embedding"] for row in rows}
            return [placed[place] for place in range(len(texts))]
        except (KeyError, TypeError, ValueError):
            raise EndpointError(f"{self._endpoint.base_url} answered without one vector for each text") from None
