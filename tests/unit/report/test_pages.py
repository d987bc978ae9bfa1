"""The Markdown page and the terminal table, read back the way a reader's program would."""

import io
import re

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from reasoner.config.smart import Epoch1Config
from reasoner.methods.smart import analysis, epoch1
from reasoner.report.data import HeadlineTable, Loss, RecordSet, RunReport, StageTime
from reasoner.report.headline import Answers, headline
from reasoner.report.markdown import render_markdown
from reasoner.report.terminal import plain_lines, print_headline
from reasoner.report.words import p_value
from tests.unit.methods.smart.build import COT, POT, SUB, attempt, few_shot, problem

N = 40
PROBLEMS = [problem(n) for n in range(N)]
BASE = [a for n, p in enumerate(PROBLEMS) for a in few_shot(p, ["+--", "--+", "-++", "---", "+++"][n % 5])]
EPOCH1 = [attempt(p, [COT, SUB, POT][n % 3], "++-"[n % 3]) for n, p in enumerate(PROBLEMS)]
EPOCH2 = [attempt(p, POT, "+" if n % 8 else "-") for n, p in enumerate(PROBLEMS)]
EPOCH2[0] = attempt(PROBLEMS[0], None, "-", finish="length")
EPOCH2[1] = attempt(PROBLEMS[1], POT, "?")
SECOND = [attempt(p, COT, "+" if n % 2 else "-", tried=(POT,)) for n, p in enumerate(PROBLEMS)]
EACH = [a for n, p in enumerate(PROBLEMS) for a in few_shot(p, ["+-+", "--+", "++-", "---"][n % 4])]


def table() -> HeadlineTable:
    answered = [Answers("epoch 1", EPOCH1), Answers("epoch 2", EPOCH2, turn2=SECOND, each=EACH)]
    return headline("held|out", BASE, answered)


def report() -> RunReport:
    chosen = epoch1.records(PROBLEMS, BASE, Epoch1Config(), 0)
    return RunReport(
        title="A run",
        facts={"model": "a|b <script>alert(1)</script>", "two\nlines": "x"},
        tables=(table(),),
        few_shot=analysis.analyse(BASE),
        records=(RecordSet(label="epoch 1", counts=chosen.counts, by_strategy=chosen.by_strategy),),
        losses=(Loss(label="epoch 1", records=87, steps=11, train=0.51234, note="2 too long"),),
        stages=(StageTime(name="few-shot", seconds=30), StageTime(name="sft-1", seconds=10, state="cached")),
        left_out=("2 records are longer than max_length",),
    )


def tables_of(page: str) -> list[list[list[str]]]:
    """Every table of a page, by a Markdown parser: rows of cell texts."""
    found: list[list[list[str]]] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    for i, token in enumerate(tokens):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("td_open", "th_open"):
            found[-1][-1].append(tokens[i + 1].content)
    return found


def test_every_table_of_the_page_is_one() -> None:
    page = render_markdown(report())
    marks = len(re.findall(r"^\|[-:|]+\|$", page, re.M))
    found = tables_of(page)
    assert len(found) == marks == 11
    assert all(len(row) == len(rows[0]) for rows in found for row in rows)
    assert [row[0] for row in found[1][1:]] == [row.label for row in table().rows]
    assert "\n\n\n" not in page and page.endswith("\n")


def test_the_headline_has_the_figures() -> None:
    lines = {row[0]: row for row in tables_of(render_markdown(report()))[1]}
    epoch2 = lines["epoch 2"]
    assert epoch2[1:3] == ["39", "0.872"] and epoch2[6:] == ["0 / 0 / 39", "1 (2.5 %)"]
    measured = table().rows[-1]
    assert measured.best is not None and measured.previous is not None
    assert epoch2[4:6] == [p_value(measured.best.p), p_value(measured.previous.p)]
    assert lines["any of the 3 (oracle)"][1:3] == ["40", "0.800"]


def test_collapse_is_said_plainly() -> None:
    page = render_markdown(report())
    assert "COLLAPSE: epoch 2 answers 39 of 40 questions with Program of Thought" in page
    assert "COLLAPSE: epoch 1" not in page
    healthy = RunReport(title="A run", tables=(headline("x", BASE, [Answers("epoch 1", EPOCH1)]),))
    assert "COLLAPSE" not in render_markdown(healthy)


