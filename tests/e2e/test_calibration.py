"""`--calibrate` on a tiny real model with the real transformers engine, the real training program and the sandbox.

Wrong if a part is not measured, if a share is no positive number, or if the plan does not stand on what was measured.
"""

from pathlib import Path

import pytest

from reasoner.config.smart import EngineConfig
from reasoner.config.training import TrainConfig
from reasoner.home import Home
from reasoner.planning import calibration, device
from reasoner.planning.calibration import Speed
from reasoner.planning.measure import measure
from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def test_a_machine_is_measured_with_the_real_parts(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    engine = EngineConfig(kind="transformers", dtype="float32")
    train = TrainConfig(batch_size=4, grad_accum=1, max_length=500, precision="fp32")
    said: list[str] = []
    found = measure(
        model, "tiny", engine, train, device.unmeasured_cpu(), Home(tmp_path / "home"), said.append
    )
    assert set(found.shares) == {
        "prefill-transformers-float32",
        "decode-transformers-float32",
        "train-fp32",
    }
    assert set(found.seconds) == {"engine-transformers", "child", "program"}
    assert all(value > 0 for value in (*found.shares.values(), *found.seconds.values()))
    assert found.versions["torch"] and len(said) == 3
    calibration.write(tmp_path / "home", found)
    back = calibration.read(tmp_path / "home")
    assert back == found
    speed = Speed.of(device.unmeasured_cpu(), back)
    assert speed.share("train", "fp32") == found.shares["train-fp32"] and "tiny" in speed.words
