"""The rules that make planted paraphrases. Wrong if a rule does not do what it is named for, changes a number that it
has no business with, or is not the same every time."""

import re

import pytest

from reasoner.problems.paraphrases import PEOPLE, RULES, paraphrase
from reasoner.problems.word_problems import generate

TEXT = (
    "Nora sold 5 lamps and 7 chairs in April. Ben bought a rug for $20 after 2 hours. "
    "Old rugs cost 3 dollars each. How many miles does Nora walk in total?"
)


def test_each_rule_does_what_it_says() -> None:
    named = paraphrase(TEXT, ["names"])
    assert "Nora" not in named and "Ben" not in named and "April" in named
    assert sum(named.count(name) for name in PEOPLE) == 3, "the same person has one new name"
    units = paraphrase(TEXT, ["units"])
    assert "20 euros" in units and "120 minutes" in units and "kilometers" in units and "$" not in units
    order = paraphrase(TEXT, ["order"])
    assert order.startswith("In April, Nora sold 7 chairs and 5 lamps.")
    assert order.endswith("In total, how many miles does Nora walk?")
    assert "purchased" in paraphrase(TEXT, ["synonyms"])


@pytest.mark.parametrize("rule", [name for name in RULES if name != "units"])
def test_numbers_stay(rule: str) -> None:
    """Words for numbers become digits, so only the digits that were there are looked for."""
    for problem in generate(64, seed=3):
        before, after = (
            re.findall(r"\d+", t) for t in (problem.question, paraphrase(problem.question, [rule]))
        )
        assert not set(before) - set(after)


def test_the_same_seed_gives_the_same_text_and_an_unknown_rule_is_refused() -> None:
    for problem in generate(32, seed=1):
        both = [paraphrase(problem.question, list(RULES), seed=4) for _ in range(2)]
        assert both[0] == both[1] != problem.question
    with pytest.raises(KeyError):
        paraphrase(TEXT, ["rhyme"])
