"""What is known of a rollout's turns before the first update: log-probabilities of the policy and of the reference.

From them come the KL of each turn, the reference that the loss needs, and what the gate compares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reasoner.methods.multiturn import losses
from reasoner.methods.multiturn.episode import Episode, Kind, Turn
from reasoner.methods.multiturn.metrics import mean
from reasoner.onpolicy.memory import MicroBatches
from reasoner.training import together
from reasoner.training.multiturn.batching import longest_first
from reasoner.training.multiturn.policy import Policy

Key = tuple[int, Kind]
"""Row of the rollout, kind of turn."""


@dataclass(frozen=True)
class Scored:
    """KL (k1, summed over tokens) of every turn, in every process; log-probabilities [T] of this process's rows by the
    reference, by the sampler and by the trainer; the gate's numbers over all turns."""

    kl: Mapping[Key, float]
    reference: Mapping[Key, Any]
    sampler: Mapping[Key, Sequence[float]]
    trainer: Mapping[Key, Sequence[float]]
    difference: float
    """Mean absolute difference of log-probability a token between sampler and trainer."""
    ratio: float
    """Mean of exp(trainer - sampler) over tokens."""
    entropy: float
    """Mean entropy of the policy a sampled token, in nats."""


class Processes:
    """What the loop needs of accelerate: who am I, how many are we, and sums over all."""

    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator
        self.rank, self.count = accelerator.process_index, accelerator.num_processes

    @property
    def first(self) -> bool:
        """Whether this is the process that samples, judges and writes."""
        return self.rank == 0

    def owns(self, row: int) -> bool:
        """Whether this process computes an episode's turns: every `count`-th one, in every pass over a rollout."""
        return row % self.count == self.rank

    def wait(self) -> None:
        """Come back when every process has called it."""
        together.wait()

    def sum(self, tensor: Any) -> Any:
        """The sum of a tensor over the processes."""
        return self.accelerator.reduce(tensor, "sum") if self.count > 1 else tensor

    def numbers(self, values: Sequence[float]) -> list[float]:
        """Element-wise sums of numbers over the processes, in float64."""
        if self.count == 1:
            return list(values)
        import torch

        return [
            float(x)
            for x in self.sum(torch.tensor(values, dtype=torch.float64, device=self.accelerator.device))
        ]


def turns_of(episodes: Sequence[Episode]) -> dict[Key, Turn]:
    """Every turn of a rollout by row and kind."""
    return {(i, turn.kind): turn for i, episode in enumerate(episodes) for turn in episode.turns}


def score(
    policy: Policy, turns: Mapping[Key, Turn], temperature: float, micro: MicroBatches, processes: Processes
) -> Scored:
    """Score every turn under its own adapter and under the reference, in micro-batches that fit the memory.

    A turn of a writer that is not trained is the reference's own: its KL is 0 and it says nothing of the gate. Raises
    TrainingError where a single turn does not fit.
    """
    keys = [key for key, turn in turns.items() if turn.token_ids and key[1].policy in policy.adapters]
    kl = [0.0] * len(keys)
    reference: dict[Key, Any] = {}
    trainer: dict[Key, Sequence[float]] = {}
    sums = [0.0] * 4  # |difference|, ratio, entropy, tokens
    lengths = [len(turns[key].prompt_ids) + len(turns[key].token_ids) for key in keys]
    for adapter in sorted({key[1].policy for key in keys}):
        rows = [i for i, (row, kind) in enumerate(keys) if processes.owns(row) and kind.policy == adapter]

        def compute(piece: Sequence[int], _: float, adapter: str = adapter) -> "_Piece":
            return _piece(policy, adapter, [turns[keys[i]] for i in piece], temperature)

        order = longest_first(rows, lengths)
        # A pass that is begun anew has left nothing behind: its pieces are taken when all of them are there.
        done = micro.accumulate(order, lengths, compute, lambda: None, gradient=False)
        for piece in done:
            sums = [total + part for total, part in zip(sums, piece.sums, strict=True)]
        found = [row for piece in done for row in piece.rows]
        for i, (value, base, own) in zip(order, found, strict=True):
            kl[i], reference[keys[i]], trainer[keys[i]] = value, base, own
    difference, ratio, entropy, tokens = processes.numbers(sums)
    tokens = max(tokens, 1.0)
    whole = dict(zip(keys, processes.numbers(kl), strict=True))
    return Scored(
        {key: whole.get(key, 0.0) for key in turns},
        reference,
        {key: turns[key].logprobs for key in trainer},
        trainer,
        difference / tokens,
        ratio / tokens,
        entropy / tokens,
    )


@dataclass(frozen=True)
class _Piece:
    """A scored micro-batch: KL and log-probabilities [T] by the reference and by the trainer of each turn; sums over
    tokens of |difference|, ratio, entropy and 1."""

    rows: list[tuple[float, Any, list[float]]]
    sums: list[float]


def _piece(policy: Policy, adapter: str, batch: Sequence[Turn], temperature: float) -> _Piece:
    import torch

    pairs = [(t.prompt_ids, t.token_ids) for t in batch]
    with torch.no_grad():
        with policy.speaking(adapter):
            own = policy.logprobs(pairs, temperature)
        with policy.speaking(None):
            base = policy.logprobs(pairs, temperature)
    sampled = padded([t.logprobs for t in batch], own.mask)
    found = losses.sequence_kl(own.logp, base.logp, own.mask).tolist()
    rows = [
        (value, ref[: len(turn.token_ids)].cpu(), seen[: len(turn.token_ids)])
        for turn, value, ref, seen in zip(batch, found, base.logp, own.logp.tolist(), strict=True)
    ]
    gap = (own.logp - sampled) * own.mask
    parts = (gap.abs().sum(), (gap.exp() * own.mask).sum(), own.entropy.sum(), own.mask.sum())
    return _Piece(rows, [float(part) for part in parts])


def padded(rows: Sequence[Sequence[float]], like_BT: Any) -> Any:
    """Rows of numbers (or tensors) [T_i] as one tensor of the shape and device of `like_BT`, 0 where there is none."""
    import torch

    out = torch.zeros_like(like_BT)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.as_tensor(row, dtype=out.dtype)
    return out


def kl_metrics(scored: Scored) -> dict[str, float]:
    """The gate's numbers, and the mean KL by kind of turn."""
    found = {
        "logprob_difference": scored.difference, "ratio_before_update": scored.ratio, "entropy": scored.entropy,
    }  # fmt: skip
    for kind in Kind:
        values = [kl for (_, k), kl in scored.kl.items() if k is kind]
        if values:
            found[f"{kind.value}_kl"] = mean(values)
    return found
