"""Several training processes share the effective batch: losses are those of one, and each goes on with the other."""

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from reasoner.config.training import ComputeConfig, share_of
from reasoner.errors import ConfigurationError, UsageError
from reasoner.training import adapter, checkpoints, sft, zero
from reasoner.training.launch import run_sft
from reasoner.training.micro_batch import Batch
from reasoner.training.ordering import FilledSampler, random_sampler
from reasoner.training.specs import SftSpec
from tests.support import tiny_training as tiny

TOLERANCE = 2e-5
"""Sums in another order: the largest difference seen between losses is 1e-6."""


def make_spec(base: Path, room: Path, **fields: Any) -> SftSpec:
    """6 steps of 8 records in 2 epochs; the last step of each has 5, which two processes can't share equally."""
    return tiny.make_spec(
        base, room, tiny.make_examples(21, uneven=True), epochs=2, batch_size=2, grad_accum=4, save_steps=2,
        eval_steps=3, logging_steps=1, threads=1,
        validation_rows=tiny.write_examples(room / "rows" / "validation.jsonl", tiny.make_examples(4, seed=8)),
        **fields,
    )  # fmt: skip


def here(spec: SftSpec) -> None:
    sft.train(spec, lambda **report: None, lambda line: None)


def losses(spec: SftSpec) -> list[float]:
    record = json.loads((spec.output / adapter.TRAINING).read_text())
    return [row["loss"] for row in record["losses"]]


def difference(one: SftSpec, other: SftSpec) -> float:
    """Squared distance of the two adapters by that which the first moved, whose B began as zero.

    Not weight by weight: Adam moves one whose gradient is rounding by any part of its rate.
    """
    a, b = (load_file(spec.output / adapter.WEIGHTS) for spec in (one, other))
    assert a.keys() == b.keys()
    apart = sum(float((a[name] - b[name]).square().sum()) for name in a)
    return apart / sum(float(a[name].square().sum()) for name in a if "lora_B" in name)


@pytest.fixture(scope="module")
def one(base: Path, tmp_path_factory: pytest.TempPathFactory) -> SftSpec:
    spec = make_spec(base, tmp_path_factory.mktemp("one"))
    here(spec)
    return spec


@pytest.fixture(scope="module")
def two(base: Path, tmp_path_factory: pytest.TempPathFactory) -> SftSpec:
    """Two processes on the CPU, which speak through gloo."""
    room = tmp_path_factory.mktemp("two")
    spec = make_spec(base, room, processes=2)
    reports: list[dict[str, Any]] = []
    run_sft(spec, room / "log", reports.append)
    assert [r["done"] for r in reports] == [1, 2, 3, 4, 5, 6], "one process reports, and it is heard"
    return spec


def stopped_at(spec: SftSpec, step: int, room: Path, processes: int) -> SftSpec:
    """What a training that was killed behind the checkpoint of `step` leaves, to go on with other processes."""
    shutil.copytree(spec.work, room / "work")
    for folder in checkpoints.all_checkpoints(room / "work"):
        if checkpoints.step_of(folder) > step:
            shutil.rmtree(folder)
    assert checkpoints.last_complete(room / "work") == room / "work" / f"checkpoint-{step}"
    return replace(spec, work=room / "work", output=room / "out", processes=processes)


def test_two_processes_learn_what_one_does(one: SftSpec, two: SftSpec) -> None:
    assert len(losses(one)) == 6 and losses(one)[-1] < 0.9 * losses(one)[0], "something was learnt"
    assert losses(two) == pytest.approx(losses(one), abs=TOLERANCE)
    assert difference(one, two) < 1e-4
    record = json.loads((two.output / adapter.TRAINING).read_text())
    assert (record["processes"], record["batch"]) == (2, {"size": 2, "accum": 2})
    assert record["steps"] == 6 and record["records"]["kept"] == 21


def test_what_two_began_one_ends(one: SftSpec, two: SftSpec, tmp_path: Path) -> None:
    spec = stopped_at(two, 3, tmp_path, processes=1)
    here(spec)
    assert json.loads((spec.work / "metrics.json").read_text())["resumed_from_step"] == 3
    assert losses(spec) == pytest.approx(losses(one), abs=TOLERANCE)
    assert difference(one, spec) < 1e-4
    record = json.loads((spec.output / adapter.TRAINING).read_text())
    assert "processes" not in record and record["batch"] == {"size": 2, "accum": 4}


def test_what_one_began_two_end(one: SftSpec, tmp_path: Path) -> None:
    spec = stopped_at(one, 4, tmp_path, processes=2)
    assert run_sft(spec, tmp_path / "log").metrics["resumed_from_step"] == 4
    assert losses(spec) == pytest.approx(losses(one), abs=TOLERANCE)
    assert difference(one, spec) < 1e-4


def test_the_random_order_is_the_trainers(base: Path, tmp_path: Path) -> None:
    """Of one process, in two epochs: the rows in the order in which its loader gives them."""
    from reasoner.training.trainer import Job

    taken: list[Any] = []

    class Looking(Job):
        def trainer(self, batch: Batch, done: int = 0) -> Any:
            trainer = super().trainer(batch, done)
            step = trainer.training_step
            trainer.training_step = lambda model, inputs, *rest, **named: (
                taken.append(inputs["input_ids"].tolist()),
                step(model, inputs, *rest, **named),
            )[1]
            return trainer

    spec = make_spec(base, tmp_path, packing="off")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sft, "Job", Looking)
        here(spec)
    sampler = random_sampler(21, spec.seed)
    rows = [list(e) for e in encoded(spec)]
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        wanted = [rows[i] for i in sampler]
        found = [row for batch in taken[epoch * 11 : epoch * 11 + 11] for row in batch]
        assert [row[: len(w)] for row, w in zip(found, wanted, strict=True)] == wanted


