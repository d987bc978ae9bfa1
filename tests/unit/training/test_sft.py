"""A real training of a tiny model: what is learnt, what stays, what is refused."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from reasoner.config.smart import LoraConfig
from reasoner.errors import ModelError, TrainingError, UsageError
from reasoner.ids import file_hash
from reasoner.training import adapter, checkpoints, sft
from reasoner.training.micro_batch import Batch
from reasoner.training.specs import SftSpec
from tests.support import tiny_training as tiny

END = tiny.END


class Run:
    """A training in this process, with all that it said."""

    def __init__(self, spec: SftSpec) -> None:
        self.spec = spec
        self.reports: list[dict[str, Any]] = []
        self.lines: list[str] = []
        sft.train(spec, lambda **report: self.reports.append(report), self.lines.append)
        self.record = json.loads((spec.output / adapter.TRAINING).read_text())
        self.weights = load_file(spec.output / adapter.WEIGHTS)

    @property
    def losses(self) -> list[float]:
        return [r["loss"] for r in self.reports]

    def said(self, text: str) -> bool:
        return any(text in line for line in self.lines)


def hashes(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): file_hash(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_small_set_is_learnt_and_the_base_stays(base: Path, tmp_path: Path) -> None:
    before = hashes(base)
    run = Run(tiny.make_spec(base, tmp_path, tiny.make_examples(8), epochs=30, lr=2e-2))
    assert run.record["steps"] == 60 == len(run.losses)
    assert run.losses[-1] < 0.5 * run.losses[0]
    assert hashes(base) == before
    up = [tensor for name, tensor in run.weights.items() if "lora_B" in name]
    assert len(up) == 7 * 2 and all(float(t.abs().max()) > 0 for t in up), "every layer's adapter has moved"
    assert {t.dtype for t in run.weights.values()} == {torch.float32}
    assert run.reports[-1]["done"] == run.reports[-1]["total"] == 60


def test_the_first_loss_is_that_of_the_completion_alone(base: Path, tmp_path: Path) -> None:
    """Computed here from the plain base, without TRL: the mean negative log-likelihood of the completions."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    examples = tiny.make_examples(6)
    run = Run(tiny.make_spec(base, tmp_path, examples, batch_size=3, grad_accum=2, epochs=1))
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    total, count = 0.0, 0
    for row in examples:
        prompt = tokenizer.encode(row.prompt, add_special_tokens=False)
        ids = [*prompt, *tokenizer.encode(row.completion, add_special_tokens=False)]
        with torch.no_grad():
            logs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        for position in range(len(prompt), len(ids)):
            total -= float(logs[position - 1, ids[position]])
            count += 1
    assert len(run.losses) == 1
    assert run.losses[0] == pytest.approx(total / count, rel=1e-5)
    assert run.record["records"]["completion_tokens"] == count


def test_equal_inputs_give_equal_bytes(base: Path, tmp_path: Path) -> None:
    examples = tiny.make_examples(9)
    validation = tiny.write_examples(tmp_path / "validation.jsonl", tiny.make_examples(4, seed=5))
    dropout = LoraConfig(dropout=0.1)
    first, second = (
        Run(tiny.make_spec(base, tmp_path / name, examples, validation_rows=validation, lora=dropout))
        for name in ("one", "two")
    )
    assert hashes(first.spec.output) == hashes(second.spec.output)
    other = Run(replace(first.spec, seed=1, output=tmp_path / "c", work=tmp_path / "cw"))
    assert hashes(other.spec.output)[adapter.WEIGHTS] != hashes(first.spec.output)[adapter.WEIGHTS]


def test_the_output_names_the_base_and_no_path(base: Path, tmp_path: Path) -> None:
    run = Run(tiny.make_spec(base, tmp_path, tiny.make_examples(4), base_name="org/base"))
    config = json.loads((run.spec.output / adapter.CONFIG).read_text())
    assert config["base_model_name_or_path"] == "org/base"
    assert config["target_modules"] == sorted(config["target_modules"])
    names = set(hashes(run.spec.output))
    assert {adapter.WEIGHTS, adapter.CONFIG, adapter.TRAINING, "tokenizer.json"} <= names
    assert not [n for n in names if n.endswith((".bin", ".pt", ".pth", ".pkl", ".md"))]
    for name in names:
        content = (run.spec.output / name).read_bytes()
        assert str(tmp_path).encode() not in content and str(base).encode() not in content, name
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(run.spec.output)
    assert loaded.chat_template == tiny.TEMPLATE


