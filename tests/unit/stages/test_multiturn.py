"""Evaluation, controls and report with a scripted engine and the real grader."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.engines.pool import EnginePool
from reasoner.errors import DataError
from reasoner.home import Home
from reasoner.ids import content_hash
from reasoner.report import multiturn as page
from reasoner.stages import multiturn as work
from reasoner.stages.multiturn_room import Cast
from reasoner.store.rows import read_rows, write_rows
from reasoner.workbench import ModelFolder, Workbench
from tests.support.problems import section
from tests.support.tiny_llama import make_tokenizer

SCRIPT = "tests.unit.stages.advised:answer"


def config(**fields: Any) -> MultiTurnConfig:
    defaults = {
        "method": "mlmt", "use_smart_corrections": True, "train_guidance_model": True, "policy_lm": "x",
        "problems": section("math"), "engine": {"kind": "scripted", "options": {"script": SCRIPT}},
        "verify": {"workers": 1}, "max_tokens": 64,
    }  # fmt: skip
    return MultiTurnConfig.model_validate({**defaults, **fields})


@dataclass
class Room:
    bench: Workbench
    problems: Path
    model: ModelFolder
    trained: Path
    path: Path

    def cast(self, trained: bool = True) -> Cast:
        return Cast(self.model, None, self.trained if trained else None)

    def folder(self, name: str) -> Path:
        made = self.path / name
        made.mkdir()
        return made


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    path = tmp_path_factory.mktemp("stages")
    model, problems, trained = path / "model", path / "problems", path / "trained"
    make_tokenizer().save_pretrained(model)
    problems.mkdir()
    for part in ("solver", "guidance"):
        (trained / part).mkdir(parents=True)
    facts = work.prepare(problems, section("math"), "math", 1, 10.0)
    assert facts["sizes"] == {"train": 16, "validation": 4, "test": 4}
    training = {
        "method": "mlmt", "mode": "full-grad", "env_type": "math", "seed": 0, "steps": 2, "exported_step": 2,
        "chosen_by": "acc_t2", "config": {}, "validations": [{"step": 0, "acc_t1": 0.0, "acc_t2": 0.25, "delta": 0.25}],
    }  # fmt: skip
    (trained / "training.json").write_text(json.dumps(training))
    write_rows(trained / "metrics.jsonl", [{"step": 1, "acc_t1": 0.5}])
    with EnginePool(path / "logs") as engines:
        bench = Workbench(Home(path / "home"), engines, path / "work", path / "logs", lambda *_: None)
        yield Room(bench, problems, ModelFolder(model, "f" * 64, "tiny"), trained, path)


def test_controls_tell_whether_feedback_is_used(room: Room) -> None:
    settings = config()
    base = work.evaluate(room.folder("base"), room.bench, room.problems, room.cast(False), settings)
    main = work.evaluate(room.folder("main"), room.bench, room.problems, room.cast(), settings)
    assert base["two_turns"]["acc_t2"]["k"] == 0 and main["two_turns"]["acc_t2"]["k"] == 4
    assert main["two_turns"]["delta"] == 1.0 and main["two_turns"]["i_to_c"] == 4
    controls = {}
    for name in work.controls_of(settings):
        out = room.folder(name)
        found = work.control(out, room.bench, room.problems, room.cast(), room.path / "main", name, settings)
        controls[name] = out
        if name == "independent":
            assert found["n"] == 4 and found["acc_one_sample"] == 0.0 == found["acc_either_oracle"]
        else:
            assert found["two_turns"]["acc_t2"]["k"] == 0, (
                f"{name}: the answer came through the feedback alone"
            )
    first = {e.problem_id: e.attempt for e in work.read_episodes(room.path / "main")}
    for name in ("empty", "shuffled", "frozen"):
        assert {e.problem_id: e.attempt for e in work.read_episodes(room.path / name)} == first

    out = room.folder("report")
    page.write(
        out,
        "a | title",
        "tiny",
        room.problems,
        room.path / "base",
        room.trained,
        room.path / "main",
        controls,
    )
    facts, text = json.loads((out / "report.json").read_text()), (out / "report.md").read_text()
    assert facts["trained_against_untrained"] == {"n": 4, "only_main": 4, "only_control": 0, "p": 0.125}
    assert facts["controls"]["shuffled"]["only_main"] == 4 and facts["iterations"] == [
        {"step": 1, "acc_t1": 0.5}
    ]
    assert "# a \\| title" in text and "| trained | 4 |" in text and "+1.000" in text
    equal = facts["independent"]
    assert equal["against_one"]["value"] == 1.0 and equal["against_either"]["only_main"] == 4
    assert "two independent first attempts at equal compute (N=4, sampled)" in text
    assert "leak rate: 1.000" in text, "this writer tells the answer, and the report says so"


def test_rows_hold_no_ids_and_come_in_any_order(room: Room) -> None:
    rows = read_rows(room.path / "main" / work.EPISODES)
    assert all(
        row[t]["token_ids"] == [] and row[t]["tokens"] > 0 for row in rows for t in ("attempt", "refinement")
    )
    with pytest.raises(DataError, match="not in the test"):
        other = room.folder("other")
        write_rows(other / "test.jsonl", [])
        work.control(
            room.folder("none"), room.bench, other, room.cast(), room.path / "main", "empty", config()
        )


def test_which_controls_mean_something() -> None:
    assert work.controls_of(config()) == ["empty", "shuffled", "frozen", "independent"]
    plain = {"train_guidance_model": False, "method": "score"}
    assert work.controls_of(config(**plain, use_smart_corrections=False)) == ["empty", "independent"]
    assert work.controls_of(config(**plain)) == ["empty", "shuffled", "independent"]
    archer = config(method="archer", train_guidance_model=False, use_smart_corrections=False)
    assert work.controls_of(archer) == ["independent"]


def test_a_key_holds_what_is_learnt_and_nothing_else() -> None:
    def key(given: MultiTurnConfig) -> str:
        return content_hash(given)

    a = config()
    for change in (
        {"save_path": "x"},
        {"use_wandb": True},
        {"policy_lm": "y"},
        {"evaluation": {"controls": []}},
    ):
        assert key(a.learned()) == key(config(**change).learned()), change
    for change in ({"lm_lr": 1e-3}, {"value_coef": 0.5}, {"seed": 1}, {"evaluation": {"max_tokens": 9}}):
        assert key(a.learned()) != key(config(**change).learned()), change
    assert key(a.measured()) == key(
        config(lm_lr=1e-3, value_coef=0.3, update_ratio="2:1", batch_size=7, micro_tokens=9000).measured()
    )
    assert key(a.measured()) != key(config(max_tokens=9).measured())


def test_a_missing_file_is_named_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file .*MATH.csv.*problems\.train\.path=FILE"):
        work.fingerprint(section("math", tmp_path / "MATH.csv"))
    assert set(work.fingerprint(section("math"))) == {"train"}
