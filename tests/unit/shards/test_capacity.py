"""benchmarks/capacity.py counts what is there, and says of what it has only simulated that it has."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_what_is_measured_and_what_is_simulated(tmp_path: Path) -> None:
    out = tmp_path / "capacity.json"
    command = [sys.executable, ROOT / "benchmarks" / "capacity.py", "--sizes", "20", "60", "--samples", "2"]
    subprocess.run([*command, "--out", out], check=True, stdout=subprocess.DEVNULL)
    found = json.loads(out.read_text())
    small, large = found["measured"]
    assert (small["completions"], large["completions"]) == (40, 120)
    assert large["ledger_bytes"] > 2 * small["ledger_bytes"] > 40 * 200
    lines, rows = found["simulated"]["lines"], found["simulated"]["rows"]
    assert [row["problems"] for row in rows] == [10_000, 100_000, 1_000_000, 10_000_000]
    slope = (large["ledger_bytes"] - small["ledger_bytes"]) / 40
    assert lines["ledger_bytes"]["a_problem"] == pytest.approx(slope)
    assert rows[-1]["ledger_bytes"] == pytest.approx(slope * 10**7, rel=0.01)
    assert lines["completions"] == {"at_zero": 0.0, "a_problem": 2.0, "worst_misfit": 0.0}
    assert rows[0]["prompt_tokens"] == 10_000 * 2 * 900
