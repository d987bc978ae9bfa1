"""How vLLM is started: environment and arguments from EngineSettings. Keeps to what vLLM 0.24 and 0.31 share.

The CPU values are measured (2 cores, SmolLM2-135M): one process, eager, blocks of 32 tokens (378 against 178
tokens/s on 6-shot prompts with the default of 128, which wastes the prefix cache).
"""

import importlib.metadata
import os
from collections.abc import Iterable
from typing import Any

from reasoner.engines.options import check_options
from reasoner.engines.protocol import EngineSettings
from reasoner.errors import ConfigurationError, EngineError
from reasoner.hardware import served_dtype

CPU_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""Without TORCHDYNAMO_DISABLE the first log-probabilities take 10 s more. vLLM's own binding reserves a core for a
scheduler process that we don't start, and pins the work to the others: on two cores, to one, which it then shares
with whatever else runs there."""
CUDA_ENVIRONMENT = {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
"""The kernels' package is optional; a user who has it sets this to 1."""
CPU_DEFAULTS = {"distributed_executor_backend": "uni", "enforce_eager": True, "block_size": 32}
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values of `max_lora_rank` that vLLM takes."""
CPU_ADAPTERS = 8
"""Adapters kept in main memory, so that switching between a few reads no files."""
LOADERS = ("safetensors", "fastsafetensors", "runai_streamer", "dummy")
"""Weight loaders that unpickle nothing."""
FIXED = {
    "model", "tokenizer", "dtype", "seed", "trust_remote_code", "enable_lora", "max_lora_rank", "runner",
    "worker_extension_cls", "served_model_name", "disable_log_stats",
}  # fmt: skip
"""Arguments that EngineSettings or this project decide."""


def is_cpu_build() -> bool:
    """Whether the installed vLLM is a CPU build. Imports nothing, since the environment must be set first."""
    for name in ("vllm-cpu", "vllm"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return name == "vllm-cpu" or "+cpu" in version
    raise EngineError(
        "vllm is not installed; install locks/cpu.lock or locks/cuda.lock, or set engine.kind=transformers"
    )


def set_environment(cpu: bool) -> None:
    """Set vLLM's variables that the user has not set. Call it before vllm and torch are imported."""
    shared = {"VLLM_NO_USAGE_STATS": "1", "TOKENIZERS_PARALLELISM": "true"}
    threads = (
        {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))} if cpu else {}
    )  # unset, vLLM serves with one
    for name, value in {**shared, **threads, **(CPU_ENVIRONMENT if cpu else CUDA_ENVIRONMENT)}.items():
        os.environ.setdefault(name, value)


def vllm_arguments(settings: EngineSettings, cpu: bool, known: Iterable[str]) -> dict[str, Any]:
    """The arguments of `vllm.LLM`; `known` are the names that the installed version takes.

    Raises ConfigurationError for an unknown or fixed option, a loader that may unpickle, or too high a rank.
    """
    for name in settings.options:
        if name in FIXED:
            raise ConfigurationError(
                f"engine.options.{name} is not an option; it follows from the model and the run"
            )
    options = check_options("vllm", settings.options, set(known) - FIXED)
    if int(options.get("data_parallel_size", 1)) > 1:
        raise ConfigurationError(
            "engine.options.data_parallel_size: vLLM's offline engine has one copy a process; set "
            f"compute.engines={options['data_parallel_size']}, an engine a card with the work shared among them"
        )
    if options.get("load_format", "safetensors") not in LOADERS:
        raise ConfigurationError(f"engine.options.load_format must be one of {', '.join(LOADERS)}")
    if cpu:
        options.pop("enable_sleep_mode", None)  # refused there, and there is no card to free
    arguments: dict[str, Any] = {
        "model": str(settings.model_path),
        "dtype": served_dtype(settings.dtype, cpu),
        "seed": settings.seed,
        "trust_remote_code": False,
        "load_format": "safetensors",
        "enable_prefix_caching": True,
        # The log-probability under the distribution that the token was drawn from, temperature included.
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": "reasoner.engines.vllm_worker.WorkerExtension",
        "disable_log_stats": True,
        **(CPU_DEFAULTS if cpu else {}),
        **options,
    }
    if settings.adapters:
        arguments |= _lora_arguments(settings.max_lora_rank, options)
    return arguments


def _lora_arguments(rank: int, options: dict[str, Any]) -> dict[str, Any]:
    served = next((r for r in RANKS if r >= rank), None)
    if served is None:
        raise ConfigurationError(f"max_lora_rank={rank}: vLLM serves ranks up to {RANKS[-1]}")
    in_memory = max(CPU_ADAPTERS, int(options.get("max_loras", 1)))
    return {
        "enable_lora": True,
        "max_lora_rank": served,
        "max_cpu_loras": options.get("max_cpu_loras", in_memory),
    }
