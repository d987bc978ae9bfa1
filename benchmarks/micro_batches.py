"""Seconds of a GRPO step's learning, its micro-batches as TRL cuts them and as training/grpo/micro_batches.py does.

    python benchmarks/micro_batches.py MODEL_FOLDER [--prompts 4] [--group 8] [--micro-batch 8] [--tokens 128]
        [--moving 0.5] [--rounds 5] [--loss dapo] [--out F]

The product's trainer (TRL, LoRA) learns from completions that are given: random tokens, of lengths that are log-normal
around two thirds of `--tokens` and cut there, behind generated questions. Of each step's groups `--moving` have
completions that differ in their reward; the others are all right. One trainer makes all steps, in turns A B, B A; the
first of each is warm-up. Both sides of a round have completions of the same lengths and the same rewards, behind other
questions. Counted are forward and backward passes, not the regrouping itself; `positions` is what the model computed of
a step.

Does not cover sampling. Its gradients are compared in tests/unit/training/test_active.py. No bar: exit status 0.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from grpo_side import MODULES, source  # noqa: E402
from paced import (  # noqa: E402
    Finished,
    device_memory,
    machine,
    median_interval,
    pace,
    quiet,
    run_paced,
    settings_of,
    write,
)  # fmt: skip
from turns import in_turns  # noqa: E402

from reasoner.config.smart import EngineConfig, LoraConfig, PromptConfig, SmartGrpoConfig  # noqa: E402
from reasoner.onpolicy.parts import Part, device_parts  # noqa: E402
from reasoner.problems import load_problems  # noqa: E402
from reasoner.tracking import Run  # noqa: E402
from reasoner.training import runtime  # noqa: E402
from reasoner.training.grpo import active, program  # noqa: E402
from reasoner.training.grpo.journal import Journal  # noqa: E402
from reasoner.training.grpo.micro_batches import regrouped  # noqa: E402
from reasoner.training.grpo.questions import prompted  # noqa: E402
from reasoner.training.grpo.trainer import GrpoJob  # noqa: E402
from reasoner.training.micro_batch import Batch  # noqa: E402
from reasoner.training.smart.spec import SmartGrpoSpec  # noqa: E402

AS_TRL, OURS = "as_trl", "ours"


class Given:
    """Completions and rewards without a model; lengths and rewards are the same for both sides of a round."""

    __name__ = "given"

    def __init__(self, given: argparse.Namespace, tokenizer: Any) -> None:
        self._given, self._tokenizer, self.round = given, tokenizer, 0

    def rollout(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        rng, longest = random.Random(self.round), self._given.tokens
        lengths = [min(longest, max(2, round(rng.lognormvariate(0, 0.5) * longest * 2 / 3))) for _ in prompts]
        ids = [[rng.randrange(300, len(self._tokenizer) - 300) for _ in range(n)] for n in lengths]
        read = self._tokenizer(list(prompts), add_special_tokens=False)["input_ids"]
        return {"prompt_ids": read, "completion_ids": ids, "logprobs": [[-1.0] * n for n in lengths]}

    def __call__(self, prompts: Sequence[str], **_: Any) -> list[float]:
        group = self._given.group
        moving = round(self._given.moving * len(prompts) / group)
        return [float(i // group >= moving or i % group < group // 2) for i in range(len(prompts))]


def make_job(given: argparse.Namespace, room: Path, samples: Given, tokenizer: Any, parts: Any) -> GrpoJob:
    """The product's own, but for where samples and rewards come from."""
    device = "cuda" if device_memory() is not None else "cpu"
    spec = program.settled(
        SmartGrpoSpec(
            base=given.model.resolve(), base_name=given.model.name, rows=room / "unused", output=room / "out",
            work=room, device=device, engine=EngineConfig(), prompt=PromptConfig(),
            grpo=SmartGrpoConfig(
                batch_size=given.micro_batch, grad_accum=given.prompts * given.group // given.micro_batch,
                num_generations=given.group, max_steps=10_000, save_steps=10_000, max_completion_length=given.tokens,
                loss=given.loss, gradient_checkpointing=False, lora=LoraConfig(modules=MODULES),
            ),
        ),
        device,
    )  # fmt: skip
    problems = load_problems(source(None, given.prompts * 2 * (given.rounds + 2))).problems
    found = prompted(problems, lambda problem: (problem.question, False), tokenizer, 1024)
    return GrpoJob(
        spec, device, tokenizer, found, samples.rollout, samples, Journal(room, 0, Run(), "grpo"), quiet, quiet,
        parts=parts,
    )  # fmt: skip


def measure(given: argparse.Namespace, room: Path) -> dict[str, Any]:
    """Every step's seconds and positions, by side."""
    runtime.prepare_process(None)
    tokenizer, parts = runtime.load_tokenizer(given.model.resolve()), device_parts()
    samples = Given(given, tokenizer)
    job = make_job(given, room, samples, tokenizer, parts)
    trainer = job.trainer(Batch(job.spec.grpo.batch_size, job.spec.grpo.grad_accum), 0)
    rows: dict[str, list[dict[str, float]]] = {AS_TRL: [], OURS: []}
    orders, seen = in_turns(list(rows), given.rounds), [0]
    now = (0, AS_TRL)

    def count(module: Any, arguments: Any, named: dict[str, Any]) -> None:
        seen[0] += named["input_ids"].numel()

    trainer.model.get_base_model().register_forward_pre_hook(count, with_kwargs=True)

    def wait() -> None:
        nonlocal now
        found = next(orders, None)
        if found is None:
            raise Finished
        now, seen[0] = found, 0
        samples.round = now[0]
        active.regrouped = regrouped if now[1] == OURS else lambda batches, *_: batches

    def tell(times: Any, logs: dict[str, float]) -> None:
        number, side = now
        row = {"seconds": times.parts[Part.FORWARD_BACKWARD], "positions": seen[0]}
        print(
            f"round {number} {side}: {row['seconds']:.2f} s, {row['positions']}", file=sys.stderr, flush=True
        )
        if number:
            rows[side].append(row)

    pace(trainer, parts, wait, tell)
    run_paced(trainer)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", type=Path)
    for name, value in {"prompts": 4, "group": 8, "micro-batch": 8, "tokens": 128, "rounds": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--moving", type=float, default=0.5, help="share of the groups that teach something")
    parser.add_argument("--loss", default="dapo")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        rows = measure(given, Path(room))
    pairs = list(zip(rows[AS_TRL], rows[OURS], strict=True))
    result = {
        "benchmark": "micro_batches", "machine": machine(), "settings": settings_of(given),
        "seconds": {side: median_interval([row["seconds"] for row in found]) for side, found in rows.items()},
        "as_trl_over_ours": median_interval([trl["seconds"] / ours["seconds"] for trl, ours in pairs]),
        "positions_as_trl_over_ours": median_interval([trl["positions"] / ours["positions"] for trl, ours in pairs]),
        "steps": rows,
    }  # fmt: skip
    write(result, given.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
