"""Episodes a second: one engine with two adapters against two separate transformers models.

    python benchmarks/multiturn_rollout.py MODEL_FOLDER [--engine vllm] [--problems 16] [--group 4] [--tokens 256]
        [--rounds 3] [--option gpu_memory_utilization=0.5] [--out F]

Both roll out the same episodes (attempt, feedback, refinement; the prompts of this project) with the same sampling and
limits: ours through `Rollouts` on an on-policy sampler, as training does, log-probabilities included; theirs as the
original does, a solver and a feedback writer as two models in one process, `generate` in batches. Both compute in the
precision that is served on the device. Verdicts are left out on both sides. Rounds run A B B A on fresh problems.
Lengths are the model's own; generated tokens are reported beside. On a card give the engine a share that leaves room
for the two models (`--option gpu_memory_utilization=0.5`).

Interrupted (Ctrl-C), it writes the rounds that it has.

Covers throughput, and memory in use on a card. Does not cover training or start time. Exit status 1 where the interval
of the ratio lies below the bar of 5 x.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paced import device_memory, machine, median_interval, settings_of, write
from turns import in_turns

from reasoner.engines.protocol import EngineSettings
from reasoner.engines.start import open_engine
from reasoner.hardware import served_dtype
from reasoner.methods.multiturn.episode import Judged
from reasoner.methods.multiturn.rollout import Rollouts
from reasoner.methods.multiturn.speaker import SampledVoice, Speaker
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.prompts import ChatRenderer
from reasoner.prompts.turns import load_turns
from reasoner.records import Outcome, Problem, Sampling, Verdict
from reasoner.training import runtime

BAR = 5.0
CONTEXT = 4096


class Unjudged:
    """An environment that judges nothing: the benchmark is of sampling."""

    version = "none"
    callers = 1

    def facts(self, problem: Problem) -> dict[str, Any]:
        return {"question": problem.question, "function": "", "tests": []}

    def judge(self, answers: Sequence[tuple[Problem, str]]) -> list[Judged]:
        return [Judged(Verdict(Outcome.INCORRECT, "unjudged"))] * len(answers)

    def tried(self, answers: Sequence[tuple[Problem, str]]) -> list[str | None]:
        return [None] * len(answers)

    def reveals(self, texts: Sequence[tuple[Problem, str]]) -> list[bool]:
        return [False] * len(texts)

    def __enter__(self) -> "Unjudged":
        return self

    def __exit__(self, *error: object) -> None: ...


def adapters(folder: Path, room: Path, rank: int) -> dict[str, Path]:
    """Two random adapters that change the model a little."""
    import torch
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(
        runtime.load_model(folder, "bfloat16"),
        LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    made = {}
    for seed, name in enumerate(("solver", "feedback")):
        draw = torch.Generator().manual_seed(seed)
        for key, weight in model.named_parameters():
            if "lora_B" in key:
                weight.data = (torch.randn(weight.shape, generator=draw) * 1e-3).to(weight.dtype)
        model.save_pretrained(room / name)
        made[name] = room / name
    return made


def problems(count: int, seed: int) -> list[Problem]:
    """Generated word problems."""
    from reasoner.problems.word_problems import generate

    return list(generate(count, seed, dataset="bench"))


class Ours:
    """One engine, two adapters."""

    def __init__(self, folder: Path, made: dict[str, Path], given: argparse.Namespace, room: Path) -> None:
        options = dict(option.split("=", 1) for option in given.option)
        parsed = {k: json.loads(v) for k, v in options.items()} | {"max_model_len": CONTEXT}
        settings = EngineSettings(
            given.engine, folder, adapters=True, max_lora_rank=given.rank, options=parsed
        )
        tokenizer = runtime.load_tokenizer(folder)
        self._sampler = OnPolicySampler(
            lambda: open_engine(settings, log=room / "engine.log"), tokenizer, CONTEXT
        )
        for name, path in made.items():
            self._sampler.load(name, path)
        sampling = Sampling(1.0, max_tokens=given.tokens)
        solver = Speaker(SampledVoice(self._sampler), ChatRenderer(folder), sampling, "solver", tokenizer)
        self._rollouts = Rollouts(Unjudged(), load_turns("math"), solver, solver.with_adapter("feedback"))

    def run(self, rows: list[Problem], group: int, seed: int) -> tuple[int, int]:
        episodes = self._rollouts.episodes(rows, group, seed)
        return len(episodes), sum(turn.tokens for episode in episodes for turn in episode.turns)

    def close(self) -> None:
        self._rollouts.__exit__(None, None, None)
        self._sampler.close()


class Theirs:
    """A solver and a feedback writer as two transformers models."""

    def __init__(self, folder: Path, made: dict[str, Path], given: argparse.Namespace) -> None:
        import torch
        from peft import PeftModel

        cuda = torch.cuda.is_available()
        device, dtype = "cuda" if cuda else "cpu", served_dtype("auto", not cuda)
        self._given, self._renderer, self._device = given, ChatRenderer(folder), device
        self._tokenizer: Any = runtime.load_tokenizer(folder)
        self._tokenizer.padding_side = "left"
        self._tokenizer.pad_token = self._tokenizer.pad_token or self._tokenizer.eos_token
        self._models = {
            name: PeftModel.from_pretrained(runtime.load_model(folder, dtype), str(path)).to(device).eval()
            for name, path in made.items()
        }
        self._turns = load_turns("math")

    def run(self, rows: list[Problem], group: int, seed: int) -> tuple[int, int]:
        import torch

        torch.manual_seed(seed)
        facts = [Unjudged().facts(p) for p in rows for _ in range(group)]
        first, a = self._say("solver", [self._turns.attempt_turn(f) for f in facts])
        advice, b = self._say(
            "feedback", [self._turns.feedback_turn(f, z) for f, z in zip(facts, first, strict=True)]
        )
        third = zip(facts, first, advice, strict=True)
        _, c = self._say("solver", [self._turns.refine_turn(f, z, g) for f, z, g in third])
        return len(facts), a + b + c

    def _say(self, who: str, conversations: list[Any]) -> tuple[list[str], int]:
        import torch

        texts, tokens = [], 0
        for start in range(0, len(conversations), self._given.batch):
            prompts = [
                self._renderer.render(m).text for m in conversations[start : start + self._given.batch]
            ]
            read = self._tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
            read = read.to(self._device)
            with torch.inference_mode():
                out = self._models[who].generate(
                    **read,
                    do_sample=True,
                    temperature=1.0,
                    top_p=1.0,
                    top_k=0,
                    max_new_tokens=self._given.tokens,
                )
            new = out[:, read["input_ids"].shape[1] :]
            tokens += int((new != self._tokenizer.pad_token_id).sum())
            texts += self._tokenizer.batch_decode(new, skip_special_tokens=True)
        return texts, tokens


def measure(side: Any, given: argparse.Namespace, seed: int) -> dict[str, float]:
    """One round: episodes and tokens a second."""
    rows = problems(given.problems, seed)
    started = time.monotonic()
    episodes, tokens = side.run(rows, given.group, seed)
    seconds = time.monotonic() - started
    return {
        "episodes_s": episodes / seconds,
        "tokens_s": tokens / seconds,
        "tokens_episode": tokens / episodes,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--engine", default="vllm", choices=("vllm", "transformers"))
    parser.add_argument("--option", action="append", default=[], help="engine option, KEY=JSON")
    for name, value in (
        ("problems", 16),
        ("group", 4),
        ("tokens", 256),
        ("rounds", 3),
        ("rank", 16),
        ("batch", 64),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory() as room:
        made = adapters(given.model, Path(room), given.rank)
        memory = {"before": device_memory()}
        ours = Ours(given.model, made, given, Path(room))
        memory["ours"] = device_memory()
        theirs = Theirs(given.model, made, given)
        with contextlib.suppress(KeyboardInterrupt):
            for number, name in in_turns(tuple(found), given.rounds):
                row = measure(ours if name == "ours" else theirs, given, number)
                if number:
                    found[name].append(row)
                else:
                    memory["both"] = device_memory()
        ours.close()
    ratios = {
        unit: median_interval(
            [a[unit] / b[unit] for a, b in zip(found["ours"], found["theirs"], strict=False)]
        )
        for unit in ("episodes_s", "tokens_s")
        if all(found.values())
    }
    told = {"machine": machine(), "settings": settings_of(given), "memory_gib": memory, "rounds": found}
    write({"benchmark": "multiturn_rollout", "ratios": ratios, "bar": BAR, **told}, given.out)
    return int(not ratios or ratios["episodes_s"]["high"] < BAR)


if __name__ == "__main__":
    sys.exit(main())
