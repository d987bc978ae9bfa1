"""What benchmarks/ says of speed is what was measured: shapes, turns, steps, ratios, and all of them by one command.

Wrong if sides get other work, if a ratio is turned around, if a step with prompts to read counts as one without, if a
process that fails or hangs takes the others with it, or if the suite names an option that a program does not have.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.benchmarks import BENCHMARKS, benchmarks, program  # noqa: F401 (a fixture)
from tests.unit.engines.test_remote import gone


def test_a_shape_asks_everybody_the_same_and_each_round_something_else() -> None:
    shapes = program("shapes").SHAPES
    load = shapes["sampling"].scaled(4, 0.5).load(1)
    assert load == shapes["sampling"].scaled(4, 0.5).load(1)
    assert len(load.prompts) == 32 and len(set(load.prompts)) == 4, "eight samples of each of four prompts"
    assert load.prompts[0] == load.prompts[7] != load.prompts[8], (
        "samples of a prompt stand beside each other"
    )
    assert 40 <= min(load.lengths) <= max(load.lengths) <= 85
    few = [shapes["few_shot"].scaled(3, 1.0).load(seed).prompts for seed in (1, 2)]
    heads = {prompt[:3000] for prompt in few[0]}
    assert len(heads) == 1 and few[1][0][:3000] not in heads, "worked examples are shared within a round only"


CHILD = """
import subprocess
from turns import serve

def work(channel):
    print("chatter of a library")
    left = subprocess.Popen(["sleep", "600"])
    channel.answer(ready=True, left=left.pid)
    for order in channel.orders():
        if order["do"] == "fail":
            raise ValueError("no such thing\\nmore")
        channel.answer(twice=2 * order["number"])

serve(work)
"""


def test_a_side_answers_orders_and_says_why_it_failed(tmp_path: Path) -> None:
    turns = program("turns")
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    side = turns.Side(
        "child", [str(script)], tmp_path / "logs" / "child.log", {"PYTHONPATH": str(BENCHMARKS)}
    )
    left = side.expect("ready")["left"]
    side.order(do="double", number=21)
    assert side.expect("twice") == {"twice": 42}
    side.order(do="fail")
    with pytest.raises(RuntimeError, match="child: ValueError: no such thing"):
        side.expect("twice")
    side.end()
    assert gone(left, 5), "what a side has started ends with it"
    assert "chatter of a library" in side.log.read_text(), "what is printed is no answer"
    order = [name for _, name in turns.in_turns(("a", "b"), 3)]
    assert order == ["b", "a", "a", "b", "b", "a", "a", "b"]


def test_steps_that_read_a_prompt_are_told_from_those_that_do_not() -> None:
    side = program("vllm_side")
    steps = side.Steps.__new__(side.Steps)
    steps._found, steps._profiler = {}, None
    # When a step began, its requests, its tokens: two decode, then one reads a prompt of 600 tokens.
    steps._steps = [(0.0, 4, 4), (1.0, 4, 4), (3.0, 5, 604), (7.0, 5, 5)]
    kinds = steps.take()["kinds"]
    assert kinds["decode"] == {"steps": 2, "seconds": 3.0, "requests": 8, "tokens": 8, "above_graphs": 0}
    assert kinds["mixed"] == {"steps": 1, "seconds": 4.0, "requests": 5, "tokens": 604, "above_graphs": 1}
    assert steps.take()["kinds"] == {}


def test_requests_of_one_length_join_together_and_others_do_not() -> None:
    count = program("mixed_steps").count
    assert count([3] * 8, slots=4) == (6, 2, 24), "two waves of three steps"
    assert count([1, 2, 3, 4, 4, 4], slots=3) == (7, 4, 18), (
        "three join at once, then one in each of three steps"
    )
    assert count([], slots=4) == (0, 0, 0)


def test_ours_over_theirs_and_the_share_of_the_ceiling() -> None:
    from reasoner.planning.architecture import KNOWN
    from reasoner.planning.device import CARDS

    settings = program("engine_settings")
    # 256 sequences of 100 + 512 tokens: at least 512 steps of 3.1 GB of weights and 356 tokens of cache each.
    row = {"requests": 256, "tokens": 256 * 512, "prompt_tokens": 256 * 100, "seconds": 4.0, "rate": 32768.0}
    ceiling = (KNOWN["qwen2.5-1.5b"], CARDS["h100"], "bfloat16")
    ideal = settings.ideal_seconds(row, *ceiling)
    moved = 512 * (3.08e9 + 256 * 356 * 28672) / 3.35e12
    assert ideal == pytest.approx(moved + 2 * 1.54e9 * 25600 / 989e12, rel=0.02)
    slow = {**row, "seconds": 8.0, "rate": 16384.0}
    told = settings.summary({"ours": [row, row], "default": [slow]}, ceiling)
    assert told["ours_over"]["default"]["median"] == 2.0
    assert told["share_of_ceiling"]["ours"]["median"] == pytest.approx(ideal / 4)
    assert not settings.failed([told]) and settings.failed([{"ours_over": {"default": {"high": 1.9}}}])


def test_losses_are_compared_record_by_record() -> None:
    sft = program("sft")
    rounds = {
        "ours": [{"rate": 300.0, "tokens": 90, "places": 100, "memory": 2.0}] * 2,
        "trl": [{"rate": 100.0, "tokens": 60, "places": 100, "memory": 4.0}] * 2,
    }
    losses = {"base": [3.0, 3.0], "ours": [1.0, 2.0], "trl": [1.5, 2.5]}
    told = sft.summary({"rounds": rounds, "losses": losses})
    assert told["ours_over"]["trl"]["median"] == 3.0
    assert told["padding"] == pytest.approx({"ours": 0.1, "trl": 0.4})
    assert told["loss_ours_minus"]["trl"]["value"] == -0.5
    assert told["peak_gib"] == {"ours": 2.0, "trl": 4.0}
    cut = sft.summary({"rounds": {**rounds, "trl_lean": []}, "losses": {}})
    assert list(cut["ours_over"]) == ["trl"] and not cut["loss_ours_minus"], "interrupted before the losses"


def test_tokens_are_counted_when_they_are_trained_on() -> None:
    import torch

    counted = program("sft_side").Counter

    class Trainer:
        def data_collator(self, rows: list[int]) -> dict[str, Any]:
            width = max(rows)
            mask = torch.tensor([[1] * n + [0] * (width - n) for n in rows])
            return {"input_ids": torch.zeros_like(mask), "attention_mask": mask}

        def training_step(self, batch: Any) -> float:
            return float(batch["attention_mask"].sum())

    trainer = Trainer()
    counter = counted(trainer)
    first, second = (
        trainer.data_collator([3, 5]),
        trainer.data_collator([1, 2]),
    )  # the loader is a batch ahead
    assert trainer.training_step(first) == 8.0
    assert counter.take() == {"tokens": 8, "places": 10}
    trainer.training_step(second)
    assert counter.take() == {"tokens": 3, "places": 4} and counter.take() == {"tokens": 0, "places": 0}


def test_the_suite_runs_one_and_stops_one_at_its_limit(tmp_path: Path) -> None:
    """Really: host_path.py, through the engine's process, wire and ledger."""
    suite = program("suite")
    one = suite.Bench("host_path", ("host_path.py", "--prompts", "4", "--rounds", "1", "--profile"), 60)
    assert suite.run(one, Path("unused"), None, tmp_path, 60).startswith("host_path.json (exit 0")
    found = json.loads((tmp_path / "host_path.json").read_text())
    assert found["summary"]["here"]["requests_per_second"]["median"] > 0
    assert found["rounds"]["here"][0]["requests"] == 32
    assert any("fsync" in row["function"] for row in found["profiles"]["here"]["stage"]["functions"])
    endless = suite.Bench("endless", ("host_path.py", "--prompts", "4", "--rounds", "100000"), 3)
    assert suite.run(endless, Path("unused"), None, tmp_path, 60).startswith(
        "no JSON, see endless.log (came to its limit"
    )


