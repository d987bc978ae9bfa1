"""Our own optimiser loop: a batch of rows in, one optimiser step out.

One PEFT model with one or more adapters; each row trains the adapter that sampled it. Rows are computed in pieces of at
most `piece_tokens` padded tokens, longest first, and the loss is divided by the whole batch's size, so pieces change
rounding only. A full device halves the pieces and repeats the step. Rows that can't move anything (advantage 0, no KL)
are not computed by the built-in loss; they count in its divisor.

Departs from TRL: no second forward pass for π_old, which is the sampler's own word (losses.py).
Not covered: several devices, full fine-tuning, quantised bases.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from reasoner.errors import TrainingError
from reasoner.onpolicy.diagnosis import Probe
from reasoner.onpolicy.gate import Gate
from reasoner.onpolicy.logprobs import TokenBatch, batch_logprobs, make_batch
from reasoner.onpolicy.losses import BatchSize, LossInputs, LossSettings, TokenLoss, clipped_policy_loss
from reasoner.onpolicy.memory import PieceSize
from reasoner.onpolicy.parts import Part, Parts
from reasoner.onpolicy.pieces import by_row, cut, padded
from reasoner.onpolicy.rows import Row


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """How the optimiser works."""

    lr: float = 1e-5
    scheduler: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    total_steps: int = 0
    """The length of a `linear` or `cosine` schedule."""
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    precision: Literal["bf16", "fp32"] = "bf16"
    """What the forward pass computes in; adapters and optimiser are float32."""
    temperature: float = 1.0
    """That of the sampler."""
    piece_tokens: int = 16384
    entropy: bool = False
    """Whether to log the entropy and hand it to the loss."""
    reference: str = ""
    """The adapter that is the reference of the KL; empty: the bare base."""
    loss: LossSettings = field(default_factory=LossSettings)


class Learner:
    """Trains the adapters of one PEFT model. Use it from one thread."""

    def __init__(
        self,
        model: Any,
        settings: LearnerSettings,
        *,
        gate: Gate | None = None,
        parts: Parts | None = None,
        log: Callable[[str], None] = print,
    ) -> None:
        """Raises TrainingError when nothing can be trained or the schedule has no length."""
        import torch
        from transformers import get_scheduler

        self.model = model
        self.settings = settings
        self.parts = parts or Parts()
        self.steps = 0
        self._gate = gate
        self._log = log
        self.pieces = PieceSize(settings.piece_tokens, log)
        self.trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.policies = [
            name
            for name in sorted(getattr(model, "peft_config", {}))
            if any(f".{name}." in f"{parameter}." for parameter in self.trained)
        ]
        """The adapters that are trained."""
        if not self.trained:
            raise TrainingError("the model has no trainable parameter; add a LoRA adapter that is not frozen")
        if settings.scheduler in ("linear", "cosine") and settings.total_steps < 1:
            raise TrainingError(f"the {settings.scheduler} schedule needs total_steps")
        self.device = next(iter(self.trained.values())).device
        self.optimiser = torch.optim.AdamW(
            self.trained.values(), lr=settings.lr, weight_decay=settings.weight_decay
        )
        self.scheduler = get_scheduler(
            settings.scheduler, self.optimiser, settings.warmup_steps, settings.total_steps or None
        )

    def step(
        self, rows: Sequence[Row], *, loss: TokenLoss | None = None, fresh: bool = True
    ) -> dict[str, float]:
        """One optimiser step on `rows`; returns numbers for the log.

        `fresh` rows were sampled from the present weights, so the gate compares them; say False when a batch is
        used a second time. Raises OffPolicyError before the optimiser has moved, and TrainingError for rows of the
        bare base, an infinite gradient, or a device too small for one row.
        """
        active = [i for i, row in enumerate(rows) if row.weight > 0]
        self._check(rows, active)
        moving = active if loss else [i for i in active if _moves(rows[i])]
        size = BatchSize(len(active), sum(len(rows[i].sample.token_ids) for i in active))
        masked: dict[str, float] = {"rows": len(rows), "rows/masked": len(rows) - len(active)}
        masked |= {"rows/idle": len(active) - len(moving), "tokens": size.tokens}
        if not moving:
            self._advance()  # the schedule counts steps, not their content
            return {**masked, "loss": 0.0, "skipped": 1.0}
        chosen = loss or clipped_policy_loss(self.settings.loss)
        self.model.train()
        state = _random_state(self.device)

        def undo() -> None:
            self.optimiser.zero_grad(set_to_none=True)
            _restore_random_state(state, self.device)

        undo()
        widest = max(len(rows[i].sample.prompt_ids) + len(rows[i].sample.token_ids) for i in moving)
        total, sums, seen = self.pieces.heal(
            lambda: self._forward_backward(rows, moving, chosen, size), widest, undo
        )
        if fresh and self._gate is not None:
            sums |= self._observe(rows, moving, seen)
        norm = self._optimise()
        averages = {
            name: value / size.tokens for name, value in sums.items() if not name.startswith("drift/")
        }
        drifts = {name: value for name, value in sums.items() if name.startswith("drift/")}
        numbers = {"loss": total, "grad_norm": norm, "lr": self.scheduler.get_last_lr()[0]}
        return {**masked, **numbers, **averages, **drifts, "piece_tokens": self.pieces.tokens}

    def logprobs(self, rows: Sequence[Row], *, reference: bool = False) -> list[list[float]]:
        """The rows' log-probabilities without gradient, [T] each: the policies', or the reference's."""
        self._check(rows, list(range(len(rows))))
        with self.parts.part(Part.LOGPROBS):
            found = self._without_gradient(rows, range(len(rows)), reference=reference)
        return [found[i].tolist() for i in range(len(rows))]

    def _forward_backward(
        self, rows: Sequence[Row], moving: Sequence[int], loss: TokenLoss, size: BatchSize
    ) -> tuple[float, dict[str, float], dict[int, Any]]:
        """The loss, sums over tokens, and each row's log-probabilities; gradients are left in the parameters."""
        total, sums, seen = 0.0, dict[str, float](), dict[int, Any]()
        for policy, piece in self._pieces(rows, moving):
            with self.parts.part(Part.FORWARD_BACKWARD):
                batch = self._batch(rows, piece)
                reference = None
                if any(rows[i].kl for i in piece):
                    with self.parts.part(Part.LOGPROBS), self._as_reference(), self._computing(False):
                        reference = batch_logprobs(self.model, batch, temperature=self.settings.temperature)[
                            0
                        ]
                self._activate(policy)
                with self._computing(True):
                    current, entropy = batch_logprobs(
                        self.model,
                        batch,
                        temperature=self.settings.temperature,
                        entropy=self.settings.entropy,
                    )
                    share = loss(self._inputs(rows, piece, batch, current, reference, entropy, size))
                share.loss.backward()
            total += float(share.loss.detach())
            for name, value in share.sums.items():
                sums[name] = sums.get(name, 0.0) + value
            if entropy is not None:
                sums["entropy"] = sums.get("entropy", 0.0) + float(entropy.detach().sum())
            seen |= by_row(current.detach(), batch, piece)
        return total, sums, seen

    def _batch(self, rows: Sequence[Row], piece: Sequence[int]) -> TokenBatch:
        chosen = [rows[i].sample for i in piece]
        return make_batch([s.prompt_ids for s in chosen], [s.token_ids for s in chosen], self.device)

    def _inputs(
        self,
        rows: Sequence[Row],
        piece: Sequence[int],
        batch: TokenBatch,
        current: Any,
        reference: Any,
        entropy: Any,
        size: BatchSize,
    ) -> LossInputs:
        import torch

        chosen = [rows[i] for i in piece]
        width, device = batch.shape[1], self.device
        weights_B = torch.tensor([row.weight for row in chosen], device=device)
        return LossInputs(
            logprobs=current,
            sampled=padded([row.sample.logprobs for row in chosen], width, device),
            reference=reference,
            advantages=padded([row.advantages() for row in chosen], width, device),
            mask=batch.mask.float() * weights_B[:, None],
            kl=torch.tensor([row.kl for row in chosen], device=device),
            size=size,
            rows=tuple(piece),
            entropy=None if entropy is None else entropy.detach(),
        )

    def _observe(self, rows: Sequence[Row], moving: Sequence[int], seen: dict[int, Any]) -> dict[str, float]:
        """Compare with the sampler; probes tell the cause when it is off."""
        assert self._gate is not None

        def probe(**variant: Any) -> Probe:
            def compute() -> list[list[float]]:
                found = self._without_gradient(rows, moving, **variant)
                return [found[i].tolist() for i in moving]

            return compute

        probes = {
            "The sampler serves the bare base: it was never sent the adapter.": probe(bare=True),
            "Dropout is on in the trainer: set lora_dropout=0.": probe(dropout=False),
        }
        if self.settings.temperature != 1.0:
            probes["The sampler's log-probabilities leave the temperature out: ask for processed ones."] = (
                probe(temperature=1.0)
            )
        sampled = [rows[i].sample.logprobs for i in moving]
        self._gate.check(sampled, [seen[i].tolist() for i in moving], probes=probes)
        return self._gate.history[-1].metrics()

    def _without_gradient(
        self,
        rows: Sequence[Row],
        chosen: Sequence[int],
        *,
        reference: bool = False,
        bare: bool = False,
        dropout: bool = True,
        temperature: float | None = None,
    ) -> dict[int, Any]:
        """Each row's log-probabilities [T] on the CPU."""
        found: dict[int, Any] = {}
        training = self.model.training
        self.model.train(training and dropout)

        def attempt() -> None:
            for policy, piece in self._pieces(rows, chosen):
                batch = self._batch(rows, piece)
                self._activate(policy)
                side = self.model.disable_adapter() if bare else contextlib.nullcontext()
                with self._as_reference() if reference else side, self._computing(False):
                    values = batch_logprobs(
                        self.model, batch, temperature=temperature or self.settings.temperature
                    )[0]
                found.update(by_row(values, batch, piece))

        widest = max(
            (len(rows[i].sample.prompt_ids) + len(rows[i].sample.token_ids) for i in chosen), default=0
        )
        try:
            self.pieces.heal(attempt, widest, found.clear)
        finally:
            self.model.train(training)
        return found

    def _optimise(self) -> float:
        import torch

        with self.parts.part(Part.OPTIMISER):
            norm = float(torch.nn.utils.clip_grad_norm_(self.trained.values(), self.settings.max_grad_norm))
            if norm != norm or norm == float("inf"):
                self.optimiser.zero_grad(set_to_none=True)
                raise TrainingError(f"The gradient is {norm} at step {self.steps}; lower lr or train in fp32")
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            self._advance()
        return norm

    def _advance(self) -> None:
        import warnings

        with warnings.catch_warnings():  # "before optimizer.step()": a step without a moving row
            warnings.simplefilter("ignore", UserWarning)
            self.scheduler.step()
        self.steps += 1

    def _pieces(self, rows: Sequence[Row], chosen: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
        for policy in sorted({rows[i].sample.policy for i in chosen}):
            mine = [i for i in chosen if rows[i].sample.policy == policy]
            lengths = {i: len(rows[i].sample.prompt_ids) + len(rows[i].sample.token_ids) for i in mine}
            for piece in cut(lengths, self.pieces.tokens):
                yield policy, piece

    def _check(self, rows: Sequence[Row], active: Sequence[int]) -> None:
        for i in active:
            if rows[i].sample.policy not in self.model.peft_config:
                name = rows[i].sample.policy or "the bare base"
                known = ", ".join(sorted(self.model.peft_config))
                raise TrainingError(f"row {i} is of {name}, which is not trained; the adapters are {known}")

    def _activate(self, policy: str) -> None:
        """Make an adapter the active one, and leave every trained parameter trainable."""
        if self.model.active_adapter != policy:
            self.model.set_adapter(policy)
            for parameter in self.trained.values():
                parameter.requires_grad_(True)

    @contextlib.contextmanager
    def _as_reference(self) -> Iterator[None]:
        if not self.settings.reference:
            with self.model.disable_adapter():
                yield
            return
        before = self.model.active_adapter
        self._activate(self.settings.reference)
        try:
            yield
        finally:
            self._activate(before)

    @contextlib.contextmanager
    def _computing(self, gradient: bool) -> Iterator[None]:
        import torch

        half = self.settings.precision == "bf16"
        with (
            torch.set_grad_enabled(gradient),
            torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half),
        ):
            yield


def _moves(row: Row) -> bool:
    return bool(row.kl) or any(row.advantages())


def _random_state(device: Any) -> tuple[Any, Any]:
    import torch

    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _restore_random_state(state: tuple[Any, Any], device: Any) -> None:
    import torch

    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
