"""Bytes that training and serving need, and which settings would fit where the wanted ones do not.

Activations a layer and token that the backward pass keeps, for a decoder with gated MLP and attention that stores no
score matrix (after Korthikanti et al., arXiv 2205.05198, section 4, counted for this shape):

    6·hidden + 2·heads·d + 2·kv_heads·d + 4·mlp          or with recomputation  hidden, and one layer in full
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reasoner.config.training import LoraConfig, largest_part
from reasoner.planning.architecture import BYTES, Architecture
from reasoner.planning.device import GIB
from reasoner.records import Record

CONTEXT = GIB
"""What a CUDA context and the allocator's slack take."""
PROCESS = int(1.1 * GIB)
"""Main memory of a Python process with torch, transformers and TRL, before it loads a model."""
CPU_CACHE = GIB
"""vLLM's cache on a CPU as this project starts it."""
ADAM = 4 + 4 + 8
"""Bytes an adapter's weight in training: itself, gradient, two moments, all float32."""


@dataclass(frozen=True, slots=True)
class Need(Record):
    """Bytes on the accelerator and in main memory at the peak."""

    device: int
    host: int


@dataclass(frozen=True, slots=True)
class TrainingShape:
    """What decides the memory of a training step."""

    batch: int
    """Records a micro-step."""
    length: int
    """Tokens of the longest."""
    recompute: bool
    weights: str
    """How the frozen base is held: a key of `BYTES`."""
    compute: str
    """The precision of activations."""


def training(arch: Architecture, shape: TrainingShape, lora: LoraConfig, on_card: bool) -> Need:
    """The peak of LoRA training."""
    tokens, number = shape.batch * shape.length, BYTES[shape.compute]
    layer = (
        6 * arch.hidden + 2 * arch.heads * arch.head_dim + 2 * arch.kv_heads * arch.head_dim + 4 * arch.mlp
    )
    kept = arch.hidden * arch.layers + layer if shape.recompute else layer * arch.layers
    logits = tokens * arch.vocabulary * (number + 8)  # themselves, their float32 copy and its gradient
    held = arch.weights * BYTES[shape.weights]
    work = int(held + tokens * kept * number + logits + arch.lora_weights(lora) * ADAM)
    if not on_card:
        return Need(0, work + PROCESS)
    return Need(work + CONTEXT, int(arch.weights * BYTES["bfloat16"]) + PROCESS)


def serving(arch: Architecture, dtype: str, on_card: bool, context: int, share: float, card: int) -> Need:
    """An engine: the card's share that it takes, which must hold the weights and one whole context."""
    least = int(arch.weights * BYTES[dtype] * 1.05 + context * arch.cache_numbers * BYTES[dtype] + 1.5 * GIB)
    if not on_card:
        return Need(0, int(arch.weights * BYTES[dtype]) + CPU_CACHE + PROCESS)
    reserved = int(share * card)
    # More than the card has is how "does not fit into its share" is told.
    return Need(reserved if least <= reserved else max(least, card + 1), 3 * GIB)


def smaller(shape: TrainingShape, accumulate: int) -> Iterator[tuple[TrainingShape, tuple[str, ...]]]:
    """Ways to need less, the cheapest first: each a shape and the settings that make it."""
    whole = shape.batch * accumulate
    sizes = sorted({largest_part(whole, n) for n in range(1, shape.batch + 1)}, reverse=True)
    forms: list[tuple[bool, str, tuple[str, ...]]] = [(shape.recompute, shape.weights, ())]
    if not shape.recompute:
        forms.append((True, shape.weights, ("train.gradient_checkpointing=true",)))
    if shape.weights == "bfloat16":
        forms.append((True, "nf4", ("train.gradient_checkpointing=true", "train.nf4_above_gib=0")))
    for recompute, weights, words in forms:
        for size in sizes:
            cut = () if size == shape.batch else (f"compute.micro_batch={size}",)
            yield TrainingShape(size, shape.length, recompute, weights, shape.compute), (*cut, *words)


def what_fits(
    shape: TrainingShape, accumulate: int, fits: Callable[[TrainingShape], bool]
) -> tuple[str, ...] | None:
    """The first settings that fit, or None where no cut is small enough."""
    return next((words for cut, words in smaller(shape, accumulate) if fits(cut)), None)
