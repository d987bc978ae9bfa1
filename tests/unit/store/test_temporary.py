"""Temporary folders of dead and living processes, and the tags that tell them apart."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reasoner.process.owner import owner_is_dead, owner_tag, parse_tag
from reasoner.store import Store
from reasoner.store.temporary import PREFIX, make_temporary


@pytest.fixture
def dead_tag() -> str:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    tag = owner_tag(child.pid)
    assert not owner_is_dead(tag)
    child.kill()
    child.wait()
    return tag


def changed(tag: str, field: int, value: str) -> str:
    fields = tag.split("-")
    fields[field] = value
    return "-".join(fields)


def test_only_those_of_dead_processes_go(tmp_path: Path, dead_tag: str) -> None:
    living = make_temporary(tmp_path)
    dead = tmp_path / f"{PREFIX}{dead_tag}-0000"
    (dead / "deep").mkdir(parents=True)
    (dead / "deep" / "file").write_text("x")
    stranger = tmp_path / f"{PREFIX}of-somebody"
    stranger.mkdir()
    Store(tmp_path)
    assert living.is_dir() and stranger.is_dir() and not dead.exists()


def test_another_boot_is_dead_and_another_host_or_namespace_is_not_judged(dead_tag: str) -> None:
    own = owner_tag()
    assert not owner_is_dead(own)
    assert owner_is_dead(dead_tag)
    assert owner_is_dead(changed(own, 2, "0123456789ab"))
    assert not owner_is_dead(changed(dead_tag, 3, "1"))
    assert not owner_is_dead(changed(dead_tag, 4, "deadbeef"))


def test_a_pid_that_came_again_is_dead() -> None:
    assert owner_is_dead(changed(owner_tag(), 1, "1"))


def test_unjudged_ones_go_after_a_week_but_not_our_own(tmp_path: Path, dead_tag: str) -> None:
    old = time.time() - 8 * 24 * 3600
    own = make_temporary(tmp_path)
    elsewhere = tmp_path / f"{PREFIX}{changed(dead_tag, 4, 'deadbeef')}-0000"
    fresh = tmp_path / f"{PREFIX}{changed(dead_tag, 4, 'deadbeef')}-0001"
    for path in (elsewhere, fresh):
        path.mkdir()
    for path in (own, elsewhere):
        os.utime(path, (old, old))
    Store(tmp_path)
    assert own.is_dir() and fresh.is_dir() and not elsewhere.exists()


def test_a_tag_is_safe_in_a_file_name() -> None:
    tag = owner_tag()
    assert parse_tag(tag)[0] == os.getpid()
    assert all(c.isalnum() or c == "-" for c in tag)
