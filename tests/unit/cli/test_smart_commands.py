"""SMART's step commands, given what they cannot use.

Wrong if a mistake is called a bug, does not say what to give instead, or leaves a folder behind that refuses the
right command afterwards.
"""

from pathlib import Path

import pytest

from reasoner.config.compose import load
from reasoner.config.smart import SmartConfig
from reasoner.records import Strategy
from reasoner.stages.smart_folder import SmartFolder
from tests.support.tiny_llama import make_model
from tests.unit.cli.test_cli import reasoner

WORDS = (
    "--config-name", "smart-demo", "engine=scripted", "engine.options.script=tests.support.solver:solve",
    "data.pool.word_problems.limit=40", "data.validation=0.2",
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a folder with one part and the records of epoch 1, a damaged folder and a file."""
    place = tmp_path_factory.mktemp("smart")
    model = make_model(place / "model")
    config = load("smart-demo", [*WORDS[2:], f"model.path={model}"], SmartConfig)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REASONER_HOME", str(place / "home"))
        made = SmartFolder.create(place / "run", config, lambda *_: None)
        made.infer(Strategy.COT, 1)
        made.records(1)
    (place / "damaged").mkdir()
    (place / "damaged" / "config.json").write_text('{"method": "smart"}')
    (place / "file").touch()
    return place


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("smart-infer", "MODEL", "new", "cot", "6", *WORDS), 2, "PART is a number from 1 to 5, not 6"),
        (("smart-infer", "MODEL", "new", "prog", "1", *WORDS), 2, "STRATEGY is one of cot, sub, pot"),
        (("smart-infer", "MODEL", "new", "cot", "1", *WORDS, "few_shot.strategies=[pot]"), 2, "not among few_shot.str"),
        (("smart-infer", "./none", "new", "cot", "1", *WORDS), 1, "./none: does not exist; expected a folder"),
        (("smart-infer", "MODEL", "file", "cot", "1", *WORDS), 2, "file is a file; give a folder"),
        (("smart-infer", "MODEL", "run", "cot", "1", *WORDS, "seed=9", "train.lr=1"), 2,
         "another model or configuration: seed, train.lr; give the words of its first smart-infer again"),
        (("smart-infer", "MODEL", "run", "cot", "1", *WORDS, "--set", "none"), 2, "there are: held-out"),
        (("smart-analyse", "damaged"), 1, "not a configuration of this version (model: Field required)"),
        (("smart-analyse", "none"), 2, "start with: reasoner smart-infer MODEL"),
        (("smart-records", "0", "--dir", "run"), 2, "epochs count from 1, not 0"),
        (("smart-records", "3", "--dir", "run"), 1, "run: reasoner smart-sample --epoch 3 --dir"),
        (("smart-train", "--dir", "run", "--per_device_train_batch_size", "0"), 2, "is at least 1, not 0"),
        (("smart-train", "--dir", "run", "--gradient_accumulation_steps", "-1"), 2, "is at least 1, not -1"),
        (("smart-train", "--dir", "run", "--record", "file"), 2, "--record file is a file; give a folder"),
        (("smart-train", "--dir", "run", "--epoch", "2"), 1, "run: reasoner smart-records 2 --dir"),
        (("smart-sample", "--dir", "run", "--epoch", "1"), 2, "--epoch 2 samples epoch 1's model"),
        (("smart-sample", "--dir", "run", "--epoch", "3"), 1, "run: reasoner smart-train --epoch 2 --dir"),
        (("smart-evaluate", "gsm8k", "--dir", "run"), 2, "no evaluation set 'gsm8k'"),
        (("smart-evaluate", "held-out", "--dir", "run"), 1, "run: reasoner smart-train --epoch 1 --dir"),
        (("smart-merge", "--adapter_model_name", "none", "--base_model_name", "MODEL", "--output_name", "new"), 1,
         "none is not an adapter"),
        (("smart-merge", "--adapter_model_name", "none"), 2, "Missing option '--base_model_name'"),
    ],
)  # fmt: skip
def test_mistakes_are_a_line(place: Path, arguments: tuple[str, ...], status: int, words: str) -> None:
    names = {"MODEL": place / "model", "new": place / "new", "run": place / "run"}
    given = [str(names.get(a, a)) for a in arguments]
    done = reasoner(*given, home=place / "home", at=place)
    assert done.returncode == status and words in done.stderr, done.stderr
    assert "a bug" not in done.stderr and len(done.stderr.strip().splitlines()) <= 3
    assert not (place / "new").exists(), "a folder made by mistake would refuse the right command"


def test_what_is_missing_of_the_pool_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REASONER_HOME", str(place / "home"))
    made = SmartFolder.open(place / "run", lambda *_: None)
    missing = {"cot": [2, 3, 4, 5], "sub": [1, 2, 3, 4, 5], "pot": [1, 2, 3, 4, 5]}
    assert made.records(1)["missing_parts"] == missing
    found = made.analyse()
    assert found["missing_parts"] == missing and found["accuracy"]["cot"]["n"] > 0
