"""The run form: its schema accepts what a configuration accepts, refuses secrets, and becomes overrides."""

import jsonschema
import pytest

from flows.forms import as_overrides, settings_schema
from reasoner.config.compose import load
from reasoner.config.multiturn import MultiTurnConfig
from reasoner.config.planner import PlannerConfig
from reasoner.config.smart import SmartConfig

FORM = settings_schema(SmartConfig)


def refused(settings: object) -> bool:
    return bool(list(jsonschema.Draft202012Validator(FORM).iter_errors(settings)))


@pytest.mark.parametrize("section", [SmartConfig, PlannerConfig, MultiTurnConfig])
def test_every_key_is_in_the_form_and_none_is_asked_for(section: type) -> None:
    form = settings_schema(section)
    jsonschema.Draft202012Validator.check_schema(form)
    assert set(form["properties"]) == set(section.model_fields)
    assert "$ref" not in str(form) and "required" not in form and form["additionalProperties"] is False


def test_the_server_can_refuse_wrong_types_unknown_keys_and_secrets() -> None:
    assert not refused({}) and not refused({"train": {"lr": 1e-5}, "epochs": "until-converged"})
    assert not refused(
        {"engine": {"options": {"max_model_len": 512, "script": "tests.support.solver:solve"}}}
    )
    assert refused({"train": {"lr": "fast"}})
    assert refused({"train": {"learning_rate": 1e-5}})
    token = "hf_" + "a1B2" * 9
    assert refused({"model": {"path": token}})
    assert refused({"engine": {"options": {"token": token}}})


def test_what_is_filled_in_counts_as_an_override() -> None:
    settings = {
        "train": {"lr": 1e-5, "precision": None}, "epochs": 3, "few_shot": {"strategies": ["cot", "pot"]},
        "model": {"path": "it's [a] folder, with=signs"}, "engine": {"kind": "scripted", "options": {"script": "a:b"}},
    }  # fmt: skip
    config = load("smart-demo", as_overrides(settings), SmartConfig)
    assert config.train.lr == 1e-5 and config.epochs == 3 and len(config.few_shot.strategies) == 2
    assert config.model.path == "it's [a] folder, with=signs" and config.engine.options["script"] == "a:b"
    assert config.train == load("smart-demo", ["train.lr=1e-5"], SmartConfig).train
    assert as_overrides(None) == as_overrides({"train": {"lr": None}}) == []