def test_long_records_are_dropped_and_counted(base: Path, tmp_path: Path) -> None:
    long = replace(tiny.make_examples(1)[0], completion="3 and 4 make 7. " * 60 + END)
    run = Run(tiny.make_spec(base, tmp_path, [*tiny.make_examples(4), long], max_length=100))
    assert run.record["records"]["given"] == 5
    assert run.record["records"]["kept"] == 4
    assert run.record["records"]["too_long"] == 1
    assert run.said("4 records (1 too long)")


def test_the_models_positions_limit_the_length_too(base: Path, tmp_path: Path) -> None:
    long = replace(tiny.make_examples(1)[0], completion="3 and 4 make 7. " * 200 + END)
    run = Run(tiny.make_spec(base, tmp_path, [*tiny.make_examples(4), long], max_length=100_000))
    assert run.record["records"]["too_long"] == 1, "the model has 512 positions"


def test_too_few_records_stop_before_training(base: Path, tmp_path: Path) -> None:
    spec = tiny.make_spec(base, tmp_path, tiny.make_examples(5), min_records=6)
    with pytest.raises(TrainingError, match=r"5 of 5 training records.*6 are needed \(train\.min_records\)"):
        Run(spec)
    assert checkpoints.all_checkpoints(spec.work) == []


def test_missing_layers_are_named(base: Path, tmp_path: Path) -> None:
    examples = tiny.make_examples(4)
    none = LoraConfig(modules=("c_attn", "lm_head"))
    with pytest.raises(ModelError, match=r"none of the layers c_attn, lm_head.*down_proj.*v_proj"):
        Run(tiny.make_spec(base, tmp_path / "a", examples, lora=none))
    some = Run(tiny.make_spec(base, tmp_path / "b", examples, lora=LoraConfig(modules=("q_proj", "c_attn"))))
    assert some.record["modules"] == ["q_proj"]
    assert some.record["modules_absent"] == ["c_attn"]
    assert all("q_proj" in name for name in some.weights)


def test_bases_that_cannot_be_used_are_refused(base: Path, tmp_path: Path) -> None:
    examples = tiny.make_examples(4)
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        Run(tiny.make_spec(tmp_path / "nothing", tmp_path / "a", examples))
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(base / name, bare / name)
    with pytest.raises(ModelError, match="No usable tokenizer"):
        Run(tiny.make_spec(bare, tmp_path / "b", examples))
    with pytest.raises(ModelError, match=r"does not stop generating at '<\|endoftext\|>'"):
        Run(tiny.make_spec(base, tmp_path / "c", examples, end_token="<|endoftext|>"))


def test_a_full_output_folder_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        Run(tiny.make_spec(base, tmp_path, tiny.make_examples(4)))
    assert (tmp_path / "adapter" / "mine.txt").read_text() == "mine"


def test_fewer_processes_than_the_spec_says_is_an_error(base: Path, tmp_path: Path) -> None:
    """A launcher that starts fewer would change the effective batch without a word."""
    with pytest.raises(UsageError, match="1 processes were launched, the spec says 2"):
        Run(tiny.make_spec(base, tmp_path, tiny.make_examples(4), processes=2))


def test_the_adapter_of_lowest_validation_loss_is_exported(base: Path, tmp_path: Path) -> None:
    # Another kind of completion than the learnt one: at first the format helps, then memorising hurts.
    other = [
        replace(r, completion=f"Program of Thought: answer = 3 * {i}{END}")
        for i, r in enumerate(tiny.make_examples(8, seed=99))
    ]
    settings = {"epochs": 60, "lr": 2e-2, "scheduler": "constant", "eval_steps": 4, "save_steps": 7}
    run = Run(
        tiny.make_spec(
            base,
            tmp_path,
            tiny.make_examples(4),
            validation_rows=tiny.write_examples(tmp_path / "v.jsonl", other),
            save_total_limit=1,
            **settings,
        )
    )
    by_step = {row["step"]: row["loss"] for row in run.record["validation_losses"]}
    assert sorted(by_step) == list(range(4, 61, 4))
    best = min(by_step, key=lambda step: by_step[step])
    assert best < 60, "the last is the best: this set shows nothing"
    assert run.record["exported_step"] == best
    kept = {checkpoints.step_of(p): p for p in checkpoints.all_checkpoints(run.spec.work)}
    assert set(kept) == {best, 60}
    assert file_hash(kept[best] / adapter.WEIGHTS) == file_hash(run.spec.output / adapter.WEIGHTS)
    assert file_hash(kept[60] / adapter.WEIGHTS) != file_hash(run.spec.output / adapter.WEIGHTS)


