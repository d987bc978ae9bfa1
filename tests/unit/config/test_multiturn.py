"""The multi-turn configurations: the originals' names, keys and defaults, and combinations that cannot be meant."""

import pytest

from reasoner.config import compose
from reasoner.config.multiturn import MultiTurnConfig
from reasoner.errors import ConfigurationError

ORIGINALS = [
    f"{m}_{d}" for m in ("bi_level_score", "score", "rl_guided_score", "archer") for d in ("math", "code")
]


def load(name: str, *overrides: str) -> MultiTurnConfig:
    return compose.load(name, overrides, MultiTurnConfig)


@pytest.mark.parametrize("name", ORIGINALS)
def test_the_originals_names(name):
    config = load(name)
    assert name == f"{config.agent_type}_{config.env_type}"
    assert config.prompts == config.env_type
    assert (
        config.problems.train.path
        == {"math": "dataset/MATH.csv", "code": "dataset/mbpp_filtered.csv"}[config.env_type]
    )
    assert config.problems.seed == {"math": 42, "code": 0}[config.env_type]
    guided = name.startswith(("bi_level", "rl_guided"))
    assert config.train_guidance_model is guided and config.guided is guided
    assert config.mode == ("full-grad" if name.startswith("bi_level") else "")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("score_math", {"lm_lr": 5e-6, "stage1_steps": 138, "stage2_steps": 142, "alpha": 10, "beta1": 0.01,
                        "beta2": 0.1, "rollout_size": 32, "batch_size": 2, "temperature": 0.7, "max_tokens": 512}),
        ("score_code", {"beta2": 0.25, "max_tokens": 1024}),
        ("archer_math", {"gamma": 0.95, "tau": 0.1, "capacity": 100_000, "rollout_size": 256, "epochs": 5,
                         "actor_epochs": 4, "warmup_iter": 1, "critic_lr": 2e-5, "lm_lr": 1e-6, "iterations": 10}),
        ("archer_code", {"rollout_size": 32, "epochs": 3, "warmup_iter": 35, "iterations": 280}),
        ("bi_level_score_math", {"value_coef": 0.1, "stop_value_gradients": False, "guidance_lr": 1e-6,
                                 "guidance_kl_coef": 0.05, "value_lr": 1e-5, "max_grad_norm": 1.0}),
    ],
)  # fmt: skip
def test_the_originals_defaults(name, values):
    config = load(name)
    assert {key: getattr(config, key) for key in values} == values
    assert (config.lora.r, config.lora.alpha, config.lora.dropout) == (16, 32, 0.05)


def test_every_key_that_the_readme_names_is_taken():
    keys = {
        "policy_lm": "a-folder", "max_tokens": 99, "rollout_size": 64, "batch_size": 4, "value_coef": 0.01,
        "stop_value_gradients": "true", "train_guidance_model": "false", "guidance_lr": "1e-5",
        "guidance_kl_coef": 0.5, "use_wandb": "true", "save_path": "somewhere", "save_freq": 7,
    }  # fmt: skip
    config = load("bi_level_score_math", *(f"{k}={v}" for k, v in keys.items()))
    assert config.mode == "stop-grad" and not config.guided and config.save_freq == 7 and config.use_wandb
    assert set(keys) <= set(MultiTurnConfig.model_fields)


def test_the_readmes_flags_make_score_rl_guided():
    config = load("score_math", "train_guidance_model=true", "use_smart_corrections=true")
    assert config.method == "rl_guided" and config.guided
    untrained = load("score_math", "use_smart_corrections=true")
    assert untrained.method == "score" and not untrained.guided


@pytest.mark.parametrize(
    ("name", "overrides", "words"),
    [
        ("score_math", ["train_guidance_model=true"], "set use_smart_corrections=true"),
        ("score_math", ["rollout_size=30"], "multiple of group_size"),
        ("score_math", ["group_size=1"], "group_size must be 2"),
        ("bi_level_score_math", ["use_smart_corrections=false"], "has a feedback writer"),
        ("bi_level_score_math", ["value_backbone=distilroberta-base"], "stop_value_gradients=true"),
        ("bi_level_score_math", ["shaping=v3_minus_vstar"], "2:1 or more"),
        ("bi_level_score_math", ["update_ratio=0:1"], "update_ratio"),
        ("bi_level_score_math", ["correction_model=x"], "untrained writer"),
        ("score_math", ["correction_model=x"], "use_smart_corrections=true"),
        ("archer_math", ["train_guidance_model=true"], "archer has no feedback writer"),
        ("score_math", ["train_solver=false"], "nothing to train"),
        ("archer_math", ["value_coeff=1"], "Did you mean 'value_coef'"),
        ("archer_math", ["use_lora=false"], "use_lora"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_line(name, overrides, words):
    with pytest.raises(ConfigurationError) as caught:
        load(name, *overrides)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_an_encoder_is_fine_where_no_gradient_is_asked_of_it():
    stop = load("bi_level_score_math", "value_backbone=distilroberta-base", "stop_value_gradients=true")
    literal = load("bi_level_score_math", "value_backbone=distilroberta-base", "full_grad_mode=literal")
    assert stop.mode == "stop-grad" and literal.mode == "full-grad (literal)"
    assert not stop.value_reaches_feedback and not literal.value_reaches_feedback


def test_the_value_reaches_the_feedback_model_in_full_grad_only():
    assert load("bi_level_score_math").value_reaches_feedback
    for override in ("stop_value_gradients=true", "value_coef=0", "train_guidance_model=false"):
        assert not load("bi_level_score_math", override).value_reaches_feedback


def test_the_value_network_is_made_only_where_something_reads_it():
    assert load("bi_level_score_math").uses_value and not load("score_math").uses_value
    assert not load("bi_level_score_math", "baseline=rloo", "value_coef=0").uses_value
    assert load("bi_level_score_math", "baseline=rloo", "value_coef=0", "guidance_baseline=v2").uses_value


def test_the_update_ratio_and_the_stages():
    assert load("bi_level_score_math", "update_ratio=15:1").ratio == (15, 1)
    assert load("score_math", "stage1_steps=3", "stage2_steps=4").steps == 7 == load("score_math").steps - 273


@pytest.mark.parametrize(
    ("given", "meant"), [("false", "none"), ("true", "all"), ("shown", "shown"), ("all", "all")]
)
def test_what_of_the_tests_is_told(given, meant):
    """It was a switch once, and a configuration of then means the same."""
    assert load("mlmt-code").show_error == "none"
    assert load("mlmt-code", f"show_error={given}").show_error == meant


def test_an_error_that_is_none_of_the_three():
    with pytest.raises(ConfigurationError, match="show_error"):
        load("mlmt-code", "show_error=hidden")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("mlmt-math", ["show_error=all"], "env_type=math"),
        ("mlmt-code", ["show_error=shown", "show_tests=none"], "show_tests=first"),
        ("score-code", ["show_error=shown"], "use_smart_corrections=true"),
    ],
)
def test_a_writer_who_cannot_be_told_is_refused(name, settings, message):
    with pytest.raises(ConfigurationError, match=message):
        load(name, *settings)
