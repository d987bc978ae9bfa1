"""A loop on the tiny base, as a test's function and as a program that can be killed.

    python -m tests.unit.onpolicy.arithmetic BASE WORK STEPS [ENGINE]

The reward is the share of small token ids; problems come from a shuffled list whose position is the data state.
It prints `step N` after each step, and writes the final adapter to WORK/final.safetensors.
"""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reasoner.engines.protocol import EngineSettings
from reasoner.onpolicy.learner import Learner, LearnerSettings
from reasoner.onpolicy.loop import StepContext, run_loop
from reasoner.onpolicy.opening import open_sampler
from reasoner.onpolicy.parts import Part
from reasoner.onpolicy.rows import Row
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.records import GenerationRequest, Sampling
from tests.unit.onpolicy.conftest import make_policy

GROUP = 4


class Problems:
    """Two problems a step, from a shuffled list."""

    def __init__(self) -> None:
        self.position = 0
        self.texts = [f"Problem {i}: how many cows?" for i in range(50)]
        random.Random(1).shuffle(self.texts)

    def take(self, count: int) -> list[str]:
        self.position += count
        return self.texts[self.position - count : self.position]

    def state_dict(self) -> Any:
        return {"position": self.position}

    def load_state_dict(self, state: Any) -> None:
        self.position = state["position"]


def collector(problems: Problems, seen: list[Any]) -> Callable[[StepContext], Sequence[Row]]:
    """Groups of GROUP samples of each problem, and one answer of the base that counts in the reward."""

    def collect(context: StepContext) -> Sequence[Row]:
        texts = problems.take(2)
        sampling = Sampling(1.0, max_tokens=8)
        requests = [
            GenerationRequest(text, text, sampling, context.seed, i, "default")
            for text in texts
            for i in range(GROUP)
        ]
        base = [GenerationRequest(text, text, sampling, context.seed) for text in texts]
        samples = context.sampler.sample(requests + base)
        with context.parts.part(Part.VERDICT):
            noise = random.random()  # a random state that a resumed run must restore
            rewards = [sum(t < 120 for t in s.token_ids) / len(s.token_ids) for s in samples]
        rows = []
        for start in range(0, len(requests), GROUP):
            group = rewards[start : start + GROUP]
            mean = sum(group) / GROUP
            rows += [
                Row(samples[start + i], group[i] - mean + 0.1 * noise * rewards[-1], kl=0.01)
                for i in range(GROUP)
            ]
        seen.append((context.step, [s.token_ids for s in samples]))
        return rows

    return collect


def run(
    base: Path,
    work: Path,
    steps: int,
    sampler: OnPolicySampler,
    report: Callable[[Mapping[str, float]], None],
    seen: list[Any],
    **more: Any,
) -> Learner:
    """Train from the last checkpoint in `work` to `steps`."""
    random.seed(4)
    learner = Learner(
        make_policy(base, seed=1),
        LearnerSettings(precision="fp32", lr=5e-2, scheduler="linear", total_steps=20),
        log=lambda line: None,
    )
    problems = Problems()
    run_loop(
        learner, sampler, collector(problems, seen), work=work, steps=steps, seed=9, data=problems,
        report=report, **more,
    )  # fmt: skip
    return learner


def main(base: Path, work: Path, steps: int, kind: str) -> None:
    import torch
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    options: dict[str, Any] = {"max_model_len": 256}
    settings = EngineSettings(kind, base, "float32", 3, options=options)
    seen: list[Any] = []
    with open_sampler(settings, log=work / "engine.log", in_process=kind == "transformers") as sampler:
        learner = run(
            base, work, steps, sampler, lambda numbers: print(f"step {numbers['step']}", flush=True), seen
        )
    save_file({n: p.detach().contiguous() for n, p in learner.trained.items()}, work / "final.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), (*sys.argv[4:], "transformers")[0])
