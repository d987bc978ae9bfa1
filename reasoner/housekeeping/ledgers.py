"""Which journals of completions belong to models that nothing reaches.

A ledger's folder is named by the model's fingerprint and how it is served, which cannot be turned round. So the names
that the store's models can have are made from every engine setting that is known; a ledger whose name is none of them
(of a model outside the store, as the step-by-step commands use) always stays.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reasoner.config.smart import EngineConfig
from reasoner.housekeeping.reach import Reach
from reasoner.lineage.calls import Call, ident
from reasoner.records import ArtifactRef
from reasoner.stages.generation import served_fingerprint
from reasoner.workbench import ModelFolder

MODEL = "model"
_NOWHERE = Path()


def unreached(reach: Reach) -> set[str]:
    """Names of ledgers of models that do not stay."""
    stay = [ref for ref in reach.artifacts if ident(ref) in reach.kept]
    return _names(reach.artifacts, reach.calls(kept=False)) - _names(stay, reach.calls(kept=False))


def _names(artifacts: Iterable[ArtifactRef], calls: Iterable[Call]) -> set[str]:
    calls = list(calls)
    models = {ref for ref in artifacts if ref.kind == MODEL}
    engines = {engine.model_dump_json(): engine for call in calls for engine in _engines(call.arguments)}
    found = set()
    for ref in models:
        for engine in engines.values():
            # The folder and the given name do not count, only the content.
            found.add(served_fingerprint(ModelFolder(_NOWHERE, ref.digest, ""), engine)[:32])
    return found


def _engines(value: Any) -> Iterator[EngineConfig]:
    if isinstance(value, dict):
        if set(value) == set(EngineConfig.model_fields):
            try:
                yield EngineConfig.model_validate(value)
            except ValidationError:
                return
        else:
            for inner in value.values():
                yield from _engines(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _engines(inner)