def test_the_page_says_the_rest() -> None:
    page = render_markdown(report())
    assert analysis.analyse(BASE).sentence in page
    assert "epoch 2: unscored answers, not in N: 1 (2.5 %)." in page
    assert "epoch 2: responses cut before their end: 1 (2.5 %)." in page
    assert "- 2 records are longer than max_length" in page
    assert "unsolved 8" in page
    assert "0.5123" in page and "2 too long" in page
    times = tables_of(page)[-1]
    assert [row[3] for row in times[1:3]] == ["75 %", "25 %"] and times[-1][2] == "40.0"
    histogram = next(rows for rows in tables_of(page) if rows[0][0].startswith("strategies that solve"))
    assert histogram[1:] == [
        ["0", "8 (20.0 %)"],
        ["1", "16 (40.0 %)"],
        ["2", "8 (20.0 %)"],
        ["3", "8 (20.0 %)"],
    ]


def test_text_from_outside_cannot_break_the_page() -> None:
    page = render_markdown(report())
    assert "<script>" not in page
    facts = tables_of(page)[0]
    assert facts[1:] == [["model", "a|b &lt;script>alert(1)&lt;/script>"], ["two lines", "x"]]
    assert "### held\\|out" in page


def test_a_missing_p_has_its_reason() -> None:
    short = headline("x", BASE, [Answers("epoch 1", EPOCH1[:30])])
    page = render_markdown(RunReport(title="A run", tables=(short,)))
    assert "| no p |" in page
    assert "no p: other problems (30 shared of 30 and 40)." in page


def test_an_empty_report_is_a_page_that_says_so() -> None:
    page = render_markdown(RunReport(title="Nothing yet"))
    for words in ("Nothing was evaluated.", "No records were made.", "Nothing was recorded as left out."):
        assert words in page
    assert "\n\n\n" not in page


def test_plain_data_in_and_out() -> None:
    made = report()
    assert RunReport.model_validate_json(made.model_dump_json()) == made
    assert render_markdown(RunReport.model_validate(made.model_dump(mode="json"))) == render_markdown(made)
    with pytest.raises(ValueError, match="titel"):
        RunReport.model_validate({"titel": "x"})


def printed(**console: object) -> str:
    out = io.StringIO()
    print_headline(table(), Console(file=out, **console))  # type: ignore[arg-type]
    return out.getvalue()


def test_no_terminal_gets_whole_plain_lines() -> None:
    text = printed(width=40)
    assert "\x1b" not in text and "│" not in text
    lines = text.splitlines()
    assert lines[0] == "held|out" and lines[1:10] == plain_lines(table())
    assert any(
        line.startswith("COLLAPSE: epoch 2 answers 39 of 40") and line.endswith("helps.") for line in lines
    )
    assert len({len(line) for line in plain_lines(table())}) == 1, "the columns are aligned"


def test_a_terminal_gets_a_table_with_the_same_figures() -> None:
    text = printed(width=160, force_terminal=True, color_system="truecolor", legacy_windows=False)
    assert "│" in text and "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for line in plain_lines(table())[1:]:
        for cell in re.split(r"  +", line)[1:]:
            assert cell in plain
    assert "COLLAPSE" in plain


@pytest.mark.parametrize(
    ("p", "text"), [(None, "—"), (1.0, "1.000"), (0.0471, "0.047"), (0.001, "0.001"), (8.1e-16, "8e-16")]
)
def test_p_values(p: float | None, text: str) -> None:
    assert p_value(p) == text


def test_second_turns_and_forced_strategies_are_on_the_page() -> None:
    page = render_markdown(report())
    second = next(rows for rows in tables_of(page) if "acc@t2_oracle" in rows[0])
    row = table().rows[-1]
    assert row.correction is not None and row.forced is not None
    assert len(second) == 2 and second[1][0] == "epoch 2"
    assert second[1][3] == f"{row.correction.acc_t2.value:.3f}" and second[1][7] == "0 (0.0 %)"
    assert second[1][8] == "40 / 0 / 0" and second[1][-1] == f"{row.correction.acc_t2_oracle.value:.3f}"
    forced = next(rows for rows in tables_of(page) if "its choice" in rows[0])
    assert forced[1][1:] == ["40", "0.872", "0.500", "0.250", "0.500", "0.417", "0.000", "0.750"]
    assert "judged by its own answers with each strategy forced" in page


def test_the_terminal_says_what_a_second_turn_gave() -> None:
    text, row = printed(width=40), table().rows[-1]
    assert row.correction is not None
    assert f"acc@t2 {row.correction.acc_t2.value:.3f} (" in text and "(oracle) 0.750" in text
    assert "epoch 1, a second turn" not in text
