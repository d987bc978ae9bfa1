"""Finding a run and its attempts.

Wrong if a name finds another run, if a run gets attempts that are not its own or loses some in silence, or if an error
does not say what there is.
"""

import json
import shutil
from pathlib import Path

import pytest

from reasoner.audit.runs import find_run, open_run
from reasoner.errors import DataError, UsageError
from reasoner.home import Home
from reasoner.store.rows import write_rows
from tests.unit.audit.build import CONFIG, IDS, Built, attempt_row, completion_row, solution

RIGHT = solution("2 * 9 = 18. The answer is 18.", "18", "correct", "equal")
WRONG = solution("2 * 9 = 19. The answer is 19.", "18", "incorrect", "wrong")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Built:
    monkeypatch.delenv("REASONER_STORE", raising=False)
    return Built(tmp_path / "home")


def test_a_run_is_found_by_name_id_beginning_and_folder(built: Built) -> None:
    first, second = built.run(0, None), built.run(1, None)
    home = Home(built.home)
    for name in (first.name, IDS[0], "0a", "smart-demo-0a5", str(first)):
        assert find_run(name, home) == first
    assert find_run("0b11", home) == second


def test_no_run_and_several_runs_are_told_with_what_there_is(built: Built) -> None:
    home = Home(built.home)
    with pytest.raises(UsageError, match=r"no run 'x' in .*runs; give one of them: none"):
        find_run("x", home)
    first, second = built.run(0, None), built.run(1, None)
    with pytest.raises(UsageError, match="2 runs are called 'smart-demo'") as caught:
        find_run("smart-demo", home)
    assert first.name in str(caught.value) and second.name in str(caught.value)
    with pytest.raises(UsageError, match=f"no run 'tomorrow'.*{IDS[0]}"):
        find_run("tomorrow", home)
    with pytest.raises(UsageError, match="no run ''"):
        find_run("", home)
    shutil.copytree(first, first.with_name(first.name + "-copy"))
    assert find_run(first.name, home) == first, "the whole name goes before a beginning"


def test_a_finished_run_has_the_attempts_that_its_report_was_made_from(built: Built) -> None:
    own = [built.attempts([RIGHT], split="pool"), built.attempts([WRONG], split="eval-x")]
    other = built.attempts([RIGHT, WRONG], split="pool")
    run = open_run(built.run(0, own), Home(built.home))
    assert [s.label for s in run.sources] == ["few-shot cot eval-x", "few-shot cot pool"]
    assert {s.attempts.parent.name for s in run.sources} == {ref.digest for ref in own}
    assert other.digest not in {s.attempts.parent.name for s in run.sources}
    assert run.missing == [] and run.verify.timeout == 2.0


def test_an_unfinished_run_has_the_attempts_that_were_made_with_its_configuration(built: Built) -> None:
    own = built.attempts([RIGHT])
    for changes in ({"seed": 1}, {"few_shot": {"shots": 3}}, {"data": {"pool": "other"}}):
        built.attempts([RIGHT, solution(str(changes), "1", "incorrect", "wrong")], **changes)
    run = open_run(built.run(0, None), Home(built.home))
    assert [s.attempts.parent.name for s in run.sources] == [own.digest]


def test_settings_of_later_epochs_are_the_runs_own(built: Built) -> None:
    given = built.attempts([RIGHT])
    later = {"config": {"lr": 0.2, "epochs": 1}, "attempts": [given.to_row()], "seed": 0}
    adapter = built.put("adapter", "train", later, [{}], "a")
    arguments = {"model": adapter.to_row(), "split": "eval-x", "seed": 0, "epoch": 2}
    completions = built.put("completions", "answer", arguments, [completion_row(WRONG)], "completions.jsonl")
    judged = {"completions": completions.to_row(), "config": CONFIG["verify"]}
    built.put("attempts", "verify", judged, [attempt_row(WRONG)], "attempts.jsonl")
    run = open_run(built.run(0, None), Home(built.home))
    assert [s.label for s in run.sources] == ["answer eval-x epoch 2", "few-shot cot pool"]


def test_what_is_gone_is_named(built: Built) -> None:
    kept, gone = built.attempts([RIGHT], split="pool"), built.attempts([WRONG], split="eval-x")
    folder = built.run(0, [kept, gone])
    shutil.rmtree(built.store.open(gone))
    run = open_run(folder, Home(built.home))
    assert [s.label for s in run.sources] == ["few-shot cot pool"]
    assert len(run.missing) == 1 and gone.digest[:12] in run.missing[0]


def test_a_run_without_attempts_is_an_error_that_says_so(built: Built) -> None:
    with pytest.raises(DataError, match="has no attempts; run it first"):
        open_run(built.run(0, None), Home(built.home))
    folder = built.run(1, None)
    (folder / "config.json").write_text("{")
    with pytest.raises(DataError, match="is no configuration of a run"):
        open_run(folder, Home(built.home))


def test_a_run_of_another_home_brings_its_own_store(built: Built, tmp_path: Path) -> None:
    folder = built.run(0, [built.attempts([RIGHT])])
    assert len(open_run(folder, Home(tmp_path / "elsewhere")).sources) == 1


def test_a_plain_folder_holds_its_attempts_itself(tmp_path: Path) -> None:
    (tmp_path / "problems").mkdir()
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for part in ("few-shot/cot-1", "epoch2/turn1"):
        (tmp_path / part).mkdir(parents=True)
        write_rows(tmp_path / part / "attempts.jsonl", [attempt_row(RIGHT)])
        write_rows(tmp_path / part / "completions.jsonl", [completion_row(RIGHT)])
    run = open_run(tmp_path, Home(tmp_path / "home"))
    assert [s.label for s in run.sources] == ["epoch2/turn1", "few-shot/cot-1"]
