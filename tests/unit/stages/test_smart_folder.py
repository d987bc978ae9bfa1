"""The original's steps in a folder, with a scripted model: parts, records, samples, evaluation, and their digests.

Wrong if a problem is in two parts or in none, if two runs of one seed differ in a byte of any record set, or if
another seed gives the same records.
"""

import json
import zipfile
from collections import Counter
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from reasoner.config.compose import load
from reasoner.config.smart import Epoch1Config, SmartConfig
from reasoner.errors import DataError, UsageError
from reasoner.ids import file_hash
from reasoner.records import Strategy
from reasoner.stages import problems as questions
from reasoner.stages import smart, verdicts
from reasoner.stages.smart_asked import PARTS
from reasoner.stages.smart_folder import SmartFolder
from reasoner.store.rows import read_rows
from tests.support.tiny_llama import make_model

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REASONER_HOME", str(tmp_path / "home"))


def silent(*_: Any) -> None:
    """No progress display."""


def folder(path: Path, tiny: Path, *more: str) -> SmartFolder:
    words = [
        f"model.path={tiny}", "engine=scripted", "engine.options.script=tests.support.solver:solve",
        "data.pool.word_problems.limit=60", "data.validation=0.2", *more,
    ]  # fmt: skip
    return SmartFolder.create(path, load("smart-demo", words, SmartConfig), silent)


def inferred(path: Path, tiny: Path, *more: str) -> SmartFolder:
    made = folder(path, tiny, *more)
    for strategy in Strategy:
        for part in range(1, PARTS + 1):
            made.infer(strategy, part)
    return made


def digests(made: SmartFolder, tiny: Path) -> dict[str, str]:
    """Every set of records that this project makes, by name, as the hash of its file."""
    out, attempts, pool = made.path, made._few_shot(), questions.read_pool(made.path / "problems")
    seed, control = made.config.seed, made.config.control
    made.records(1)
    made.sample(2, str(tiny))
    made.records(2)
    flags = {
        "balanced": Epoch1Config(balance_strategies=True, max_records=12),
        "drawn": Epoch1Config(direct="one_random", refine_pairs="one_random", direct_subsample=0.5),
        "rare": Epoch1Config(rarity=1, drop_easy=True),
    }
    for name, config in flags.items():
        smart.records_epoch1(new(out / name), pool, attempts, config, seed)
    smart.records_rejected(new(out / "rft"), pool, attempts, Strategy.POT, control, seed)
    smart.shuffle_labels(new(out / "shuffled"), out / "epoch1" / "records", seed)
    smart.records_given(new(out / "given"), pool, None, seed)
    sets = sorted(path for path in out.rglob("train.jsonl") if "problems" not in path.parts)
    assert len(sets) == 8 and all(read_rows(path) for path in sets)
    return {str(path.relative_to(out)): file_hash(path) for path in sets}


def new(path: Path) -> Path:
    path.mkdir()
    return path


