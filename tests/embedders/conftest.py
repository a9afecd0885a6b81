"""A scripted endpoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scripted_http import Script, scripted_server


@pytest.fixture
def server() -> Iterator[Script]:
    with scripted_server() as script:
        yield script
