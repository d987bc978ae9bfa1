"""Starts an engine: in this process, or in one of its own; or several that work as one."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from reasoner.engines.protocol import EngineSettings, PolicyEngine
from reasoner.errors import ConfigurationError, ModelError
from reasoner.hardware import device_sets

MODEL_KINDS = ("vllm", "transformers")
KINDS = (*MODEL_KINDS, "scripted")


def build_engine(settings: EngineSettings) -> PolicyEngine:
    """The engine in this process.

    Raises ConfigurationError for an unknown kind or option and ModelError when `model_path` is no model's
    folder.
    """
    if settings.kind == "scripted":
        from reasoner.engines.scripted import ScriptedEngine

        return ScriptedEngine(settings)
    if settings.kind in MODEL_KINDS and not (Path(settings.model_path) / "config.json").is_file():
        # Without this check a wrong path is taken for a name on the Hub, and asked for during a minute.
        raise ModelError(f"no model in {settings.model_path}: a folder with config.json is needed")
    if settings.kind == "vllm":
        from reasoner.engines.vllm_engine import VllmEngine

        return VllmEngine(settings)
    if settings.kind == "transformers":
        from reasoner.engines.transformers_engine import TransformersEngine

        return TransformersEngine(settings)
    raise ConfigurationError(f"engine.kind must be one of {', '.join(KINDS)}, not {settings.kind!r}")


def open_engine(
    settings: EngineSettings, *, log: Path, in_process: bool = False, idle_seconds: float | None = None,
    engines: int = 1,
) -> PolicyEngine:  # fmt: skip
    """A running engine; `close` it when done.

    A scripted engine runs in this process; others in a process of their own whose output is appended to
    `log`, unless `in_process` is set. After `idle_seconds` without use that process ends, and starts again
    when needed. `engines` above 1 opens so many and lets them share each generation, each with cards of its own
    and a log of its own (engine-0.log, engine-1.log). Raises ConfigurationError for bad settings, EngineError, with
    the cause and the log, when it can't start, and InfrastructureError when there are too few cards.
    """
    if engines > 1:
        from reasoner.engines.several import SeveralEngines

        sets = engine_devices(settings.options, engines)
        return SeveralEngines([
            partial(_open, settings, log.with_stem(f"{log.stem}-{i}"), in_process, idle_seconds, devices)
            for i, devices in enumerate(sets)
        ])  # fmt: skip
    return _open(settings, log, in_process, idle_seconds, None)


def engine_devices(options: Mapping[str, Any], engines: int) -> list[str | None]:
    """The cards of each of several engines with these options; see `hardware.device_sets`."""
    return device_sets(engines, int(options.get("tensor_parallel_size", 1)))


def _open(
    settings: EngineSettings, log: Path, in_process: bool, idle_seconds: float | None, devices: str | None
) -> PolicyEngine:
    if in_process or settings.kind not in MODEL_KINDS:
        return build_engine(settings)
    from reasoner.engines.remote import RemoteEngine

    return RemoteEngine(settings, log=log, idle_seconds=idle_seconds, devices=devices)
