"""GRPO training of SMART's policy, as a program: `python -m reasoner.training.smart.grpo SPEC.json`.

The prompt is that of a first attempt at evaluation, the reward its verdict; the loop is `reasoner.training.grpo`.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from reasoner.ids import canonical
from reasoner.methods.smart.reward import VerdictReward
from reasoner.prompts import ChatRenderer, load_template
from reasoner.records import Problem, Strategy
from reasoner.sandbox import Sandbox
from reasoner.stages.policy import turn
from reasoner.stages.verdicts import judged, stop_if_unscored
from reasoner.training.grpo import program
from reasoner.training.grpo.method import Method, OnStep
from reasoner.training.grpo.sampling import Sampling
from reasoner.training.smart.spec import PROGRAM, SmartGrpoSpec
from reasoner.verifiers import solutions

CURVES = (
    "reward", "correct", *(s.value for s in Strategy), "no_strategy", "truncated", "tokens", "groups_used",
    "sampler_trainer_difference", "kl",
)  # fmt: skip


def smart_method(spec: SmartGrpoSpec) -> Method:
    """The policy's prompt, and the verdict as its reward. SandboxUnavailableError where programs can't be judged."""
    template, renderer = load_template(spec.prompt.template), ChatRenderer(spec.base)
    Sandbox.detect()

    def judge(rows: Sequence[dict[str, Any]]) -> list[Any]:
        attempts = judged(rows, spec.verify, by_form=spec.verify.by_form)
        stop_if_unscored(attempts, spec.verify)
        return attempts

    def render(problem: Problem) -> tuple[str, bool]:
        return turn(problem, template, renderer, spec.prompt)

    def reward(_: Sampling, on_step: OnStep) -> VerdictReward:
        return VerdictReward(judge, spec.grpo.num_generations, on_step)

    return Method(
        name="smart",
        render=render,
        reward=reward,
        curves=CURVES,
        prompts=template,
        settings=(spec.prompt, spec.verify, solutions.VERSION),
        completions="responses",
        facts={"prompt": canonical(spec.prompt), "verifier": solutions.VERSION},
    )


def train(spec: SmartGrpoSpec, report: Callable[..., Any], log: Callable[[str], None]) -> None:
    """Train `spec` to the end and export the adapter. Raises the errors of `reasoner.errors`."""
    program.train(spec, smart_method, report, log)


def main(arguments: Sequence[str]) -> int:
    """Exit status 0 when the adapter is written."""
    return program.run_as_program(PROGRAM, SmartGrpoSpec, train, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
