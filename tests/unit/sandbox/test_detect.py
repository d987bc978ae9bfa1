"""Detection, refusal, the self-test, and the reading of hostile trees."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reasoner.sandbox import Sandbox
from reasoner.sandbox.process import Stopped, parse_line
from reasoner.sandbox.seccomp import build_filter
from reasoner.sandbox.selftest import self_test
from reasoner.sandbox.values import BadTreeError, decode

REPOSITORY = Path(__file__).resolve().parents[3]


def test_backend_names_itself(sandbox: Sandbox) -> None:
    name, _, version = sandbox.backend.partition("/")
    assert name in ("namespaces", "namespaces+seccomp") and version
    assert (build_filter() is not None) == name.endswith("seccomp")


def test_self_test_passes_and_is_quick(sandbox: Sandbox) -> None:
    started = time.monotonic()
    checks = self_test()
    assert time.monotonic() - started < 20  # under a second on a quiet machine
    assert len({check.name for check in checks}) == len(checks) >= 20
    assert [str(check) for check in checks if check.passed is False] == []
    assert self_test() is checks


def test_self_test_can_fail(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hole in a wall, the check of that wall fails."""
    from reasoner.sandbox import process

    monkeypatch.setitem(process.ENVIRONMENT, "CANARY_TOKEN", "x")
    monkeypatch.setattr(
        process,
        "child_code",
        lambda name, real=process.child_code: compile(
            Path(REPOSITORY / "reasoner/sandbox/inside" / name)
            .read_text()
            .replace("_within(path, top) for top in system", "False for top in system")
            .replace('("proc", "dev", "tmp")', '("proc", "dev", "tmp", "sys")')
            .replace('resource.RLIMIT_NPROC: config["processes"],', ""),
            name,
            "exec",
            dont_inherit=True,
        ),
    )
    self_test.cache_clear()
    try:
        monkeypatch.setattr(
            "reasoner.sandbox.selftest.ENVIRONMENT", {"PATH": "", "HOME": "", "TMPDIR": "", "LANG": ""}
        )
        failed = {check.name for check in self_test() if check.passed is False}
    finally:
        self_test.cache_clear()
    assert {"clean environment", "limit of processes", "no home, project or host files"} <= failed


def test_refuses_where_namespaces_are_forbidden() -> None:
    """In a process that may not make namespaces nothing runs, and the error says what to allow."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare is needed to forbid namespaces")
    code = (
        "from reasoner.sandbox import Sandbox, run_programs\n"
        "from reasoner.errors import SandboxUnavailableError\n"
        "for attempt in (Sandbox.detect, lambda: run_programs(['answer = 1'])):\n"
        "    try:\n        print('ran', attempt())\n"
        "    except SandboxUnavailableError as error:\n        print('refused', error)\n"
    )
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1"'
    child = subprocess.run(
        ["unshare", "-U", "-r", "sh", "-c", script, sys.executable, code],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    if not child.stdout and "max_user_namespaces" in child.stderr:
        pytest.skip("the limit of namespaces cannot be set here")
    lines = child.stdout.splitlines()
    assert len(lines) == 2 and all(line.startswith("refused no sandbox: unshare: ") for line in lines), child
    assert "max_user_namespaces" in lines[0]


@pytest.mark.parametrize(
    "tree",
    [
        1.5,
        {},
        {"i": "1", "f": "2"},
        {"q": []},
        {"i": "xyz"},
        {"i": 5},
        {"f": "one"},
        {"f": []},
        {"b": "0"},
        {"c": ["1"]},
        {"c": 5},
        {"t": "ab"},
        {"s": [[1]]},
        {"d": [[1]]},
        {"d": [[[1], 2]]},
        {"d": [1]},
        {"d": {"a": 1}},
        {"s": list(range(20_000))},
        [{"s": list(range(6_000))}, {"s": list(range(6_000))}],
    ],
)
def test_bad_trees_are_refused(tree: Any) -> None:
    with pytest.raises(BadTreeError):
        decode(tree)


def test_deep_trees_are_refused() -> None:
    tree: Any = 1
    for _ in range(200):
        tree = [tree]
    with pytest.raises(BadTreeError):
        decode(tree)


@pytest.mark.parametrize(
    "line", [b"", b"5", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"v":' + b"9" * 10_000 + b"}", b"null"]
)
def test_bad_lines_stop_the_conversation(line: bytes) -> None:
    with pytest.raises(Stopped):
        parse_line(line)


def test_good_line() -> None:
    assert parse_line(json.dumps({"id": 1, "v": [1]}).encode()) == {"id": 1, "v": [1]}
