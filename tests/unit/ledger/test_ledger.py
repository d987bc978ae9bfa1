"""The ledger: what is appended is there for ever after, and damage costs only what it hit."""

import json
import logging
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.errors import InfrastructureError, UsageError
from reasoner.ledger import Ledger
from reasoner.ledger import journal as journal_module
from reasoner.records import Completion, GenerationRequest, Sampling

FINGERPRINT = "model"


def make(n: int, prompt: str = "prompt", **more: object) -> tuple[str, GenerationRequest, Completion]:
    settings = {"sampling": Sampling(0.7, stop=("\n",)), "seed": 5, "index": n, **more}
    request = GenerationRequest("problem", prompt, **settings)  # type: ignore[arg-type]
    return request.key(FINGERPRINT), request, Completion(f"text {n} é", "stop", 3, n, (1, n), (-0.5, -1.0))


def lines_of(folder: Path, name: str = "0000.jsonl") -> list[bytes]:
    return (folder / name).read_bytes().splitlines(keepends=True)


def test_what_is_appended_comes_back_now_and_later(tmp_path: Path) -> None:
    batch = [make(n) for n in range(10)]
    with Ledger(tmp_path / "deep" / "ledger") as ledger:
        assert ledger.append(batch[:6]) == 6
        assert ledger.append(batch[6:]) == 4
        for key, _, completion in batch:
            assert key in ledger and ledger.get(key) == completion
        assert len(ledger) == 10
    for readonly in (False, True):
        with Ledger(tmp_path / "deep" / "ledger", readonly=readonly) as ledger:
            assert [ledger.get(key) for key, _, _ in batch] == [completion for _, _, completion in batch]
            assert len(ledger) == 10 and ledger.damaged == 0
            assert "0" * 32 not in ledger and ledger.get("0" * 32) is None


def test_the_first_completion_of_a_key_stays(tmp_path: Path) -> None:
    key, request, first = make(1)
    second = Completion("other", "stop", 1, 1)
    with Ledger(tmp_path) as ledger:
        assert ledger.append([(key, request, first), (key, request, second)]) == 1
        assert ledger.append([(key, request, second)]) == 0
        assert ledger.append([]) == 0
        assert ledger.get(key) == first and len(ledger) == 1
    assert len(lines_of(tmp_path)) == 3


def test_a_prompt_is_kept_once_a_file_and_entries_can_be_read_whole(tmp_path: Path) -> None:
    long = "few shots " * 1000
    batch = [make(n, long) for n in range(5)] + [make(9, "other", adapter="epoch1", add_special_tokens=False)]
    with Ledger(tmp_path) as ledger:
        ledger.append(batch[:2])
        ledger.append(batch[2:])
    with Ledger(tmp_path) as ledger:
        ledger.append([make(6, long)])
        entries = list(ledger.entries())
    text = (tmp_path / "0000.jsonl").read_text()
    assert text.count(long) == 1 and text.count('"other"') == 1
    assert [entry.key for entry in entries] == [key for key, _, _ in [*batch, make(6, long)]]
    assert entries[0].prompt == long and entries[5].prompt == "other"
    assert entries[5].settings is not None and entries[5].settings["adapter"] == "epoch1"
    assert entries[0].sampling == Sampling(0.7, stop=("\n",))
    assert (entries[3].problem_id, entries[3].index, entries[3].seed) == ("problem", 3, 5)
    assert entries[3].completion == batch[3][2]


def test_two_processes_write_to_two_files_and_read_each_other(tmp_path: Path) -> None:
    code = """
import sys
from reasoner.ledger import Ledger
from tests.unit.ledger.test_ledger import make
ledger = Ledger(sys.argv[1])
ledger.append([make(1)])
print(len(ledger), flush=True)
sys.stdin.readline()
"""
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None and other.stdout.readline() == "1\n"
    with Ledger(tmp_path) as ledger:
        assert ledger.get(make(1)[0]) == make(1)[2]
        ledger.append([make(2)])
        assert sorted(p.name for p in tmp_path.glob("*.jsonl")) == ["0000.jsonl", "0001.jsonl"]
        os.kill(other.pid, signal.SIGKILL)
        other.communicate()
        with Ledger(tmp_path) as third:
            third.append([make(3)])
            assert len(third) == 3
    assert sorted(p.name for p in tmp_path.glob("*.jsonl")) == ["0000.jsonl", "0001.jsonl"]
    with Ledger(tmp_path) as ledger:
        assert len(ledger) == 3


