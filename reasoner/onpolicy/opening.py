"""Opens a sampler: on an engine of this machine, or on a server."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from reasoner.engines.protocol import EngineSettings
from reasoner.engines.start import open_engine
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


def open_served_sampler(
    settings: ServedSettings,
    *,
    parts: Parts | None = None,
    folder: AdapterFolder | None = None,
    say: Callable[[str], None] = print,
) -> OnPolicySampler:
    """A sampler on a running OpenAI server of vLLM's, which must see the folder of adapters.

    A server that went away is waited for (`settings.wait_seconds`) and given its adapters again.
    """
    return OnPolicySampler(
        lambda: ServedEngine(settings),
        base_tokenizer(settings.model_path),
        NO_LIMIT,
        folder=folder,
        parts=parts,
        log=say,
    )
