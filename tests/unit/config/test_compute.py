"""A memory budget is a word on the command line, and it never changes what is learnt."""

import pytest

from reasoner.config import compose
from reasoner.config.multiturn import MultiTurnConfig
from reasoner.config.planner import PlannerConfig, PlannerGrpoConfig
from reasoner.config.smart import SmartConfig
from reasoner.config.training import ComputeConfig, TrainConfig
from reasoner.ids import content_hash
from reasoner.report.html.sources import derived_sections

BUDGETS = ("gpu16gb", "gpu24gb", "gpu80gb", "cpu")
PIPELINES = [name for name in compose.names() if name.startswith("smart-")]


def load(*overrides: str, name: str = "smart-epoch2") -> SmartConfig:
    return compose.load(name, overrides, SmartConfig)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", PIPELINES)
def test_the_effective_batch_is_the_pipelines_own(name: str, budget: str) -> None:
    plain, fitted = load(name=name), load(f"compute={budget}", name=name)
    for epoch in (1, 2):
        before, after = plain.train_for(epoch), fitted.train_for(epoch)
        assert after.batch_size * after.grad_accum == before.batch_size * before.grad_accum
        assert fitted.compute.micro_batch is not None and after.batch_size <= fitted.compute.micro_batch
        memory = {"batch_size", "grad_accum", "gradient_checkpointing", "nf4_above_gib"}
        assert after.model_dump(exclude=memory) == before.model_dump(exclude=memory)
    if budget != "cpu":
        assert fitted.model_copy(update={"compute": plain.compute, "train": plain.train}).model_dump(
            exclude={"engine"}
        ) == plain.model_dump(exclude={"engine"})


def test_budgets_differ_as_their_cards_do() -> None:
    small, middle, large = (load(f"compute={name}") for name in BUDGETS[:3])
    cuts = [(c.train_for(1).batch_size, c.train_for(1).grad_accum) for c in (small, middle, large)]
    assert cuts == [(2, 8), (4, 4), (16, 1)]
    assert [c.engine.options["gpu_memory_utilization"] for c in (small, middle, large)] == [0.88, 0.9, 0.9]
    assert small.train.gradient_checkpointing and not large.train.gradient_checkpointing
    limits = [c.train.nf4_above_gib for c in (small, middle, large)]
    assert limits == sorted(limits, key=lambda limit: limit or 0) and limits[0]
    llama_8b = 2 * 8.03e9 / 2**30
    assert limits[0] < llama_8b < (limits[1] or 0), "the original trained 8B in bfloat16 on a 4090"


def test_without_a_budget_all_is_as_configured() -> None:
    plain = load()
    assert plain.train_for(1) == plain.train
    assert plain.engine.options["gpu_memory_utilization"] == 0.85


def test_the_command_line_has_the_last_word() -> None:
    config = load(
        "compute=gpu24gb", "compute.micro_batch=1", "engine.options.gpu_memory_utilization=0.5",
        "train.gradient_checkpointing=false",
    )  # fmt: skip
    assert config.train_for(1).batch_size == 1 and config.train_for(1).grad_accum == 16
    assert config.engine.options["gpu_memory_utilization"] == 0.5
    assert not config.train.gradient_checkpointing


def test_the_cpus_engine_comes_with_it_unless_another_is_named() -> None:
    assert load("compute=cpu").engine == load("engine=vllm_cpu").engine
    named = load("compute=cpu", "engine=transformers").engine
    assert named.kind == "transformers" and named.options == {}


@pytest.mark.parametrize(
    ("batch", "accum", "limit", "cut"),
    [(4, 4, 3, (2, 8)), (3, 5, 4, (3, 5)), (7, 1, 4, (1, 7)), (2, 2, 16, (4, 1)), (1, 1, 1, (1, 1))],
)
def test_a_cut_is_the_largest_that_fits(batch: int, accum: int, limit: int, cut: tuple[int, int]) -> None:
    fitted = ComputeConfig(micro_batch=limit).cut(TrainConfig(batch_size=batch, grad_accum=accum))
    assert (fitted.batch_size, fitted.grad_accum) == cut


def test_a_report_finds_a_training_whoever_held_the_card() -> None:
    """A kept artifact says what it was called with, and the key does not depend on the card."""
    for words in ((), ("compute.one_card=true",), ("grpo.share_card=true",)):
        called = compose.load("planner-grpo", words, PlannerConfig).grpo_here.model_dump(mode="json")
        asking = compose.load("planner-grpo", (), PlannerConfig).model_dump(mode="json")
        assert called in derived_sections("planner", asking)
    for words in ((), ("compute.one_card=true", "compute.gpu_pool=gpu")):
        made = compose.load("mlmt-math", words, MultiTurnConfig).learned().model_dump(mode="json")
        multi = compose.load("mlmt-math", ("compute.idle_seconds=9",), MultiTurnConfig)
        assert made in derived_sections("multiturn", multi.model_dump(mode="json"))


def test_one_card_reaches_the_planners_training_and_no_key() -> None:
    def planner(*words: str) -> PlannerGrpoConfig:
        return compose.load("planner-grpo", words, PlannerConfig).grpo_here

    assert not planner().share_card
    assert planner("compute.one_card=true").share_card
    assert not planner("compute.one_card=true", "grpo.share_card=false").share_card
    assert content_hash(planner("compute.one_card=true")) == content_hash(planner())
    assert content_hash(planner("grpo.lr=2e-5")) != content_hash(planner())
