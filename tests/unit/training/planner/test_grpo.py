"""GRPO steps of a tiny model through TRL on the on-policy loop, with the real pipeline as reward.

Wrong if the adapter stays as it was, if base or worker change, if a resumed run differs from one that was not
interrupted, if a halved micro-batch changes what is trained, or if a step's record is not what was paid.
"""

import functools
import json
import math
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.planner import WorkerConfig
from reasoner.config.smart import SamplingConfig
from reasoner.engines.start import open_engine
from reasoner.errors import ConfigurationError, DataError, ModelError, TrainingError
from reasoner.ids import file_hash
from reasoner.records import Problem
from reasoner.training.adapter import WEIGHTS
from reasoner.training.grpo import sampling, trainer
from reasoner.training.grpo.journal import EXAMPLES, METRICS, read_rows
from reasoner.training.planner import grpo
from reasoner.training.planner.spec import PlannerGrpoSpec
from tests.support.sleeping import asleep_through_every_step, never_asleep, watch
from tests.support.tiny_llama import make_adapter
from tests.unit.training.planner.planning import learnt_to_plan, make_grpo, problems, write_prompts

pytestmark = pytest.mark.timeout(600)
Planner = tuple[Path, None, str]


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    return learnt_to_plan(tmp_path_factory.mktemp("planner"))


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same engine without a process of its own, which costs seconds; tests/e2e has the process."""
    monkeypatch.setattr(sampling, "open_engine", functools.partial(open_engine, in_process=True))


def run(spec: PlannerGrpoSpec, report: Callable[..., Any] = lambda **_: None) -> list[str]:
    lines: list[str] = []
    grpo.train(spec, report, lines.append)
    return lines


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / WEIGHTS)


def test_on_a_shared_card_the_engine_sleeps_through_the_update(
    planner: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Awake for plans and worker, asleep for the optimiser; the training is the same."""
    import torch

    calls = watch(monkeypatch, torch.optim.AdamW)
    run(make_grpo(*planner, tmp_path / "shared", share_card=True))
    assert asleep_through_every_step(calls), calls
    assert [calls.count(name) for name in ("load_adapter", "step", "sleep", "wake")] == [2, 2, 2, 1]
    assert calls.count("generate") >= 4, "plans, then the worker"
    calls.clear()
    run(make_grpo(*planner, tmp_path / "apart"))
    assert never_asleep(calls), calls
    shared, apart = weights(tmp_path / "shared" / "adapter"), weights(tmp_path / "apart" / "adapter")
    assert all(torch.equal(shared[name], apart[name]) for name in apart)


class Killed(Exception):
    pass


def die(**facts: Any) -> None:
    if facts["done"] == 2:
        raise Killed


def require_times(work: Path) -> None:
    """Every part of a step has its seconds in the work folder, together at most the step, and all steps the whole."""
    rows = [{k: v for k, v in row.items() if k.startswith("time/")} for row in read_rows(work / METRICS)]
    parts = ("generate", "verdict", "logprobs", "forward_backward", "optimiser", "prepare", "sync")
    for row in rows:
        assert all(row[f"time/{part}"] > 0 for part in parts), row
        assert 0 <= row["time/other"] < row["time/wall"]
        assert sum(v for k, v in row.items() if k != "time/wall") == pytest.approx(
            row["time/wall"], abs=0.002
        )
    whole = json.loads((work / "metrics.json").read_text())
    for part in (*parts, "wall"):
        assert whole[f"time/{part}"] >= sum(row[f"time/{part}"] for row in rows) - 0.01, part


