"""The page's content, gathered from a store.

Wrong if a run's trajectories are lost or another run's are shown, if figures differ from what the verdicts say, if text
of a model or a data set reaches the page as markup, if the page asks for anything outside itself, or if an unfinished
run has no page.
"""

import json
import re
import shutil
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reasoner.errors import DataError, UsageError
from reasoner.home import Home
from reasoner.report.html import build as building
from reasoner.report.html.build import build, render, write_html, write_if_cheap
from reasoner.report.html.pack import unpacked
from reasoner.report.html.sources import open_source
from tests.support.report_runs import HOSTILE, Runs


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("REASONER_STORE", raising=False)
    return tmp_path / "home"


class Elements(HTMLParser):
    """Every tag of a page, attributes of links, and the texts of packed elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.packed: dict[str, str] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        names = dict(attrs)
        self._open = str(names.get("id")) if names.get("type") == "application/octet-stream" else ""

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.packed[self._open] = self.packed.get(self._open, "") + data


def test_a_finished_smart_run_has_all_its_trajectories_with_exact_prompts(home: Path) -> None:
    folder = Runs(home).smart(pool=6, held_out=12)
    page, collection = build(folder, Home(home), chat=True)
    assert Counter((r.arm, r.split) for r in collection.rows) == {
        ("base, few-shot", "held-out"): 36, ("base, few-shot", "pool"): 18, ("epoch 1", "held-out"): 12,
        ("epoch 2", "held-out"): 12,
    }  # fmt: skip
    assert all(isinstance(r.body["prompt"], int) for r in collection.rows)
    assert all(p.exact for p in collection.prompts) and len(collection.prompts) == 5
    (table,) = page.tables
    rows = {row.label: row for row in table.rows}
    assert (
        rows["epoch 1"].accuracy.k == 4
        and rows["epoch 2"].accuracy.k == 8
        and rows["epoch 2"].accuracy.n == 12
    )
    assert rows["epoch 2"].previous is not None and rows["epoch 2"].previous.gained == 4
    assert page.few_shot is not None and page.few_shot.problems == 6
    assert [c.title for c in page.charts] == [f"epoch {e}: loss in nats a token" for e in (1, 2)]
    assert [r.label for r in page.records] == ["epoch 1", "epoch 2"]
    assert page.finished and not page.notes and len(page.steps) == 27


def test_a_prompt_that_cannot_be_what_the_model_saw_is_not_shown(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Runs(home).smart(pool=2, held_out=2, epochs=1)
    monkeypatch.setattr("reasoner.prompts.few_shot.BLOCK", "Task: {question}\nSolution:{solution}")
    _, collection = build(folder, Home(home))
    shown = {r.arm: r.body["prompt"] for r in collection.rows}
    assert shown["base, few-shot"] is None and shown["epoch 1"] is not None


def test_without_a_tokenizer_the_conversation_is_shown_and_called_so(home: Path) -> None:
    folder = Runs(home).smart(pool=2, held_out=2, epochs=1)
    _, collection = build(folder, Home(home), chat=False)
    policy = next(r for r in collection.rows if r.arm == "epoch 1")
    prompt = collection.prompts[policy.body["prompt"]]
    assert not prompt.exact and "chat template" in prompt.note


def test_weights_that_are_gone_take_no_prompt_and_no_line_of_a_page(home: Path) -> None:
    """A home folder that came from another machine has no weights; the tokenizers beside them are there."""
    folder = Runs(home).smart(pool=2, held_out=2)
    gone = list((home / "artifacts" / "model").glob("*/note.json"))
    for path in gone:
        path.unlink()
    page, collection = build(folder, Home(home))
    assert len(gone) == 3 and not page.notes
    assert all(p.exact for p in collection.prompts)


def test_flips_follow_each_problem_through_the_models(home: Path) -> None:
    _, collection = build(Runs(home).smart(pool=4, held_out=12), Home(home))
    (flip,) = collection.flips
    assert flip.stages[1:] == ("epoch 1", "epoch 2") and sum(flip.patterns.values()) == 12
    for problem, *ids in flip.rows:
        assert {collection.rows[i].problem for i in ids} == {problem}
        outcomes = [collection.rows[i].outcome for i in ids]
        assert len(set(outcomes)) == 2, "only problems that change are listed"
    listed = sum(n for pattern, n in flip.patterns.items() if len(set(pattern)) > 1)
    assert len(flip.rows) == listed


def test_an_unfinished_run_shows_what_is_there_and_nothing_of_other_runs(home: Path) -> None:
    runs = Runs(home)
    folder = runs.smart(pool=4, held_out=6, finished=False, epochs=1)
    config = json.loads((folder / "config.json").read_text())
    other = folder.with_name("smart-demo-0b11f539-813d-4d92-ae37-de81f54eec49")
    other.mkdir()
    (other / "config.json").write_text(json.dumps({**config, "seed": config["seed"] + 1}))
    page, collection = build(folder, Home(home))
    assert not page.finished and len(collection.rows) == 12 + 18 + 6
    assert [row.label for row in page.tables[0].rows][-1] == "epoch 1"
    page, collection = build(other, Home(home))
    assert not collection.rows and not page.tables
    assert "Nothing has been answered" in render(page, collection)


def test_what_is_gone_is_said(home: Path) -> None:
    folder = Runs(home).smart(pool=2, held_out=3)
    source = open_source(folder, Home(home))
    gone = next(a for a in source.kind("completions") if a.label == "answer epoch 1 eval-held-out")
    shutil.rmtree(source.store.open(gone.ref))
    page, collection = build(folder, Home(home))
    assert "epoch 1" not in {r.arm for r in collection.rows}
    assert any(gone.ref.digest[:12] in note for note in page.notes)


def test_a_planner_run_has_trees_arms_and_reward_components(home: Path) -> None:
    page, collection = build(Runs(home).planner(6), Home(home))
    assert len(collection.rows) == 25 and page.planner[0].n == 6
    tree = next(r for r in collection.rows if r.arm.startswith("(a)") and r.strategy == "decomposed")
    assert [c["role"] for c in tree.body["calls"]] == ["subproblem", "subproblem", "combine"]
    assert dict(tree.body["components"])["correctness"] in "01" and "token economy" in dict(
        tree.body["components"]
    )
    invalid = next(r for r in collection.rows if r.strategy == "no plan" and r.arm.startswith("(b)"))
    assert invalid.body["plan"] is None and invalid.reason == "plan: keys" and invalid.outcome == "incorrect"
    practice = collection.rows[-1]
    assert practice.arm.startswith("GRPO") and dict(practice.body["components"])["reward"] == "0.100"
    assert "Reward of GRPO's plans" in [c.title for c in page.charts]
    assert collection.flips[0].stages[0] == "(a) trained planner"
    assert "Seconds for all 6 problems as one batch: (a) trained planner 41.2, (b)" in render(
        page, collection
    )


def test_a_multi_turn_run_has_every_turn_and_the_paired_tests(home: Path) -> None:
    page, collection = build(Runs(home).multiturn(8), Home(home))
    assert Counter(r.arm for r in collection.rows) == {
        "untrained": 8,
        "trained": 8,
        "empty": 8,
        "training": 8,
    }
    kinds = [t["turn"] for t in collection.rows[0].body["turns"]]
    assert kinds == ["attempt", "feedback", "refinement"]
    assert {r.strategy for r in collection.rows} == {"right → right", "wrong → right", "wrong → wrong"}
    assert [row["label"] for row in page.turns.rows] == ["untrained", "trained", "empty"]
    assert page.turns.rows[1]["two"]["i_to_c"] == 4
    assert any(
        "trained against untrained: 4 right for the trained pair alone" in s for s in page.turns.sentences
    )
    assert "Accuracy of training episodes" in [c.title for c in page.charts]


def test_a_trained_pair_that_answers_as_the_untrained_one_has_its_row(home: Path) -> None:
    page, collection = build(Runs(home).multiturn(8, moved=False), Home(home))
    assert [row["label"] for row in page.turns.rows] == ["untrained", "trained", "empty"]
    assert Counter(r.arm for r in collection.rows)["trained"] == 8
    assert any("trained against untrained: 0 right for the trained" in s for s in page.turns.sentences)


def test_what_second_turns_change_is_told_of_both_pairs(home: Path) -> None:
    page, collection = build(Runs(home).multiturn(8), Home(home))
    told = [s for s in page.turns.sentences if "came to its end (N=8)" in s]
    assert [s.split(":")[0] for s in told] == ["Untrained", "Trained"]
    assert told[1] in unescape(render(page, collection))


def test_archer_is_compared_on_the_turn_that_it_trains(home: Path) -> None:
    page, _ = build(Runs(home).multiturn(8, pipeline="archer-math"), Home(home))
    assert any(
        "Turn 1, trained against untrained: 0 right for the trained" in s for s in page.turns.sentences
    ), "all that these runs differ in is turn 2"


def test_two_independent_attempts_stand_beside_the_second_turn(home: Path) -> None:
    page, collection = build(Runs(home).multiturn(8, independent=True), Home(home))
    assert Counter(r.arm for r in collection.rows)["independent"] == 16
    (said,) = [s for s in page.turns.sentences if "at equal compute" in s]
    assert said.startswith("Two independent") and "(N=8, sampled)" in said and "Turn 2 of the trained" in said
    assert said in unescape(render(page, collection))


@pytest.mark.parametrize("method", ["smart", "planner", "multiturn"])
def test_hostile_text_never_becomes_markup_and_nothing_is_fetched(home: Path, method: str) -> None:
    folder = getattr(Runs(home, hostile=True), method)()
    config = json.loads((folder / "config.json").read_text())
    config["model" if method != "multiturn" else "engine"] |= {"path": HOSTILE, "kind": HOSTILE}
    (folder / "config.json").write_text(json.dumps(config))
    page, collection = build(folder, Home(home))
    collection.rows[0].arm = HOSTILE
    page.measured[0] = page.measured[0].__class__(HOSTILE, HOSTILE, 1, 0, page.measured[0].accuracy)
    page.title = HOSTILE
    text = render(page, collection)
    elements = Elements(text)
    assert elements.tags["img"] == 0 and "window.pwned=1>" not in text
    assert elements.tags["script"] == len(elements.packed) + 1, "one script runs: the page's own"
    assert not [name for name, _ in elements.attributes if name.startswith("on")]
    addresses = [value for name, value in elements.attributes if name in ("href", "src", "action")]
    assert addresses and all(value and value.startswith("#") for value in addresses)
    assert not re.search(r"https?://", re.sub(r"<pre class=\"config\".*?</pre>", "", text, flags=re.S))
    bodies = json.dumps([unpacked(v) for k, v in elements.packed.items() if k != "index"])
    assert HOSTILE in bodies, "it is there, but packed"


def test_a_run_writes_its_page_only_where_that_is_cheap_and_never_fails_by_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, said = Runs(home).smart(pool=2, held_out=2, epochs=1), []
    write_if_cheap(folder, Home(home), said.append)
    assert (folder / "report.html").is_file() and not said
    (folder / "report.html").unlink()
    monkeypatch.setattr(building, "CHEAP", 10)
    write_if_cheap(folder, Home(home), said.append)
    assert not (folder / "report.html").exists() and f"`reasoner report {folder.name}`" in said[0]
    (folder / "config.json").write_text("[")
    write_if_cheap(folder, Home(home), said.append)
    assert "DataError" in said[1] and "tries again" in said[1]


def test_the_same_run_gives_the_same_page(home: Path, tmp_path: Path) -> None:
    folder = Runs(home).smart(pool=2, held_out=3)
    first, count = write_html(folder, Home(home))
    second, _ = write_html(folder, Home(home), tmp_path / "other" / "page.html")
    assert count == 2 * 3 + 3 * 3 + 2 * 3 and first == folder / "report.html"
    assert first.read_bytes() == second.read_bytes()


def test_folders_that_are_no_runs_are_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "steps" / "problems").mkdir(parents=True)
    with pytest.raises(UsageError, match="step-by-step"):
        open_source(tmp_path / "steps", Home(tmp_path))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("[1]")
    with pytest.raises(DataError, match="is no configuration of a run"):
        open_source(tmp_path / "broken", Home(tmp_path))
    (tmp_path / "broken" / "config.json").write_text("{}")
    (tmp_path / "broken" / "result.json").write_text("{}")
    with pytest.raises(DataError, match="is not the result of a run"):
        open_source(tmp_path / "broken", Home(tmp_path))
