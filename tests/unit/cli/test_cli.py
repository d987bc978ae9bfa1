"""The command line as a stranger meets it: quick help, short errors, the right exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.audit.build import IDS, Built, solution

ROOT = Path(__file__).resolve().parents[3]


def reasoner(
    *arguments: str, home: Path, at: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from flows.cli import main; main()", *arguments]
    env = {**os.environ, "REASONER_HOME": str(home), "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=at, timeout=300)


def test_help_lists_the_commands_and_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.argv = ['reasoner', '--help']\n"
        "from flows.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted(set(sys.modules) & {'torch', 'vllm', 'trl', 'peft', 'transformers', 'datasets', 'prefect'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    for command in (
        "run",
        "up",
        "down",
        "runs",
        "verify",
        "train",
        "audit-rewards",
        "doctor",
        "smart-infer",
        "smart-analyse",
        "smart-evaluate",
    ):
        assert command in done.stdout
    assert done.stdout.rstrip().endswith("[]")


def test_importing_every_room_loads_no_torch() -> None:
    code = (
        "import sys, importlib, pkgutil, reasoner\n"
        "children = ('worker', 'sft', 'merge', 'parity', 'trainer', 'models_gguf', 'inside')\n"
        "for m in pkgutil.walk_packages(reasoner.__path__, 'reasoner.'):\n"
        "    if not any(part in children for part in m.name.split('.')):\n"
        "        importlib.import_module(m.name)\n"
        "print(sorted(set(sys.modules) & {'torch', 'vllm', 'trl', 'peft', 'transformers', 'datasets', 'prefect'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip().endswith("[]"), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["run", "smart-epoch3"], 2, "Did you mean 'smart-epoch2'"),
        (["run", "smart-demo", "train.lrr=1"], 2, "Did you mean 'train.lr'"),
        (["run"], 2, "Missing argument"),
        (["runn"], 2, "No such command"),
        (["run", "smart-demo", "--rmote"], 2, "No such option"),
        (["verify", "maths", "x.jsonl"], 2, "math or code"),
        (["verify", "math", "no-such.jsonl"], 2, "no-such.jsonl"),
        (["smart-infer", "m", "d", "tot", "1"], 2, "cot, sub, pot"),
        (["smart-analyse", "no-such-folder"], 2, "smart-infer"),
        (["run", "mlmt-maths"], 2, "Did you mean 'mlmt-math'"),
        (["run", "mlmt-math", "value_cof=1"], 2, "Did you mean 'value_coef'"),
        (["train", "--config-name", "score_mth"], 2, "Did you mean 'score_math'"),
        (["train", "--config-name", "smart-demo"], 2, "`reasoner train` takes"),
        (["train", "--config-name", "score_math", "--env-type", "code"], 2, "use --config-name score_code"),
        (["train", "--env-type", "chess"], 2, "math or code"),
        (["train", "hydra.job.name=x"], 2, "hydra.run.dir"),
        (["train", "stop_value_gradient=true"], 2, "Did you mean 'stop_value_gradients'"),
        (["train", "train_guidance_model=perhaps"], 2, "train_guidance_model"),
        (["audit-rewards", "no-such-run"], 2, "no run 'no-such-run'"),
        (["audit-rewards"], 2, "Missing argument"),
        (["why", "trin", "smart-demo"], 2, "Did you mean 'train'"),
        (["why", "train", "smart-dmo"], 2, "no run 'smart-dmo'"),
        (["lineage", "no-such-model"], 2, "no run 'no-such-model'"),
        (["gc", "--keep-days", "-1"], 2, "keep-days"),
        (["audit-rewards", "x", "--limit", "0"], 2, "limit"),
        (["up", "--port", "99999"], 2, "65535"),
        (["plan", "nightly"], 2, "has no plan"),
    ],
)
def test_wrong_usage_is_a_line_and_status_2(
    tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    done = reasoner(*arguments, home=tmp_path)
    assert done.returncode == status and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) <= 3
    assert not (tmp_path / "artifacts").exists()


def test_runs_of_an_empty_home(tmp_path: Path) -> None:
    assert json.loads(reasoner("runs", "--json", home=tmp_path).stdout) == []
    assert "no runs" in reasoner("runs", home=tmp_path).stdout


def test_verify_math_streams_verdicts_in_order(tmp_path: Path) -> None:
    rows = [{"gold": "7", "prediction": "The answer is 7."}, {"gold": "8", "prediction": "It is 9."}]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = reasoner("verify", "math", str(file), home=tmp_path)
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [v["outcome"] for v in verdicts] == ["correct", "incorrect"]
    assert verdicts[0]["gold"] == "7" and {"reason", "extracted", "seconds"} <= set(verdicts[0])


def test_the_doctor_fails_where_a_run_would(tmp_path: Path) -> None:
    """A home that the kernel lets nobody write to, beside everything that this machine really has."""
    done = reasoner("doctor", "--json", home=Path("/proc/reasoner-home"))
    facts = json.loads(done.stdout)
    missing = {(c["group"], c["name"]) for c in facts["checks"] if c["state"] == "missing"}
    assert done.returncode == 1 and not facts["ok"] and ("home", "folder") in missing
    shown = reasoner("doctor", home=tmp_path)
    assert shown.returncode == (1 if missing - {("home", "folder")} else 0), shown.stdout
    assert "sandbox" in shown.stdout and "torch" in shown.stdout and not (tmp_path / "artifacts").exists()


def test_audit_rewards_reports_and_is_no_failure(tmp_path: Path) -> None:
    built = Built(tmp_path / "home")
    given = [solution("2 * 9 = 19. The answer is 19.", "18", "correct", "equal")]
    built.run(0, [built.attempts(given)])
    shown = reasoner("audit-rewards", IDS[0][:6], home=built.home)
    assert shown.returncode == 0, shown.stderr
    assert "1 of 1" in shown.stdout and "correct (equal) -> incorrect (wrong)" in shown.stdout
    row = json.loads(reasoner("audit-rewards", IDS[0][:6], "--json", home=built.home).stdout)
    assert row["attempts"] == row["changed"]["count"] == row["changed"]["examples"][0]["index"] + 1 == 1


def test_an_intruding_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").write_text("")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['reasoner', 'runs']\n"
        "from flows.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and str(tmp_path) in done.stderr
