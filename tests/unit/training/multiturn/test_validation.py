"""What a validation tells: both turns, and first attempts that were cut at the token limit.

Wrong if a training whose attempts are cut says nothing of it, or if one whose attempts end is warned.
"""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.start import open_engine
from reasoner.methods.multiturn.episode import Episode
from reasoner.onpolicy.parts import Parts
from reasoner.training.multiturn import sampling
from reasoner.training.multiturn.loop import Loop
from tests.support.signal import write_templates
from tests.unit.training.multiturn.conftest import PROBLEMS, build, config


@pytest.mark.parametrize("warned", [True, False])
def test_cut_first_attempts_are_told(
    warned: bool, base: Path, tokenizer: Any, processes: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sampling, "open_engine", functools.partial(open_engine, in_process=True))
    validate = sampling.Sampler.validate

    def ended(self: sampling.Sampler, *arguments: Any) -> list[Episode]:
        """As if the tiny model, which never ends by itself, had ended each attempt."""
        made = validate(self, *arguments)
        return [replace(e, attempt=replace(e.attempt, finish="stop")) for e in made]

    if not warned:
        monkeypatch.setattr(sampling.Sampler, "validate", ended)
    fields = {
        "iterations": 1, "engine": {"kind": "transformers", "options": {}}, "max_tokens": 4,
        "prompts": str(write_templates(tmp_path / "prompts.yaml", "hint")),
    }  # fmt: skip
    settings, problems, parts, lines, told = config(**fields), list(PROBLEMS.values()), Parts(), [], []
    learned = build(base, tokenizer, processes, **fields)
    with sampling.open_sampler(settings, base, None, tmp_path, 512, parts) as sampler:
        loop = Loop(
            settings, tmp_path, learned, processes, problems, problems, sampler,
            lambda **found: told.append(found), lines.append, parts,
        )  # fmt: skip
        loop.run()
    cut = loop.state.validations[0]["attempt_cut"]
    assert (cut > 0.1) == warned
    warnings = [line for line in lines if "raise max_tokens" in line]
    assert bool(warnings) == warned and all("max_tokens=4;" in line for line in warnings)
    assert told[0]["validation_attempt_cut"] == cut
