"""Opens a sampler: on an engine of this machine, or on a server."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reasoner.engines.prompts import encode_prompts
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.start import MODEL_KINDS, open_engine
from reasoner.onpolicy.sampler import Encode, Sampler
from reasoner.onpolicy.served import ServedEngine, ServedSettings
from reasoner.onpolicy.storage import AdapterStorage
from reasoner.onpolicy.timers import Timers
from reasoner.records import GenerationRequest

NO_LIMIT = 1 << 30
"""The engine checks a prompt against its own context length."""


def tokenizer_encode(model_path: Path) -> Encode:
    """Encodes prompts with the tokenizer in a model's folder."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(model_path), trust_remote_code=False)

    def encode(requests: Sequence[GenerationRequest]) -> Sequence[Sequence[int]]:
        return encode_prompts(tokenizer, requests, NO_LIMIT)

    return encode


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
    timers: Timers | None = None,
    storage: AdapterStorage | None = None,
    restarts: int = 2,
    say: Callable[[str], None] = print,
) -> Sampler:
    """A sampler on an engine of its own, whose output goes to `log`.

    `policies` is how many adapters one batch may mix. `share_card` lets the engine sleep while the optimiser
    works (vLLM's sleep mode; on the CPU sleeping does nothing). Raises as `open_engine`.
    """
    wanted = policy_settings(settings, policies, share_card)
    encode = tokenizer_encode(settings.model_path) if settings.kind in MODEL_KINDS else None
    return Sampler(
        lambda: open_engine(wanted, log=log, in_process=in_process),
        encode,
        storage=storage,
        timers=timers,
        restarts=restarts,
        log=say,
    )


def open_served_sampler(
    settings: ServedSettings,
    *,
    timers: Timers | None = None,
    storage: AdapterStorage | None = None,
    restarts: int = 2,
    say: Callable[[str], None] = print,
) -> Sampler:
    """A sampler on a running OpenAI server of vLLM's, which must see the storage's folder.

    A server that went away is waited for (`settings.wait_seconds`) and given its adapters again.
    """
    return Sampler(
        lambda: ServedEngine(settings),
        tokenizer_encode(settings.model_path),
        storage=storage,
        timers=timers,
        restarts=restarts,
        log=say,
    )
