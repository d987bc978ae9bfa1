"""Specs survive their JSON form, commands are built, and a child's failure comes back as what it was."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.smart import LoraConfig, TrainConfig
from reasoner.errors import ChildFailedError, ModelError, TrainingError, UsageError
from reasoner.training import merge, sft
from reasoner.training.launch import merge_argv, run_merge, run_sft, sft_argv
from reasoner.training.specs import MergeSpec, SftSpec
from tests.support import tiny_training as tiny


def sft_spec(room: Path) -> SftSpec:
    return SftSpec(
        base=room / "base",
        base_name="org/base",
        train_rows=room / "rows.jsonl",
        output=room / "out",
        work=room / "work",
        end_token="<|im_end|>",
        train=TrainConfig(lr=1e-3, lora=LoraConfig(modules=("q_proj",))),
        validation_rows=None,
        threads=2,
    )


def merge_spec(room: Path) -> MergeSpec:
    return MergeSpec(room / "b", "org/b", room / "a", room / "o", room / "w", ("é\n", "2", "3", "4", "5"))


@pytest.mark.parametrize("make", [sft_spec, merge_spec])
def test_a_spec_survives_its_file(tmp_path: Path, make: Any) -> None:
    spec = make(tmp_path)
    path = spec.save(tmp_path / "deep" / "spec.json")
    assert type(spec).load(path) == spec


def test_wrong_specs_are_named(tmp_path: Path) -> None:
    path = sft_spec(tmp_path).save(tmp_path / "spec.json")
    good = json.loads(path.read_text())
    for change, message in (
        ({"sed": 1}, "sed"),
        ({"seed": "many"}, "`seed`"),
        ({"train": {**good["train"], "lr": -1}}, r"`train\.lr`"),
        ({"train": {**good["train"], "learning_rate": 1}}, r"`train\.learning_rate`"),
        ({"device": "tpu"}, "`device`"),
    ):
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(UsageError, match=message):
            SftSpec.load(path)
    for text in ("{", "[]"):
        path.write_text(text)
        with pytest.raises(UsageError, match=r"spec\.json"):
            SftSpec.load(path)
    with pytest.raises(UsageError, match="cannot be read"):
        SftSpec.load(tmp_path / "missing.json")


def test_commands(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    assert sft_argv(spec) == [sys.executable, "-m", "reasoner.training.sft", str(spec)]
    assert merge_argv(spec) == [sys.executable, "-m", "reasoner.training.merge", str(spec)]
    many = sft_argv(spec, processes=4, device="cuda")
    assert many[:3] == [sys.executable, "-m", "accelerate.commands.launch"]
    assert many[-3:] == ["-m", "reasoner.training.sft", str(spec)]
    assert many[many.index("--num_processes") + 1] == "4" and "--multi_gpu" in many
    on_cpu = sft_argv(spec, processes=2, device="cpu")
    assert on_cpu[1:3] == ["-m", "torch.distributed.run"] and on_cpu[-3:] == many[-3:]
    assert on_cpu[on_cpu.index("--nproc_per_node") + 1] == "2"
    with pytest.raises(UsageError, match="processes is 0"):
        sft_argv(spec, processes=0)


def test_accelerate_understands_the_command(tmp_path: Path) -> None:
    """Its own parser reads the arguments; nothing is launched."""
    from accelerate.commands.launch import launch_command_parser

    argv = sft_argv(tmp_path / "spec.json", processes=4, device="cuda")
    found = launch_command_parser().parse_args(argv[3:])
    assert (found.num_processes, found.module, found.training_script) == (4, True, "reasoner.training.sft")
    assert found.training_script_args == [str(tmp_path / "spec.json")]
    assert found.multi_gpu and not found.cpu and found.mixed_precision == "no"


def test_importing_the_parents_part_loads_no_torch() -> None:
    code = "import sys, reasoner.training.launch, reasoner.training.examples, reasoner.training.sft, "
    code += "reasoner.training.merge, reasoner.training.parity, reasoner.training.trainer\n"
    code += "bad = {'torch', 'transformers', 'trl', 'peft', 'datasets', 'accelerate'} & set(sys.modules)\n"
    code += "assert not bad, bad"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_programs_say_what_is_wrong_with_their_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in (sft.main, merge.main):
        assert program([]) == 2
        assert program([str(tmp_path / "none.json")]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2 and "SPEC.json" in lines[0] and "none.json cannot be read" in lines[1]


def test_a_childs_error_comes_back_as_what_it_was(base: Path, tmp_path: Path) -> None:
    spec = tiny.make_spec(base, tmp_path, tiny.make_examples(3), min_records=4, threads=1)
    with pytest.raises(TrainingError, match=r"3 of 3 training records are left") as caught:
        run_sft(spec, tmp_path / "log")
    assert isinstance(caught.value.__cause__, ChildFailedError)
    assert "TrainingError: 3 of 3" in (tmp_path / "log").read_text()


def test_a_child_that_dies_without_a_word_is_a_failed_child(base: Path, tmp_path: Path) -> None:
    """Also when an earlier attempt left its explanation."""
    spec = tiny.make_spec(base, tmp_path, tiny.make_examples(4), threads=1)
    spec.work.mkdir()
    (spec.work / "error.json").write_text('{"error": "TrainingError", "message": "old"}')
    with pytest.raises(ChildFailedError, match=r"limit of 0\.2 s"):
        run_sft(spec, tmp_path / "log", timeout=0.2)


def test_training_and_merging_through_children(base: Path, tmp_path: Path) -> None:
    spec = tiny.make_spec(base, tmp_path, tiny.make_examples(8), epochs=8, lr=2e-2, threads=1)
    done = run_sft(spec, tmp_path / "log")
    assert done.adapter == spec.output and done.training["steps"] == 16
    assert done.metrics["seconds"] > 0 and done.metrics["host_gib"] > 0
    wanted = MergeSpec(
        base=base,
        base_name="tiny-llama",
        adapter=done.adapter,
        output=tmp_path / "merged",
        work=tmp_path / "merge-work",
        prompts=tuple(row.prompt for row in tiny.make_examples(5, seed=4)),
        device="cpu",
        threads=1,
        max_tokens=8,
    )
    merged = run_merge(wanted, tmp_path / "log")
    assert merged.metrics["saved"]["same_token"] >= 0.95
    assert (merged.model / "model.safetensors").is_file()
    assert "greedy tokens are the same" in (tmp_path / "log").read_text()
    with pytest.raises(ModelError, match="not on 'elsewhere'"):
        run_merge(replace(wanted, base_name="elsewhere", output=tmp_path / "other"), tmp_path / "log")


def test_an_engine_that_is_begun_after_trl_still_writes_its_log() -> None:
    asked = (
        "import os; from reasoner.training import runtime; runtime.prepare_process(1); import trl; "
        "print(os.environ.get('VLLM_LOGGING_LEVEL'))"
    )
    silent = {k: v for k, v in os.environ.items() if k != "VLLM_LOGGING_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", asked], env=silent, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["INFO"]
