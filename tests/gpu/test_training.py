"""Training on an accelerator: a bfloat16 base with float32 adapters learns, and a full device is healed.

Wrong if the adapter is not float32, if the loss does not fall as on the CPU, if a real out-of-memory error of the
device ends the run instead of halving the micro-batch, or if packed records see one another.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from reasoner.training import adapter, packing, sft
from tests.unit.training import tiny

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
]


def run(
    base: Path, room: Path, count: int = 64, uneven: bool = False, **fields: Any
) -> tuple[dict[str, Any], list[float]]:
    """A training on the device: its record and the loss of each step."""
    losses: list[float] = []
    spec = tiny.make_spec(base, room, tiny.make_examples(count, uneven=uneven), device="cuda", **fields)
    sft.train(spec, lambda **report: losses.append(report["loss"]), lambda line: None)
    return json.loads((spec.output / adapter.TRAINING).read_text()), losses


def test_a_bfloat16_base_learns_as_on_the_cpu(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    base = tiny.make_model(tmp_path / "base")
    settings: dict[str, Any] = {"epochs": 10, "lr": 2e-2, "batch_size": 8}
    _, half = run(base, tmp_path / "bf16", precision="bf16", **settings)
    _, full = run(base, tmp_path / "fp32", precision="fp32", **settings)
    assert full[-1] < 0.7 * full[0]
    assert half[-1] == pytest.approx(full[-1], rel=0.1)
    weights = load_file(tmp_path / "bf16" / "adapter" / adapter.WEIGHTS)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


def test_a_full_device_halves_the_micro_batch(tmp_path: Path) -> None:
    """The device's memory is limited to less than a whole batch was seen to need."""
    base = tiny.make_model(tmp_path / "base", layers=24)
    settings: dict[str, Any] = {"batch_size": 64, "grad_accum": 1, "epochs": 2}
    torch.cuda.reset_peak_memory_stats()
    plain, losses = run(base, tmp_path / "plain", **settings)
    needed = torch.cuda.max_memory_reserved()
    torch.cuda.empty_cache()
    assert plain["halvings"] == []
    torch.cuda.set_per_process_memory_fraction(0.7 * needed / torch.cuda.mem_get_info()[1])
    try:
        healed, again = run(base, tmp_path / "healed", **settings)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert healed["halvings"] and healed["batch"]["size"] * healed["batch"]["accum"] == 64
    assert again[-1] == pytest.approx(losses[-1], rel=1e-3)


needs_kernel = pytest.mark.skipif(
    torch.cuda.is_available() and bool(packing.obstacles("cuda", "bf16", {"hidden_size": 64})),
    reason="this card has no variable-length attention kernel",
)


@needs_kernel
@pytest.mark.parametrize("head", [32, 64, 128])
def test_packed_records_do_not_see_one_another(head: int) -> None:
    name = packing.kernel_name()
    assert name is not None
    if name == packing.TORCH_VARLEN:
        packing.register(name, packing.torch_kernel())
    assert packing.leak(name, "cuda", head) is None


@needs_kernel
def test_a_packed_training_has_the_losses_of_a_padded_one(tmp_path: Path) -> None:
    base = tiny.make_model(tmp_path / "base")
    settings: dict[str, Any] = {"batch_size": 8, "epochs": 3, "precision": "bf16", "uneven": True}
    packed, losses = run(base, tmp_path / "packed", packing="on", **settings)
    padded, again = run(base, tmp_path / "padded", packing="off", **settings)
    assert packed["packing"]["packed"] and not padded["packing"]["packed"]
    assert losses == pytest.approx(again, rel=0.03)


def test_packing_is_refused_in_float32(tmp_path: Path) -> None:
    from reasoner.errors import InfrastructureError

    base = tiny.make_model(tmp_path / "base")
    with pytest.raises(InfrastructureError, match=r"train\.precision is fp32"):
        run(base, tmp_path / "run", packing="on", precision="fp32")
