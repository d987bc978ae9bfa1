"""The calls of an engine and an optimiser that share a card, in their order."""

from collections.abc import Sequence
from typing import Any

import pytest

from reasoner.engines.transformers_engine import TransformersEngine

ENGINE = ("sleep", "wake", "generate", "load_adapter")
STEP = "step"


def watch(monkeypatch: pytest.MonkeyPatch, optimiser: type) -> list[str]:
    """A list that grows by the name of every call of the transformers engine and of `optimiser`'s step."""
    found: list[str] = []
    for owner, names in ((TransformersEngine, ENGINE), (optimiser, (STEP,))):
        for name in names:

            def recorded(
                self: Any, *args: Any, _name: str = name, _method: Any = getattr(owner, name), **more: Any
            ) -> Any:
                found.append(_name)
                return _method(self, *args, **more)

            monkeypatch.setattr(owner, name, recorded)
    return found


def asleep_through_every_step(calls: Sequence[str]) -> bool:
    """Whether the optimiser works only while the engine sleeps, and the engine only while it is awake."""
    asleep = False
    for call in calls:
        if call in ("sleep", "wake"):
            if asleep is (call == "sleep"):
                return False
            asleep = call == "sleep"
        elif asleep is not (call == STEP):
            return False
    return {"sleep", STEP} <= set(calls)


def never_asleep(calls: Sequence[str]) -> bool:
    """Whether the optimiser works and the engine stays awake."""
    return STEP in calls and not {"sleep", "wake"} & set(calls)
