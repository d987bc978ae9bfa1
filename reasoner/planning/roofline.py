"""Seconds from counts: a step takes as long as its arithmetic or its memory traffic, whichever is longer.

    decode step of B sequences with L tokens of context:  max((W + B·L·kv) / bandwidth, 2·N·B / flops)
    prefill of T tokens:                                   2·N·T / flops
    LoRA training on T tokens:                             4·N·T / flops  (6 with recomputed activations)

W bytes of weights, N weights that a token is multiplied with, kv bytes of cache a token. Real code reaches a share of
this, the efficiency: published figures where nothing was measured (PERFORMANCE 3.1, 3.3), else the calibration's.
"""

import math
from dataclasses import dataclass

from reasoner.planning.architecture import BYTES, Architecture
from reasoner.planning.device import Device
from reasoner.records import Record

FORWARD, LORA, RECOMPUTED, FULL = 2, 4, 6, 6
"""Floating point operations a weight and token."""


@dataclass(frozen=True, slots=True)
class Efficiency(Record):
    """The share of the roofline that is reached. Above 1 is possible where the micro-benchmark was disturbed."""

    prefill: float = 0.5
    decode: float = 0.6
    train: float = 0.4


ON_CPU = Efficiency(prefill=0.95, decode=1.1, train=0.67)
"""On a processor, whose roofline is a measured product of matrices: from the few-shot stages and the first training of
one run of the demo on two cores (vLLM and torch, float32)."""
ON_CPU_BF16 = Efficiency(prefill=1.25, decode=1.25, train=0.67)
"""The same of bfloat16 where the processor has instructions for it, which multiply two pairs a lane: a share of the
float32 roofline may be above 1. From four few-shot stages of one run of the demo, two cores with AVX512_BF16 (1.16 to
1.43); training stays in float32."""


def decode_step(
    arch: Architecture, device: Device, batch: float, context: float, dtype: str, share: float
) -> float:
    """Seconds of one decoding step of `batch` sequences."""
    moved = arch.weights * BYTES[dtype] + batch * context * arch.cache_numbers * BYTES[dtype]
    computed = FORWARD * arch.matrix_weights * batch
    return max(moved / device.bandwidth / share, computed / device.flops / share, device.step_floor)


def decode(
    arch: Architecture, device: Device, *, sequences: float, tokens: float, context: float, batch: int, dtype: str,
    share: float,
) -> float:  # fmt: skip
    """Seconds to write `tokens` tokens in each of `sequences` sequences, at most `batch` at once."""
    if sequences <= 0 or tokens <= 0:
        return 0.0
    at_once = min(sequences, batch)
    steps = math.ceil(sequences / at_once) * tokens
    return steps * decode_step(arch, device, at_once, context + tokens / 2, dtype, share)


def prefill(arch: Architecture, device: Device, tokens: float, share: float) -> float:
    """Seconds to read `tokens` prompt tokens."""
    return FORWARD * arch.matrix_weights * tokens / device.flops / share


def training(
    arch: Architecture, device: Device, *, tokens: float, seen_only: float, recompute: bool, share: float
) -> float:
    """Seconds to train an adapter on `tokens` tokens and to look at `seen_only` validation tokens."""
    work = (RECOMPUTED if recompute else LORA) * tokens + FORWARD * seen_only
    return work * arch.matrix_weights / device.flops / share
