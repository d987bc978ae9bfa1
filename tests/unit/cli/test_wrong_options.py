"""Wrong words for plan, report, compare and evaluate, as a newcomer types them.

Wrong if one is taken for a fault of the program or of the data (status 1), if its answer has more than two lines or a
traceback, or does not say what to give instead.
"""

from pathlib import Path

import pytest

from tests.unit.cli.test_cli import reasoner

WRONG = [
    (["plan"], "Missing argument 'name' (reasoner plan --help)"),
    (["plan", "smart-dmo"], "Did you mean 'smart-demo'?"),
    (["plan", "smart-demo", "--device", "h1000"], "there are: cpu, h100"),
    (["plan", "smart-demo", "--price", "cheap"], "(reasoner plan --help)"),
    (["plan", "smart-demo", "--actual", "--price", "3"], "leave --price out"),
    (["plan", "smart-demo", "--calibrate", "--device", "4090"], "leave --device 4090 out"),
    (["plan", "smart-demo", "epoch2.sampels=3"], "Did you mean 'epoch2.samples'?"),
    (["report"], "Missing argument 'run' (reasoner report --help)"),
    (["report", "nothing"], "no run 'nothing' in"),
    (["report", "nothing", "--outptu", "x"], "--output"),
    (["compare", "one"], "Missing argument 'b'"),
    (["compare", "one", "two"], "A file of rows or an evaluation (evaluation/DIGEST) will do, too"),
    (["compare", "one", "two", "--confidence", "95"], "for example 0.95"),
    (["compare", "{here}/rows.txt", "two"], "ends in .jsonl"),
    (["evaluate", "nothing", "--data", "word_problems"], "a Hub id (owner/name)"),
    (["evaluate", "package:a/b.gguf"], "give --data"),
    (["evaluate", "package:a/b.gguf", "--data", "word_problem"], "Did you mean 'word_problems'?"),
    (["evaluate", "package:a/b.gguf", "--data", "gone.jsonl"], "there is no such file"),
    (
        ["evaluate", "package:a/b.gguf", "--data", "word_problems", "--strategy", "cott"],
        "'cot', 'sub', 'pot'",
    ),
    (
        ["evaluate", "package:a/b.gguf", "--data", "{here}/rows.jsonl", "data.columns.question=Q"],
        "data.columns.question=[Q]",
    ),
]


@pytest.mark.parametrize(("words", "wanted"), WRONG, ids=[" ".join(words)[:60] for words, _ in WRONG])
def test_a_wrong_word_is_told_in_a_line(tmp_path: Path, words: list[str], wanted: str) -> None:
    for name in ("rows.txt", "rows.jsonl"):
        (tmp_path / name).write_text("{}\n")
    done = reasoner(*(word.replace("{here}", str(tmp_path)) for word in words), home=tmp_path / "home")
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) <= 2 and "Traceback" not in done.stderr and not done.stdout
    assert wanted in done.stderr
