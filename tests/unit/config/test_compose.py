"""Configurations: every file loads, overrides arrive, mistakes name what was meant."""

import json
import os
from pathlib import Path

import pytest

from reasoner.config import compose
from reasoner.config.base import Section
from reasoner.config.kinds import method_of, section_of
from reasoner.config.multiturn import MultiTurnConfig
from reasoner.config.smart import SmartConfig
from reasoner.errors import ConfigurationError

PIPELINES = compose.names()
GROUPS = sorted(p for p in compose.CONFIG_FOLDER.glob("*/*.yaml"))
BY_GROUP = {"problems": "bi_level_score_math"}
"""Configurations that a group belongs to, where it is not SMART's."""
NEEDS = {
    "data=file": ["data.pool.mine.path=mine.jsonl"],
    "model=local": ["model.path=./somewhere"],
    "engine=scripted": ["engine.options.script=a:b"],
}


def load(*overrides: str, name: str = "smart-demo") -> SmartConfig:
    return compose.load(name, overrides, SmartConfig)


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_loads_and_survives_json(name: str) -> None:
    config = compose.load(name, [], section_of(name))
    assert type(config).model_validate_json(config.model_dump_json()) == config
    json.loads(config.model_dump_json())


@pytest.mark.parametrize("path", GROUPS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_option_of_every_group_loads(path: Path) -> None:
    option = f"{path.parent.name}={path.stem}"
    name = BY_GROUP.get(path.parent.name, "smart-demo")
    compose.load(name, [option, *NEEDS.get(option, [])], section_of(name))


def test_overrides_arrive_by_their_dotted_names() -> None:
    config = load(
        "train.lr=1e-5", "few_shot.decoding.stop=['a b']", "engine.options.max_num_seqs=7", "epochs=3"
    )
    assert config.train.lr == 1e-5 and config.epochs == 3
    assert config.few_shot.decoding.stop == ("a b",)
    assert config.engine.options["max_num_seqs"] == 7
    assert load("data.pool.word_problems.limit=300").data.pool["word_problems"].limit == 300


def test_a_further_data_set_is_taken_from_its_file() -> None:
    config = load("+data/source@data.evaluation.svamp=svamp", "data.evaluation.svamp.path=mine.jsonl")
    svamp = config.data.evaluation["svamp"]
    assert (svamp.kind, svamp.path, svamp.columns.answer) == ("file", "mine.jsonl", "Answer")
    assert load("data/source@data.evaluation.asdiv=asdiv").data.evaluation["asdiv"].max_unreadable == 0.1


def test_later_epochs_may_train_otherwise() -> None:
    config = load("train.lr=1e-3", "train_later={lr: 2e-4}")
    assert config.train_for(1).lr == 1e-3 and config.train_for(2).lr == 2e-4
    assert config.train_for(2).batch_size == config.train_for(1).batch_size


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.lrr=2", "Did you mean 'train.lr'"),
        ("trian.lr=2", "Did you mean 'train.lr'"),
        ("train.learning_rate=2", "no key 'train.learning_rate'"),
        ("data.pool.word_problems.lmit=3", "Did you mean 'data.pool.word_problems.limit'"),
        ("train_later={lrr: 3}", "Did you mean"),
        ("train.lr=-1", "greater than 0"),
        ("train.lr=fast", "number"),
        ("epochs=0", "greater than or equal to 1"),
        ("epochs=x", ": epochs: Input should be a valid integer"),
        ("few_shot.strategies=[cot,pott]", "'cot', 'sub' or 'pot'"),
        ("model=smolm2", "Did you mean 'smollm2'"),
        ("model.path=", "at least 1 character"),
        ("data.held_out=0", "no evaluation questions"),
        ("data.held_out=0.95", "below 1"),
        ("nonsense", "key=value"),
        ("+data/source@data.evaluatoin.svamp=svamp", "Did you mean 'data.evaluation'?"),
        ("+data/source@data.evaluation.svamp=svmp", "Did you mean 'svamp'?"),
        ("data=file", "data.pool.mine.path"),
        ("engine.options={script: ???}", "configuration"),
    ],
)
def test_a_mistake_is_named_with_what_was_meant(override: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(override)
    assert words in str(caught.value) and len(str(caught.value).splitlines()) <= 2
    assert caught.value.exit_code == 2


def test_the_method_says_which_section_a_file_is(tmp_path: Path) -> None:
    assert section_of("smart-epoch1") is SmartConfig and section_of("mlmt-code") is MultiTurnConfig
    with pytest.raises(ConfigurationError, match="Did you mean 'mlmt-code'"):
        method_of("mlmt-cod")
    (tmp_path / "odd.yaml").write_text("method: guessing\n")
    with pytest.raises(ConfigurationError, match="no method 'guessing'"):
        section_of("odd", tmp_path)


def test_an_unknown_pipeline_names_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"Did you mean 'smart-epoch2'.*smart-demo"):
        load(name="smart-epoch3")


def test_every_field_of_the_configuration_says_what_it_is() -> None:
    def undocumented(section: type, prefix: str = "") -> list[str]:
        found = []
        for name, field in section.model_fields.items():
            inner = compose._inner_section(field.annotation)
            if inner is not None:
                found += undocumented(inner, f"{prefix}{name}.")
            elif field.description is None:
                found.append(prefix + name)
        return found

    # Settings whose names are the field's standard terms.
    obvious = {
        "config",
        "top_p",
        "r",
        "alpha",
        "dropout",
        "modules",
        "lr",
        "scheduler",
        "weight_decay",
        "seed",
    }
    obvious |= {"max_grad_norm", "save_total_limit", "logging_steps", "warmup_steps", "method", "confidence"}
    obvious |= {"clip_low", "clip_high", "gamma", "shaping", "use_wandb", "use_lora"}
    for section in (SmartConfig, MultiTurnConfig):
        assert [key for key in undocumented(section) if key.rsplit(".", 1)[-1] not in obvious] == []


def test_a_key_is_taken_away_with_a_tilde() -> None:
    mixed = "data=multiarith-asdiv"
    assert load(mixed, name="smart-epoch2").data.evaluation_names == ("held-out", "svamp")
    left = load(mixed, "~data.evaluation.svamp", name="smart-epoch2")
    assert left.data.evaluation_names == ("held-out",)
    with pytest.raises(ConfigurationError, match="swamp"):
        load(mixed, "~data.evaluation.swamp", name="smart-epoch2")
    with pytest.raises(ConfigurationError, match=r"Did you mean 'data\.evaluation'"):
        load(mixed, "~data.evalution.svamp", name="smart-epoch2")


def test_what_is_composed_once_is_composed_anew_when_a_file_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("a: 1\n")
    first = compose.compose("one", [], tmp_path, Section)
    first["a"] = 5  # the caller's own
    assert compose.compose("one", [], tmp_path, Section) == {"a": 1}
    file.write_text("a: 2\n")
    os.utime(file, ns=(1, file.stat().st_mtime_ns + 1))
    assert compose.compose("one", [], tmp_path, Section) == {"a": 2}
