"""Seconds from counts: a step takes as long as its arithmetic or its memory traffic, whichever is longer.

    decode step of B sequences with L tokens of context:  max((W + (S + B·L)·kv) / bandwidth, 2·N·B / flops)
    prefill of T tokens:                                   2·N·T / flops
    LoRA training on T tokens:                             4·N·T / flops  (6 with recomputed activations)

W bytes of weights, N weights that a token is multiplied with, kv bytes of cache a token; S tokens that all sequences
have in common, of which a layer's part stays in the card's own cache while the sequences read it. Real code reaches a
share of this, the efficiency: published figures where nothing was measured (PERFORMANCE 3.1, 3.3), else the
calibration's.

A card of today is through with a step of a small model before its host has prepared the next one (`Host`), so the
host's part is added to a decode step; a training step, which is launched ahead, takes the longer one of the two.
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


@dataclass(frozen=True, slots=True)
class Host(Record):
    """What the host takes beside the card, in seconds. Nothing on a processor, whose share holds it."""

    token: float = 0.0
    """A sequence and step: scheduled, sampled, turned into text, sent, kept in the ledger."""
    prompt_token: float = 0.0
    """A token of a prompt, also where the card finds it in its prefix cache: cut, hashed, sent."""
    joined: float = 0.0
    """A step that a prompt joins, more than one that only decodes."""
    launch: float = 0.0
    """A step whose kernels are launched one by one, for want of a graph."""
    every_step: bool = False
    """Whether all steps are launched so, or those only that a prompt joins."""

    def step(self, at_once: float, share_joined: float) -> float:
        """Seconds of a step of `at_once` sequences, on average."""
        launched = 1.0 if self.every_step else share_joined
        return at_once * self.token + share_joined * self.joined + launched * self.launch


NO_HOST = Host()


def share_joined(at_once: float, waves: float, tokens: float) -> float:
    """The share of the decode steps that a prompt joins.

    As many sequences end in a step as `at_once / tokens`; each makes room for a prompt until none is left.
    """
    return (1 - math.exp(-at_once / tokens)) * (1 - 1 / waves)


def decode_step(
    arch: Architecture,
    device: Device,
    batch: float,
    context: float,
    dtype: str,
    share: float,
    shared: float = 0.0,
) -> float:
    """Seconds of one decoding step of `batch` sequences with `context` tokens each, and `shared` that all have."""
    moved = (arch.weights + (shared + batch * context) * arch.cache_numbers) * BYTES[dtype]
    computed = FORWARD * arch.matrix_weights * batch
    return max(moved / device.bandwidth / share, computed / device.flops / share, device.step_floor)


def decode(
    arch: Architecture, device: Device, *, sequences: float, tokens: float, context: float, batch: int, dtype: str,
    share: float, shared: float = 0.0, host: Host = NO_HOST, joins: bool = True,
) -> float:  # fmt: skip
    """Seconds to write `tokens` tokens in each of `sequences` sequences, at most `batch` at once.

    `joins`: a sequence begins when another one ends; else a batch begins when the one before has ended.
    """
    if sequences <= 0 or tokens <= 0:
        return 0.0
    at_once = min(sequences, batch)
    waves = sequences / at_once if joins else math.ceil(sequences / at_once)
    step = decode_step(arch, device, at_once, context + tokens / 2, dtype, share, shared)
    return waves * tokens * (step + host.step(at_once, share_joined(at_once, waves, tokens)))


def prefill(arch: Architecture, device: Device, tokens: float, share: float) -> float:
    """Seconds to read `tokens` prompt tokens."""
    return FORWARD * arch.matrix_weights * tokens / device.flops / share


def training(
    arch: Architecture, device: Device, *, tokens: float, seen_only: float, recompute: bool, share: float,
    steps: float = 0.0, looks: float = 0.0, layer_step: float = 0.0,
) -> float:  # fmt: skip
    """Seconds to train an adapter on `tokens` tokens and to look at `seen_only` validation tokens.

    In `steps` micro-steps and `looks` batches of validation, for which the host takes `layer_step` seconds a layer and
    micro-step; in proportion to the arithmetic for a batch that is only looked at, or computed twice.
    """
    train = RECOMPUTED if recompute else LORA
    rate = arch.matrix_weights / device.flops / share
    host = arch.layers * layer_step / LORA
    return max(train * tokens * rate, train * steps * host) + max(
        FORWARD * seen_only * rate, FORWARD * looks * host
    )
