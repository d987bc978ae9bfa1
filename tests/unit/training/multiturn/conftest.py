"""A tiny random model and what a learner needs around it: no engine, no child process."""

from pathlib import Path
from typing import Any

import pytest

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.methods.multiturn.episode import Episode, Judged, Kind, Turn
from reasoner.records import Outcome, Problem, Verdict
from tests.support.tiny_llama import make_model, make_tokenizer


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("multiturn") / "base")


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return make_tokenizer()


def one_process(precision: str = "no") -> Any:
    """One process on the CPU, in the accelerator's mixed precision of that name."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState

    from reasoner.training.multiturn.scoring import Processes

    AcceleratorState._reset_state(True)
    PartialState._reset_state()
    return Processes(Accelerator(cpu=True, mixed_precision=precision))


@pytest.fixture
def processes() -> Any:
    return one_process()


def config(**fields: Any) -> MultiTurnConfig:
    defaults = {
        "method": "mlmt", "use_smart_corrections": True, "train_guidance_model": True, "policy_lm": "tiny",
        "problems": {"train": {"name": "toy", "path": "unused.csv"}}, "rollout_size": 4, "group_size": 2,
        "batch_size": 3, "max_tokens": 8, "guidance_max_tokens": 8, "lm_lr": 1e-3, "guidance_lr": 1e-3,
        "value_lr": 1e-2, "kl": "loss", "lora": {"r": 4, "alpha": 8},
    }  # fmt: skip
    return MultiTurnConfig.model_validate({**defaults, **fields})


def build(base: Path, tokenizer: Any, processes: Any, **fields: Any) -> Any:
    from reasoner.training.multiturn.parts import build as make

    return make(config(**fields), base, "tiny", tokenizer, processes, "float32")


PROBLEMS = {p.id: p for p in (Problem.make(f"question {i}", "1", "toy") for i in range(2))}


def sampled(
    learned: Any, tokenizer: Any, rewards: list[tuple[int, int]], guided: bool = True
) -> list[Episode]:
    """Episodes whose log-probabilities are the learned policies' own, two a problem."""
    import torch

    ids = list(PROBLEMS)
    made = []
    for i, (r1, r2) in enumerate(rewards):
        problem = ids[i // 2]

        def turn(kind: Kind, text: str, reward: int | None, problem: str = problem) -> Turn:
            prompt = tuple(tokenizer(f"{kind} of {PROBLEMS[problem].question}")["input_ids"])
            tokens = tuple(tokenizer(text)["input_ids"])[:8]
            adapter = kind.policy if kind.policy in learned.policy.adapters else None
            with torch.no_grad(), learned.policy.speaking(adapter):
                logp = learned.policy.logprobs([(prompt, tokens)], 1.0).logp[0].tolist()
            outcome = Outcome.CORRECT if reward else Outcome.INCORRECT
            judged = None if reward is None else Judged(Verdict(outcome, "test"))
            return Turn(kind, problem, prompt, tokens, tuple(logp), text, "stop", len(tokens), judged)

        feedback = turn(Kind.FEEDBACK, f"advice {i}", None) if guided else None
        made.append(
            Episode(
                problem, i % 2, turn(Kind.ATTEMPT, f"first {i} is", r1), feedback,
                turn(Kind.REFINEMENT, f"then {i}", r2), f"advice {i}",
            )
        )  # fmt: skip
    return made


REWARDS = [(0, 1), (1, 0), (0, 0), (1, 1)]


def change(learned: Any, adapter: str, seed: int = 0, scale: float = 0.3) -> None:
    """Move an adapter away from the base."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in learned.policy.parameters(adapter):
            p.add_(torch.randn(p.shape, generator=draw) * scale)
