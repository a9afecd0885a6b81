"""Methods of frameworks, wrapped and put back."""

from __future__ import annotations

from typing import Any

import pytest

from otel_agentguard.adapters.patching import Patches


class Base:
    def inherited(self) -> str:
        return "inherited"


class Thing(Base):
    def plain(self, word: str) -> str:
        return f"plain {word}"

    @staticmethod
    def static(word: str) -> str:
        return f"static {word}"

    @classmethod
    def of_class(cls, word: str) -> str:
        return f"{cls.__name__} {word}"


def loud(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    return str(wrapped(*args, **kwargs)).upper()


@pytest.mark.parametrize("name", ["plain", "static", "of_class"])
def test_methods_of_every_kind_are_wrapped_and_put_back_as_they_were(name: str) -> None:
    before = vars(Thing)[name]
    bare = getattr(Thing(), name)("a")
    patches = Patches()

    patches.wrap(Thing, name, loud)
    wrapped = getattr(Thing(), name)("a")
    patches.undo()

    assert wrapped == bare.upper()
    assert vars(Thing)[name] is before


def test_an_inherited_method_is_wrapped_where_it_was_asked_for(  # so that other classes do not notice
) -> None:
    patches = Patches()

    patches.wrap(Thing, "inherited", loud)
    wrapped = Thing().inherited(), Base().inherited()
    patches.undo()

    assert wrapped == ("INHERITED", "inherited")
    assert "inherited" not in vars(Thing)


def test_what_somebody_wrapped_since_stays_and_ours_passes_all_through() -> None:
    before = vars(Thing)["plain"]
    ours, theirs = Patches(), Patches()
    ours.wrap(Thing, "plain", loud)
    theirs.wrap(Thing, "plain", lambda wrapped, instance, args, kwargs: f"<{wrapped(*args, **kwargs)}>")

    ours.undo()
    after_ours = Thing().plain("a")
    theirs.undo()
    Thing.plain = before  # type: ignore[method-assign]

    assert after_ours == "<plain a>"


def test_undoing_twice_is_once() -> None:
    patches = Patches()
    undone = []
    patches.on_undo(lambda: undone.append(1))

    patches.undo()
    patches.undo()

    assert undone == [1]


def test_a_method_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError):
        Patches().wrap(Thing, "missing", loud)


def test_a_replaced_attribute_of_an_object_is_put_back() -> None:
    thing: Any = Thing()
    thing.carrier = "old"
    patches = Patches()

    patches.replace(thing, "carrier", "new")
    patches.replace(thing, "fresh", "new")
    during = thing.carrier, thing.fresh
    patches.undo()

    assert during == ("new", "new")
    assert thing.carrier == "old"
    assert not hasattr(thing, "fresh")