def test_of_two_completions_in_two_files_every_reader_takes_the_same(tmp_path: Path) -> None:
    key, request, completion = make(1)
    with Ledger(tmp_path) as one, Ledger(tmp_path) as two:
        two.append([(key, request, Completion("second file", "stop", 1, 1))])
        one.append([(key, request, completion)])
    for readonly in (True, False):
        with Ledger(tmp_path, readonly=readonly) as ledger:
            assert ledger.get(key) == completion and len(ledger) == 1
            assert [entry.completion for entry in ledger.entries()] == [completion]


def test_a_torn_tail_at_any_byte_is_cut_and_costs_only_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.append([make(1)])
        ledger.append([make(2)])
    path = tmp_path / "0000.jsonl"
    whole = path.read_bytes()
    start = len(whole) - len(lines_of(tmp_path)[-1])
    for end in [*range(start + 1, len(whole), 9), len(whole) - 2, len(whole) - 1]:
        path.write_bytes(whole[:end])
        caplog.clear()
        with caplog.at_level(logging.WARNING), Ledger(tmp_path) as ledger:
            assert path.stat().st_size == start
            assert len(ledger) == 1 and make(2)[0] not in ledger
            assert f"cut off {end - start} bytes" in caplog.text
            ledger.append([make(2)])
        assert path.read_bytes() == whole