def test_one_seed_gives_the_same_records_to_the_byte_and_another_gives_others(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = digests(inferred(tmp_path / "a", tiny, "seed=3"), tiny)
    monkeypatch.setenv("REASONER_HOME", str(tmp_path / "another-home"))  # nothing from the ledger
    assert digests(inferred(tmp_path / "b", tiny, "seed=3"), tiny) == first
    other = digests(inferred(tmp_path / "c", tiny, "seed=4"), tiny)
    assert [name for name in first if first[name] == other[name]] == []


def test_five_parts_hold_every_problem_once(tiny: Path, tmp_path: Path) -> None:
    made = folder(tmp_path / "run", tiny)
    for part in range(1, PARTS + 1):
        made.infer(Strategy.COT, part)
    files = sorted((made.path / "few-shot").glob("cot-*"))
    assert [f.name for f in files] == [f"cot-{part}" for part in range(1, 6)]
    seen = Counter(a.problem_id for f in files for a in verdicts.read([f]))
    pool = questions.read(made.path / "problems", "pool")
    assert seen == Counter(p.id for p in pool) and set(seen.values()) == {1} and len(pool) > 20
    assert all(verdicts.read([f]) for f in files), "no part is empty"
    for part in (0, 6):
        with pytest.raises(UsageError, match="1 to 5"):
            made.infer(Strategy.COT, part)


def test_a_folder_keeps_the_code_and_the_configuration_and_takes_no_other(tiny: Path, tmp_path: Path) -> None:
    made = folder(tmp_path / "run", tiny)
    code = json.loads((made.path / "code.json").read_text())
    assert {"revision", "packages", "python"} <= set(code)
    with zipfile.ZipFile(made.path / "code.zip") as archive:
        assert {"reasoner/stages/smart_folder.py", "flows/smart.py", "configs/smart-demo.yaml"} <= set(
            archive.namelist()
        )
    assert SmartFolder.open(made.path, silent).config == made.config
    with pytest.raises(UsageError, match="another model or configuration"):
        folder(tmp_path / "run", tiny, "seed=9")


def test_a_baseline_is_no_part_of_the_pool_whatever_its_set_is_called(tiny: Path, tmp_path: Path) -> None:
    made = folder(tmp_path / "run", tiny)
    made.infer(Strategy.COT, 1)
    made.infer(Strategy.COT, 1, "held-out")
    shown = made.path / "few-shot"
    (shown / "cot-eval-held-out").rename(shown / "cot-eval-level-1")
    pool = {p.id for p in questions.read(made.path / "problems", "pool")}
    assert {a.problem_id for a in made._few_shot()} <= pool


@pytest.mark.parametrize("control", ["rft", "star", "shuffled_labels", "given_solutions"])
def test_a_control_that_the_steps_do_not_make_is_refused(tiny: Path, tmp_path: Path, control: str) -> None:
    with pytest.raises(UsageError, match=f"reasoner run smart-epoch2 control={control}"):
        folder(tmp_path / "run", tiny, f"control={control}")
    assert not (tmp_path / "run").exists()


def test_evaluation_has_both_turns_each_strategy_and_regret(tiny: Path, tmp_path: Path) -> None:
    made = folder(tmp_path / "run", tiny, "evaluation.second_turn=every", "evaluation.each_strategy=last",
                  "engine.options.script=tests.support.solver:stubborn")  # fmt: skip
    for strategy in Strategy:
        made.infer(strategy, 1, "held-out")
    with pytest.raises(DataError, match="smart-infer"):
        made.analyse()  # a baseline is no part of the pool
    found = made.evaluate("held-out", 0)
    assert found["best"]["against"].startswith("base few-shot") and found["best"]["p"] is not None
    n = len(questions.read(made.path / "problems", "eval-held-out"))
    assert found["accuracy"]["n"] == found["correction"]["n"] == found["forced"]["problems"] == n
    assert found["correction"]["repeated"]["k"] == n, "this policy repeats the program at turn 2"
    assert found["evaluation"]["collapse"] == "pot" and found["turn2"]["use"]["pot"] == n
    assert found["correction"]["acc_t2_oracle"]["k"] >= found["correction"]["acc_t2"]["k"]
    assert set(found["forced"]["accuracy"]) == {"cot", "sub", "pot"} and found["own_regret"]["n"] == n
    folder_ = made.path / "evaluation" / "epoch0-held-out"
    assert [len(read_rows(folder_ / t / "attempts.jsonl")) for t in ("turn1", "turn2", "each")] == [
        n,
        n,
        3 * n,
    ]
    with pytest.raises(UsageError, match="there are: held-out"):
        made.evaluate("gsm8k", 0)


def test_a_refused_repeat_brings_other_strategies_into_the_samples(tiny: Path, tmp_path: Path) -> None:
    used = {}
    for turn2 in ("policy", "untried"):
        made = folder(tmp_path / turn2, tiny, f"epoch2.turn2={turn2}", "epoch2.max_turn2=8",
                      "engine.options.script=tests.support.solver:stubborn")  # fmt: skip
        made.sample(2, str(tiny))
        second = verdicts.read([made.path / "epoch2" / "turn2"])
        assert second and all(a.tried == (Strategy.POT,) for a in second)
        used[turn2] = {a.strategy for a in second}
    assert used == {"policy": {Strategy.POT}, "untried": {Strategy.COT, Strategy.SUB}}


def test_a_step_out_of_order_names_the_one_before(tiny: Path, tmp_path: Path) -> None:
    made = folder(tmp_path / "run", tiny)
    with pytest.raises(DataError, match="smart-infer"):
        made.analyse()
    with pytest.raises(DataError, match="smart-train"):
        made.sample(2)
    with pytest.raises(DataError, match="smart-sample"):
        made.records(2)
    with pytest.raises(DataError, match="smart-records 1"):
        made.train(1)


def test_an_epochs_model_is_named_by_its_path_so_that_its_adapter_does_not_name_the_base(
    tiny: Path, tmp_path: Path
) -> None:
    """PEFT would put an adapter of epoch 2 onto the base without a word."""
    made = folder(tmp_path / "run", tiny)
    copytree(tiny, made.path / "epoch1" / "model")
    assert made.model(0).name == str(tiny) and made.model(1).name == str(made.path / "epoch1" / "model")
