"""The repository holds no secrets, and `git` sees no file that it should not."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOKENS = re.compile(
    r"hf_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{32,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|://[^/\s:@]+:[^/\s@]{16,}@"
)


def tracked() -> list[Path]:
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.splitlines()]


def test_no_file_holds_a_token() -> None:
    found = [p for p in tracked() if p.is_file() and TOKENS.search(p.read_text(errors="replace"))]
    assert [p for p in found if p.name not in ("test_repository.py",)] == []


def test_the_pattern_would_see_a_token() -> None:
    assert TOKENS.search("token = '" + "hf_" + "a" * 34 + "'")


def test_no_data_set_is_committed() -> None:
    assert [
        p for p in tracked() if p.suffix in (".parquet", ".csv", ".safetensors", ".gguf", ".bin", ".pt")
    ] == []
