"""Opens a sampler: on an engine of this machine, or on a server."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from reasoner.config.training import ServerConfig
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.start import open_engine
from reasoner.errors import ConfigurationError
from reasoner.onpolicy.adapters import AdapterFolder
from reasoner.onpolicy.parts import Parts
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.onpolicy.served import ServedEngine, ServedSettings

NO_LIMIT = 1 << 30
"""The engine checks a prompt against its own context length."""


def base_tokenizer(model_path: Path) -> Any:
    """The tokenizer in a model's folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(model_path), trust_remote_code=False)


def policy_settings(settings: EngineSettings, policies: int, share_card: bool) -> EngineSettings:
    """The settings with adapters on: `policies` in one batch, and sleep mode where the card is shared."""
    extra: dict[str, Any] = {}
    if settings.kind == "vllm":
        extra = {"max_loras": policies, **({"enable_sleep_mode": True} if share_card else {})}
    return replace(settings, adapters=True, options={**extra, **settings.options})


def open_sampler(
    settings: EngineSettings,
    *,
    log: Path,
    policies: int = 1,
    share_card: bool = False,
    in_process: bool = False,
    parts: Parts | None = None,
    folder: AdapterFolder | None = None,
    say: Callable[[str], None] = print,
) -> OnPolicySampler:
    """A sampler on a vLLM or transformers engine of its own, whose output goes to `log`.

    `policies` is how many adapters one batch may mix. `share_card` lets the engine sleep while the optimiser
    works (`sampler.rest()`; vLLM's sleep mode; on the CPU sleeping does nothing). Raises as `open_engine`.
    """
    wanted = policy_settings(settings, policies, share_card)
    return OnPolicySampler(
        lambda: open_engine(wanted, log=log, in_process=in_process),
        base_tokenizer(settings.model_path),
        NO_LIMIT,
        folder=folder,
        parts=parts,
        share_card=share_card,
        log=say,
    )


def open_server(server: ServerConfig, settings: EngineSettings) -> ServedEngine:
    """The server that `server` names, as the engine that `settings` describe; a server that is silent is waited for.

    Its base must be the trainer's: log-probabilities are compared at the first step. Raises EngineError where none
    answers or it serves another model, ConfigurationError for settings of an engine that has no server.
    """
    if settings.kind != "vllm":
        raise ConfigurationError(
            f"compute.server is a server of vLLM's, and engine.kind={settings.kind}; set engine=vllm"
        )
    return ServedEngine(
        ServedSettings(
            server.url.rstrip("/"), server.model, settings.model_path, max_lora_rank=settings.max_lora_rank,
            max_model_len=int(settings.options.get("max_model_len") or NO_LIMIT),
        )
    )  # fmt: skip


def adapters_for(server: ServerConfig) -> AdapterFolder | None:
    """Where adapters are written for a server to read: the folder that both see, or None for this machine's memory.

    Raises ConfigurationError where that folder can't be written.
    """
    if not server.adapters:
        return None
    folder = Path(server.adapters).expanduser().absolute()
    if not os.access(folder, os.W_OK):
        raise ConfigurationError(
            f"compute.server.adapters={folder} is no folder that can be written; make it first"
        )
    return AdapterFolder(folder)
