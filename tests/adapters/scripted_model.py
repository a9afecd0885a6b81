"""A model that says what a test tells it to, behind the HTTP interfaces of three vendors, on loopback.

It speaks chat completions, responses and Anthropic messages, streaming or not. Each conversation of a test has
a script under a name, and a base URL with that name in it; what was asked under it is kept.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INPUT_TOKENS = 11
OUTPUT_TOKENS = 7

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says.

    Attributes:
        text: Its text.
        calls: The tools that it calls: name and arguments, as text where they are to be no JSON object.
        status: HTTP status; from 400 on there is nothing but an error.
    """

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any] | str]] = ()
    status: int = 200


Script = Callable[[int, Json], Reply]
"""Called with the number of the request, from 1, and the request; in a thread of the server."""


def looping(tool: str = "lookup", rounds: int = 40, **arguments: Any) -> Script:
    """The same call in each round, then an answer."""
    call = tool, arguments or {"q": "x"}
    return lambda number, request: Reply(calls=[call]) if number <= rounds else Reply("gave up")


def saying(*replies: Reply | str) -> Script:
    """These replies one after the other, the last one for ever."""
    known = [reply if isinstance(reply, Reply) else Reply(reply) for reply in replies]
    return lambda number, request: known[min(number, len(known)) - 1]


SUBJECTS = (
    *("height of Mont Blanc", "who wrote Middlemarch", "boiling point of ethanol", "capital of Peru"),
    *("largest moon of Saturn", "when was Bach born", "how do bees find home", "price of a stamp"),
    *("opposite of entropy", "words for snow", "oldest bridge in Rome", "why leaves turn red"),
)


ROUNDS = 10  # older LangGraph lets an agent take 12


def working(tool: str = "lookup", rounds: int = ROUNDS) -> Script:
    """Another question in each round, then an answer."""

    def script(number: int, request: Json) -> Reply:
        return Reply(calls=[(tool, {"q": SUBJECTS[number - 1]})]) if number <= rounds else Reply("done")

    return script


@dataclass(slots=True)
class _Told:
    script: Script
    requests: list[Json] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class ScriptedModel:
    """The server; used with `with`."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}
        handler = type("Handler", (_Handler,), {"model": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def play(self, name: str, script: Script) -> str:
        """Give a conversation its script, and forget what was asked under that name.

        Returns:
            Its base URL, without the `/v1` that OpenAI's client wants.
        """
        self._told[name] = _Told(script)
        return f"http://127.0.0.1:{self._server.server_address[1]}/s/{name}"

    def requests(self, name: str) -> list[Json]:
        """What was asked, in order."""
        return list(self._told[name].requests)

    def answer(self, name: str, request: Json) -> tuple[int, Reply]:
        """The number of a request, and what to say to it."""
        told = self._told[name]
        with told.lock:
            told.requests.append(request)
            number = len(told.requests)
        return number, told.script(number, request)

    def __enter__(self) -> ScriptedModel:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are stopped hang up; nobody needs to read of it."""


class _Handler(BaseHTTPRequestHandler):
    model: ScriptedModel
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        _, _, name, *rest = self.path.partition("?")[0].split("/")
        number, reply = self.model.answer(name, request)
        if reply.status >= 400:
            self._json({"error": {"type": "server_error", "message": "the script says so"}}, reply.status)
            return
        said = _Said(f"{name}_{number}", str(request.get("model", "")), reply)
        kind = rest[-1]
        if kind == "completions":
            usage = bool((request.get("stream_options") or {}).get("include_usage"))
            self._send(request, said.chat(), said.chat_chunks(usage))
        elif kind == "responses":
            self._send(request, said.response(), said.response_events())
        elif kind == "messages":
            self._send(request, said.message(), said.message_events())
        else:
            self._json({"error": {"message": f"nothing is spoken at {self.path}"}}, 404)

    def _send(self, request: Json, whole: Json, pieces: Iterator[tuple[str, Json | str]]) -> None:
        if not request.get("stream"):
            self._json(whole, 200)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event, data in pieces:
            head = f"event: {event}\n" if event else ""
            body = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"{head}data: {body}\n\n".encode())
        self.close_connection = True

    def _json(self, data: Json, status: int) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        # Clients are kept across event loops; a connection of a loop that is closed would fail the next test.
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True


