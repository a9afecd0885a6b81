"""A store that is opened when it is first needed, and again when that failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from otel_agentguard.forks import new_lock
from otel_agentguard.notes import LoggedCall, StopMark, Visit
from otel_agentguard.protocols import Store


class LateStore:
    """A `Store` that opens another one; so a store that is down at the start is used once it is up.

    Args:
        url: Where it is, without a password.
        opened: Opens it; what that raises, the method raises that needed it.
    """

    def __init__(self, url: str, opened: Callable[[], Store]) -> None:
        self._url = url
        self._open = opened
        self._lock = new_lock()
        self._store: Store | None = None

    @property
    def url(self) -> str:
        """See `Store`."""
        return self._url

    def _opened(self) -> Store:
        with self._lock:
            if self._store is None:
                self._store = self._open()
            return self._store

    def secret(self) -> bytes:
        """See `Store`."""
        return self._opened().secret()

    def record(self, visits: Sequence[Visit], calls: Sequence[LoggedCall]) -> None:
        """See `Store`."""
        self._opened().record(visits, calls)

    def visits(self, audience: str, *, resources: Sequence[str] | None = None, limit: int = 100) -> Sequence[Visit]:
        """See `Store`."""
        return self._opened().visits(audience, resources=resources, limit=limit)

    def calls(
        self,
        audience: str,
        *,
        call: str | None = None,
        resource: str | None = None,
        tool: str | None = None,
        limit: int = 100,
    ) -> Sequence[LoggedCall]:
        """See `Store`."""
        return self._opened().calls(audience, call=call, resource=resource, tool=tool, limit=limit)

    def put_stop(self, mark: StopMark) -> None:
        """See `Store`."""
        self._opened().put_stop(mark)

    def find_stop(
        self, namespace: str, *, run_id: str | None = None, conversation: str | None = None
    ) -> StopMark | None:
        """See `Store`."""
        return self._opened().find_stop(namespace, run_id=run_id, conversation=conversation)

    def stops(self, namespace: str, *, limit: int = 100) -> Sequence[StopMark]:
        """See `Store`."""
        return self._opened().stops(namespace, limit=limit)

    def release_stop(self, namespace: str, run_id: str) -> bool:
        """See `Store`."""
        return self._opened().release_stop(namespace, run_id)

    def gc(self, older_than_s: float) -> int:
        """See `Store`."""
        return self._opened().gc(older_than_s)

    def close(self) -> None:
        """See `Store`; one that was never opened stays so."""
        with self._lock:
            if self._store is not None:
                self._store.close()