def test_steps_change_the_adapter_alone_and_can_be_resumed(planner: Planner, tmp_path: Path) -> None:
    import torch

    base = planner[0]
    before = {p.name: file_hash(p) for p in base.iterdir()}
    spec = make_grpo(*planner, tmp_path / "whole", max_steps=3)
    losses: list[dict[str, Any]] = []
    run(spec, lambda **facts: losses.append(facts))
    assert [(f["done"], f["total"]) for f in losses] == [(1, 3), (2, 3), (3, 3)]
    assert {p.name: file_hash(p) for p in base.iterdir()} == before
    new = weights(spec.output)
    assert all(torch.isfinite(w).all() for w in new.values())
    assert any(w.any() for name, w in new.items() if "lora_B" in name), "B begins as zero"

    metrics, examples = read_rows(spec.output / METRICS), read_rows(spec.output / EXAMPLES)
    assert [row["step"] for row in metrics] == [1, 2, 3]
    assert all(math.isfinite(row["loss"]) for row in [*metrics, *losses])
    for name in ("valid", "correct"):
        assert sum(row[f"planner/{name}"] for row in metrics) > 0, name
    assert not any("time" in key for key in metrics[0])
    require_times(spec.work)
    assert metrics[0]["sampler_trainer_difference"] < 0.02
    assert {row["step"] for row in examples} == {1, 2, 3} and len(examples) == 12
    assert len({row["problem_id"] for row in examples if row["step"] == 1}) == 4
    assert {p.name for p in spec.output.iterdir()} >= {
        "adapter_config.json", WEIGHTS, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "training_config.json", "training.json",
    }  # fmt: skip
    training = json.loads((spec.output / "training.json").read_text())
    assert training["steps"] == 3 and training["questions"] == {"given": 8, "kept": 8, "too_long": 0}
    assert len(training["curves"]) == 3 and "reward" in training["curves"][0]
    assert json.loads((spec.output / "special_tokens_map.json").read_text())["eos_token"] == "<|im_end|>"

    other = make_grpo(*planner, tmp_path / "resumed", max_steps=3)
    with pytest.raises(Killed):
        run(other, die)
    assert "going on from step 1" in run(other)
    for name in (WEIGHTS, METRICS, EXAMPLES, "training.json"):
        assert file_hash(other.output / name) == file_hash(spec.output / name), name
    assert json.loads((other.work / "metrics.json").read_text())["resumed_from_step"] == 1


