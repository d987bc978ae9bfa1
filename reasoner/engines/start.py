"""Starts an engine: in this process, or in one of its own."""

from pathlib import Path

from reasoner.engines.protocol import EngineSettings, PolicyEngine
from reasoner.errors import ConfigurationError, ModelError

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
    settings: EngineSettings, *, log: Path, in_process: bool = False, idle_seconds: float | None = None
) -> PolicyEngine:
    """A running engine; `close` it when done.

    A scripted engine runs in this process; others in a process of their own whose output is appended to
    `log`, unless `in_process` is set. After `idle_seconds` without use that process ends, and starts again
    when needed. Raises ConfigurationError for bad settings and EngineError, with the cause and the log,
    when it can't start.
    """
    if in_process or settings.kind not in MODEL_KINDS:
        return build_engine(settings)
    from reasoner.engines.remote import RemoteEngine

    return RemoteEngine(settings, log=log, idle_seconds=idle_seconds)
