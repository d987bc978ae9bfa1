"""What the doctor says.

Wrong if something that a run needs is missing and the status is 0, if a mere note makes it 1, if a fault comes without
advice, or if looking changes the machine.
"""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from reasoner.doctor import Check, State, examine, isolation, machine, packages
from reasoner.errors import SandboxUnavailableError, UsageError
from reasoner.home import Home
from reasoner.sandbox import Sandbox
from reasoner.sandbox.selftest import Check as Wall


def named(checks: list[Check], name: str) -> Check:
    (found,) = [check for check in checks if check.name == name]
    return found


# --- packages and locks


def test_installed_packages_are_told_with_their_version() -> None:
    checks = list(packages.needed())
    assert [c.name for c in checks] == [*packages.NEEDED, "vllm"]
    assert named(checks, "math-verify").detail == packages.installed("math-verify")


def test_what_pyproject_names_is_needed() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())["project"]
    assert sorted(packages.NEEDED) == sorted(Requirement(each).name for each in project["dependencies"])


def test_a_run_is_refused_where_a_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    packages.require()
    there = packages.installed
    monkeypatch.setattr(packages, "installed", lambda name: None if name == "datasketch" else there(name))
    with pytest.raises(UsageError, match=r"not installed in .*: datasketch; run `make install`"):
        packages.require()


def test_a_missing_package_is_missing_and_a_missing_vllm_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    there = packages.installed
    gone = ("trl", *packages.VLLM)
    monkeypatch.setattr(packages, "installed", lambda name: None if name in gone else there(name))
    checks = list(packages.needed())
    assert [c.name for c in checks if c.state is State.MISSING] == ["trl"]
    assert named(checks, "vllm").state is State.NOTE and "engine=transformers" in named(checks, "vllm").advice
    assert "make install" in named(checks, "trl").advice


def test_a_lock_is_compared_package_by_package(tmp_path: Path) -> None:
    version = packages.installed("pytest")
    lines = [
        f"pytest=={version}",
        "PyTest==0.1",
        "no-such-package-of-anybody==1.0",
        'pywin32==1 ; sys_platform == "win32"',
    ]
    assert list(packages.differences(lines)) == [
        f"PyTest {version} (==0.1)",
        "no-such-package-of-anybody not installed (==1.0)",
    ]
    for name in ("cpu", "cuda"):
        (tmp_path / f"{name}.lock").write_text("# made by uv\n" + "\n".join(lines) + "\n")
    (tmp_path / "models.lock").write_text(f"pytest=={version}\n")
    first, second = packages.as_locked(tmp_path)
    assert first.state is State.NOTE and "2 of 4 packages differ: PyTest" in first.detail and first.advice
    assert second.state is State.OK and second.detail == "all 1 packages as locked"


def test_the_packages_that_matter_are_named_first(tmp_path: Path) -> None:
    lines = [f"absent-{i}==1" for i in range(20)] + ["torch==0.0.1"]
    for name in ("cpu", "cuda", "models"):
        (tmp_path / f"{name}.lock").write_text("\n".join(lines))
    check = next(packages.as_locked(tmp_path))
    assert check.detail.split(": ")[1].startswith("torch ") and check.detail.endswith("and 13 more")


def test_without_locks_it_is_a_note(tmp_path: Path) -> None:
    assert [c.state for c in packages.as_locked(tmp_path)] == [State.NOTE] * 2


# --- the machine


def test_an_accelerator_and_its_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    card = {"name": "NVIDIA H100", "memory": 80 << 30, "bf16": True}
    monkeypatch.setattr(machine, "ask_torch", lambda: {"devices": [card], "cuda": "13.0"})
    checks = list(machine.processor_and_accelerator())
    assert named(checks, "accelerator").detail == "NVIDIA H100 (80 GiB)"
    assert named(checks, "served precision").detail.startswith("bfloat16")


def test_a_cuda_build_without_a_card_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ask_torch", lambda: {"devices": [], "cuda": "13.0"})
    check = named(list(machine.processor_and_accelerator()), "accelerator")
    assert check.state is State.NOTE and "nvidia-smi" in check.advice


def test_the_precision_is_the_one_that_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ask_torch", lambda: {"devices": [], "cuda": None})
    for bf16, dtype in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr("reasoner.hardware.cpu_computes_bf16", lambda answer=bf16: answer)
        assert named(list(machine.processor_and_accelerator()), "served precision").detail.startswith(dtype)


def test_a_torch_that_cannot_be_imported_is_missing_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_ASK_TORCH", "raise ImportError('libcudart.so.13: no such file')")
    check = named(list(machine.processor_and_accelerator()), "torch")
    assert check.state is State.MISSING and "libcudart" in check.detail and check.advice