def test_a_tail_of_zeros_is_cut(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.append([make(1)])
    size = (tmp_path / "0000.jsonl").stat().st_size
    with (tmp_path / "0000.jsonl").open("ab") as handle:
        handle.write(b"\0" * 5000)
    with Ledger(tmp_path) as ledger:
        assert len(ledger) == 1
    assert (tmp_path / "0000.jsonl").stat().st_size == size


def test_a_torn_tail_of_another_writer_is_left_alone(tmp_path: Path) -> None:
    with Ledger(tmp_path) as one:
        one.append([make(1)])
        path = tmp_path / "0000.jsonl"
        with path.open("ab") as handle:
            handle.write(b'{"crc":"0000')
        size = path.stat().st_size
        with Ledger(tmp_path) as two:
            assert len(two) == 1 and two.damaged == 0
        assert path.stat().st_size == size


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_byte_anywhere_costs_at_most_two_rows(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    batch = [make(n, f"prompt {n % 3}") for n in range(8)]
    with Ledger(folder) as ledger:
        ledger.append(batch)
    path = folder / "0000.jsonl"
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with Ledger(folder) as ledger:
        found = [key for key, _, completion in batch if ledger.get(key) == completion]
        assert all((key in ledger) == (key in found) for key, _, _ in batch)
        assert len(found) >= 6
        ledger.append(batch)
        assert [ledger.get(key) for key, _, _ in batch] == [completion for _, _, completion in batch]
    with Ledger(folder) as ledger:
        assert len(ledger) == 8
        assert {entry.prompt for entry in ledger.entries()} <= {"prompt 0", "prompt 1", "prompt 2", None}


def test_damage_in_the_middle_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.append([make(n) for n in range(3)])
    lines = lines_of(tmp_path)
    lines[3] = lines[3].replace(b"text 1", b"text 7")
    (tmp_path / "0000.jsonl").write_bytes(b"".join(lines))
    with caplog.at_level(logging.WARNING), Ledger(tmp_path) as ledger:
        assert ledger.damaged == 1 and len(ledger) == 2 and make(1)[0] not in ledger
        place = len(b"".join(lines[:4]))
        assert f"0000.jsonl: 1 damaged line(s) before byte {place}" in caplog.text


def test_damage_after_opening_is_owed_and_not_a_wrong_answer(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.append([make(n) for n in range(3)])
        content = (tmp_path / "0000.jsonl").read_bytes()
        (tmp_path / "0000.jsonl").write_bytes(content.replace(b"text 1", b"text 7"))
        assert ledger.get(make(1)[0]) is None and make(1)[0] not in ledger
        assert ledger.get(make(2)[0]) == make(2)[2]
        ledger.append([make(1)])
        assert ledger.get(make(1)[0]) == make(1)[2]


def test_long_completions_and_odd_characters(tmp_path: Path) -> None:
    batch = []
    for n, text in enumerate(["x" * 100_000, "", "\ud800", "\u2028\x00\r\n", "é" * 3000]):
        key, request, _ = make(n)
        batch.append((key, request, Completion(text, "length", 1, 1)))
    with Ledger(tmp_path) as ledger:
        ledger.append(batch)
    with Ledger(tmp_path) as ledger:
        assert [ledger.get(key) for key, _, _ in batch] == [completion for _, _, completion in batch]


def test_the_disk_refuses_a_batch_and_nothing_of_it_stays(tmp_path: Path) -> None:
    """A real short write: the kernel writes up to the file size limit and then refuses."""
    batch = [make(n) for n in range(20)]
    with Ledger(tmp_path) as ledger:
        ledger.append(batch[:5])
        before = (tmp_path / "0000.jsonl").read_bytes()
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 300, old[1]))
        try:
            with pytest.raises(InfrastructureError, match=r"cannot append to .*0000\.jsonl: File too large"):
                ledger.append(batch[5:])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
            signal.signal(signal.SIGXFSZ, handler)
        assert (tmp_path / "0000.jsonl").read_bytes() == before and len(ledger) == 5
        assert ledger.append(batch) == 15
    with Ledger(tmp_path) as ledger:
        assert len(ledger) == 20 and ledger.damaged == 0


def test_a_batch_is_one_write_and_one_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    with Ledger(tmp_path) as ledger:
        write, sync = os.write, os.fsync
        monkeypatch.setattr(os, "write", lambda fd, data: calls.append("write") or write(fd, data))
        monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync") or sync(fd))
        ledger.append([make(n, f"prompt {n}") for n in range(50)])
        monkeypatch.undo()
    assert calls == ["write", "fsync"]


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        with pytest.raises(UsageError, match="32 hex digits"):
            ledger.append([("key", make(1)[1], make(1)[2])])
        with pytest.raises(UsageError, match="32 hex digits"):
            _ = "x" in ledger
    with pytest.raises(UsageError, match="closed, read-only"):
        ledger.append([make(1)])
    with Ledger(tmp_path, readonly=True) as ledger, pytest.raises(UsageError, match="closed, read-only"):
        ledger.append([make(1)])
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError):
        Ledger(tmp_path / "file")
    assert len(Ledger(tmp_path / "nothing", readonly=True)) == 0
    assert not (tmp_path / "nothing").exists()


def test_a_forked_child_cannot_append(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        pid = os.fork()
        if pid == 0:
            try:
                ledger.append([make(1)])
            except UsageError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0


def test_strange_files_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from reasoner.ledger.lines import pack

    (tmp_path / "notes.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "readme.txt").write_text("hello")
    (tmp_path / "future.jsonl").write_bytes(pack({"kind": "new"}))
    with caplog.at_level(logging.WARNING), Ledger(tmp_path) as ledger:
        assert len(ledger) == 0
        ledger.append([make(1)])
    assert "no known kind" in caplog.text
    assert (tmp_path / "notes.jsonl").read_text() == '{"a": 1}\n'


def test_a_line_on_disk_can_be_read_by_any_tool(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.append([make(1)])
    rows = [json.loads(line)["row"] for line in lines_of(tmp_path)]
    assert [next(iter(row)) for row in rows] == ["shared", "shared", "key"]
    assert rows[2]["problem_id"] == "problem" and rows[2]["prompt"] == rows[0]["shared"]


def test_short_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "FIRST_READ", 50)
    with Ledger(tmp_path) as ledger:
        ledger.append([make(1)])
        assert ledger.get(make(1)[0]) == make(1)[2]
