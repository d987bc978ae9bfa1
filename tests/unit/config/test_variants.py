"""Variants, controls and how long to train: what is composed, and what is refused."""

import pytest

from reasoner.config.smart import SmartConfig
from reasoner.config.variants import load_variants
from reasoner.errors import ConfigurationError

CONTROLS = ["rft", "star", "random_strategy", "shuffled_labels", "given_solutions"]


def load(*overrides: str, name: str = "smart-demo") -> tuple[SmartConfig, dict[str, SmartConfig]]:
    return load_variants(name, overrides)


@pytest.mark.parametrize("kind", CONTROLS)
def test_a_control_is_a_group_and_a_pipeline_and_changes_nothing_before_the_records(kind: str) -> None:
    plain, control = load()[0], load(f"control={kind}")[0]
    assert control.control.kind == kind and plain.control.kind == "none"
    assert load(name=f"smart-{kind.replace('_', '-')}")[0].control == control.control
    for shared in ("model", "data", "few_shot", "seed", "engine", "prompt", "train", "verify_shown"):
        assert getattr(control, shared) == getattr(plain, shared), "few-shot stages are shared"


def test_what_the_controls_set() -> None:
    assert load("control=rft")[0].epochs == 1 and load("control=star")[0].epochs == 3
    assert load("control=star")[0].epoch2.init == load("control=rft")[0].epoch2.init == "base"
    drawn = load("control=random_strategy")[0]
    assert (drawn.sampling(1).choice, drawn.sampling(2).choice, drawn.answering(1).choice) == ("random",) * 3
    assert load("control=rft", "control.samples=3", "epochs=2")[0].control.samples == 3
    by_form = {kind for kind in CONTROLS if load(f"control={kind}")[0].verify.by_form}
    assert by_form == {"shuffled_labels"}, "only there does a name say nothing of the solution"


def test_variants_are_the_same_run_with_other_words() -> None:
    config, variants = load(
        'variants={slow:["train.lr=1e-6"],rft:["control=rft","epoch2.samples=2"]}', "seed=9"
    )
    assert list(variants) == ["slow", "rft"] and config.train.lr != 1e-6
    assert variants["slow"].train.lr == 1e-6 and variants["slow"].seed == variants["rft"].seed == 9
    assert variants["rft"].control.kind == "rft" and variants["rft"].epoch2.samples == 2
    for pipeline, expected in (("smart-controls", 5), ("smart-choice", 7)):
        assert len(load(name=pipeline)[1]) == expected
        group = pipeline.removeprefix("smart-")
        assert load(f"variants={group}")[1].keys() == load(name=pipeline)[1].keys()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (['variants={a:["train.lrr=1"]}'], r"variant 'a': no key 'train.lrr'.*'train.lr'"),
        (['variants={a:["seed=1"]}'], "variant 'a' changes 'seed'"),
        (['variants={a:["data=gsm8k"]}'], "variant 'a' changes 'data'"),
        (["control=rtf"], "rtf"),
        (["epochs=0"], "epochs"),
        (["epochs=forever"], "until-converged"),
        (["epochs=until-converged", "data.validation=0"], "goes by validation questions.*converged_on=pool"),
        (["control=given_solutions", "epochs=2"], "nothing for a second epoch"),
        (["epoch2.turn2=refused"], "untried"),
    ],
)
def test_mistakes_are_told(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load(*overrides)


def test_until_converged() -> None:
    config = load("epochs=until-converged", "max_epochs=4", "min_delta=0.01", "converged_on=pool")[0]
    assert (config.epochs, config.max_epochs, config.min_delta) == ("until-converged", 4, 0.01)
    assert config.train_for(3).lr == config.train_for(2).lr
    assert load("epochs=until-converged", "converged_on=pool", "data.validation=0")


def test_one_of_a_group_can_be_left_out() -> None:
    """By its name on the command line, which Hydra's grammar must take."""
    everyone = set(load(name="smart-controls")[1])
    for name in everyone:
        assert set(load(f"~variants.{name}", name="smart-controls")[1]) == everyone - {name}
