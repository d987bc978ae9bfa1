"""Every file of the groups data/ and model/ composes into its section."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from reasoner.config.data import DataConfig, SourceConfig
from reasoner.config.smart import ModelConfig
from reasoner.problems import load_problems, prepare

CONFIGS = Path(__file__).resolve().parents[3] / "configs"


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def composed(*overrides: str) -> dict:
    with initialize_config_dir(str(CONFIGS), version_base=None):
        config = compose(overrides=list(overrides))
    return OmegaConf.to_container(config, resolve=True)


def data(*overrides: str) -> DataConfig:
    return DataConfig.model_validate(composed(*overrides)["data"])


def test_the_groups_are_there():
    alone = {"gsm8k", "metamath", "svamp", "asdiv", "multiarith", "file", "demo", "demo-small"}
    assert alone | {"multiarith-asdiv", "gsm8k-svamp-asdiv"} == set(names("data"))
    assert {"smollm2", "local", "qwen2.5-0.5b", "gemma-7b", "llama-3-8b"} < set(names("model"))


@pytest.mark.parametrize("name", names("data"))
def test_every_data_config_is_valid(name):
    overrides = ["data.pool.mine.path=mine.jsonl"] if name == "file" else []
    config = data(f"+data={name}", *overrides)
    for sources in (config.pool, config.evaluation):
        assert [source.name for source in sources.values()] == list(sources)


@pytest.mark.parametrize("name", names("data/source"))
def test_every_source_is_a_section_of_its_own(name):
    values = composed(f"+data/source@data.pool.x={name}")["data"]["pool"]["x"]
    if name == "file":
        values["path"] = "mine.csv"
    SourceConfig.model_validate({"name": "x", **values})


@pytest.mark.parametrize("name", names("model"))
def test_every_model_config_is_valid(name):
    overrides = ["model.path=/a/folder"] if name == "local" else []
    assert ModelConfig.model_validate(composed(f"+model={name}", *overrides)["model"]).path


def test_a_hub_set_reads_a_file_of_the_same_shape_when_only_its_path_is_set():
    config = data("+data=gsm8k", "data.pool.gsm8k.path=/data/gsm8k_train.jsonl", "data.pool.gsm8k.limit=1000")
    assert config.pool["gsm8k"].kind == "file"
    assert config.pool["gsm8k"].limit == 1000
    assert config.evaluation["gsm8k"].kind == "hub"


def test_an_evaluation_set_is_added_on_the_command_line():
    config = data("+data=file", "data.pool.mine.path=x.csv", "+data/source@data.evaluation.svamp=svamp")
    assert config.evaluation["svamp"].columns.question == ("Body", "Question")


@pytest.mark.parametrize("seed", range(4))
def test_the_demo_has_the_sizes_that_its_file_says(seed):
    prepared = prepare(data("+data=demo"), seed=seed)
    assert 125 <= len(prepared.train) <= 165
    assert 140 <= len(prepared.evaluation["held-out"]) <= 185
    assert len(prepared.validation) >= 8


@pytest.mark.parametrize(
    ("name", "source", "file", "problems", "left_out", "duplicates"),
    [
        ("gsm8k", "pool.gsm8k", "gsm8k_train", 7473, 0, 0),
        ("gsm8k", "evaluation.gsm8k", "gsm8k_test", 1319, 0, 0),
        ("svamp", "pool.svamp", "svamp", 1000, 0, 0),
        ("multiarith", "pool.multiarith", "mawps_multiarith", 580, 0, 20),
    ],
)
def test_the_collected_files_load_by_a_path_override(
    shared_data, name, source, file, problems, left_out, duplicates
):
    config = data(f"+data={name}", f"data.{source}.path={shared_data / file}.jsonl")
    part, key = source.split(".")
    loaded = load_problems(getattr(config, part)[key])
    assert (len(loaded.problems), len(loaded.left_out), loaded.duplicates) == (problems, left_out, duplicates)
    assert all(" " in problem.question for problem in loaded.problems)


def test_asdiv_leaves_out_the_golds_that_are_no_number(shared_data):
    config = data("+data=asdiv", f"data.pool.asdiv.path={shared_data / 'asdiv.jsonl'}")
    loaded = load_problems(config.pool["asdiv"])
    assert 2100 < len(loaded.problems) < 2300
    assert len(loaded.problems) + len(loaded.left_out) + loaded.duplicates == 2305


def test_math_is_asked_where_its_answer_is_a_number(shared_data):
    config = data(
        "+data=gsm8k",
        "+data/source@data.evaluation.math500=math500",
        f"data.evaluation.math500.path={shared_data / 'math500.jsonl'}",
    )
    loaded = load_problems(config.evaluation["math500"])
    golds = [problem.gold for problem in loaded.problems]
    assert len(golds) == 396 and len(loaded.left_out) == 104
    assert golds.count("14/3") == 2 and "\\" not in "".join(golds), "fractions and degrees are numbers"


def test_two_sources_make_one_pool_without_doubles(shared_data):
    config = data(
        "+data=multiarith-asdiv",
        f"data.pool.multiarith.path={shared_data / 'mawps_multiarith.jsonl'}",
        f"data.pool.asdiv.path={shared_data / 'asdiv.jsonl'}",
        f"data.evaluation.svamp.path={shared_data / 'svamp.jsonl'}",
    )
    prepared = prepare(config, seed=0)
    pool = prepared.pool
    assert pool.duplicates >= 60
    assert len({problem.group for problem in pool.problems}) == len(pool.problems)
    assert sum(prepared.pool.counts().values()) == 2 * prepared.pool.rows
