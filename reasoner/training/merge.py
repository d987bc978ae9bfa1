"""Merge an adapter into its base, as a program: `python -m reasoner.training.merge SPEC.json`.

Covers: `merge_and_unload` in float32, weights rounded once to the wanted type, safetensors with the
tokenizer of the adapter's folder, the parity check of `parity.py` before the result counts. An adapter of
another base, and one that changes nothing, are refused. One copy of the model is in memory at a time
(float32: 4 bytes a weight).

Not covered: adapters other than LoRA, quantised bases, upload.
"""

import contextlib
import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, cast

from reasoner.errors import ModelError, TrainingError, UsageError
from reasoner.ids import file_hash
from reasoner.training import adapter, checkpoints, parity, runtime
from reasoner.training.specs import MergeSpec

RECORD = "merge.json"


def merging_device(spec: MergeSpec, log: Callable[[str], None]) -> str:
    """The device to merge on: the CPU, where the float32 model would not fit on a card that was not asked for."""
    device = runtime.pick_device(spec.device)
    needed, free = 4 * runtime.count_weights(spec.base) * 1.1, runtime.free_memory(device)
    if spec.device == "auto" and free is not None and needed > free:
        log(
            f"the card has {free / 2**30:.1f} GiB free, the merge needs {needed / 2**30:.1f}: merging on the CPU"
        )
        return "cpu"
    return device


def with_adapter(spec: MergeSpec, device: str) -> Any:
    """Base and adapter, not merged, in float32. Raises `ModelError` if the adapter's tensors do not fit."""
    from peft import PeftModel
    from peft.utils import get_peft_model_state_dict
    from safetensors import safe_open

    base = runtime.load_model(spec.base, "float32").to(device)
    try:
        model = PeftModel.from_pretrained(base, spec.adapter, torch_device=device, local_files_only=True)
    except (RuntimeError, ValueError, KeyError) as error:
        raise ModelError(
            f"The adapter {spec.adapter} does not fit {spec.base_name}: {runtime.first_line(error)}"
        ) from error
    with safe_open(spec.adapter / adapter.WEIGHTS, framework="pt") as weights:
        given = set(weights.keys())
    expected = set(get_peft_model_state_dict(model, save_embedding_layers=False))
    if given != expected:
        raise ModelError(
            f"The adapter {spec.adapter} does not fit {spec.base_name}: {len(given - expected)} of its "
            f"tensors have no place there and {len(expected - given)} are missing"
        )
    return model.eval()


def largest_change(model: Any, dtype: str) -> float:
    """The largest change of a weight, after rounding to `dtype`: max |round(W + BA) - round(W)|."""
    import torch
    from peft.tuners.lora import LoraLayer

    kind = getattr(torch, dtype)
    largest = 0.0
    layers = [layer for layer in model.modules() if isinstance(layer, LoraLayer)]
    with torch.no_grad():
        for layer in layers:
            weight = layer.get_base_layer().weight
            for name in layer.active_adapters:
                if name in layer.lora_A:
                    merged = weight + cast(Any, layer).get_delta_weight(name)
                    change = merged.to(kind).float() - weight.to(kind).float()
                    largest = max(largest, float(change.abs().max()))
    return largest


def require_change(change: float, reference: Sequence[Any], base: Sequence[Any], spec: MergeSpec) -> float:
    """How far the adapter moves the logits. Raises `TrainingError` if the merge is the base again."""
    moved = parity.compare(base, reference).max_difference
    if change == 0.0 or moved == 0.0:
        raise TrainingError(
            f"Merged equals the base: the adapter {spec.adapter} changes a weight by at most {change:g} in "
            f"{spec.dtype} and a logit by at most {moved:g}. Was it trained?"
        )
    return moved


