"""ArCHer's critic: twin Q and V heads with a target copy, on texts that are cut on the left (the answer is at the end).

`base`: features of the frozen base model, h(prompt) and h(prompt + action), computed once for each row. An encoder
(roberta-base) reads state and action apart and is trained with the heads; its target copy is a copy of it all.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reasoner.methods.multiturn import archer
from reasoner.methods.multiturn.episode import Turn
from reasoner.onpolicy.memory import MicroBatches
from reasoner.training.multiturn.encoder import Encoder
from reasoner.training.multiturn.heads import Standardiser, both, twin
from reasoner.training.multiturn.policy import Policy


class Critic:
    """Q(s, a) and V(s) of attempts, each as a pair."""

    def __init__(
        self, policy: Policy, tokenizer: Any, critic_lm: str, hidden: int, max_length: int, seed: int
    ) -> None:
        self._policy, self._tokenizer, self._max = policy, tokenizer, max_length
        self._encoder = None if critic_lm == "base" else Encoder(critic_lm, policy.device, max_length)
        self.cost = 1 if self._encoder is None else 2 * max_length
        """Tokens that `q` or `v` computes for a turn."""
        size = policy.hidden_size if self._encoder is None else self._encoder.hidden_size
        self._q = twin(2 * size, hidden, seed).to(policy.device)
        self._v = twin(size, hidden, seed + 1).to(policy.device)
        self._parts: dict[str, Any] = {"q": self._q, "v": self._v}
        if self._encoder is not None:
            self._parts["encoder"] = self._encoder.model
        # Frozen features are standardised; an encoder's are layer-normed already and are trained.
        self._norms = [Standardiser(size, policy.device) for _ in range(2)]
        self._targets = {
            name: copy.deepcopy(part).requires_grad_(False) for name, part in self._parts.items()
        }

    def parameters(self) -> list[Any]:
        """Everything that is trained."""
        return [p for part in self._parts.values() for p in part.parameters()]

    def prepare(self, turns: Sequence[Turn], micro: MicroBatches) -> list[Any]:
        """What the heads need of each turn: hidden states [2, H] of prompt and of prompt + action, or two texts."""
        if self._encoder is not None:
            return [(self._tokenizer.decode(t.prompt_ids, skip_special_tokens=True), t.text) for t in turns]
        return self._policy.states(None, [self._ids(turn) for turn in turns], micro)

    def _ids(self, turn: Turn) -> tuple[list[int], list[int]]:
        prompt, action = list(turn.prompt_ids)[-self._max :], list(turn.token_ids)[-self._max :]
        return [*prompt, *action], [len(prompt) - 1, len(prompt) + len(action) - 1]

    def q(self, prepared: Sequence[Any], target: bool = False) -> Any:
        """[2, B]."""
        import torch

        state, action = self._features(prepared, target)
        return both((self._targets if target else self._parts)["q"], torch.cat([state, action], -1))

    def v(self, prepared: Sequence[Any], target: bool = False) -> Any:
        """[2, B]."""
        state, _ = self._features(prepared, target)
        return both((self._targets if target else self._parts)["v"], state)

    def _features(self, prepared: Sequence[Any], target: bool) -> tuple[Any, Any]:
        """State and action embeddings [B, H]."""
        import torch

        if self._encoder is None:
            stacked_B2H = torch.stack(list(prepared))
            return self._norms[0](stacked_B2H[:, 0]), self._norms[1](stacked_B2H[:, 1])
        trained = self._encoder.model
        try:
            if target:
                self._encoder.model = self._targets["encoder"]
            states = self._encoder([state for state, _ in prepared])
            return states, self._encoder([action for _, action in prepared])
        finally:
            self._encoder.model = trained

    @property
    def fitted(self) -> bool:
        """Whether the features' scale is fixed; an encoder needs none."""
        return self._encoder is not None or all(norm.fitted for norm in self._norms)

    def fit(self, prepared: Sequence[Any], total: Callable[[Any], Any]) -> None:
        """Fix the scale of the base's features by the first rows that are given."""
        import torch

        if self._encoder is None:
            for i, norm in enumerate(self._norms):
                rows = [item[i] for item in prepared]
                norm.fit(torch.stack(rows) if rows else torch.zeros(0, len(norm.mean)), total)

    def follow(self, tau: float) -> None:
        """Move the targets by τ."""
        for name, part in self._parts.items():
            archer.polyak(self._targets[name].parameters(), part.parameters(), tau)

    def state(self) -> dict[str, Any]:
        """Networks and targets as tensors on the CPU."""
        norms = {k: t for i, norm in enumerate(self._norms) for k, t in norm.state(f"norm{i}.").items()}
        return norms | {
            f"{group}.{name}.{key}": tensor.detach().cpu()
            for group, parts in (("trained", self._parts), ("target", self._targets))
            for name, part in parts.items()
            for key, tensor in part.state_dict().items()
        }

    def load_state(self, tensors: Mapping[str, Any]) -> None:
        """Take what `state` gave."""
        for i, norm in enumerate(self._norms):
            norm.load_state(tensors, f"norm{i}.")
        for group, parts in (("trained", self._parts), ("target", self._targets)):
            for name, part in parts.items():
                prefix = f"{group}.{name}."
                part.load_state_dict(
                    {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
                )