def test_a_short_run_is_validated_at_its_end(base: Path, tmp_path: Path) -> None:
    validation = tiny.write_examples(tmp_path / "v.jsonl", tiny.make_examples(4, seed=9))
    run = Run(tiny.make_spec(base, tmp_path, tiny.make_examples(8), validation_rows=validation))
    assert [row["step"] for row in run.record["validation_losses"]] == [2]
    assert run.said("2 steps are fewer than eval_steps 2000: one validation, at the end")


def test_validation_records_that_are_all_too_long_are_an_error(base: Path, tmp_path: Path) -> None:
    rows = [replace(r, completion="3 and 4 make 7. " * 60 + END) for r in tiny.make_examples(3)]
    validation = tiny.write_examples(tmp_path / "v.jsonl", rows)
    spec = tiny.make_spec(base, tmp_path, tiny.make_examples(8), validation_rows=validation, max_length=100)
    with pytest.raises(TrainingError, match="All 3 validation records"):
        Run(spec)


def test_a_loss_that_is_not_finite_stops_the_run(base: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    broken = tmp_path / "broken"
    model = AutoModelForCausalLM.from_pretrained(base)
    model.model.norm.weight.data.fill_(math.nan)
    model.save_pretrained(broken)
    AutoTokenizer.from_pretrained(base).save_pretrained(broken)
    with pytest.raises(TrainingError, match="The loss is nan at step 1"):
        Run(tiny.make_spec(broken, tmp_path, tiny.make_examples(4)))


def test_bf16_computes_otherwise_and_keeps_float32_adapters(base: Path, tmp_path: Path) -> None:
    examples = tiny.make_examples(8)
    full = Run(tiny.make_spec(base, tmp_path / "a", examples, epochs=2))
    half = Run(tiny.make_spec(base, tmp_path / "b", examples, epochs=2, precision="bf16"))
    assert {t.dtype for t in half.weights.values()} == {torch.float32}
    assert half.losses != full.losses, "autocast is not on"
    assert half.losses == pytest.approx(full.losses, rel=0.02)


def test_gradient_checkpointing_computes_twice_and_changes_nothing(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.llama.modeling_llama import LlamaMLP

    calls: list[int] = []
    plain_forward = LlamaMLP.forward

    def forward(self: Any, x: Any) -> Any:
        calls.append(1)
        return plain_forward(self, x)

    monkeypatch.setattr(LlamaMLP, "forward", forward)
    examples, dropout = tiny.make_examples(8), LoraConfig(r=4, alpha=8, dropout=0.1)
    plain = Run(tiny.make_spec(base, tmp_path / "a", examples, lora=dropout))
    once = len(calls)
    saving = Run(tiny.make_spec(base, tmp_path / "b", examples, lora=dropout, gradient_checkpointing=True))
    assert len(calls) - once == 2 * once > 0, "each layer is computed again in the backward pass"
    assert saving.losses == pytest.approx(plain.losses, rel=1e-6)
    for name, tensor in plain.weights.items():
        torch.testing.assert_close(saving.weights[name], tensor, rtol=1e-3, atol=1e-6)


def test_settings_reach_the_optimiser(base: Path, tmp_path: Path) -> None:
    run = Run(
        tiny.make_spec(base, tmp_path, tiny.make_examples(20), warmup_steps=2, lr=1e-3, logging_steps=1)
    )
    history = checkpoints.state_of(checkpoints.all_checkpoints(run.spec.work)[-1])["log_history"]
    assert isinstance(history, list)
    rates = [row["learning_rate"] for row in history if "loss" in row]
    assert rates == pytest.approx([0, 5e-4, 1e-3, 1e-3 * 2 / 3, 1e-3 / 3])
    assert run.record["losses"] == [{"step": i + 1, "loss": loss} for i, loss in enumerate(run.losses)]


def test_losses_are_means_over_windows() -> None:
    history = [{"step": i, "loss": float(i)} for i in range(1, 6)]
    history.insert(2, {"step": 2, "eval_loss": 9.0})
    assert sft.losses(history, 2) == [
        {"step": 2, "loss": 1.5},
        {"step": 4, "loss": 3.5},
        {"step": 5, "loss": 5.0},
    ]


@pytest.mark.parametrize(
    ("size", "smaller"),
    [(8, Batch(4, 4)), (6, Batch(3, 4)), (9, Batch(3, 6)), (5, Batch(2, 5)), (2, Batch(1, 4)), (1, None)],
)
def test_halving_keeps_the_effective_batch(size: int, smaller: Batch | None) -> None:
    assert Batch(size, 2).halved() == smaller


@given(st.integers(1, 64), st.integers(1, 32), st.integers(1, 64))
def test_any_cut_keeps_the_effective_batch(size: int, accum: int, limit: int) -> None:
    cut = Batch(size, accum).at_most(limit)
    assert cut.size * cut.accum == size * accum
    assert 1 <= cut.size <= limit


def full_memory(monkeypatch: pytest.MonkeyPatch, above: int, from_step: int = 0) -> None:
    """Let the device run out of memory with more than `above` records a micro-step, as CUDA would say it."""
    from trl import SFTTrainer

    plain = SFTTrainer.training_step

    def step(self: Any, model: Any, inputs: Any, *rest: Any) -> Any:
        if len(inputs["input_ids"]) > above and self.state.global_step >= from_step:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return plain(self, model, inputs, *rest)

    monkeypatch.setattr(SFTTrainer, "training_step", step)


def test_out_of_memory_halves_the_micro_batch(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = tiny.make_examples(24)
    small = Run(tiny.make_spec(base, tmp_path / "small", examples, batch_size=2, grad_accum=4))
    full_memory(monkeypatch, above=3)
    healed = Run(tiny.make_spec(base, tmp_path / "healed", examples, batch_size=8, grad_accum=1))
    assert healed.record["halvings"] == [
        {"step": 0, "batch_size": 4, "grad_accum": 2},
        {"step": 0, "batch_size": 2, "grad_accum": 4},
    ]
    assert healed.record["batch"] == {"size": 2, "accum": 4}
    assert healed.losses == small.losses
    for name, tensor in small.weights.items():
        assert torch.equal(healed.weights[name], tensor), "the same records in the same order"


def test_the_micro_batch_that_fitted_is_used_by_the_next_run(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples, notes = tiny.make_examples(24), tmp_path / "notes"
    settings: dict[str, Any] = {"batch_size": 8, "grad_accum": 1, "sizes": notes}
    Run(tiny.make_spec(base, tmp_path / "never full", examples, **settings))
    assert not notes.exists(), "nothing had to be searched, so nothing is noted"
    full_memory(monkeypatch, above=2)
    first = Run(tiny.make_spec(base, tmp_path / "first", examples, **settings))
    assert first.record["batch"] == {"size": 2, "accum": 4} and not first.record["batch_remembered"]
    [note] = notes.iterdir()
    facts = json.loads(note.read_text())
    assert facts["micro_batch"] == 2 and facts["model"] == "tiny-llama" and facts["device"] == "cpu"

    again = Run(tiny.make_spec(base, tmp_path / "again", examples, **settings))
    assert again.record["halvings"] == [] and again.record["batch_remembered"]
    assert again.record["batch"] == {"size": 2, "accum": 4} and again.losses == first.losses
    assert again.said(f"micro-batch 2, which fitted this device before; remove {note}")

    longer = Run(tiny.make_spec(base, tmp_path / "longer", examples, max_length=300, **settings))
    assert longer.record["halvings"], "another length is another kind of training"
    small = Run(tiny.make_spec(base, tmp_path / "small", examples, batch_size=1, grad_accum=8, sizes=notes))
    assert small.record["batch"] == {"size": 1, "accum": 8}, "a smaller micro-batch that was asked for stays"
    note.write_text("{broken")
    damaged = Run(tiny.make_spec(base, tmp_path / "damaged", examples, **settings))
    assert damaged.record["halvings"] and json.loads(note.read_text())["micro_batch"] == 2


def test_a_resumed_run_keeps_its_cut_whatever_was_noted_since(
    tmp_path: Path,
) -> None:
    from reasoner.training.micro_batch import BatchRecord, Memory

    memory = Memory(tmp_path / "notes", {"model": "m"})
    begun = BatchRecord(tmp_path, Batch(8, 2), memory, fresh=True)
    memory.write(2)
    assert BatchRecord(tmp_path, Batch(8, 2), memory, fresh=False).batch == begun.batch == Batch(8, 2)
    assert BatchRecord(tmp_path, Batch(8, 2), memory, fresh=True).batch == Batch(2, 8)
    assert BatchRecord(tmp_path, Batch(8, 2), memory, fresh=False).remembered
    (tmp_path / "batch.json").write_text("[]")
    with pytest.raises(TrainingError, match="damaged"):
        BatchRecord(tmp_path, Batch(8, 2), memory, fresh=False)


def test_out_of_memory_later_goes_on_from_the_last_checkpoint(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = tiny.make_examples(24)
    whole = Run(tiny.make_spec(base, tmp_path / "whole", examples, batch_size=4, epochs=2))
    full_memory(monkeypatch, above=3, from_step=7)
    healed = Run(tiny.make_spec(base, tmp_path / "healed", examples, batch_size=4, epochs=2, save_steps=5))
    assert healed.record["halvings"] == [{"step": 7, "batch_size": 2, "grad_accum": 2}]
    done = [r["done"] for r in healed.reports]
    assert done == [1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10, 11, 12], "from step 5 again"
    assert healed.losses[-1] == pytest.approx(whole.losses[-1], rel=1e-4), "only rounding differs"
    assert len(healed.record["losses"]) == len(whole.record["losses"])


def test_out_of_memory_with_one_record_is_an_error(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_memory(monkeypatch, above=0)
    with pytest.raises(TrainingError, match="one record a micro-step"):
        Run(tiny.make_spec(base, tmp_path, tiny.make_examples(4), batch_size=2))


def test_a_finished_work_folder_is_only_exported_again(base: Path, tmp_path: Path) -> None:
    """Half an epoch ends in the middle of one: the Trainer, resumed there, would do one step too many."""
    spec = tiny.make_spec(base, tmp_path, tiny.make_examples(24), epochs=0.5)
    first = Run(spec)
    assert first.record["steps"] == 3
    again = Run(replace(spec, output=tmp_path / "again"))
    assert again.reports == [] and again.said("going on from step 3")
    assert hashes(spec.output) == hashes(tmp_path / "again")


def test_other_inputs_start_anew(base: Path, tmp_path: Path) -> None:
    spec = tiny.make_spec(base, tmp_path, tiny.make_examples(8))
    Run(spec)
    for number, changed in enumerate(
        (
            replace(spec, seed=1),
            replace(spec, train=spec.train.model_copy(update={"lr": 1e-4})),
            replace(
                spec, train_rows=tiny.write_examples(tmp_path / "other.jsonl", tiny.make_examples(8, seed=3))
            ),
        )
    ):
        run = Run(replace(changed, output=tmp_path / f"out{number}"))
        assert [r["done"] for r in run.reports] == [1, 2]
        assert run.said("belong to other inputs")


def test_compiled_layers_train_to_the_same_losses(base: Path, tmp_path: Path) -> None:
    """Wrong if compiling changes what is learnt, renames weights, or compiles each layer anew."""
    from torch._dynamo.utils import counters

    examples = tiny.make_examples(8)
    plain = Run(tiny.make_spec(base, tmp_path / "plain", examples, epochs=2))
    counters.clear()
    compiled = Run(tiny.make_spec(base, tmp_path / "compiled", examples, epochs=2, compile=True))
    assert counters["stats"]["unique_graphs"] >= 1, "something was compiled"
    assert counters["frames"]["total"] <= 2, "the layers share what the first ones compiled"
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-4)
    assert compiled.losses[-1] < compiled.losses[0]
    assert compiled.weights.keys() == plain.weights.keys()


@pytest.mark.parametrize("sharding", ["fsdp", "deepspeed"])
def test_layers_that_are_divided_are_not_compiled(sharding: Any, base: Path, tmp_path: Path) -> None:
    spec = tiny.make_spec(base, tmp_path, tiny.make_examples(8), compile=True)
    with pytest.raises(UsageError, match=r"train\.compile=true .* compute\.sharding=ddp"):
        Run(replace(spec, processes=2, sharding=sharding))
