"""Runs of all three methods in a store, as the flows leave them, without a model: for reports and their benchmark.

Texts are made of a few words; sizes are free. `hostile` puts markup and scripts wherever a model or a data set could.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from reasoner.config.compose import load
from reasoner.config.multiturn import MultiTurnConfig
from reasoner.config.planner import PlannerConfig
from reasoner.config.smart import SmartConfig
from reasoner.ids import content_hash
from reasoner.methods.multiturn.episode import Episode, Judged, Kind, Turn
from reasoner.methods.multiturn.metrics import rollout_metrics, two_turns
from reasoner.methods.planner.episodes import episode_of, run_row
from reasoner.methods.planner.evaluation import evaluate as evaluate_arms
from reasoner.methods.planner.pipeline import PipelineResult
from reasoner.methods.planner.plan import Plan
from reasoner.methods.planner.worker import Answered
from reasoner.methods.smart.attempts import Attempt
from reasoner.prompts import ChatRenderer, completion, few_shot_prompt, load_exemplars, load_template
from reasoner.records import ArtifactRef, Outcome, Problem, Strategy, Verdict
from reasoner.store import Store
from reasoner.store.rows import write_rows

ID = "0a57f539-813d-4d92-ae37-de81f54eec49"
HOSTILE = (
    "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>--><svg onload=window.pwned=1>"
)
SYLLABLES = ("ka", "so", "mi", "ren", "tal", "o", "bes", "lu", "dir", "an", "po", "ve")
WORDS = ["the", "apples", "of", "and", "boxes", "in", "count", "pears", "each"] + [
    a + b + c for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES
]
"""About as many words as a model uses, so that texts can be compressed about as far as a model's."""
COMMON = list(accumulate(1 / rank for rank in range(1, len(WORDS) + 1)))
"""Zipf's law."""
SET = "eval-held-out"


def problems(count: int, prefix: str, hostile: bool) -> list[Problem]:
    """Distinct questions whose gold is their number."""
    more = f" {HOSTILE}" if hostile else ""
    return [
        Problem.make(f"How many apples are in box {prefix}-{i}?{more}", str(i), "generated")
        for i in range(count)
    ]