@dataclass(frozen=True, slots=True)
class _Said:
    """One reply in the words of each interface; ids are made of the name of the script and the request's number."""

    key: str
    model: str
    reply: Reply

    def _calls(self) -> Iterator[tuple[str, str, Any]]:
        for place, (tool, arguments) in enumerate(self.reply.calls):
            yield f"call_{self.key}_{place}", tool, arguments

    def chat(self) -> Json:
        message: Json = {"role": "assistant", "content": self.reply.text or None}
        if self.reply.calls:
            message["tool_calls"] = [
                {"id": id_, "type": "function", "function": {"name": tool, "arguments": _written(arguments)}}
                for id_, tool, arguments in self._calls()
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._finished("tool_calls", "stop")}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._chat_usage()}

    def chat_chunks(self, with_usage: bool) -> Iterator[tuple[str, Json | str]]:
        def chunk(delta: Json, finished: str | None = None) -> tuple[str, Json]:
            choice = {"index": 0, "delta": delta, "finish_reason": finished}
            return "", {**self._head("chat.completion.chunk"), "choices": [choice]}

        yield chunk({"role": "assistant", "content": ""})
        for word in _pieces(self.reply.text):
            yield chunk({"content": word})
        for place, (id_, tool, arguments) in enumerate(self._calls()):
            function = {"name": tool, "arguments": ""}
            yield chunk({"tool_calls": [{"index": place, "id": id_, "type": "function", "function": function}]})
            for piece in _pieces(_written(arguments)):
                yield chunk({"tool_calls": [{"index": place, "function": {"arguments": piece}}]})
        yield chunk({}, self._finished("tool_calls", "stop"))
        if with_usage:
            yield "", {**self._head("chat.completion.chunk"), "choices": [], "usage": self._chat_usage()}
        yield "", "[DONE]"

    def response(self) -> Json:
        return self._response(self._items(), "completed")

    def response_events(self) -> Iterator[tuple[str, Json]]:
        number = 0

        def event(kind: str, **data: Any) -> tuple[str, Json]:
            nonlocal number
            number += 1
            return kind, {"type": kind, "sequence_number": number - 1, **data}

        yield event("response.created", response=self._response([], "in_progress"))
        for place, item in enumerate(self._items()):
            where = {"output_index": place, "item_id": item["id"]}
            bare = {**item, "status": "in_progress", **({"arguments": ""} if "arguments" in item else {"content": []})}
            yield event("response.output_item.added", output_index=place, item=bare)
            if item["type"] == "function_call":
                yield event("response.function_call_arguments.delta", delta=item["arguments"], **where)
                done = {"name": item["name"], "arguments": item["arguments"]}
                yield event("response.function_call_arguments.done", **done, **where)
            else:
                part = {"type": "output_text", "text": "", "annotations": []}
                at = {"content_index": 0, **where}
                yield event("response.content_part.added", part=part, **at)
                yield event("response.output_text.delta", delta=self.reply.text, logprobs=[], **at)
                yield event("response.output_text.done", text=self.reply.text, logprobs=[], **at)
                yield event("response.content_part.done", part={**part, "text": self.reply.text}, **at)
            yield event("response.output_item.done", output_index=place, item=item)
        yield event("response.completed", response=self.response())

    def message(self) -> Json:
        content: list[Json] = [{"type": "text", "text": self.reply.text}] if self.reply.text else []
        content += [
            {"type": "tool_use", "id": id_, "name": tool, "input": dict(arguments)}
            for id_, tool, arguments in self._calls()
        ]
        return self._message(content, self._finished("tool_use", "end_turn"))

    def message_events(self) -> Iterator[tuple[str, Json]]:
        whole = self.message()
        yield "message_start", {"type": "message_start", "message": self._message([], None)}
        for place, block in enumerate(whole["content"]):
            if block["type"] == "text":
                bare, deltas = {"type": "text", "text": ""}, ["text_delta", "text", block["text"]]
            else:
                bare, deltas = {**block, "input": {}}, ["input_json_delta", "partial_json", json.dumps(block["input"])]
            kind, name, text = deltas
            yield "content_block_start", {"type": "content_block_start", "index": place, "content_block": bare}
            for piece in _pieces(text):
                delta = {"type": kind, name: piece}
                yield "content_block_delta", {"type": "content_block_delta", "index": place, "delta": delta}
            yield "content_block_stop", {"type": "content_block_stop", "index": place}
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        usage = {"output_tokens": OUTPUT_TOKENS}
        yield "message_delta", {"type": "message_delta", "delta": delta, "usage": usage}
        yield "message_stop", {"type": "message_stop"}

    def _head(self, kind: str) -> Json:
        return {"id": f"chat_{self.key}", "object": kind, "created": 1_700_000_000, "model": self.model}

    def _finished(self, with_calls: str, without: str) -> str:
        return with_calls if self.reply.calls else without

    def _chat_usage(self) -> Json:
        total = INPUT_TOKENS + OUTPUT_TOKENS
        return {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": total}

    def _items(self) -> list[Json]:
        items: list[Json] = [
            {
                "type": "function_call",
                "id": f"fc_{id_}",
                "call_id": id_,
                "name": tool,
                "arguments": _written(arguments),
                "status": "completed",
            }
            for id_, tool, arguments in self._calls()
        ]
        if self.reply.text:
            part = {"type": "output_text", "text": self.reply.text, "annotations": [], "logprobs": []}
            head = {"type": "message", "id": f"msg_{self.key}", "role": "assistant", "status": "completed"}
            items.append({**head, "content": [part]})
        return items

    def _response(self, items: list[Json], status: str) -> Json:
        usage = {
            "input_tokens": INPUT_TOKENS,
            "output_tokens": OUTPUT_TOKENS,
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        return {
            "id": f"resp_{self.key}",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": status,
            "model": self.model,
            "output": items,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "temperature": 1.0,
            "top_p": 1.0,
            "usage": usage if status == "completed" else None,
        }

    def _message(self, content: list[Json], stop_reason: str | None) -> Json:
        return {
            "id": f"msg_{self.key}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS},
        }


def _written(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _pieces(text: str) -> list[str]:
    """A text in two halves, as streams bring it."""
    half = len(text) // 2
    return [piece for piece in (text[:half], text[half:]) if piece]
