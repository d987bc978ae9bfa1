"""Seconds of a planner's GRPO step: worker calls in two waves on a shared engine, or one at a time on a second copy.

    python benchmarks/planner_step.py MODEL_FOLDER [--data gsm8k_train.jsonl] [--shapes 1x8x4,8x8x8] [--repeats 5]
        [--serial-calls 0] [--adapter FOLDER] [--worker-tokens 512] [--tokens 512] [--share 0.4] [--out F]

A shape is BATCH x ACCUMULATION x G; the first one is the original's. A step is the product's own (TRL, LoRA, the
planner's reward); in each one the very same worker calls are made both ways, the order changing from step to step: by
the engine that the planner's samples come from, and by transformers' `generate`, greedy, one call after another, on a
second copy of the base, as the original does. `shared` is the step without the second way, `serial` the step without
the first. So the ratio favours the second copy: the planner's plans come from the engine in both, and equal greedy
calls are made once in both.

A small model writes hardly any valid plan, and then there is no call to time: `--given-plans` carries out plans of
ours in place of the planner's, atomic and split ones in turns; its own are sampled and trained on all the same.
`--serial-calls n` makes at most n calls of each wave one at a time and counts the others by their tokens; 0 makes all.
The first step of a shape is warm-up. Memory: trainer, engine, second copy. Exit status 1 where the interval of
serial / shared lies below the bar of 5.
"""

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grpo_side import MODULES, source, weights
from paced import (
    GIB,
    Finished,
    device_memory,
    machine,
    median_interval,
    own_memory,
    pace,
    quiet,
    run_paced,
    settings_of,
    write,
)  # fmt: skip

from reasoner.config.planner import PlannerGrpoConfig, RewardConfig, WorkerConfig
from reasoner.config.smart import EngineConfig, LoraConfig, SamplingConfig
from reasoner.methods.planner.independence import packaged_folder
from reasoner.methods.planner.plan import Plan
from reasoner.onpolicy.parts import Parts, device_parts
from reasoner.problems import load_problems
from reasoner.records import Completion, GenerationRequest
from reasoner.tracking import Run
from reasoner.training import runtime
from reasoner.training.grpo import program, questions
from reasoner.training.grpo.journal import Journal
from reasoner.training.grpo.sampling import Sampling
from reasoner.training.micro_batch import Batch
from reasoner.training.planner import grpo
from reasoner.training.planner.spec import PlannerGrpoSpec

BAR = 5.0
SHARED, SERIAL = "worker_shared", "worker_serial"
Complete = Callable[[Sequence[GenerationRequest]], list[Completion]]


class SecondCopy:
    """The base once more, for one call at a time."""

    def __init__(self, folder: Path, tokenizer: Any, cuda: bool) -> None:
        self._tokenizer, self._device = tokenizer, "cuda" if cuda else "cpu"
        loaded = runtime.load_model(folder, "bfloat16" if cuda else "float32")
        self._model: Any = loaded.to(self._device).eval()
        weights = {id(w): w.numel() * w.element_size() for w in self._model.parameters()}
        self.gib = round(sum(weights.values()) / GIB, 3)

    def complete(self, request: GenerationRequest) -> int:
        """Answer greedily; the number of tokens."""
        import torch

        special, longest = request.add_special_tokens, request.sampling.max_tokens
        read = self._tokenizer(request.prompt, return_tensors="pt", add_special_tokens=special).to(
            self._device
        )
        pad = self._tokenizer.pad_token_id or self._tokenizer.eos_token_id
        with torch.inference_mode():
            out = self._model.generate(**read, do_sample=False, max_new_tokens=longest, pad_token_id=pad)
        return int(out.shape[1] - read["input_ids"].shape[1])


