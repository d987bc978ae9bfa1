"""A model folder may hold Python of its own. Wrong if any loader runs it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.protocol import EngineSettings
from reasoner.engines.start import open_engine
from reasoner.onpolicy.opening import base_tokenizer
from reasoner.prompts import ChatRenderer
from reasoner.training import runtime
from reasoner.training.multiturn.program import context_of


def load_model(folder: Path) -> Any:
    return runtime.load_model(folder, "float32")


def stop_ids(folder: Path) -> Any:
    return runtime.stop_ids(folder, runtime.load_tokenizer(folder))


def transformers_engine(folder: Path) -> Any:
    return open_engine(EngineSettings("transformers", folder), log=Path("unused"), in_process=True)


@pytest.mark.parametrize(
    "load",
    [
        runtime.load_tokenizer, load_model, stop_ids, transformers_engine, ChatRenderer, base_tokenizer, context_of,
    ],
    ids=lambda load: load.__name__,
)  # fmt: skip
def test_the_code_of_a_model_is_not_run(base: Path, tmp_path: Path, load: Callable[[Path], Any]) -> None:
    folder, marker = shutil.copytree(base, tmp_path / "model"), tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    for file, mapped in (
        ("config.json", {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}),
        ("tokenizer_config.json", {"AutoTokenizer": [None, "own.Own"]}),
    ):
        config = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**config, "auto_map": mapped}))
    load(folder)
    assert not marker.exists()
