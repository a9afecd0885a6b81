"""A judge behind an endpoint that speaks the protocol of OpenAI: a hosted model, or one of your own."""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson

from otel_agentguard import words
from otel_agentguard.endpoints import OpenAIEndpoint
from otel_agentguard.errors import ConfigError, EndpointError
from otel_agentguard.protocols import Suspicion, Verdict

_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


class OpenAIJudge:
    """Asks a model. What it is shown leaves the process: at most 16 shortened events for each question.

    Args:
        base_url: Where the model is, up to the version: `http://localhost:11434/v1`.
        model: Its name there.
        api_key: Sent as bearer token; read from nowhere else.
        timeout_s: Time limit of one question, seconds.
        max_questions: Questions in the life of this process.
        options: Further members of the request, such as `{"temperature": 0}`.
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
        timeout_s: float = 20.0,
        max_questions: int = 100,
        options: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if not model:
            raise ConfigError("the judge has no model; give the name that the endpoint knows it by")
        self.max_questions = max_questions
        self._endpoint = OpenAIEndpoint(base_url, api_key=api_key, timeout_s=timeout_s, headers=headers)
        self._model = model
        self._options = dict(options or {})

    def judge(self, question: Suspicion) -> Verdict:
        """Ask the model; see `Judge`.

        Raises:
            EndpointError: There was no answer in time, or none that is a verdict.
        """
        messages = [
            {"role": "system", "content": words.JUDGE_INSTRUCTIONS},
            {"role": "user", "content": _log(question)},
        ]
        body = {"model": self._model, "messages": messages, **self._options}
        return _verdict(self._endpoint.post("/chat/completions", body), self._endpoint.base_url)


def _log(question: Suspicion) -> str:
    suspected = set(question.finding.evidence)
    lines = [f"Suspected at step {question.finding.step}, kind {question.finding.kind.value}.", ""]
    for one in question.excerpts:
        mark = " (suspected)" if one.step in suspected else ""
        lines.append(f"step {one.step}{mark}, agent {one.agent}, {one.what}: {one.said}")
        if one.answered:
            lines.append(f"  answer: {one.answered}")
    return "\n".join(lines)


def _verdict(answer: object, where: str) -> Verdict:
    said = _said(answer)
    if said is None or (found := _OBJECT.search(said)) is None:
        raise EndpointError(f"{where} answered without a verdict")
    try:
        told = orjson.loads(found.group())
    except ValueError:
        raise EndpointError(f"{where} answered with a verdict that is no JSON") from None
    loop, confidence = told.get("loop"), told.get("confidence", 1.0)
    if not isinstance(loop, bool) or isinstance(confidence, bool) or not isinstance(confidence, int | float):
        raise EndpointError(f"{where} answered with a verdict of another form")
    return Verdict(loop=loop, confidence=min(max(float(confidence), 0.0), 1.0), reason=str(told.get("reason") or ""))


def _said(answer: object) -> str | None:
    """The text of the first choice of a chat completion."""
    match answer:
        case {"choices": [{"message": {"content": str(content)}}, *_]}:
            return content
        case _:
            return None