def test_the_suite_in_the_background_of_a_shell_still_interrupts(tmp_path: Path) -> None:
    """A background job inherits that Ctrl-C is ignored; wrong if its benchmark then never hears of its limit."""
    lines = (
        "import signal, suite",
        "signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "suite.CPU = (suite.Bench('mixed', ('endless.py',), 2, 'all'),)",
        "suite.HERE, suite.GRACE = suite.Path('.').resolve(), 5",
        "raise SystemExit(suite.main())",
    )
    (tmp_path / "suite_here.py").write_text("\n".join(lines))
    (tmp_path / "endless.py").write_text(
        "import sys, time, pathlib\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n"
        "    pathlib.Path(sys.argv[-1]).write_text('{}')\n"
    )
    words = ["suite_here.py", "cpu", "--model", str(tmp_path), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS)},
    )  # fmt: skip
    assert done.returncode == 0 and "mixed.json (came to its limit" in done.stdout, done.stdout + done.stderr


def test_the_suite_on_a_processor_fits_ten_minutes() -> None:
    """All limits together, and what the last one gets to write what it has."""
    suite = program("suite")
    assert sum(bench.limit for bench in suite.CPU) <= suite.SECONDS["cpu"] <= 600 - suite.GRACE


def test_the_suite_names_options_that_there_are() -> None:
    suite = program("suite")
    known: dict[str, str] = {}
    for bench in (*suite.CPU, *suite.CARD):
        script = bench.argv[0]
        if script not in known:
            asked = [sys.executable, str(BENCHMARKS / script), "--help"]
            known[script] = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        for word in bench.argv:
            assert not word.startswith("--") or f"{word} " in known[script] or f"{word}]" in known[script], (
                script,
                word,
            )
    assert sum(bench.limit for bench in suite.CPU) <= 1000 and all(bench.misses for bench in suite.CPU)
