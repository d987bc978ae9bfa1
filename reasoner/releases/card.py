"""The model card of a release that is no planner: what it is, what was measured, how it was made."""

from collections.abc import Mapping
from typing import Any

from reasoner.releases.release import Release
from reasoner.report.markdown import render_markdown_template
from reasoner.statistics import Estimate, estimate
from reasoner.statistics.worse import Outcomes

TEMPLATE = "release-card.md.jinja"
CONFIDENCE = 0.95


def release_card(
    release: Release, repo: str, outcomes: Mapping[str, Outcomes], *, digests: Mapping[str, str],
    versions: Mapping[str, str], command: str,
) -> str:  # fmt: skip
    """The card as Markdown with its YAML header; accuracies are over the scored problems of each set."""
    from huggingface_hub import EvalResult, ModelCardData

    measured = {name: accuracy(found) for name, found in outcomes.items()}
    results = [
        EvalResult(
            task_type="text-generation", dataset_type=name, dataset_name=name, metric_type="accuracy",
            metric_name="first attempt, greedy", metric_value=round(found.value, 4),
        )
        for name, found in measured.items()
        if found.value is not None
    ]  # fmt: skip
    is_hub_id = release.base.count("/") == 1 and not release.base.startswith((".", "/", "~", "package:"))
    options: dict[str, Any] = {"base_model": release.base} if is_hub_id else {}
    if results:
        options |= {"model_name": repo.split("/")[-1], "eval_results": results}
    header = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["reasoner", release.method],
        **options,
    ).to_yaml()
    base = release.base if is_hub_id else release.base.rstrip("/").rsplit("/", 1)[-1]
    body = render_markdown_template(
        TEMPLATE, release=release, base=base, repo=repo, measured=measured, digests=digests, versions=versions,
        command=command, unscored={name: sum(v is None for v in found.values()) for name, found in outcomes.items()},
    )  # fmt: skip
    return f"---\n{header}\n---\n\n{body}"


def accuracy(found: Outcomes) -> Estimate:
    """The share of the scored problems that are right, with Wilson's interval."""
    scored = [right for right in found.values() if right is not None]
    return estimate(sum(scored), len(scored), CONFIDENCE)
