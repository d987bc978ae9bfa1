"""The model that is evaluated: a folder or Hub id, an adapter with its base, or a served endpoint."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reasoner.config.evaluate import EvaluateConfig
from reasoner.config.smart import ModelConfig
from reasoner.engines.protocol import Engine, EngineSettings
from reasoner.evaluation.served import ServedEngine
from reasoner.home import Home
from reasoner.ids import content_hash
from reasoner.models import fingerprint, resolve
from reasoner.serving.own_base import base_of
from reasoner.stages.generation import served_fingerprint
from reasoner.workbench import ModelFolder, Workbench, engine_settings

ADAPTER = "evaluated"
"""The adapter's name in the engine."""


@dataclass(frozen=True, slots=True)
class Target:
    """`folder` renders prompts and is None for a server; `fingerprint` is the ledger's name of who answers."""

    name: str
    fingerprint: str
    folder: Path | None
    adapter: str
    start: Callable[[], Engine]
    settings: EngineSettings | None = None
    """What `start` starts; None for a server."""
    adapters: Mapping[str, Path] = field(default_factory=dict)


def find_target(config: EvaluateConfig, bench: Workbench) -> Target:
    """Raises ModelError for a model or adapter that cannot be used, EngineError where no server answers."""
    if config.is_served:
        return _served(config)
    folder = Path(config.model.path).expanduser()
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        return _adapter(folder.resolve(), config, bench)
    found = resolve(config.model, bench.home.path, weights=config.engine.kind != "scripted")
    model = ModelFolder(found.folder, found.fingerprint, config.model.path)
    made_by = served_fingerprint(model, config.engine)
    settings = engine_settings(model, config.engine)
    return Target(model.name, made_by, model.path, "", lambda: bench.engine(model, config.engine), settings)


def _adapter(folder: Path, config: EvaluateConfig, bench: Workbench) -> Target:
    home: Home = bench.home
    base = base_of(folder, config.base_model, home)
    found = resolve(ModelConfig(path=str(base.folder)), home.path)
    model = ModelFolder(found.folder, found.fingerprint, base.name)
    rank = int(json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))["r"])
    made_by = content_hash([served_fingerprint(model, config.engine), fingerprint(folder, home.path)])

    def start() -> Engine:
        return bench.engine(model, config.engine, adapters={ADAPTER: folder}, max_lora_rank=rank)

    settings = engine_settings(model, config.engine, True, rank)
    name = f"{config.model.path} on {base.name}"
    return Target(name, made_by, model.path, ADAPTER, start, settings, {ADAPTER: folder})


def _served(config: EvaluateConfig) -> Target:
    """The weights behind a name can't be seen: model.revision tells one state of a server from another."""
    engine = ServedEngine(config.model.path, config.served_model, chat=config.as_chat)
    made_by = content_hash(["served", engine.base_url, engine.model, config.model.revision, config.as_chat])
    return Target(f"{engine.model} at {engine.base_url}", made_by, None, "", lambda: engine)
