"""docs/extending.md, followed to the letter: each example is cut out of the page and used.

Wrong if an example does not work as it stands there, if it takes a second file, or if an added thing changes a key that
has nothing to do with it.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reasoner.config.data import SourceConfig
from reasoner.config.planner import RewardConfig
from reasoner.errors import ConfigurationError
from reasoner.extensions import load_function, source_hash
from reasoner.ids import canonical
from reasoner.methods.planner.reward import combine
from reasoner.problems import load_problems

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()


def example(name: str, folder: Path) -> Path:
    """The file `name` of the page, written into `folder`: the first block after its name."""
    found = re.search(rf"`{re.escape(name)}`.*?```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found, name
    (folder / name).write_text(found[1])
    return folder / name


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("my_questions", "my_reward"):
        sys.modules.pop(name, None)


def test_a_data_set_in_one_file(here: Path) -> None:
    file = example("my_questions.py", here)
    source = SourceConfig(name="mine", kind="generated", path="my_questions:make", limit=20, seed=3)
    loaded = load_problems(source)
    assert len(loaded.problems) == 20 and loaded.problems[0].question.startswith("What is")
    left, right = re.findall(r"\d+", loaded.problems[0].question)
    assert loaded.problems[0].gold == str(int(left) + int(right))
    before = source_hash("my_questions:make", "x")
    file.write_text(file.read_text() + "# changed\n")
    assert source_hash("my_questions:make", "x") != before, "changed code is another key"


def test_a_reward_in_one_file(here: Path) -> None:
    example("my_reward.py", here)
    config, plain = RewardConfig(function="my_reward:reward"), RewardConfig()
    pay = {"efficiency": 0.5, "independence": 0.5}
    assert combine(config, valid=True, correct=1.0, **pay) == 1.05
    assert combine(config, valid=False, correct=0.0, **pay) == -0.5
    assert combine(config, valid=True, correct=None, **pay) is None
    assert "function" not in canonical(plain) and "source" in canonical(config)
    assert canonical(plain) == {k: v for k, v in plain.model_dump().items() if k != "function"}


STRATEGY = """
import sys
from reasoner.records import Strategy
from reasoner.config.smart import FewShotConfig
from reasoner.methods.smart.parse import parse_response
from reasoner.prompts import few_shot_prompt, load_exemplars, load_template
from reasoner.prompts.solution_end import STOPS, whole_solution
from reasoner.verifiers.solutions import Answer, verify_solutions
table = Strategy("table")
assert table is Strategy.TABLE and table.title == "Table of Quantities" and list(Strategy)[-1] is table
config = FewShotConfig(strategies=("cot", "table"), exemplars=sys.argv[1], shots=2)
assert config.strategies[1] is table and STOPS[table] == ("\\n\\n",)
exemplars = load_exemplars(config.exemplars)
prompt = few_shot_prompt(exemplars, table, "How many?", 2)
assert "pens a box 4" in prompt and "The boxes hold" not in prompt
assert "Table of Quantities" in load_template("smart").user_turn("How many?")
said = parse_response("Table of Quantities: cards 21 | left 12. The answer is 12.")
assert said.strategy is table
assert whole_solution(table, " left 12. The answer is 12. Next", "stop") == (" left 12. The answer is 12.", True)
(verdict,) = verify_solutions([Answer(table, said.solution, "12")])
assert verdict.correct
print("ok")
"""


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, timeout=300)


def test_a_strategy_in_one_file(here: Path) -> None:
    file = str(example("my_strategy.yaml", here))
    done = python(STRATEGY, file, REASONER_STRATEGIES=file)
    assert done.stdout.strip() == "ok", done.stderr


def test_without_the_variable_nothing_is_different(here: Path) -> None:
    code = (
        "from reasoner.prompts import load_exemplars, load_template\n"
        "print(load_exemplars('demo').content_hash, load_template('smart').content_hash)"
    )
    # The hashes of the release before strategies could be added: keys of finished work must stay.
    assert python(code).stdout.split() == ["39483098793e76c5", "c40c07d8bf1bbe3e"]


@pytest.mark.parametrize(
    ("text", "words"),
    [("strategies: {cot: {title: X}}", "new word"), ("strategies: {t: {title: 'a: b'}}", "without a colon"),
     ("strategies: {t: {}}", "KeyError"), ("[", "Error"), ("{}", "KeyError")],
)  # fmt: skip
def test_a_wrong_file_of_strategies_is_told_in_a_line(here: Path, text: str, words: str) -> None:
    (here / "s.yaml").write_text(text)
    command = [sys.executable, "-m", "flows.cli", "runs"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REASONER_STRATEGIES": str(here / "s.yaml")}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, timeout=300)
    assert words in done.stderr and "Traceback" not in done.stderr and done.returncode == 2, done.stderr


@pytest.mark.parametrize("path", ["no_such_module_of_mine:f", "json:no_such", "json:__doc__", "json"])
def test_a_wrong_dotted_path_is_told_in_a_line(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"reward\.function="):
        load_function(path, "reward.function")
