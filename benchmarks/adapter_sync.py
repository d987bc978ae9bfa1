"""What sending an adapter to the engine takes, by part: read off the trainer, write, read and activate in vLLM.

    python benchmarks/adapter_sync.py MODEL_FOLDER [--rank 16] [--repeats 10] [--profile] [--out F]
        [--options '{"gpu_memory_utilization": 0.3}'] [--rested]

The trainer's model and the engine stand in one process, so that `--profile` can name the functions in which vLLM spends
the time of one more send. Every repeat sends new weights under the same name, as a training does, and has a token
generated with them. The first send, which fills caches, is reported apart. In turn with ours, PEFT's own way of reading
the adapter off the trainer is timed, a copy a tensor (`by_peft`, and the ratio). With `--rested` the engine sleeps and
wakes before every send, outside its time, as where trainer and engine take turns on a card.

Covers one adapter on one card. Does not cover the wire to an engine in a process of its own, which carries a path only.
"""

import argparse
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from paced import functions_of, machine, median_interval, settings_of, write  # noqa: E402

from reasoner.config.training import LoraConfig  # noqa: E402
from reasoner.engines.protocol import EngineSettings, PolicyEngine  # noqa: E402
from reasoner.engines.start import build_engine  # noqa: E402
from reasoner.onpolicy.adapters import AdapterFolder, adapter_tensors  # noqa: E402
from reasoner.records import GenerationRequest, Sampling  # noqa: E402
from reasoner.training import runtime  # noqa: E402
from reasoner.training.trainer import present_modules  # noqa: E402

NAME = "policy"
PARTS = ("by_peft", "off_the_trainer", "written", "in_the_engine", "first_token")


def main(arguments: list[str]) -> int:
    given = arguments_of(arguments)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import torch

    cuda = torch.cuda.is_available()
    dtype = "bfloat16" if cuda else "float32"
    options = json.loads(given.options)
    options |= {"enable_sleep_mode": True} if given.rested else {}
    settings = EngineSettings(
        "vllm", given.model, dtype, adapters=True, max_lora_rank=given.rank, options=options
    )
    engine = build_engine(settings)
    model = trainer_model(given.model, dtype, given.rank, "cuda" if cuda else "cpu")
    with AdapterFolder() as folder:
        sends = [send(engine, model, folder, given.rested) for _ in range(given.repeats + 1)]
        path = folder.write(NAME, model)
        if given.rested:
            rest(engine)
        profile = functions_of(lambda: engine.load_adapter(NAME, path)) if given.profile else None
    sent = adapter_tensors(model, "default", "bfloat16").values()
    result: dict[str, Any] = {
        "settings": settings_of(given), **machine(),
        "megabytes": round(sum(t.numel() * t.element_size() for t in sent) / 1e6, 1), "tensors": len(sent),
        "first_send": sends[0],
        **{part: median_interval([s[part] for s in sends[1:]]) for part in (*PARTS, "sync")},
        "peft_over_ours": median_interval([s["by_peft"] / s["off_the_trainer"] for s in sends[1:]]), "profile": profile,
    }  # fmt: skip
    engine.close()
    write(result, given.out)
    return 0


def trainer_model(folder: Path, dtype: str, rank: int, device: str) -> Any:
    from peft import LoraConfig as Peft
    from peft import get_peft_model

    base = runtime.load_model(folder, dtype)
    modules = present_modules(base, LoraConfig().modules)
    return get_peft_model(base, Peft(r=rank, lora_alpha=2 * rank, target_modules=modules)).to(device)


def rest(engine: PolicyEngine) -> None:
    """Give the card back and take it again."""
    engine.sleep()
    engine.wake()


def send(engine: PolicyEngine, model: Any, folder: AdapterFolder, rested: bool) -> dict[str, float]:
    """Seconds of each part of one send of changed weights."""
    import torch

    if rested:
        rest(engine)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.02)
    marks = [_now()]
    tensors_by_peft(model)
    marks.append(_now())
    adapter_tensors(model, "default", "bfloat16")
    marks.append(_now())
    path = folder.write(NAME, model)
    marks.append(_now())
    engine.load_adapter(NAME, path)
    marks.append(_now())
    list(engine.generate([GenerationRequest("1", "2 + 2 =", Sampling(0.0, max_tokens=1), adapter=NAME)]))
    marks.append(_now())
    folder.remove(path)
    peft, off, both, loaded, token = (b - a for a, b in itertools.pairwise(marks))
    parts = (peft, off, both - off, loaded, token)
    return {**dict(zip(PARTS, parts, strict=True)), "sync": both + loaded}


def tensors_by_peft(model: Any) -> dict[str, Any]:
    """What `adapter_tensors` gives, by PEFT's own function."""
    import torch
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(model, save_embedding_layers=False)
    return {name: tensor.detach().to(torch.bfloat16).cpu().contiguous() for name, tensor in state.items()}


def _now() -> float:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def arguments_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--options", default="{}", help="options of the engine as JSON")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--rested", action="store_true", help="a sleep before every send")
    parser.add_argument("--out", type=Path)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
