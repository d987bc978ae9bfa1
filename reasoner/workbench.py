"""What a stage's work needs from its surroundings, without knowing who called it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.config.smart import EngineConfig
from reasoner.config.training import ComputeConfig
from reasoner.engines.pool import EnginePool
from reasoner.engines.protocol import Engine, EngineSettings
from reasoner.home import Home
from reasoner.tracking import Tracking


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on disk: folder with weights and tokenizer, fingerprint of its content, the name it was given."""

    path: Path
    fingerprint: str
    name: str


def engine_settings(
    model: ModelFolder, config: EngineConfig, adapters: bool = False, max_lora_rank: int = 16
) -> EngineSettings:
    """How the engine for a model is started."""
    return EngineSettings(
        config.kind,
        model.path,
        config.dtype,
        adapters=adapters,
        max_lora_rank=max_lora_rank,
        options=config.options,
    )


@dataclass(frozen=True)
class Workbench:
    """Where a stage works. `work` survives a crash and is named by the stage's key; `logs` belongs to the run."""

    home: Home
    engines: EnginePool
    work: Path
    logs: Path
    on_progress: Callable[[int, int, dict[str, Any]], None]
    tracking: Tracking | None = None
    """The W&B run of this stage, if one is asked for."""
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    """On how many devices a training is spread. It decides nothing of what is learnt, so no stage's key holds it."""

    def progress(self, done: int, total: int, **facts: Any) -> None:
        self.on_progress(done, total, facts)

    def child_progress(self, facts: dict[str, Any]) -> None:
        """Pass on what a child process reports."""
        rest = {name: value for name, value in facts.items() if name not in ("done", "total")}
        self.on_progress(int(facts.get("done", 0)), int(facts.get("total", 0)), rest)

    def engine(
        self,
        model: ModelFolder,
        config: EngineConfig,
        *,
        adapters: Mapping[str, Path] | None = None,
        max_lora_rank: int = 16,
    ) -> Engine:
        """The running engine for a model: the one of the stage before if it is the same, else a new one.

        With `adapters` (a mapping, even an empty one) it can serve adapters, and has these.

        The engine's own seed is always 0: each request brings the seed that its samples are drawn with.
        """
        settings = engine_settings(model, config, adapters is not None, max_lora_rank)
        engine = self.engines.acquire(settings)
        for name, path in (adapters or {}).items():
            engine.load_adapter(name, path)
        return engine