def encoded(spec: SftSpec) -> list[tuple[int, ...]]:
    from reasoner.training import runtime
    from reasoner.training.examples import Encoder, read_examples

    encoder = Encoder(runtime.load_tokenizer(spec.base), spec.end_token, add_special_tokens=False)
    return [e.input_ids for e in encoder.encode_all(read_examples(spec.train_rows), 1024).kept]


def test_an_order_is_filled_up_with_the_rows_behind_it() -> None:
    sampler = FilledSampler(random_sampler(5, seed=1), 8)
    assert len(sampler) == 8 and list(sampler)[5:] == [5, 6, 7]
    sampler.set_epoch(0)
    assert sorted(list(sampler)[:5]) == [0, 1, 2, 3, 4]


def test_shares_of_the_effective_batch() -> None:
    assert Batch(4, 4).shared_by(1) == Batch(4, 4)
    assert Batch(4, 4).shared_by(2) == Batch(4, 2)
    assert Batch(4, 1).shared_by(2) == Batch(2, 1)
    assert Batch(3, 4).shared_by(2) == Batch(3, 2)
    assert Batch(16, 1).shared_by(8) == Batch(2, 1)
    with pytest.raises(ConfigurationError, match=r"16 records .* by 3 processes; .* one of 1, 2"):
        Batch(4, 4).shared_by(3)
    assert share_of(16, 16) == 1
    assert ComputeConfig(processes=2).sharding == "ddp"


def divided(base: Path, one: SftSpec, room: Path, sharding: str) -> SftSpec:
    """Two processes that divide what they hold have learnt what one does."""
    spec = make_spec(base, room / "whole", processes=2, sharding=sharding)
    (room / "whole").mkdir(exist_ok=True)
    run_sft(spec, room / "log")
    assert losses(spec) == pytest.approx(losses(one), abs=TOLERANCE)
    assert difference(one, spec) < 1e-4
    return spec


@pytest.mark.long
def test_a_divided_model_learns_the_same(base: Path, one: SftSpec, tmp_path: Path) -> None:
    """FSDP over gloo; and what two began with it four end. One process reads another form of the optimiser's state."""
    spec = divided(base, one, tmp_path, "fsdp")
    (tmp_path / "again").mkdir()
    again = stopped_at(spec, 3, tmp_path / "again", processes=4)
    assert run_sft(again, tmp_path / "log").metrics["resumed_from_step"] == 3
    assert losses(again) == pytest.approx(losses(one), abs=TOLERANCE)
    (tmp_path / "alone").mkdir()
    alone = stopped_at(spec, 3, tmp_path / "alone", processes=1)
    here(alone)
    assert json.loads((alone.work / "metrics.json").read_text())["resumed_from_step"] == 0
    assert losses(alone) == pytest.approx(losses(one), abs=TOLERANCE)


def test_deepspeed_is_asked_for_before_anything_else(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == zero.PACKAGE else find(name)
    )
    spec = make_spec(base, tmp_path, processes=2, sharding="deepspeed")
    with pytest.raises(UsageError, match=r"compute\.sharding=deepspeed .* pip install deepspeed"):
        here(spec)
    assert not spec.output.exists() and not spec.work.exists()
    zero.require(replace(spec, processes=1))
    with pytest.raises(UsageError, match="pip install deepspeed"):
        zero.require(ComputeConfig(processes=2, sharding="deepspeed"))


def test_deepspeed_leaves_the_adapter_in_float32() -> None:
    """Its own bfloat16 would round the adapter; so it is told of an autocast, or of nothing."""
    half, whole = zero.arguments("bf16"), zero.arguments("fp32")
    assert half["bf16"] is False and "bf16" not in half["deepspeed"]
    assert half["deepspeed"].pop("torch_autocast")["dtype"] == "bfloat16"
    assert half == whole and whole["deepspeed"]["zero_optimization"] == {"stage": 2}


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec(zero.PACKAGE) is None, reason="deepspeed is not installed")
def test_gradients_that_deepspeed_divides_teach_the_same(base: Path, one: SftSpec, tmp_path: Path) -> None:
    """ZeRO stage 2 over gloo: the losses, the files and the resumption of one process; four processes begin anew."""
    spec = divided(base, one, tmp_path, "deepspeed")
    assert {p.name for p in spec.output.iterdir()} == {p.name for p in one.output.iterdir()}
    (tmp_path / "again").mkdir()
    again = stopped_at(spec, 3, tmp_path / "again", processes=2)
    assert run_sft(again, tmp_path / "log").metrics["resumed_from_step"] == 3
    assert losses(again) == losses(spec) and difference(spec, again) == 0
    (tmp_path / "other").mkdir()
    other = stopped_at(spec, 3, tmp_path / "other", processes=4)
    assert run_sft(other, tmp_path / "log").metrics["resumed_from_step"] == 0
    assert losses(other) == pytest.approx(losses(one), abs=TOLERANCE)
