"""Fixtures of the tests of the cached answers."""

from __future__ import annotations

import pytest
from dedup.desk import Desk, coarsen, make_desk


@pytest.fixture
def desk() -> Desk:
    """A desk in an empty run."""
    return make_desk()


@pytest.fixture(params=["fine", "coarse"])
def ticks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """File systems that stamp to the nanosecond, and such that stamp in ticks that several edits share."""
    if request.param == "coarse":
        coarsen(monkeypatch)
    return str(request.param)
