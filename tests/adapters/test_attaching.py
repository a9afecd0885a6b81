"""When adapters are put in, when not, and what goes wrong then."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adapters.conftest import Installing

from otel_agentguard.adapters.attaching import Adapter, adapters, look_at
from otel_agentguard.adapters.patching import Patches
from otel_agentguard.adapters.table import AdapterEntry, Part
from otel_agentguard.testing import RecordingSink

HOOK_MODULE = "toy_adapter"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A framework of two lines and an adapter for it; the name of the framework's module."""
    name = f"toy_framework_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text("class Agent:\n    def run(self):\n        return 'bare'\n")
    (tmp_path / f"{HOOK_MODULE}.py").write_text(
        f"def hook(patches):\n    import {name}\n"
        f"    patches.wrap({name}.Agent, 'run', lambda wrapped, i, a, k: 'guarded ' + wrapped())\n"
        f"def broken(patches):\n    hook(patches)\n    raise RuntimeError('the framework has changed')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for module in (name, HOOK_MODULE):
        sys.modules.pop(module, None)


def adapter_of(module: str, *, versions: str = ">=1", hook: str = "hook") -> Adapter:
    part = Part(module=module, distribution="pytest", versions=versions, hook=f"{HOOK_MODULE}:{hook}")
    return Adapter(AdapterEntry(name="toy", parts=(part,)))


def test_a_framework_that_is_imported_already_is_guarded_at_once(toy: str, installing: Installing) -> None:
    framework: Any = importlib.import_module(toy)
    adapter = adapter_of(toy)

    detach = adapter.attach(installing().guard)
    guarded = framework.Agent().run()
    detach()

    assert guarded == "guarded bare"
    assert framework.Agent().run() == "bare"


def test_a_framework_that_is_imported_later_is_guarded_then(toy: str, installing: Installing) -> None:
    adapter = adapter_of(toy)

    detach = adapter.attach(installing().guard)
    framework: Any = importlib.import_module(toy)
    guarded = framework.Agent().run()
    detach()

    assert guarded == "guarded bare"
    assert adapter.attached == ()


def test_after_detaching_a_later_import_is_let_alone_and_attaching_again_works(
    toy: str, installing: Installing
) -> None:
    adapter = adapter_of(toy)
    guard = installing().guard
    adapter.attach(guard)()

    framework: Any = importlib.import_module(toy)
    let_alone = framework.Agent().run()
    adapter.attach(guard)
    again = framework.Agent().run()
    adapter.detach()

    assert (let_alone, again) == ("bare", "guarded bare")


def test_attaching_twice_guards_once(toy: str, installing: Installing) -> None:
    framework: Any = importlib.import_module(toy)
    adapter = adapter_of(toy)
    guard = installing().guard

    adapter.attach(guard)
    adapter.attach(guard)
    guarded = framework.Agent().run()
    adapter.detach()

    assert guarded == "guarded bare"
    assert framework.Agent().run() == "bare"


def test_an_unknown_version_is_left_alone_with_one_clear_warning(
    toy: str, installing: Installing, caplog: pytest.LogCaptureFixture
) -> None:
    framework: Any = importlib.import_module(toy)
    adapter = adapter_of(toy, versions="<1")
    guard = installing().guard

    with caplog.at_level(logging.WARNING, "otel_agentguard"):
        adapter.attach(guard)
        adapter.attach(guard)

    (record,) = [record for record in caplog.records if "toy" in record.getMessage()]
    assert "pytest" in record.getMessage()
    assert "none of the known versions <1" in record.getMessage()
    assert framework.Agent().run() == "bare"


def test_a_hook_that_fails_is_taken_back_counted_and_kept_from_the_application(
    toy: str, installing: Installing, sink: RecordingSink
) -> None:
    framework: Any = importlib.import_module(toy)

    adapter_of(toy, hook="broken").attach(installing().guard)

    assert framework.Agent().run() == "bare"
    assert sink.failures == ["adapter toy"]


def test_a_part_whose_distribution_is_missing_says_so() -> None:
    state = look_at(Part(module="m", distribution="no-such-distribution", versions=">=1", hook="m:h"))

    assert state.version is None
    assert state.problem == "no-such-distribution is not installed"


def test_a_name_that_no_adapter_has_is_warned_of(
    installing: Installing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AGENTGUARD_ADAPTERS_OFF", "langchian")

    with caplog.at_level(logging.WARNING, "otel_agentguard"):
        installing()

    assert "there is no adapter 'langchian' to leave out; known: langchain" in caplog.text


def test_all_adapters_can_be_left_out(installing: Installing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGUARD_ADAPTERS_OFF", "*")

    installing()

    assert {name for name, adapter in adapters().items() if adapter.attached} == set()


def test_every_adapter_has_its_hooks_where_the_table_says() -> None:
    parts = [part for adapter in adapters().values() for part in adapter.entry.parts]
    installed = [part for part in parts if look_at(part).problem is None]

    for part in installed:
        importlib.import_module(part.module)
        patches = Patches()
        try:
            getattr(importlib.import_module(part.hook_module), part.hook_function)(patches)
            assert len(patches) > 0, part.hook
        finally:
            patches.undo()


def test_installing_imports_no_framework() -> None:
    script = (
        "import sys, otel_agentguard\n"
        "otel_agentguard.install()\n"
        "from otel_agentguard.adapters.attaching import adapters\n"
        "print(sorted({p.module.partition('.')[0] for a in adapters().values() for p in a.entry.parts}"
        " & set(sys.modules)))\n"
    )

    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert shown.stdout.strip() == "[]"
