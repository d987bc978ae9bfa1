"""The scripts for a card name configurations and keys that exist, with the sizes that they promise."""

import io
import os
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TypeVar

import pytest

from reasoner.config.base import Section
from reasoner.config.compose import load
from reasoner.config.data import SourceConfig
from reasoner.config.multiturn import MultiTurnConfig
from reasoner.config.planner import PlannerConfig
from reasoner.config.smart import SmartConfig
from reasoner.config.variants import load_variants

CARD = Path(__file__).resolve().parents[3] / "benchmarks" / "card"
Config = TypeVar("Config", bound=Section)
MULTI_TURN = "score-code mlmt-code score-math mlmt-math"
LONGEST_PROMPT = 1_000
"""Tokens of MATH's longest, in Qwen2.5's; MBPP's are shorter."""


def shown(script: str, room: Path, **environment: str) -> dict[str, list[str]]:
    """The overrides of each `reasoner run` of a script, by the name of the run."""
    done = subprocess.run(
        ["bash", str(CARD / script), str(room), str(room), str(room / "out")],
        capture_output=True, text=True, check=True, env={**os.environ, "SHOW": "1", **environment}, cwd=room,
    )  # fmt: skip
    commands = [shlex.split(line) for line in done.stdout.splitlines() if not line.startswith("#")]
    assert all(words[1:4] == ["-m", "flows.cli", "run"] for words in commands)
    return {words[4]: words[5:] for words in commands}


def configs(found: dict[str, list[str]], schema: type[Config]) -> dict[str, Config]:
    return {name: load(name, words, schema) for name, words in found.items()}


@pytest.mark.parametrize("small", ["", "1"])
def test_multiturn(tmp_path: Path, small: str) -> None:
    found = configs(shown("multiturn.sh", tmp_path, SMALL=small, RUNS=MULTI_TURN, STEPS="8"), MultiTurnConfig)
    assert list(found) == MULTI_TURN.split() and all(c.steps == 8 for c in found.values())
    assert all(c.eval_freq == 2 and not c.compute.one_card for c in found.values())
    for name, config in found.items():
        code = name.endswith("code")
        assert config.problems.train.kind == "file" and (config.problems.test is None) == code
        assert config.problems.test_size == (6 if small else 300 if code else 500)
        turns = 2 * config.max_tokens + config.guidance_max_tokens
        assert config.engine.options["max_model_len"] >= turns + LONGEST_PROMPT


@pytest.mark.parametrize("small", ["", "1"])
@pytest.mark.parametrize("part", ["code", "math"])
def test_three_arms_differ_in_their_feedback_alone(tmp_path: Path, small: str, part: str) -> None:
    """Wrong if fixed feedback is trained, comes from a sentence, or is learnt from with other settings."""
    none, fixed, learned = (
        next(
            iter(
                configs(
                    shown("multiturn.sh", tmp_path, SMALL=small, RUNS=name, STEPS="8"), MultiTurnConfig
                ).values()
            )
        )
        for name in (f"score-{part}", f"fixed-{part}", f"rl-guided-{part}")
    )
    arms = [(c.use_smart_corrections, c.train_guidance_model, c.guided) for c in (none, fixed, learned)]
    assert arms == [(False, False, False), (True, False, False), (True, True, True)]
    assert [c.method for c in (none, fixed, learned)] == ["score", "score", "rl_guided"]
    own = {
        "use_smart_corrections",
        "train_guidance_model",
        "method",
        "agent_type",
        "guidance_lr",
        "guidance_reward",
    }
    same = [c.model_dump(exclude=own) for c in (none, fixed, learned)]
    assert same[0] == same[1] == same[2] and none.steps == 8


def test_multiturn_takes_settings_too_and_they_come_last(tmp_path: Path) -> None:
    found = configs(
        shown("multiturn.sh", tmp_path, RUNS="mlmt-code", STEPS="8", SETTINGS_TOO="lm_lr=1e-6  seed=3"),
        MultiTurnConfig,
    )
    assert (found["mlmt-code"].lm_lr, found["mlmt-code"].seed) == (1e-6, 3)


def test_multiturn_names_the_runs_that_there_are(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", str(CARD / "multiturn.sh"), str(tmp_path), str(tmp_path), str(tmp_path / "out")],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "SHOW": "1", "RUNS": "fixd-code"},
    )  # fmt: skip
    assert done.returncode == 2 and "no run fixd-code" in done.stderr