def merge(spec: MergeSpec, log: Callable[[str], None]) -> None:
    """Merge, check, write. On a failure nothing stays in `spec.output`. Raises `ReasonerError`s."""
    started = time.monotonic()
    if len(spec.prompts) < parity.MIN_PROMPTS:
        raise UsageError(
            f"The parity check needs {parity.MIN_PROMPTS} prompts; {len(spec.prompts)} are given"
        )
    adapter.check_base(spec.adapter, spec.base_name, spec.base_fingerprint)
    device = merging_device(spec, log)
    tokenizer = runtime.load_tokenizer(spec.adapter)
    adapter.require_empty(spec.output)
    try:
        metrics = _merge(spec, device, tokenizer, log)
    except BaseException:
        for path in spec.output.iterdir():  # nobody may take an unproven model for a good one
            path.unlink()
        raise
    metrics["seconds"] = round(time.monotonic() - started, 3)
    spec.work.mkdir(parents=True, exist_ok=True)
    checkpoints.write_json(spec.work / runtime.METRICS_FILE, metrics | runtime.peak_memory(device))


def _merge(spec: MergeSpec, device: str, tokenizer: Any, log: Callable[[str], None]) -> dict[str, Any]:
    import torch

    model = with_adapter(spec, device)
    ends = runtime.stop_ids(spec.base, tokenizer)
    prompts = [tokenizer.encode(p, add_special_tokens=spec.add_special_tokens) for p in spec.prompts]
    sequences = parity.greedy_sequences(model, prompts, spec.max_tokens, ends)
    reference = parity.choosing_logits(model, sequences)
    with model.disable_adapter():
        base = parity.choosing_logits(model, sequences)
    change = largest_change(model, spec.dtype)
    moved = require_change(change, reference, base, spec)
    log(f"the adapter changes a weight by up to {change:.3g} and a logit by up to {moved:.3g}")

    model = merged_weights(model, spec)
    exact = parity.compare(reference, parity.choosing_logits(model, sequences))
    log(f"merged against base + adapter in float32: logits differ by at most {exact.max_difference:.3g}")
    if exact.max_difference >= spec.max_logit_difference:
        raise TrainingError(
            f"The merge is wrong: merged and base + adapter differ by {exact.max_difference:.3g} in a logit "
            f"(limit {spec.max_logit_difference:g}, float32, {exact.positions} positions)"
        )
    save(model.to(getattr(torch, spec.dtype)), tokenizer, spec)
    del model
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()

    saved = runtime.load_model(spec.output, spec.dtype).to(device).float().eval()
    rounded = parity.compare(reference, parity.choosing_logits(saved, sequences))
    log(
        f"saved as {spec.dtype}: {rounded.same_token:.1%} of {rounded.positions} greedy tokens are the same, "
        f"logits differ by at most {rounded.max_difference:.3g}"
    )
    if rounded.same_token < spec.min_greedy_agreement:
        raise TrainingError(
            f"The merged model chooses the same token as base + adapter at only {rounded.same_token:.1%} of "
            f"{rounded.positions} positions (limit {spec.min_greedy_agreement:.0%}); serve it unmerged"
        )
    return {
        "prompts": len(prompts),
        "positions": exact.positions,
        "largest_weight_change": change,
        "adapter_moves_logits_by": moved,
        "merged_float32": asdict(exact),
        "saved": {"dtype": spec.dtype, **asdict(rounded)},
    }


def merged_weights(model: Any, spec: MergeSpec) -> Any:
    """The base with the adapter merged into its weights, in place. Raises `TrainingError` for NaN weights."""
    try:
        return model.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise TrainingError(
            f"The adapter {spec.adapter} cannot be merged: {runtime.first_line(error)}"
        ) from error


def save(model: Any, tokenizer: Any, spec: MergeSpec) -> None:
    """Write weights, configuration, tokenizer and merge.json; equal bytes for equal inputs."""
    model.save_pretrained(spec.output)
    tokenizer.save_pretrained(spec.output)
    record: dict[str, Any] = {
        "schema": 1,
        "base": {"name": spec.base_name, "fingerprint": spec.base_fingerprint},
        "adapter_weights": file_hash(spec.adapter / adapter.WEIGHTS),
        "dtype": spec.dtype,
    }
    with contextlib.suppress(OSError, ValueError):
        record["training"] = json.loads((spec.adapter / adapter.TRAINING).read_text(encoding="utf-8"))
    checkpoints.write_json(spec.output / RECORD, record)


def main(arguments: list[str]) -> int:
    """Exit status 0 when the merged model is written and passed its check."""
    return runtime.run_main(arguments, MergeSpec, lambda spec: merge(spec, runtime.say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
