"""Templates are compiled once a text. Wrong if a second question compiles again, or if one text answers for another."""

import jinja2
import pytest

from reasoner.prompts import load_template
from reasoner.prompts.compiled import fill_in


def test_many_questions_compile_a_template_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    plain = jinja2.Environment.compile

    def counting(self: jinja2.Environment, source: str, *rest: object) -> object:
        compiled.append(source)
        return plain(self, source, *rest)  # type: ignore[arg-type]

    template = load_template("smart")
    monkeypatch.setattr(jinja2.Environment, "compile", counting)
    turns = {template.user_turn(f"How many are {number}?") for number in range(50)}
    assert len(turns) == 50 and compiled == []
    assert [fill_in("{{ a }} of this test", {"a": one}) for one in "xyy"] == [
        f"{c} of this test" for c in "xyy"
    ]
    assert compiled == ["{{ a }} of this test"]


def test_each_text_is_its_own() -> None:
    values = {"a": "{{ b }}"}
    assert fill_in("1 {{ a }}", values) == "1 {{ b }}" and fill_in("2 {{ a }}", values) == "2 {{ b }}"
    with pytest.raises(jinja2.TemplateError):
        fill_in("{{ missing }}", values)
