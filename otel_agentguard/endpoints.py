"""Endpoints that speak the protocol of OpenAI: one request, one JSON answer, within a time limit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.message import Message
from http.client import HTTPException, HTTPResponse
from ipaddress import ip_address
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

import orjson

from otel_agentguard.errors import ConfigError, EndpointError

_MAX_BYTES = 64_000_000
_CHUNK_BYTES = 65_536


class OpenAIEndpoint:
    """One endpoint, asked without a library of its own.

    A redirect is an error, since following it would hand the key to another host. Proxies of the
    environment are used, but not for the loopback address.

    Args:
        base_url: Where it is, up to the version: `https://api.openai.com/v1`, `http://localhost:11434/v1`.
        api_key: Sent as bearer token; None for none.
        timeout_s: Time limit of one request, seconds.
        headers: Sent with every request.

    Raises:
        ConfigError: The URL is none, or the time limit is not above 0.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 20.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"base_url is {base_url!r}; give one such as https://api.openai.com/v1")
        if not timeout_s > 0:
            raise ConfigError(f"timeout_s is {timeout_s!r}; give a number above 0")
        self.base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._opener = _opener(parts.hostname)

    def __repr__(self) -> str:
        return f"OpenAIEndpoint({self.base_url!r})"

    def post(self, path: str, body: Mapping[str, object]) -> object:
        """Send one request, and wait for its answer.

        The time limit holds for each silence of the server, and for the answer as a whole.

        Raises:
            EndpointError: There was no answer in time, or none of status 200 with JSON. The error names
                the address and never the content.
        """
        url = f"{self.base_url}{path}"
        request = Request(url, orjson.dumps(body), self._headers)  # noqa: S310 - http and https only, see above
        deadline_s = time.monotonic() + self._timeout_s
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                return orjson.loads(_read(response, deadline_s, url))
        except HTTPError as exc:
            with exc:
                raise EndpointError(f"{url} answered {exc.code} {exc.reason}") from None
        except (OSError, HTTPException) as exc:
            raise EndpointError(f"{url} cannot be reached: {type(exc).__name__}") from exc
        except ValueError as exc:
            raise EndpointError(f"{url} answered something that is no JSON") from exc


def _read(response: HTTPResponse, deadline_s: float, url: str) -> bytes:
    """The body; a server that sends it drop by drop does not get more time."""
    parts = []
    size = 0
    while part := response.read1(_CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > _MAX_BYTES:
            raise EndpointError(f"{url} answered more than {_MAX_BYTES:,} bytes")
        if time.monotonic() > deadline_s:
            raise EndpointError(f"{url} took too long to answer")
    return b"".join(parts)


def _opener(host: str) -> OpenerDirector:
    return build_opener(_NoRedirect, ProxyHandler({})) if _is_loopback(host) else build_opener(_NoRedirect)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        return None