def test_torch_is_asked_for_real() -> None:
    assert set(machine.ask_torch()) == {"devices", "cuda"}


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, limit in (("max\n", None), ("1073741824\n", 1 << 30)):
        (tmp_path / "memory.max").write_text(text)
        assert machine.container_limit(tmp_path / "memory.max") == limit
    assert machine.container_limit(tmp_path / "none") is None
    monkeypatch.setattr(machine, "container_limit", lambda: 1 << 30)
    (check,) = machine.memory()
    assert check.state is State.NOTE and "of 1.0" in check.detail and check.advice


def test_the_home_folder_is_tried_and_not_made(tmp_path: Path) -> None:
    home = tmp_path / "a" / "b"
    checks = list(machine.home_folder(Home(home)))
    assert named(checks, "folder").state is State.OK and "will be created" in named(checks, "folder").detail
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_cannot_be_written_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:  # for root nothing is read-only but what the kernel says: /proc
        home = Path("/proc/reasoner-home")
    else:
        home = tmp_path
        tmp_path.chmod(0o500)
    (check,) = machine.home_folder(Home(home))
    assert check.state is State.MISSING and str(home) in check.detail and "REASONER_HOME" in check.advice


def test_a_full_disk_is_missing_and_a_small_one_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for free, state in ((0.5, State.MISSING), (5, State.NOTE), (50, State.OK)):
        usage = type("Usage", (), {"free": int(free * machine.GIB)})
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda path, found=usage: found)
        assert named(list(machine.home_folder(Home(tmp_path))), "disk").state is state


# --- the sandbox


@pytest.mark.usefixtures("sandbox")
def test_every_wall_of_the_sandbox_is_told() -> None:
    checks = list(isolation.sandbox())
    assert checks[0].name == "backend" and checks[0].detail.startswith("namespaces")
    assert {"no network", "no loopback", "limit of memory", "nothing outlives it"} <= {c.name for c in checks}
    assert not [c for c in checks if c.state is State.MISSING]


def test_a_refused_sandbox_says_which_step_and_what_to_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    def detect(limits: object = None) -> Sandbox:
        raise SandboxUnavailableError("no sandbox: unshare: Operation not permitted; allow user namespaces")

    monkeypatch.setattr(isolation.Sandbox, "detect", detect)
    (check,) = isolation.sandbox()
    assert (check.state, check.detail) == (State.MISSING, "no sandbox: unshare: Operation not permitted")
    assert check.advice == "allow user namespaces"


def test_a_wall_that_does_not_hold_is_missing_and_one_that_is_not_there_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walls = (
        Wall("no network", False, "done"),
        Wall("seccomp filter", None),
        Wall("no loopback", True, "EPERM"),
    )
    monkeypatch.setattr(isolation, "self_test", lambda: walls)
    monkeypatch.setattr(isolation.Sandbox, "detect", lambda: Sandbox(True, None))
    breach, note, fine = list(isolation.sandbox())[1:]
    assert (breach.state, breach.detail) == (State.MISSING, "DOES NOT HOLD (done)") and breach.advice
    assert note.state is State.NOTE and "libseccomp" in note.advice
    assert (fine.state, fine.advice) == (State.OK, "")


# --- all together


def test_every_fault_comes_with_advice(tmp_path: Path) -> None:
    checks = list(examine(Home(tmp_path)))
    assert [c.name for c in checks if c.state is not State.OK and not c.advice] == []
    assert {c.group for c in checks} == {"python", "packages", "locks", "machine", "home", "sandbox"}
    assert json.loads(json.dumps([c.to_row() for c in checks]))


def test_a_refused_user_namespace_is_seen_by_a_real_user(tmp_path: Path) -> None:
    """Where this machine lets us forbid namespaces, the doctor's words are the kernel's."""
    code = (
        "import resource\n"
        "from reasoner.doctor import isolation\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n"
        "print([(c.state, c.detail, c.advice) for c in isolation.sandbox()])"
    )
    demote = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    python = "/usr/bin/python3"
    root = Path(__file__).resolve().parents[3]
    environment = {"PYTHONPATH": str(root), "HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
    try:
        child = subprocess.run([*demote, python, "-c", code], env=environment, cwd="/", capture_output=True, text=True,
                               timeout=60)  # fmt: skip
    except FileNotFoundError as error:
        pytest.skip(f"not installed: {error.filename}")
    if child.returncode:
        pytest.skip(f"not possible here: {(child.stderr.strip().splitlines() or ['?'])[-1]}")
    assert (
        "missing" in child.stdout and "no sandbox" in child.stdout and "allow user namespaces" in child.stdout
    )