def test_changed_settings_are_a_run_whose_steps_are_measured_anew(tmp_path: Path) -> None:
    """A Python that writes the times of a training whose steps take as many seconds as its `seed`."""
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/bash
[ "$1" = -m ] || exec {sys.executable} "$@"
echo "$*" >>"{tmp_path}/asked"
[ "$4" = --config-name ] || exit 0
for word in "$@"; do case $word in seed=*) seconds=${{word#seed=}} ;; hydra.run.dir=*) folder=${{word#*=}} ;; esac; done
mkdir -p "$folder/logs"
row="{{\\"wall\\": $seconds, \\"validate\\": 0, \\"checkpoint\\": 0}}"
for _ in 1 2 3 4; do echo "$row"; done >"$folder/logs/times-work.jsonl"
"""
    )
    python.chmod(0o755)
    out = tmp_path / "out"

    def run(too: str) -> list[str]:
        """What the script asks Python for: measurements and runs, with the steps of stage I."""
        (tmp_path / "asked").unlink(missing_ok=True)
        given = {"PYTHON": str(python), "RUNS": "fixed-code", "SETTINGS_TOO": too, "SEED": "10"}
        subprocess.run(
            ["bash", str(CARD / "multiturn.sh"), str(tmp_path), str(tmp_path), str(out)],
            capture_output=True, text=True, cwd=tmp_path, check=True,
            env={**os.environ, **given, "REASONER_HOME": str(tmp_path / "home")},
        )  # fmt: skip
        asked = [line.split() for line in (tmp_path / "asked").read_text().splitlines()]
        return [f"{w[2]} {next(x for x in w if x.startswith('stage1_steps='))}" for w in asked]

    measured = "train stage1_steps=2"
    assert run("") == [measured, "run stage1_steps=24"], "480 s hold 48 steps of 10 s"
    assert run("seed=20") == [measured, "run stage1_steps=12"]
    assert run("") == ["run stage1_steps=24"] and run(" seed=20 ") == ["run stage1_steps=12"], "measured once"
    assert len(list(out.glob("fixed-code*.steps"))) == 2


@pytest.mark.parametrize("small", ["", "1"])
def test_planner(tmp_path: Path, small: str) -> None:
    found = configs(
        shown("planner.sh", tmp_path, SMALL=small, RUNS="planner-sft planner-grpo"), PlannerConfig
    )
    assert [c.grpo.enabled for c in found.values()] == [False, True]
    grpo = found["planner-grpo"]
    assert grpo.grpo.max_steps == (3 if small else 100) and grpo.sft.enabled
    assert grpo.data.evaluation["gsm8k"].kind == "file"
    assert grpo.data.evaluation["gsm8k"].limit == (4 if small else None), "all of the test, once"


def test_the_planner_is_asked_math_where_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "math500.jsonl").touch()
    sets = configs(shown("planner.sh", tmp_path), PlannerConfig)["planner-grpo"].data.evaluation
    assert set(sets) == {"gsm8k", "math500"} and sets["math500"].path == str(tmp_path / "math500.jsonl")


def test_it_says_how_it_is_called(tmp_path: Path) -> None:
    done = subprocess.run(["bash", str(CARD / "planner.sh")], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "benchmarks/card/planner.sh MODEL DATA OUT" in done.stderr


@pytest.mark.parametrize("script", ["multiturn.sh", "pair.sh", "planner.sh", "smart.sh"])
def test_it_can_be_called_as_it_says(script: str) -> None:
    assert os.access(CARD / script, os.X_OK)


def test_one_that_must_be_killed_at_the_deadline_was_stopped_and_leaves_pieces(tmp_path: Path) -> None:
    """Wrong if its status is told as a failure, or if what is small cannot be had without the adapters."""
    stubborn = tmp_path / "python"
    stubborn.write_text(
        f"""#!/bin/bash
[ "$1" = -m ] || exec {sys.executable} "$@"
trap 'kill -9 $$' TERM
sleep 60 & wait
"""
    )
    stubborn.chmod(0o755)
    out = tmp_path / "out"
    for name in ("metrics.json", "adapters/a/adapter_config.json"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("{}")
    given = {
        "PYTHON": str(stubborn),
        "DEADLINE": "0.53",
        "PIECES": "100",
        "REASONER_HOME": str(tmp_path / "home"),
    }
    done = subprocess.run(
        ["bash", str(CARD / "planner.sh"), str(tmp_path), str(tmp_path), str(out)],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **given},
    )  # fmt: skip
    assert done.returncode == 3 and "the same command goes on" in done.stderr, done.stderr
    pieces = sorted(out.glob("pieces/results.tar.gz.*"))
    assert len(pieces) > 1 and all(piece.stat().st_size <= 100 for piece in pieces)
    for name, inside in (("results", "./metrics.json"), ("a", "./adapter_config.json")):
        packed = b"".join(piece.read_bytes() for piece in sorted(out.glob(f"pieces/{name}.tar.gz.*")))
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            assert [m.name for m in archive.getmembers() if m.isfile()] == [inside]


def test_steps_are_those_that_fit(tmp_path: Path) -> None:

    times = tmp_path / "times.jsonl"
    rows = [(60.0, 6.0, 0.0), (10.0, 0.0, 0.0), (12.0, 0.0, 2.0), (11.0, 0.0, 0.5)]
    times.write_text("".join(f'{{"wall": {w}, "validate": {v}, "checkpoint": {c}}}\n' for w, v, c in rows))
    command = [sys.executable, str(CARD / "steps.py"), str(times)]
    steps = [
        subprocess.run([*command, minutes], capture_output=True, text=True, check=True).stdout.strip()
        for minutes in ("8", "0.1")
    ]
    assert steps == ["44", "4"], "(480 - 5 x 6) / 10 s = 45, as a multiple of 4; never less than 4"


RUNS = "smart-epoch2 smart-grpo smart-rft smart-shuffled-labels"


@pytest.mark.parametrize("small", ["", "1"])
def test_smart(tmp_path: Path, small: str) -> None:
    found = shown("smart.sh", tmp_path, SMALL=small, RUNS=RUNS, SETTINGS_TOO="train.compile=true")
    assert list(found) == RUNS.split()
    for config in configs(found, SmartConfig).values():
        assert config.data.evaluation["gsm8k"].limit == (4 if small else None), "all of the test"
        assert config.train.compile
        assert config.train.save_steps <= 50, "a deadline that cuts a training loses little of it"
        assert small or (config.data.pool["gsm8k"].limit == 2500 and config.few_shot.layout == "chat")
        assert small or {(t.batch_size, t.grad_accum) for t in map(config.train_for, (1, 2))} == {(32, 1)}


@pytest.mark.parametrize("small", ["", "1"])
def test_further_sets_are_evaluated_where_their_files_are(tmp_path: Path, small: str) -> None:
    for name in ("svamp", "mawps_multiarith"):
        (tmp_path / f"{name}.jsonl").touch()

    def evaluated(**environment: str) -> dict[str, SourceConfig]:
        found = shown("smart.sh", tmp_path, SMALL=small, RUNS=RUNS, **environment)
        return configs(found, SmartConfig)["smart-epoch2"].data.evaluation

    sets = evaluated()
    assert set(sets) == {"gsm8k", "svamp", "multiarith"}, "asdiv.jsonl is not there"
    assert sets["svamp"].path == str(tmp_path / "svamp.jsonl")
    assert sets["multiarith"].path == str(tmp_path / "mawps_multiarith.jsonl")
    assert all(one.kind == "file" and one.limit == (4 if small else None) for one in sets.values())
    assert sets["svamp"].columns.question == ("Body", "Question"), "as in configs/data/source"
    assert list(evaluated(SETS="")) == ["gsm8k"] and set(evaluated(SETS="svamp")) == {"gsm8k", "svamp"}
    assert small or not evaluated(TUNE="1"), "settings are chosen without any test set"


@pytest.mark.parametrize("environment", [{}, {"LIMIT": "1000"}, {"SMALL": "1"}])
def test_rejection_sampling_draws_as_many_samples_as_smart(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    found = shown("smart.sh", tmp_path, RUNS="smart-rft", **environment)
    config = load("smart-rft", found["smart-rft"], SmartConfig)
    (source,) = config.data.pool.values()
    questions, later = source.limit or 0, config.epoch2
    turns = questions + (later.max_turn2 or 0)
    smart = questions * len(config.few_shot.strategies) + turns * later.samples
    assert abs(config.control.samples * questions - smart) <= questions / 2, "as whole numbers a question go"


def test_the_last_of_several_runs_is_one_table_of_them_all_from_the_cache(tmp_path: Path) -> None:
    """Each variant is configured as the run of its name: else it would be made again, or be another one."""
    alone = {
        name: load(name, shown("smart.sh", tmp_path, RUNS=name)[name], SmartConfig) for name in RUNS.split()
    }
    last = shown("smart.sh", tmp_path, RUNS=RUNS)["smart-epoch2"]
    main, variants = load_variants("smart-epoch2", last)
    together = {"smart-epoch2": main, **{f"smart-{name}": config for name, config in variants.items()}}
    assert {name: config.model_copy(update={"variants": {}}) for name, config in together.items()} == alone


def test_two_cards_make_the_same_runs_as_one(tmp_path: Path) -> None:
    pair = shown(
        "pair.sh", tmp_path, FIRST="smart-epoch2 smart-grpo", SECOND="smart-rft smart-shuffled-labels"
    )
    assert pair == shown("smart.sh", tmp_path, RUNS=RUNS)


def test_two_cards_tell_the_worse_end_and_make_no_table_then(tmp_path: Path) -> None:
    """A Python that fails on the second card alone."""
    python = tmp_path / "python"
    python.write_text('#!/bin/bash\n[ "$CUDA_VISIBLE_DEVICES" != 7 ]\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["bash", str(CARD / "pair.sh"), str(tmp_path), str(tmp_path), str(tmp_path / "out")],
        capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHON": str(python), "CARDS": "3 7", "REASONER_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert done.returncode == 1 and "second.log" in done.stderr
    assert not (tmp_path / "out" / "table").exists()


def test_settings_are_chosen_without_the_test_set(tmp_path: Path) -> None:
    config = load("smart-epoch2", shown("smart.sh", tmp_path, TUNE="1")["smart-epoch2"], SmartConfig)
    assert config.data.evaluation_names == ("held-out",)
    limit = config.data.pool["gsm8k"].limit or 0
    assert limit * config.data.held_out == pytest.approx(1000, abs=1) and limit == 3500