def held_models(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Grows with every load of the base by whether it is the first, or a model of an earlier one is still held."""
    loaded: list[Any] = []
    found: list[bool] = []

    def watched(*given: Any, _load: Any = trainer.policy) -> Any:
        found.append(not loaded or any(model() is not None for model in loaded))
        model = _load(*given)
        loaded.append(weakref.ref(model))
        return model

    monkeypatch.setattr(trainer, "policy", watched)
    return found


@pytest.mark.parametrize("settings", [{}, {"load_in_4bit": True, "gate": 0.2}], ids=["fp32", "4-bit"])
def test_a_full_memory_halves_the_micro_batch_and_keeps_the_groups(
    planner: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    import torch
    from trl import GRPOTrainer

    compute, sizes, limit = GRPOTrainer.compute_loss, [], [2]

    def limited(self: Any, model: Any, inputs: Any, **more: Any) -> Any:
        sizes.append(inputs["completion_ids"].size(0))
        if sizes[-1] > limit[0]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compute(self, model, inputs, **more)

    kept = held_models(monkeypatch)
    monkeypatch.setattr(GRPOTrainer, "compute_loss", limited)
    spec = make_grpo(*planner, tmp_path, max_steps=1, **settings)
    assert "out of memory at step 0: the micro-batch is now 2" in run(spec)
    training = json.loads((spec.output / "training.json").read_text())
    assert training["batch"] == {"size": 2, "accum": 4} and len(training["halvings"]) == 1
    assert sizes == [4, 2, 1, 1, 1], (
        "the last three have no completion that moves something, and one that does not"
    )
    assert len(read_rows(spec.output / METRICS)) == 1
    assert kept == [True, False], "the first attempt's model is gone before the second loads the base"
    limit[0] = 0
    with pytest.raises(TrainingError, match="one completion a micro-step"):
        run(make_grpo(*planner, tmp_path / "never", max_steps=1))


def test_the_adapter_is_trained_in_float32_without_the_warm_starts_dropout(
    planner: Planner, tmp_path: Path
) -> None:
    """In bfloat16 steps of 1e-5 vanish; dropout of the supervised training would part the policy from the sampler."""
    import torch
    from peft.tuners.lora import LoraLayer

    base, _, prompts = planner
    start = tmp_path / "start"
    make_adapter(base, start, seed=1)
    config = json.loads((start / "adapter_config.json").read_text())
    config |= {"lora_dropout": 0.5, "base_model_name_or_path": "tiny-llama"}
    (start / "adapter_config.json").write_text(json.dumps(config))
    for four_bits in (False, True):
        spec = make_grpo(
            base, start, prompts, tmp_path / str(four_bits), load_in_4bit=four_bits, precision="bf16"
        )
        made = a_trainer(spec)
        layers = [module for module in made.model.modules() if isinstance(module, LoraLayer)]
        assert layers and all(isinstance(one.lora_dropout["default"], torch.nn.Identity) for one in layers)
        trained = [weight for weight in made.model.parameters() if weight.requires_grad]
        assert {weight.dtype for weight in trained} == {torch.float32}


def test_a_weight_of_the_base_that_would_be_trained_is_refused(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def thawed(*given: Any, _load: Any = trainer.policy) -> Any:
        model = _load(*given)
        model.get_input_embeddings().requires_grad_(True)
        return model

    monkeypatch.setattr(trainer, "policy", thawed)
    with pytest.raises(TrainingError, match="only the adapter may be trained"):
        a_trainer(make_grpo(base, None, write_prompts(tmp_path), tmp_path))


def a_trainer(spec: PlannerGrpoSpec) -> Any:
    """As the program makes it, without an engine."""
    from reasoner.tracking import tracked
    from reasoner.training import runtime
    from reasoner.training.grpo.journal import Journal
    from reasoner.training.grpo.questions import prompted
    from reasoner.training.micro_batch import Batch

    tokenizer = runtime.load_tokenizer(spec.base)
    found = prompted(problems(), grpo.planner_method(spec).render, tokenizer, 128)
    spec.work.mkdir(parents=True)
    with tracked(None, print, {}) as shown:
        journal = Journal(spec.work, 1, shown, "planner")
        job = trainer.GrpoJob(
            spec, "cpu", tokenizer, found, lambda *_: {}, lambda **_: [], journal, print, print
        )
        return job.trainer(Batch(4, 2), 0)


def test_with_a_reference_a_resumed_run_is_the_same(planner: Planner, tmp_path: Path) -> None:
    """TRL keeps the start as a second adapter; a checkpoint must not bring it back in the place of the trained one."""
    # Four plans to each of four questions: that all four of every question are equally right is no chance to fear.
    more = {"batch_size": 8, "num_generations": 4, "max_steps": 3, "beta": 0.05}
    whole, other = (make_grpo(*planner, tmp_path / name, **more) for name in ("a", "b"))
    run(whole)
    kl = [row["kl"] for row in read_rows(whole.output / METRICS)]
    assert kl[0] == 0 and min(kl[1:]) > 0, "the reference is the start: with a fresh adapter, the base"
    with pytest.raises(Killed):
        run(other, die)
    assert "going on from step 1" in run(other)
    for name in (WEIGHTS, METRICS, "training.json"):
        assert file_hash(other.output / name) == file_hash(whole.output / name), name


def test_resumed_in_a_later_epoch_a_run_meets_the_same_questions(planner: Planner, tmp_path: Path) -> None:
    """Two steps an epoch; killed after the third step, which is the second epoch's first."""
    whole, other = (make_grpo(*planner, tmp_path / name, max_steps=4) for name in ("a", "b"))
    run(whole)

    def die_late(**facts: Any) -> None:
        if facts["done"] == 4:
            raise Killed

    with pytest.raises(Killed):
        run(other, die_late)
    assert "going on from step 3" in run(other)
    for name in (WEIGHTS, EXAMPLES, METRICS):
        assert file_hash(other.output / name) == file_hash(whole.output / name), name
    asked = {step: set[str]() for step in range(1, 5)}
    for row in read_rows(whole.output / EXAMPLES):
        asked[row["step"]].add(row["problem_id"])
    assert asked[1] | asked[2] == asked[3] | asked[4] and len(asked[1] | asked[2]) == 8
    assert asked[3] not in (asked[1], asked[2]), "each epoch has an order of its own"


def test_a_sampled_worker_may_cut_its_distribution(planner: Planner, tmp_path: Path) -> None:
    """Nothing is trained on what it says."""
    sampled = WorkerConfig(decoding=SamplingConfig(temperature=0.7, top_p=0.9, max_tokens=12))
    spec = make_grpo(*planner, tmp_path, max_steps=1, worker=sampled)
    run(spec)
    assert read_rows(spec.output / METRICS)[0]["planner/worker_tokens"] > 0


def test_a_step_without_a_right_plan_moves_nothing_and_a_start_is_gone_on_from(
    planner: Planner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    base, _, prompts = planner
    first = make_grpo(*planner, tmp_path / "first", max_steps=1, lr=1e-3)
    run(first)
    wrong = [Problem.make(p.question, "-1", "pens") for p in problems()]
    spec = make_grpo(base, first.output, prompts, tmp_path / "second", max_steps=1, rows_of=wrong)
    run(spec)
    assert "All reward functions returned None" not in caplog.text, "TRL would print a question"
    old, new = weights(first.output), weights(spec.output)
    assert old.keys() == new.keys() and all(torch.equal(old[k], new[k]) for k in old)
    row = read_rows(spec.output / METRICS)[0]
    assert row["planner/groups_used"] == 0 and row["planner/valid"] > 0 and row["grad_norm"] == 0
    training = json.loads((spec.output / "training.json").read_text())
    assert training["start"] == file_hash(first.output / WEIGHTS)


def test_a_4_bit_base_samples_with_the_trainers_own_model(planner: Planner, tmp_path: Path) -> None:
    more = {"batch_size": 8, "num_generations": 4, "max_steps": 2}
    spec = make_grpo(*planner, tmp_path, load_in_4bit=True, gate=0.2, **more)
    run(spec)
    new = weights(spec.output)
    assert any(w.any() for name, w in new.items() if "lora_B" in name)
    row = read_rows(spec.output / METRICS)[0]
    assert row["planner/valid"] > 0 and row["sampler_trainer_difference"] < 0.05
    assert json.loads((spec.output / "training_config.json").read_text())["load_in_4bit"] is True
    assert not (spec.work / "engine.log").exists(), "no second copy was started"


def test_what_cannot_be_trained_is_told_before_anything_starts(planner: Planner, tmp_path: Path) -> None:
    base, _, prompts = planner
    with pytest.raises(DataError, match=r"grpo\.max_prompt_length"):
        run(make_grpo(*planner, tmp_path / "a", max_prompt_length=8))
    with pytest.raises(DataError, match=r"3 training questions .* a step takes 4.* grpo\.grad_accum"):
        run(make_grpo(*planner, tmp_path / "few", rows_of=problems(3)))
    with pytest.raises(DataError, match="3 training questions"):
        run(make_grpo(*planner, tmp_path / "chosen", max_samples=3))
    with pytest.raises(ConfigurationError, match="do not fit into the engine's context of 512"):
        run(make_grpo(*planner, tmp_path / "b", max_completion_length=600))
    other = tmp_path / "other"
    make_adapter(base, other, seed=1)
    config = json.loads((other / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "somebody-else"
    (other / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="trained on 'somebody-else'"):
        run(make_grpo(base, other, prompts, tmp_path / "c"))
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        run(make_grpo(tmp_path / "none", None, prompts, tmp_path / "d"))
