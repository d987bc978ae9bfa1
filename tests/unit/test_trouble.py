"""What the machine refused is told as such, and nothing else is."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from reasoner.errors import InfrastructureError
from reasoner.process.log_tail import without_traceback
from reasoner.store.store import _disk_errors
from reasoner.training.runtime import ERROR_FILE, run_program
from reasoner.trouble import disk_is_full, machine_trouble


def refused(number: int, path: str = "/data/x") -> OSError:
    return OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (refused(errno.ENOSPC), "no space left on the disk of /data/x"),
        (refused(errno.EDQUOT), "no space left on the disk of /data/x"),
        (refused(errno.EACCES), "Permission denied: /data/x. Make it writable"),
        (refused(errno.EROFS), "Read-only file system: /data/x"),
        (refused(errno.EIO), "the disk of /data/x fails"),
        (refused(errno.ENOMEM), "out of memory"),
        (MemoryError(), "out of memory (MemoryError)"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried"),
         "out of memory"),
        (RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"), "no space left"),
    ],
)  # fmt: skip
def test_told_in_a_line_with_what_to_do(error: Exception, words: str) -> None:
    found = str(machine_trouble(error))
    assert words in found and "run the same command again" in found and "\n" not in found


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("memory"), FileNotFoundError(errno.ENOENT, "No such file", "/x")]
)
def test_anything_else_is_not_the_machines(error: Exception, tmp_path: Path) -> None:
    assert machine_trouble(error, tmp_path) is None


def test_a_full_disk_explains_a_failed_write_in_other_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
    assert machine_trouble(failed, tmp_path) is None and not disk_is_full(tmp_path / "not" / "yet")
    usage: Any = shutil.disk_usage(tmp_path)._replace(free=4096)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert "no space left on the disk of" in str(machine_trouble(failed, tmp_path))


def test_a_training_program_explains_what_the_machine_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def program() -> None:
        raise refused(errno.ENOSPC)

    assert run_program(tmp_path / "work", program) == 1
    assert "no space left" in (tmp_path / "work" / ERROR_FILE).read_text()
    said = capsys.readouterr().err
    assert "Traceback" in said, "the log keeps where it was"
    assert said.splitlines()[-1].startswith("InfrastructureError: no space left")


def test_a_bug_in_a_training_program_is_no_trouble_of_the_machine(tmp_path: Path) -> None:
    def program() -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        run_program(tmp_path, program)


def test_the_tail_of_a_log_without_frames() -> None:
    log = [
        "step 3/8 loss 0.5", "Traceback (most recent call last):", '  File "a.py", line 3, in f', "    work()",
        "    ^^^^^^", "ValueError: one", "During handling of the above exception, another exception occurred:",
        "Traceback (most recent call last):", '  File "b.py", line 9, in g', "    raise RuntimeError(",
        "RuntimeError: two", "with a second line",
    ]  # fmt: skip
    assert without_traceback(log) == ["step 3/8 loss 0.5", "RuntimeError: two", "with a second line"]
    assert without_traceback(log[3:]) == ["RuntimeError: two", "with a second line"], (
        "cut in the middle of a frame"
    )
    assert without_traceback(log[:1]) == log[:1] and without_traceback([]) == []


def test_a_store_that_refuses_to_publish_gives_the_advice_that_fits(tmp_path: Path) -> None:
    for number, advice in ((errno.EACCES, "make it writable"), (errno.ENOSPC, "free some space")):
        with pytest.raises(InfrastructureError, match=advice), _disk_errors("rows", tmp_path):
            raise refused(number)
