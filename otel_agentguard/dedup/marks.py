"""Stops that outlive the process: marks of stopped runs in a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from otel_agentguard.dedup.patience import Patience
from otel_agentguard.findings import Finding
from otel_agentguard.notes import StopMark
from otel_agentguard.protocols import Clock, RunInfo, Store

_UNSURE: tuple[bool, StopMark | None] = (False, None)


class StopMarks:
    """The stopped runs of an application, in a store. Thread safe; waits no longer than the patience says.

    Args:
        store: Where marks are kept.
        patience: How the store is asked.
        namespace: The application.
        now_s: Wall clock, seconds since the epoch.
    """

    def __init__(self, store: Store, patience: Patience, *, namespace: str = "", now_s: Clock = time.time) -> None:
        self._store = store
        self._patience = patience
        self._namespace = namespace
        self._now_s = now_s
        self._unwritten: set[str] = set()

    def stopped(self, run: RunInfo, finding: Finding) -> None:
        """A run was stopped. Where the store is late or down, it is told later."""
        mark = StopMark(
            namespace=self._namespace,
            run_id=run.run_id,
            conversation=run.conversation,
            event=run.event,
            finding=finding,
            stopped_s=self._now_s(),
        )
        self._unwritten.add(mark.run_id)
        if not self._patience.ask(self._putting(mark), default=False):
            self._patience.later(self._putting(mark))

    def look(self, run_id: str | None, conversation: str | None = None) -> tuple[bool, StopMark | None]:
        """Whether the store knows for sure, and the mark of a run, else of a conversation.

        It does not know of a stop that it could not be told of yet.
        """
        return self._patience.ask(self._looking(run_id, conversation), _UNSURE)

    async def look_async(self, run_id: str | None, conversation: str | None = None) -> tuple[bool, StopMark | None]:
        """`look` without blocking the event loop."""
        return await self._patience.ask_async(self._looking(run_id, conversation), _UNSURE)

    def find(self, run_id: str | None, conversation: str | None = None) -> StopMark | None:
        """The mark of a run, else of a conversation; None where there is none, or the store does not say."""
        return self.look(run_id, conversation)[1]

    def release(self, run_id: str) -> bool:
        """Lift the stop of a run.

        Returns:
            Whether there was a mark; False too where the store does not say.
        """
        self._unwritten.discard(run_id)
        return self._patience.ask(lambda: self._store.release_stop(self._namespace, run_id), default=False)

    def list(self, *, limit: int = 100) -> Sequence[StopMark]:
        """The marks of this application, the latest first."""
        return self._patience.ask(lambda: self._store.stops(self._namespace, limit=limit), ())

    def _putting(self, mark: StopMark) -> Callable[[], bool]:
        def put() -> bool:
            self._store.put_stop(mark)
            self._unwritten.discard(mark.run_id)
            return True

        return put

    def _looking(self, run_id: str | None, conversation: str | None) -> Callable[[], tuple[bool, StopMark | None]]:
        def look() -> tuple[bool, StopMark | None]:
            found = self._store.find_stop(self._namespace, run_id=run_id, conversation=conversation)
            return not self._unwritten, found

        return look