class Runs:
    """Writes runs into `home`."""

    def __init__(self, home: Path, *, hostile: bool = False, words: int = 12) -> None:
        self.home, self.store, self.hostile, self.words = home, Store(home / "artifacts"), hostile, words
        self.random = Random(0)

    def put(
        self, kind: str, stage: str, label: str, arguments: dict[str, Any], files: dict[str, Any], **more: Any
    ) -> ArtifactRef:
        """One artifact; a list becomes JSON Lines, anything else JSON. `more` goes into its manifest."""
        facts = {
            "stage": stage,
            "label": label,
            "arguments": arguments,
            "seconds": 1.5,
            "tokens": 1200,
            **more,
        }
        with self.store.writer(kind, facts) as draft:
            for name, content in files.items():
                path = draft.path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, list):
                    write_rows(path, content)
                else:
                    path.write_text(json.dumps(content))
        return draft.ref

    def folder(self, name: str, config: Any, report: ArtifactRef | None) -> Path:
        """The run's folder; unfinished without a report."""
        folder = self.home / "runs" / f"{name}-{ID}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(config.model_dump_json())
        if report is not None:
            (folder / "result.json").write_text(json.dumps({"report": report.to_row()}))
        return folder

    def text(self, gold: str, right: bool) -> str:
        """A solution; a hostile one ends its element and begins a script."""
        said = " ".join(self.random.choices(WORDS, cum_weights=COMMON, k=self.words))
        answer = gold if right else f"{gold}1"
        return f"{said}. {HOSTILE if self.hostile else ''} The answer is {answer}."

    # SMART

    def smart(self, pool: int = 6, held_out: int = 12, *, finished: bool = True, epochs: int = 2) -> Path:
        """Few-shot attempts at pool and held-out questions, then epochs that answer and train."""
        config = load("smart-demo", [], SmartConfig)
        known = {"train": problems(pool, "pool", self.hostile), SET: problems(held_out, "eval", self.hostile)}
        files = {f"{name}.jsonl": [p.to_row() for p in rows] for name, rows in known.items()}
        data = {"data": config.data.model_dump(mode="json"), "seed": config.seed}
        asked = self.put("problems", "problems", "problems", data, {**files, "left-out.jsonl": []})
        base = self.put(
            "model", "model", "model", {"model": config.model.model_dump(mode="json")}, {"note.json": 0}
        )
        shown = {
            split: [self._few_shot(config, asked, base, split, s, rows) for s in Strategy]
            for split, rows in (("pool", known["train"]), (SET, known[SET]))
        }
        analysis = self.put(
            "analysis", "analysis", "analysis", {"attempts": _rows(shown["pool"])}, {"analysis.json": 0}
        )
        answered, trained, model = [], [], base
        for epoch in range(1, epochs + 1):
            records, adapter, model = self._training(config, asked, shown["pool"], model, epoch)
            trained.append(
                {"label": f"epoch {epoch}", "records": records.to_row(), "adapter": adapter.to_row()}
            )
            first = self._answers(config, asked, model, known[SET], epoch)
            answered.append(
                {
                    "label": f"epoch {epoch}",
                    "kind": "policy",
                    "turn1": first.to_row(),
                    "turn2": None,
                    "each": None,
                }
            )
        if not finished:
            return self.folder("smart-demo", config, None)
        measured = self.put(
            "evaluation",
            "evaluation",
            "evaluation held-out",
            {
                "name": "held-out",
                "few_shot": _rows(shown[SET]),
                "answered": answered,
                "config": config.evaluation.model_dump(mode="json"),
            },
            {"evaluation.json": 0},
        )
        report = self.put(
            "report",
            "report",
            "report",
            {
                "title": "smart-demo",
                "problems": asked.to_row(),
                "base": base.to_row(),
                "analysis": analysis.to_row(),
                "evaluations": _rows([measured]),
                "trained": trained,
            },
            {"report.json": "smart"},
        )
        return self.folder("smart-demo", config, report)

    def _few_shot(
        self,
        config: SmartConfig,
        asked: ArtifactRef,
        base: ArtifactRef,
        split: str,
        strategy: Strategy,
        rows: Sequence[Problem],
    ) -> ArtifactRef:
        exemplars = load_exemplars(config.few_shot.exemplars)
        found = []
        for i, problem in enumerate(rows):
            prompt = few_shot_prompt(exemplars, strategy, problem.question, config.few_shot.shots)
            right = (i + list(Strategy).index(strategy)) % 4 == 0
            found.append((problem, self.text(problem.gold, right), strategy, right, prompt))
        arguments = {
            "problems": asked.to_row(),
            "model": base.to_row(),
            "split": split,
            "strategy": strategy.value,
            "shard": 0,
            "few_shot": config.few_shot.model_dump(mode="json"),
            "engine": config.engine.model_dump(mode="json"),
            "seed": config.seed,
        }
        return self._judged(config, "few-shot", f"few-shot {strategy} {split}", arguments, found, given=True)

    def _answers(
        self, config: SmartConfig, asked: ArtifactRef, model: ArtifactRef, rows: Sequence[Problem], epoch: int
    ) -> ArtifactRef:
        template, renderer = load_template(config.prompt.template), ChatRenderer(self.store.open(model))
        found = []
        for i, problem in enumerate(rows):
            right, strategy = i % 3 < epoch, Strategy.POT if i % 5 else Strategy.COT
            prompt = renderer.render(template.messages(problem.question)).text
            text = completion(strategy, self.text(problem.gold, right))
            found.append((problem, text, strategy, right, prompt))
        arguments = {
            "problems": asked.to_row(),
            "model": model.to_row(),
            "split": SET,
            "seed": config.seed,
            "epoch": epoch,
            "how": config.answering(1).model_dump(mode="json"),
        }
        return self._judged(config, "answer", f"answer epoch {epoch} {SET}", arguments, found)

    def _judged(
        self,
        config: SmartConfig,
        stage: str,
        label: str,
        arguments: dict[str, Any],
        found: Sequence[Any],
        given: bool = False,
    ) -> ArtifactRef:
        completions, attempts = [], []
        for problem, text, strategy, right, prompt in found:
            completions.append(
                {
                    "problem_id": problem.id,
                    "gold": problem.gold,
                    "strategy": strategy.value if given else "",
                    "turn": 1,
                    "tried": [],
                    "tried_solutions": [],
                    "index": 0,
                    "prompt_hash": content_hash(prompt, 16),
                    "text": text,
                    "finish": "stop",
                    "prompt_tokens": len(prompt) // 4,
                    "completion_tokens": len(text) // 4,
                }
            )
            outcome = Outcome.CORRECT if right else Outcome.INCORRECT
            verdict = Verdict(
                outcome, "equal" if right else "wrong", problem.gold if right else f"{problem.gold}1"
            )
            attempts.append(Attempt(problem.id, strategy, 1, (), 0, text, text, verdict, "stop").to_row())
        made = self.put("completions", stage, label, arguments, {"completions.jsonl": completions})
        judged = {"completions": made.to_row(), "config": config.verify.model_dump(mode="json")}
        return self.put("attempts", "verify", f"verify {label}", judged, {"attempts.jsonl": attempts})

    def _training(
        self,
        config: SmartConfig,
        asked: ArtifactRef,
        shown: list[ArtifactRef],
        model: ArtifactRef,
        epoch: int,
    ) -> tuple[ArtifactRef, ArtifactRef, ArtifactRef]:
        counts = {
            "counts": {"records": 9 + epoch, "direct": 9, "refine": epoch, "unsolved": 2},
            "strategies": {"pot": 9},
        }
        seeded = {"seed": config.seed}
        records = self.put(
            "records",
            "records-epoch1",
            f"records epoch {epoch}",
            {"problems": asked.to_row(), "attempts": _rows(shown), **seeded, "epoch": epoch},
            {"counts.json": {"train": counts, "validation": counts}},
        )
        losses = [{"step": i, "loss": epoch / i} for i in range(1, 31)]
        train = {
            "records": records.to_row(),
            "model": model.to_row(),
            "epoch": epoch,
            **seeded,
            "config": config.train_for(epoch).model_dump(mode="json"),
        }
        facts = {"losses": losses, "validation_losses": losses[9::10], "steps": 30}
        adapter = self.put("adapter", "train", f"train epoch {epoch}", train, {"training.json": facts})
        merged = self.put(
            "model",
            "merge",
            f"merge epoch {epoch}",
            {"model": model.to_row(), "adapter": adapter.to_row(), "epoch": epoch},
            {"note.json": epoch},
        )
        return records, adapter, merged

    # planner

    def planner(self, count: int = 6) -> Path:
        """Four arms on one set and GRPO's examples, one of them with a plan that is none."""
        config = load("planner-demo", [], PlannerConfig)
        rows = problems(count, "eval", self.hostile)
        asked = self.put(
            "problems",
            "problems",
            "problems",
            {"seed": config.seed},
            {f"{SET}.jsonl": [p.to_row() for p in rows]},
        )
        runs = {
            name: [self._run(p, name, i) for i, p in enumerate(rows)]
            for name in ("trained", "untrained", "atomic", "decomposed")
        }
        arms = self.put(
            "plan-runs",
            "plan-arms",
            f"plan-arms {SET}",
            {"problems": asked.to_row(), "split": SET},
            {f"runs-{name}.jsonl": found for name, found in runs.items()},
            arm_seconds={"trained": 41.25, "untrained": 39.0, "atomic": 20.0, "decomposed": 60.0},
        )
        measured = evaluate_arms(
            "held-out", {n: [episode_of(r) for r in found] for n, found in runs.items()}, resamples=50
        )
        evaluation = self.put(
            "evaluation",
            "planner-evaluation",
            "planner-evaluation held-out",
            {"runs": arms.to_row()},
            {"evaluation.json": measured.to_row()},
        )
        curves = [
            {"step": i, "reward": i / 10, "correct": i / 12, "valid": 1.0, "worker_tokens": 90.0 - i}
            for i in range(1, 9)
        ]
        example = {
            "step": 3,
            "problem_id": rows[0].id,
            "question": rows[0].question,
            "gold": rows[0].gold,
            "planner": f'{{"should_decompose": {HOSTILE if self.hostile else "x"}',
            "reason": "no_object",
            "answer_text": None,
            "valid": False,
            "decomposed": False,
            "correct": 0.0,
            "efficiency": 1.0,
            "independence": 0.5,
            "worker_tokens": 0.0,
            "planner_tokens": 9,
            "truncated_calls": 0,
            "extra_text": False,
            "reward": 0.1,
            "used_reward": None,
        }
        adapter = self.put(
            "adapter",
            "planner-grpo",
            "planner-grpo",
            {"problems": asked.to_row()},
            {"training.json": {"curves": curves, "losses": []}, "examples.jsonl": [example]},
        )
        report = self.put(
            "report",
            "planner-report",
            "planner-report",
            {"title": "x", "adapters": _rows([adapter]), "evaluations": _rows([evaluation])},
            {"report.json": "planner"},
        )
        return self.folder("planner-demo", config, report)

    def _run(self, problem: Problem, name: str, number: int) -> dict[str, Any]:
        right = number % 3 != 0 if name == "trained" else number % 2 == 0
        if name == "untrained" and number == 0:
            return run_row(
                problem.question, problem.gold, 7, PipelineResult(problem.id, None, "keys", True, (), None)
            )
        last = self.text(problem.gold, right)
        if name == "atomic":
            plan, calls = Plan(False, (), ""), (Answered("direct", last, 20, False),)
        else:
            parts = ("Count the first box.", f"Count the second box.{HOSTILE if self.hostile else ''}")
            plan = Plan(True, parts, "Count both boxes, then add.")
            solved = tuple(Answered("subproblem", self.text("4", True), 15, False) for _ in parts)
            calls = (*solved, Answered("combine", last, 12, number == 1))
        return run_row(
            problem.question, problem.gold, 30, PipelineResult(problem.id, plan, "ok", False, calls, last)
        )

    # multi-turn

    def multiturn(
        self, count: int = 8, *, pipeline: str = "mlmt-math", independent: bool = False, moved: bool = True
    ) -> Path:
        """Untrained and trained pair, a control or two, training episodes and validations.

        Not `moved`, the trained pair answers as the untrained one: one artifact is both evaluations.
        """
        config = load(pipeline, [], MultiTurnConfig)
        rows = problems(count, "test", self.hostile)
        asked = self.put(
            "problems",
            "multiturn-problems",
            "problems",
            {"seed": config.seed},
            {"test.jsonl": [p.to_row() for p in rows]},
        )
        given = {"problems": asked.to_row(), "config": config.measured().model_dump(mode="json")}

        def answers(step: int) -> list[Episode]:
            return [self._episode(p, i, step) for i, p in enumerate(rows)]

        def measure(stage: str, label: str, made: list[Episode], more: dict[str, Any]) -> ArtifactRef:
            facts = {"two_turns": two_turns(made).to_row(), "signals": rollout_metrics(made)}
            return self.put(
                "evaluation",
                stage,
                label,
                {**given, **more},
                {"episodes.jsonl": [e.to_row() for e in made], "evaluation.json": facts},
            )

        untrained = answers(0)
        baseline = measure("multiturn-evaluate", "baseline", untrained, {"trained": None})
        first = answers(1)
        metrics = [{"step": i, "acc_t1": 0.1 * i, "acc_t2": 0.15 * i, "delta": 0.05 * i} for i in range(1, 6)]
        trained = self.put(
            "policies",
            "multiturn-train",
            "train",
            {"problems": asked.to_row(), "config": config.learned().model_dump(mode="json")},
            {
                "metrics.jsonl": metrics,
                "training.json": {"validations": [{"step": 2, "acc_t1": 0.2, "acc_t2": 0.4}]},
                "episodes/00001.jsonl": [e.to_row() for e in first],
            },
        )
        last = answers(2) if moved else untrained
        final = measure("multiturn-evaluate", "trained", last, {"trained": trained.to_row()})
        control = measure(
            "multiturn-control",
            "empty",
            answers(1),
            {"trained": trained.to_row(), "main": final.to_row(), "name": "empty"},
        )
        names, controls = ["empty"], [control]
        if independent:  # the attempts of the untrained and of the trained pair, as if drawn at once
            drawn = [
                replace(self._episode(p, i, step), index=index, feedback=None, refinement=None)
                for i, p in enumerate(rows)
                for index, step in enumerate((0, 2))
            ]
            facts = {"n": count, "signals": rollout_metrics(drawn)}
            files = {"episodes.jsonl": [e.to_row() for e in drawn], "evaluation.json": facts}
            more = {"trained": trained.to_row(), "main": final.to_row(), "name": "independent"}
            names.append("independent")
            controls.append(
                self.put("evaluation", "multiturn-control", "independent", {**given, **more}, files)
            )
        report = self.put(
            "report",
            "multiturn-report",
            "report",
            {
                "baseline": baseline.to_row(),
                "trained": trained.to_row(),
                "final": final.to_row(),
                "names": names,
                "controls": _rows(controls),
            },
            {"report.json": "multiturn"},
        )
        return self.folder(pipeline, config, report)

    def _episode(self, problem: Problem, number: int, step: int) -> Episode:
        def turn(kind: Kind, text: str, right: bool | None) -> Turn:
            judged = None
            if right is not None:
                outcome = Outcome.CORRECT if right else Outcome.INCORRECT
                judged = Judged(Verdict(outcome, "equal" if right else "wrong", problem.gold))
            return Turn(kind, problem.id, (), (), (), text, "stop", 12, judged)

        right1, right2 = number % 4 == 0, number % 4 <= step
        attempt = turn(Kind.ATTEMPT, self.text(problem.gold, right1), right1)
        words = f"Look at the second box again.{HOSTILE if self.hostile else ''}"
        refined = replace(
            attempt,
            kind=Kind.REFINEMENT,
            text=attempt.text.replace("boxes", "crates") + " Checked.",
            judged=turn(Kind.REFINEMENT, "", right2).judged,
        )
        return Episode(
            problem.id, 0, attempt, turn(Kind.FEEDBACK, words, None), refined, words, number == 1, number == 1
        )


def _rows(refs: Sequence[ArtifactRef]) -> list[dict[str, Any]]:
    return [ref.to_row() for ref in refs]