class BothWays:
    """The worker's calls on the shared engine and one at a time; the engine's answers are used."""

    def __init__(self, sampling: Sampling, copy: SecondCopy, parts: Parts, limit: int) -> None:
        self._sampling, self._engine, self._copy = sampling, sampling.complete, copy
        self._parts, self._limit = parts, limit
        self.serial_first = False
        self.begin()

    def begin(self) -> None:
        """A new step."""
        self.calls = self.tokens = self.serial_calls = self.serial_tokens = 0

    def complete(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        chosen = list(requests) if not self._limit else spread(requests, self._limit)
        if self.serial_first:
            self._serial(chosen)
        made = self._shared(requests)
        if not self.serial_first:
            self._serial(chosen)
        return made

    def _shared(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        sampler: Any = self._sampling._sampler
        counted, sampler.parts = sampler.parts, Parts()
        try:
            with self._parts.part(SHARED):
                made = self._engine(requests)
        finally:
            sampler.parts = counted
        self.calls += len(made)
        self.tokens += sum(c.completion_tokens for c in made)
        return made

    def _serial(self, requests: Sequence[GenerationRequest]) -> None:
        with self._parts.part(SERIAL):
            self.serial_tokens += sum(self._copy.complete(request) for request in requests)
        self.serial_calls += len(requests)

    @property
    def scale(self) -> float:
        """Tokens of all calls over those of the calls that were made one at a time."""
        return (
            self.tokens / self.serial_tokens if self.serial_calls < self.calls and self.serial_tokens else 1.0
        )


class GivenPlans:
    """The planner's reward for plans of ours: whole problems and halves of it, in turns."""

    __name__ = "pipeline"
    PLANS = (
        Plan(False, (), "solve it"),
        Plan(
            True,
            ("What is asked for?", "Which numbers are given, and what follows from them?"),
            "put together",
        ),
    )

    def __init__(self, reward: Any) -> None:
        self._reward = reward

    def __call__(self, completions: Sequence[str], **named: Any) -> Any:
        plans = [self.PLANS[i % 2].to_json() for i in range(len(completions))]
        return self._reward(completions=plans, **named)


def spread(rows: Sequence[Any], count: int) -> list[Any]:
    """At most `count` of the rows, evenly over all."""
    return (
        [rows[i * len(rows) // count] for i in range(min(count, len(rows)))]
        if len(rows) > count
        else list(rows)
    )


def make_spec(given: argparse.Namespace, room: Path, shape: Sequence[int], cuda: bool) -> PlannerGrpoSpec:
    """The product's settings in the given shape."""
    batch, accum, group = shape
    options: dict[str, Any] = {"max_model_len": given.context, **json.loads(given.options)}
    return PlannerGrpoSpec(
        base=given.model.resolve(), base_name=given.model.name, rows=room / "unused", output=room / "out",
        work=room / "work", start=given.adapter, prompts=given.prompts, device="cuda" if cuda else "cpu",
        engine=EngineConfig(options=options),
        worker=WorkerConfig(decoding=SamplingConfig(max_tokens=given.worker_tokens)),
        reward=RewardConfig(independence_weight=0.3 if packaged_folder() else 0.0),
        grpo=PlannerGrpoConfig(
            batch_size=batch, grad_accum=accum, num_generations=group, max_steps=10_000, save_steps=10_000,
            max_prompt_length=given.prompt_tokens, max_completion_length=given.tokens, gradient_checkpointing=True,
            lora=LoraConfig(modules=MODULES), engine={"gpu_memory_utilization": given.share} if cuda else {},
        ),
    )  # fmt: skip


def measure(given: argparse.Namespace, room: Path) -> dict[str, Any]:
    """All shapes with one engine and one second copy."""
    runtime.prepare_process(None)
    cuda = device_memory() is not None
    shapes = [tuple(map(int, word.split("x"))) for word in given.shapes.split(",")]
    first = program.settled(make_spec(given, room, shapes[0], cuda), "cuda" if cuda else "cpu")
    first.work.mkdir(parents=True, exist_ok=True)
    tokenizer, parts = runtime.load_tokenizer(first.base), device_parts()
    memory: dict[str, Any] = {"device_before": device_memory()}
    with Sampling(first, first.device, tokenizer, parts) as sampling:
        memory |= weights((first.work / "engine.log").read_text(errors="replace"), first.base)
        memory["device_with_engine"] = device_memory()
        copy = SecondCopy(first.base, tokenizer, cuda)
        memory |= {"second_copy": copy.gib, "device_with_second_copy": device_memory()}
        both = BothWays(sampling, copy, parts, given.serial_calls)
        sampling.complete = both.complete  # type: ignore[method-assign]
        print(f"ready: {memory}", file=sys.stderr, flush=True)
        found: dict[str, list[dict[str, Any]]] = {word: [] for word in given.shapes.split(",")}
        result: dict[str, Any] = {"machine": machine(), "memory_gib": memory, "shapes": found}
        try:
            for word, shape in zip(found, shapes, strict=True):
                spec = program.settled(make_spec(given, room, shape, cuda), first.device)
                steps(given, spec, sampling, both, parts, tokenizer, found[word])
                gc.collect()
        except KeyboardInterrupt:
            result["interrupted"] = True
    return result


def steps(
    given: argparse.Namespace, spec: PlannerGrpoSpec, sampling: Sampling, both: BothWays, parts: Parts, tokenizer: Any,
    rows: list[dict[str, Any]],
) -> None:  # fmt: skip
    """Append a row for each step of a shape but the first."""
    method = grpo.planner_method(spec)
    count = 2 * (given.repeats + 2) * spec.grpo.batch_size * spec.grpo.grad_accum // spec.grpo.num_generations
    problems = load_problems(source(given.data and str(given.data), count)).problems
    found = questions.prompted(problems, method.render, tokenizer, spec.grpo.max_prompt_length)
    journal = Journal(spec.work, 0, Run(), method.name)
    job = program.make_job(spec, method, found, sampling, journal, quiet, quiet)
    if given.given_plans:
        job.reward = GivenPlans(job.reward)
    trainer = job.trainer(Batch(spec.grpo.batch_size, spec.grpo.grad_accum), 0)
    warm = False

    def wait() -> None:
        if len(rows) == given.repeats:
            raise Finished
        both.begin()
        both.serial_first = len(rows) % 2 == 1

    def tell(times: Any, logs: dict[str, float]) -> None:
        nonlocal warm
        row = step_row(times, logs, both)
        line = f"{row['shared']:.1f} s shared, {row['serial']:.1f} s serial, {both.calls} calls"
        print(line if warm else f"warm-up: {line}", file=sys.stderr, flush=True)
        if warm:
            rows.append(row)
        warm = True

    pace(trainer, parts, wait, tell)
    run_paced(trainer)


def step_row(times: Any, logs: dict[str, float], both: BothWays) -> dict[str, Any]:
    """What a step took, with one way of the worker's calls and with the other."""
    serial, shared = times.parts.get(SERIAL, 0.0), times.parts.get(SHARED, 0.0)
    scaled = serial * both.scale
    return {
        "wall": times.wall, "parts": times.parts, "shared": times.wall - serial,
        "serial": times.wall - shared - serial + scaled, "worker_shared": shared, "worker_serial": scaled,
        "scale": both.scale, "calls": both.calls, "serial_calls": both.serial_calls, "worker_tokens": both.tokens,
        "valid": logs.get("planner/valid"), "decomposed": logs.get("planner/decomposed"),
        "memory": {**own_memory(), "device": device_memory()},
    }  # fmt: skip


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians of a shape; steps without a worker call tell nothing of the two ways."""
    told = [row for row in rows if row["calls"]]
    if not told:
        return {"steps": len(rows), "note": "no valid plan, so no worker call"}
    return {
        "steps": len(rows),
        "steps_with_calls": len(told),
        "seconds_shared": median_interval([row["shared"] for row in told]),
        "seconds_serial": median_interval([row["serial"] for row in told]),
        "ratio_serial_over_shared": median_interval([row["serial"] / row["shared"] for row in told]),
        "ratio_of_worker_calls": median_interval(
            [row["worker_serial"] / row["worker_shared"] for row in told]
        ),
        "calls": statistics.median(row["calls"] for row in told),
        "worker_tokens": statistics.median(row["worker_tokens"] for row in told),
        "valid": statistics.median(row["valid"] for row in told),
        "scaled": any(row["scale"] != 1.0 for row in told),
        "peak_gib": max(row["memory"].get("peak", 0.0) for row in told),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, help="questions in GSM8K's shape; unset generates some")
    parser.add_argument("--adapter", type=Path, help="a planner to begin with; unset begins with a fresh one")
    parser.add_argument("--shapes", default="1x8x4,8x8x8")
    numbers = {"repeats": 5, "serial-calls": 0, "tokens": 512, "worker-tokens": 512, "prompt-tokens": 1024}
    numbers["context"] = 4096
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--prompts", default="planner")
    parser.add_argument("--given-plans", action="store_true")
    parser.add_argument("--share", type=float, default=0.4, help="of the card's memory, for the engine")
    parser.add_argument("--options", default="{}", help="further options of the engine as JSON")
    parser.add_argument("--logs", type=Path, help="an empty folder that keeps what the engine said")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as room:
        found = measure(given, given.logs or Path(room))
    rows = found.pop("shapes")
    result = {"benchmark": "planner_step", **found, "settings": settings_of(given), "bar": BAR}
    result["seconds_in_all"] = round(time.monotonic() - started, 1)
    result["summary"] = {word: summary(steps) for word, steps in rows.items()}
    result["steps"] = rows
    write(result, given.out)
    told = [s["ratio_serial_over_shared"] for s in result["summary"].values() if "note" not in s]
    return int(not told or any(ratio["high"] < BAR for ratio in told))


if __name__ == "__main__":
    raise SystemExit(main())
