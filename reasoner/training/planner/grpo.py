"""GRPO training of the planner, as a program: `python -m reasoner.training.planner.grpo SPEC.json`.

One engine serves the policy's samples and the frozen worker; the loop is `reasoner.training.grpo`.

Departs from the original: ground truth comes in a column, one prompt and template in training and inference,
one copy of the base for planner and worker, worker calls in two batches a step.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from reasoner.ids import canonical
from reasoner.methods.planner.independence import SentenceEmbedder
from reasoner.methods.planner.pipeline import PipelineExecutor
from reasoner.methods.planner.prompts import load_prompts
from reasoner.methods.planner.reward import PipelineRewardFunction
from reasoner.methods.planner.worker import FrozenWorker, fitting
from reasoner.prompts import ChatRenderer
from reasoner.training.grpo import program
from reasoner.training.grpo.method import Method, OnStep
from reasoner.training.grpo.sampling import Sampling
from reasoner.training.planner.export import write_training_config
from reasoner.training.planner.launch import PROGRAM
from reasoner.training.planner.spec import PlannerGrpoSpec

CURVES = ("reward", "correct", "valid", "decomposed", "independence", "worker_tokens", "planner_tokens")


def planner_method(spec: PlannerGrpoSpec) -> Method:
    """The planner's prompt, and the pipeline as its reward."""
    prompts, renderer = load_prompts(spec.prompts), ChatRenderer(spec.base)

    def reward(sampling: Sampling, on_step: OnStep) -> PipelineRewardFunction:
        worker = FrozenWorker(
            sampling.complete, renderer.render, prompts, spec.worker.decoding.sampling(), seed=spec.worker.seed,
            fits=fitting(sampling.tokenizer, sampling.max_model_len, spec.worker.decoding.max_tokens),
        )  # fmt: skip
        return PipelineRewardFunction(
            PipelineExecutor(worker, SentenceEmbedder(spec.reward.embedder, sampling.device)), spec.reward,
            spec.grpo.num_generations, samples=spec.worker.samples, on_step=on_step,
        )  # fmt: skip

    return Method(
        name="planner",
        render=lambda problem: renderer.render(prompts.plan(problem.question)),
        reward=reward,
        curves=CURVES,
        prompts=prompts,
        settings=(spec.worker, spec.reward),
        completions=f"plans (reward {spec.reward.mode})",
        facts={
            "prompts": {"name": prompts.name, "hash": prompts.content_hash},
            "worker": canonical(spec.worker),
            "reward": canonical(spec.reward),
        },
        finish=lambda found: write_training_config(spec, found),
    )


def train(spec: PlannerGrpoSpec, report: Callable[..., Any], log: Callable[[str], None]) -> None:
    """Train `spec` to the end and export the adapter. Raises the errors of `reasoner.errors`."""
    program.train(spec, planner_method, report, log)


def main(arguments: Sequence[str]) -> int:
    """Exit status 0 when the adapter is written."""
    return program.run_as_program(PROGRAM, PlannerGrpoSpec, train, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
