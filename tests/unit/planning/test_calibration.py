"""What a machine measured of itself, and plans in files.

Wrong if a calibration of one device is used for another, if a broken file is taken for a measurement, or if what a run
took is lost or counted twice.
"""

import json
from pathlib import Path

import pytest

from reasoner.errors import DataError
from reasoner.planning import benchmark, calibration, device, plan
from reasoner.planning.calibration import SECONDS, Calibration, Speed
from reasoner.planning.estimate import Estimate
from reasoner.planning.plan import Plan, Step


def made(name: str = "h100") -> Calibration:
    return Calibration(device.find(name), "2026-11-28T10:00:00+00:00", {"torch": "2.13"}, "tiny",
                       {"decode-vllm-bfloat16": 0.7}, {"child": 3.0})  # fmt: skip


def test_a_calibration_is_kept_with_date_and_versions(tmp_path: Path) -> None:
    path = calibration.write(tmp_path / "home", made())
    assert calibration.read(tmp_path / "home") == made()
    row = json.loads(path.read_text())
    assert row["measured"] == "2026-11-28T10:00:00+00:00" and row["versions"] == {"torch": "2.13"}
    assert calibration.read(tmp_path / "nothing") is None


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 9}', '{"schema": 1, "device": {}}', "[1]"])
def test_a_broken_calibration_is_told_not_guessed(tmp_path: Path, text: str) -> None:
    (tmp_path / calibration.FILE).write_text(text)
    with pytest.raises(DataError, match="--calibrate"):
        calibration.read(tmp_path)


def test_it_counts_for_its_own_device_only() -> None:
    speed = Speed.of(device.find("h100"), made())
    assert speed.share("decode", "vllm", "bfloat16") == 0.7 and speed.seconds("child") == 3.0
    assert speed.share("decode", "vllm", "float32") == 0.6, "not measured: the published share"
    other = Speed.of(device.find("l4"), made())
    assert other.found is None and other.share("decode", "vllm", "bfloat16") == 0.6
    assert other.seconds("child") == SECONDS["child"]


def test_the_processor_is_measured_within_reason() -> None:
    found = benchmark.measure_cpu()
    assert found.is_cpu and 1e9 < found.flops < 1e14 and 1e8 < found.bandwidth < 1e13
    assert found.memory == device.host_memory()[0]


def steps() -> tuple[Step, ...]:
    long = Estimate(100.0, 10, 20, device_bytes=5, host_bytes=7, disk_bytes=11)
    short = Estimate(20.0, 1, 2, device_bytes=6, host_bytes=3, disk_bytes=5, notes=("assumed",))
    return (
        Step("problems", "problems", "k0", "cached"),
        Step("few-shot", "few-shot cot pool", "k1", "to run", "not made yet", long),
        Step("train", "train epoch 1", "k2", "stale", "inputs changed: config.lr", short),
    )


def test_sums_peaks_and_cost_leave_out_what_is_cached() -> None:
    found = Plan("smart-demo", "cpu", "", 60.0, steps())
    assert found.seconds == 180.0 and found.cost(4.0) == pytest.approx(0.2)
    assert found.total("new_tokens") == 22 and found.total("disk_bytes") == 16
    assert found.peak("device_bytes") == 6 and found.peak("host_bytes") == 7
    assert found.states == {"cached": 1, "stale": 1, "to run": 1}
    assert found.to_row(4.0)["cost"] == 0.2 and "cost" not in found.to_row()


def test_a_plan_and_what_was_taken_come_back_from_the_runs_folder(tmp_path: Path) -> None:
    lines = [{"key": "k1", "label": "few-shot", "seconds": 40, "new_tokens": 30}, {"key": "k1", "seconds": 10},
             {"key": "other", "seconds": 1}]  # fmt: skip
    text = "\n".join(map(json.dumps, lines)) + '\n{"key": "k2", "sec'
    (tmp_path / plan.TIMINGS).write_text(text)
    taken = plan.timings(tmp_path)
    assert taken["k1"]["seconds"] == 50.0
    assert "k2" not in taken, "a line that a crash cut is no measurement"
    Plan("smart-demo", "cpu", "b", 1.0, steps(), ("no",), taken, 70.0).write(tmp_path)
    back = plan.read(tmp_path)
    assert back.steps == steps() and back.refusals == ("no",) and back.actual_seconds == 70.0
    assert [(s.key, seconds) for s, seconds in plan.compared(back)] == [("k1", 50.0)]
    assert plan.error_of(100, 50) == 1.0 and plan.error_of(25, 50) == -0.5


def test_a_run_without_a_plan_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no plan\.json"):
        plan.read(tmp_path)
    (tmp_path / plan.FILE).write_text("{}")
    with pytest.raises(DataError, match="no plan"):
        plan.read(tmp_path)
