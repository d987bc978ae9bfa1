"""What every training program does first: no network, a device, threads; and how it says that it failed.

Imported by programs that run as children; torch is still imported inside the functions, so that the
environment is set before any library reads it.
"""

import contextlib
import json
import math
import os
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from reasoner.errors import InfrastructureError, ModelError, ReasonerError, UsageError
from reasoner.training.checkpoints import write_json
from reasoner.training.specs import MergeSpec, SftSpec
from reasoner.trouble import machine_trouble

S = TypeVar("S", SftSpec, MergeSpec)

ERROR_FILE = "error.json"
METRICS_FILE = "metrics.json"

QUIET = {
    # A training needs nothing from the Hub: the base is a folder. TRL sends a ping when a trainer is made.
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def prepare_process(threads: int | None, tracked: bool = False) -> None:
    """Set the environment before transformers is imported, then torch's thread count."""
    os.environ.update(QUIET)
    # TRL would set ERROR, and an engine begun after it would log nothing.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "INFO")
    if not tracked:
        os.environ["WANDB_MODE"] = "disabled"
    import torch

    if threads is not None:
        torch.set_num_threads(threads)


def pick_device(device: str) -> str:
    """`cpu` or `cuda`. Raises `InfrastructureError` when cuda is asked for and is not there."""
    import torch

    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise InfrastructureError("No CUDA device is visible; use device `cpu` or `auto`")
    return "cuda" if available and device != "cpu" else "cpu"


def load_on_several_cpus() -> None:
    """Let torch.load read a checkpoint onto `cpu:0`, as the Trainer of several CPU processes calls its device.

    torch 2.13 knows only `cpu` there, so that no such training could go on from a checkpoint.
    """
    import torch

    torch.serialization.register_package(
        5, lambda storage: None, lambda storage, place: storage if place.startswith("cpu:") else None
    )


def require_devices(device: str, processes: int) -> None:
    """Raises `InfrastructureError` when this machine has fewer devices than training processes are asked for."""
    import torch

    if device == "cuda" and torch.cuda.device_count() < processes:
        raise InfrastructureError(
            f"{processes} training processes need a CUDA device each, and {torch.cuda.device_count()} are visible; "
            "lower compute.processes"
        )


def on_one_card(config: Any) -> Any:
    """The configuration of a Trainer whose process trains on one card, however many it sees.

    Else a Trainer alone among several cards copies the model onto all of them (`nn.DataParallel`), with a micro-batch
    on each.
    """
    if config.n_gpu > 1:
        config._n_gpu = 1  # as transformers itself does for a model that is not to be copied
    return config


def device_name(device: str) -> str:
    """The accelerator's name and memory, such as `NVIDIA H100 80GB HBM3, 79 GiB`; `cpu` for the CPU."""
    if device != "cuda":
        return device
    import torch

    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    return f"{facts.name}, {round(facts.total_memory / 2**30)} GiB"


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model or adapter folder. Raises `ModelError`."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise ModelError(f"No usable tokenizer in {folder}: {first_line(error)}") from error


def load_model(folder: Path, dtype: str, attention: str | None = None, nf4_on: str | None = None) -> Any:
    """The causal language model in a folder, safetensors only, on the CPU. Raises `ModelError`.

    `attention` is transformers' name of an attention function; unset leaves its choice. `nf4_on` names a device on
    which the model is held in 4-bit NF4 with double quantisation, computing in `dtype`.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} is not a model folder: config.json is missing")
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, dtype),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            attn_implementation=attention,
            **(_nf4(dtype, nf4_on) if nf4_on else {}),
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ModelError(f"The model in {folder} cannot be loaded: {first_line(error)}") from error
    if nf4_on:
        _keep_layout(model)
    return model


def _keep_layout(model: Any) -> None:
    """Keep bitsandbytes from laying the weights out anew when a processor with AVX512-BF16 first infers with them: it
    rounds their scales, so that training sees another base, and fails for widths that 64 does not divide (0.50).
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def _nf4(dtype: str, device: str) -> dict[str, Any]:
    import torch
    from transformers import BitsAndBytesConfig

    quantised = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
    )
    place = torch.cuda.current_device() if device == "cuda" else device
    return {"quantization_config": quantised, "device_map": {"": place}}


def count_weights(folder: Path) -> int:
    """Number of weights in a folder's safetensors files, read from their headers. Raises `ModelError`."""
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            total += sum(math.prod(t["shape"]) for name, t in header.items() if name != "__metadata__")
        except (OSError, ValueError, KeyError, TypeError, MemoryError) as error:
            raise ModelError(f"{path} is not a safetensors file: {first_line(error)}") from error
    return total


def stop_ids(folder: Path, tokenizer: Any) -> set[int]:
    """The token ids at which a generation of this model stops: of its generation config and its tokenizer."""
    from transformers import AutoConfig, GenerationConfig

    found: set[int] = set()
    sources: list[Callable[[], Any]] = [
        lambda: GenerationConfig.from_pretrained(folder, local_files_only=True),
        lambda: AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False),
    ]
    for source in sources:
        try:
            ids = source().eos_token_id
        except (OSError, AttributeError):
            continue
        found.update([ids] if isinstance(ids, int) else ids or [])
    if tokenizer.eos_token_id is not None:
        found.add(tokenizer.eos_token_id)
    return found


def say(line: str) -> None:
    """One line of the log."""
    print(line, flush=True)


def first_line(error: BaseException) -> str:
    """The first line of an error, for messages."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def free_memory(device: str) -> int | None:
    """Bytes free on the accelerator; None for the CPU."""
    if device != "cuda":
        return None
    import torch

    return torch.cuda.mem_get_info()[0]


def peak_memory(device: str) -> dict[str, float]:
    """Peak memory in GiB: of this process, and on the accelerator."""
    import torch

    peak = {"host_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)}
    if device == "cuda":
        peak["device_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 3)
    return peak


def run_main(arguments: list[str], kind: type[S], program: Callable[[S], None]) -> int:
    """The `main` of a training program: read the spec, prepare the process, run; returns the exit status."""
    try:
        if len(arguments) != 1:
            raise UsageError("give one argument, the spec: python -m reasoner.training.NAME SPEC.json")
        spec = kind.load(Path(arguments[0]))
    except UsageError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    prepare_process(spec.threads, tracked=getattr(spec, "tracking", None) is not None)
    return run_program(spec.work, lambda: program(spec))


def run_program(work: Path, program: Callable[[], None]) -> int:
    """Run `program`; a `ReasonerError`, or what the machine refused, becomes work/error.json, one line and its exit
    status."""
    error_file = work / ERROR_FILE
    error_file.unlink(missing_ok=True)
    try:
        program()
    except ReasonerError as error:
        return _explain(error_file, error, error.__cause__)
    except Exception as error:
        found = machine_trouble(error, work)
        if found is None:
            raise
        return _explain(error_file, found, error)
    return 0


def _explain(error_file: Path, error: ReasonerError, cause: BaseException | None) -> int:
    if cause is not None:
        traceback.print_exception(cause)
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    # On a full disk there is no file either; the parent then looks at the disk itself.
    with contextlib.suppress(OSError):
        error_file.parent.mkdir(parents=True, exist_ok=True)
        write_json(error_file, {"error": type(error).__name__, "message": str(error)})
    return error.exit_code
