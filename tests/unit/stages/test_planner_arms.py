"""Who writes the plans of a planner's arms. Wrong if the untrained planner is the trained one."""

from pathlib import Path

from reasoner.config.planner import WorkerConfig
from reasoner.config.smart import EngineConfig, SamplingConfig
from reasoner.engines.pool import EnginePool
from reasoner.home import Home
from reasoner.methods.planner.plan import Plan
from reasoner.methods.planner.prompts import FORCED, load_prompts
from reasoner.records import GenerationRequest
from reasoner.stages.planner import AdapterFolder, Desk, arm_names, arms, read_episodes
from reasoner.workbench import ModelFolder, Workbench
from tests.support.tiny_llama import make_tokenizer
from tests.unit.training.planner.planning import problems, write_prompts


def signed(request: GenerationRequest) -> str:
    """A plan that names its writer; the worker's answers are of no account."""
    writer = request.adapter or "base"
    forced = Plan(True, ("pens", "more"), writer).to_json()
    return (
        forced.removeprefix(FORCED) if request.prompt.endswith(FORCED) else Plan(False, (), writer).to_json()
    )


def test_the_base_writes_the_untrained_arms_plans_and_the_adapter_the_others(tmp_path: Path) -> None:
    (adapter := tmp_path / "adapter").mkdir()
    make_tokenizer().save_pretrained(tmp_path / "base")
    model = ModelFolder(tmp_path / "base", "print", "tiny")
    engine = EngineConfig(kind="scripted", options={"script": f"{__name__}:signed"})
    with EnginePool(tmp_path / "logs") as pool:
        bench = Workbench(
            Home(tmp_path / "home"), pool, tmp_path / "work", tmp_path / "logs", lambda *_: None
        )
        desk = Desk(
            bench, model, engine, WorkerConfig(), load_prompts(write_prompts(tmp_path)),
            AdapterFolder(adapter, "digest", 4),
        )  # fmt: skip
        with desk:
            arms(tmp_path, desk, problems(1), arm_names(trained=True), SamplingConfig())
    runs = {name: read_episodes(tmp_path, name)[0] for name in arm_names(trained=True)}
    writers = {name: run.plan.plan for name, run in runs.items() if run.plan}
    assert writers == {"trained": "planner", "untrained": "base", "atomic": "", "decomposed": "planner"}
