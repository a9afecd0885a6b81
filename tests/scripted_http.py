"""An HTTP server on loopback that answers by script: late, wrongly, or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes] | Callable[[dict[str, Any]], tuple[int, bytes]]


@dataclass
class Script:
    """What a server answers, and what it was asked.

    Attributes:
        url: Where it is, with `/v1`.
        answers: What is answered next; the last one again and again.
        requests: Bodies of the requests, decoded.
        headers: Their headers.
        paths: Their paths.
        gate: While it is closed, answers wait.
    """

    url: str = ""
    answers: list[Answer] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    location: str | None = None

    def chat(self, said: str) -> None:
        """Answer with this text of a model."""
        self.answers.append((200, json.dumps({"choices": [{"message": {"content": said}}]}).encode()))

    def verdict(self, loop: bool, confidence: float = 0.9, reason: str = "it asks for the same") -> None:
        """Answer with a verdict."""
        self.chat(json.dumps({"loop": loop, "confidence": confidence, "reason": reason}))

    def next_answer(self, request: dict[str, Any]) -> tuple[int, bytes]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer(request) if callable(answer) else answer


@contextmanager
def scripted_server() -> Iterator[Script]:
    """A server that runs until the end of the block."""
    script = Script()
    script.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = json.loads(body)
            script.requests.append(request)
            script.headers.append(dict(self.headers))
            script.paths.append(self.path)
            script.gate.wait(30)
            status, answer = script.next_answer(request)
            try:
                self.send_response(status)
                if script.location is not None:
                    self.send_header("Location", script.location)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        script.gate.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
