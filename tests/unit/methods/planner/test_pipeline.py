"""Plans carried out: who is asked what, in how many batches, and what the answer is read from.

Wrong if a sub-problem sees another's solution, if a plan with no valid form is carried out, if a batch takes
more than two waves, or if the answer 0 is lost.
"""

import json
from fractions import Fraction

import pytest

from reasoner.errors import ConfigurationError, EngineError
from reasoner.methods.planner.answers import final_answer, judge, worked_solution
from reasoner.methods.planner.pipeline import Planned
from reasoner.methods.planner.prompts import NAMES, load_prompts
from reasoner.records import Outcome
from tests.unit.methods.planner.world import ATOMIC, Script, executor, split, worker

QUESTION = "Ann buys 3 pens at $2 and 4 books at $5. What does she pay?"


def clerk(prompt: str) -> str:
    """Knows each part of the question and adds what it is shown."""
    if "Solution 1" in prompt:
        return '{"final_calculation": "6 + 20", "final_answer": 26}'
    if "Sub-problem: pens" in prompt:
        return '{"solution": "3 * 2 = 6", "result": 6}'
    if "Sub-problem: books" in prompt:
        return 'Sure! {"solution": "4 * 5 = 20", "result": 20}'
    return '{"solution": "3 * 2 + 4 * 5", "final_answer": 26}'


def test_a_batch_takes_two_waves_and_keeps_the_order() -> None:
    script = Script(clerk)
    items = [
        Planned("p1", QUESTION, split("pens", "books")),
        Planned("p2", QUESTION, "no plan"),
        Planned("p3", QUESTION, ATOMIC),
        Planned("p4", QUESTION, split("books", "pens")),
    ]
    results = executor(script).execute_batch(items)
    assert [len(b) for b in script.batches] == [5, 2]
    assert all(r.adapter == "" for b in script.batches for r in b), "the worker is the bare base"
    assert [r.problem_id for r in results] == ["p1", "p2", "p3", "p4"]
    assert [r.decomposed for r in results] == [True, False, False, True]
    assert [r.text is None for r in results] == [False, True, False, False]
    assert results[1].calls == () and results[1].reason == "no_object"
    shown = script.batches[1][0].prompt
    assert shown.index("Sub-problem 1: pens") < shown.index("3 * 2 = 6 (result: 6)") < shown.index("books\n")
    assert "Sub-problem 1: books" in script.batches[1][1].prompt
    for request in script.batches[0]:
        assert "= 6" not in request.prompt and "= 20" not in request.prompt, "no solution reaches wave 1"
    assert judge(results[0].text, "26").correct and results[0].worker_tokens > 10


def test_the_plan_text_never_reaches_the_worker() -> None:
    script = Script(clerk)
    output = json.dumps({"should_decompose": True, "subproblems": ["pens", "books"], "plan": "SECRETPLAN"})
    executor(script).execute_pipeline(QUESTION, output)
    assert "SECRETPLAN" not in "".join(r.prompt for b in script.batches for r in b)


def test_nothing_to_do_asks_nobody() -> None:
    script = Script(clerk)
    assert executor(script).execute_batch([]) == [] and script.batches == []
    executor(script).execute_pipeline(QUESTION, "{}")
    assert script.batches == []


def test_greedy_calls_are_made_once_and_sampled_ones_differ() -> None:
    group = [Planned("p1", QUESTION, ATOMIC)] * 4
    greedy, drawn = Script(clerk), Script(clerk)
    assert len(executor(greedy).execute_batch(group)) == 4 and len(greedy.batches[0]) == 1
    executor(drawn, temperature=0.7).execute_batch(group)
    assert [r.index for r in drawn.batches[0]] == [0, 1, 2, 3]


def test_the_original_methods() -> None:
    script = Script(clerk)
    made = worker(script)
    assert made.solve_subproblem(QUESTION, "pens") == "3 * 2 = 6 (result: 6)"
    assert final_answer(made.combine_solutions(QUESTION, ["pens", "books"], ["6", "20"])) == 26
    assert final_answer(made.solve_directly(QUESTION)) == 26
    assert executor(script).parse_planner_output(ATOMIC).plan is not None


def test_cut_calls_are_counted_and_failed_ones_raise() -> None:
    result = executor(Script(clerk, finish="length")).execute_pipeline(QUESTION, split("pens", "books"))
    assert result.truncated_calls == 3
    with pytest.raises(EngineError, match="ended with 'error'"):
        executor(Script(clerk, finish="error")).execute_pipeline(QUESTION, ATOMIC)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"solution": "x", "final_answer": 0}', 0),
        ('{"final_answer": "0"}', 0),
        ('{"final_answer": 0.0}', 0),
        ('{"final_answer": null} so it is 7', 7),
        ('{"final_answer": true} hence 7', 7),
        ('{"final_answer": "$1,250.50"}', Fraction("1250.5")),
        ('{"final_answer": "3/4"}', Fraction(3, 4)),
        ('{"final_answer": [18]}', 18),
        ('```json\n{"solution": "line\nbreak", "final_answer": 5}\n```', 5),
        ('{"solution": "no key"} The answer is 9.', 9),
        ("The answer is 12", 12),
        ('{"solution": "cut at 3', 3),
        ("nothing", None),
        ('{"final_answer": "unknown"}', None),
        ('{"solution": "{", "final_answer": 8}', 8),
        ('{"final_answer": 1e2}', 100),
    ],
)
def test_final_answer(text: str, value: object) -> None:
    assert final_answer(text) == value


def test_zero_is_an_answer_and_no_plan_is_wrong() -> None:
    assert judge('{"final_answer": 0}', "0").outcome == Outcome.CORRECT
    assert judge('{"final_answer": null}', "0").reason == "unparsed"
    assert judge(None, "0").reason == "no_plan"
    assert judge('{"final_answer": 0.34}', "1/3").outcome == Outcome.INCORRECT, (
        "the original took these for equal"
    )
    assert judge('{"final_answer": 3}', "three or so").outcome == Outcome.UNSCORED


def test_worked_solution() -> None:
    assert worked_solution('{"solution": "a", "result": 0}') == "a (result: 0)"
    assert worked_solution('{"result": 6}') == '{"result": 6}'
    assert worked_solution('4 * 5 = 20.\n{"result": 20}\n') == '4 * 5 = 20.\n{"result": 20}', "the steps stay"
    assert worked_solution(" prose 6 ") == "prose 6"
    assert worked_solution('{"solution": {"a": 1}}') == '{"solution": {"a": 1}}'


def test_a_question_is_no_template(tmp_path: object) -> None:
    assert "{{ x }} {% y %}" in load_prompts().plan("{{ x }} {% y %}")[0]["content"]


def test_prompts_that_hide_something_are_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    prompts = load_prompts()
    texts = {name: getattr(prompts, name) for name in NAMES}

    def write(**changes: object) -> str:
        path = tmp_path / "mine.yaml"
        path.write_text(json.dumps({**texts, **changes}))
        return str(path)

    assert load_prompts(write()).content_hash == prompts.content_hash
    with pytest.raises(ConfigurationError, match="`combine` does not show"):
        load_prompts(write(combine="{{ question }}"))
    with pytest.raises(ConfigurationError, match="exactly the keys"):
        load_prompts(write(more="x"))
    with pytest.raises(ConfigurationError, match="planner"):
        load_prompts(write(planner="{{ question"))
    with pytest.raises(ConfigurationError, match="did you mean 'planner'"):
        load_prompts("planer")
