"""What a stage's work needs from its surroundings, without knowing who called it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.config.smart import EngineConfig
from reasoner.engines.pool import EnginePool
from reasoner.engines.protocol import Engine, EngineSettings
from reasoner.home import Home


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on disk: folder with weights and tokenizer, fingerprint of its content, the name it was given."""

    path: Path
    fingerprint: str
    name: str


@dataclass(frozen=True)
class Workbench:
    """Where a stage works. `work` survives a crash and is named by the stage's key; `logs` belongs to the run."""

    home: Home
    engines: EnginePool
    work: Path
    logs: Path
    on_progress: Callable[[int, int, dict[str, Any]], None]

    def progress(self, done: int, total: int, **facts: Any) -> None:
        self.on_progress(done, total, facts)

    def child_progress(self, facts: dict[str, Any]) -> None:
        """Pass on what a child process reports."""
        rest = {name: value for name, value in facts.items() if name not in ("done", "total")}
        self.on_progress(int(facts.get("done", 0)), int(facts.get("total", 0)), rest)

    def engine(self, model: ModelFolder, config: EngineConfig) -> Engine:
        """The running engine for a model: the one of the stage before if it is the same, else a new one.

        The engine's own seed is always 0: each request brings the seed that its samples are drawn with.
        """
        settings = EngineSettings(config.kind, model.path, config.dtype, options=config.options)
        return self.engines.acquire(settings)
