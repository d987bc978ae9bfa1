"""The report of a multi-turn run: `report.md` for people, `report.json` for everything that shows it again."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reasoner.methods.multiturn.episode import Episode
from reasoner.methods.multiturn.metrics import reward_at, trained_turn
from reasoner.report import contamination as overlap
from reasoner.report import criterion, second_looks
from reasoner.report import independent as equal
from reasoner.report.markdown import escaped, table_row
from reasoner.report.words import p_value
from reasoner.stages import contamination
from reasoner.statistics import mcnemar_exact
from reasoner.store.rows import iter_rows, read_rows
from reasoner.training.checkpoints import write_json

MEANING = {
    "empty": "refines its own attempt without advice",
    "shuffled": "refines with advice on another problem",
    "frozen": "refines with advice of the untrained writer",
}
SECOND = 2
"""The turn that controls make anew, on the same first attempts."""
SIGNALS = (
    "edit", "leak_rate", "new_leak_rate", "attempt_cut", "refinement_cut", "refinement_unshown",
    "refinement_hack_suspects",
)  # fmt: skip


TOLD = {
    "shown": ["The feedback writer is told what the tests that the task shows say of an attempt.", ""],
    "all": [
        "The feedback writer is told why an attempt fails its tests, hidden ones included: second turns are no measure "
        "of what the models can do alone.", "",
    ],
}  # fmt: skip
"""By `show_error`."""


def write(
    out: Path, title: str, base: str, problems: Path, baseline: Path, trained: Path, final: Path,
    controls: Mapping[str, Path], clean: Path | None = None,
) -> None:  # fmt: skip
    """Gather what the stages measured; only tests, and intervals at equal compute, are computed here."""
    training = _json(trained / "training.json")
    turn = trained_turn(training["method"])
    rows = [
        _row("untrained", _json(baseline / "evaluation.json")),
        _row("trained", _json(final / "evaluation.json")),
    ]
    main, untrained = _episodes(final), _episodes(baseline)
    compared = {
        name: _row(name, _json(folder / "evaluation.json")) | against(main, _episodes(folder), SECOND)
        for name, folder in controls.items()
        if name != "independent"
    }
    independent = None
    if "independent" in controls:
        independent = equal.measure(_episodes(controls["independent"]), main, turn)
    facts: dict[str, Any] = {
        "title": title, "base": base, "method": training["method"], "mode": training["mode"],
        "env_type": training["env_type"], "show_error": training["config"].get("show_error", "none"),
        "seed": training["seed"], "steps": training["steps"],
        "exported_step": training["exported_step"], "chosen_by": training["chosen_by"], "rows": rows,
        "trained_turn": turn, "trained_against_untrained": against(main, untrained, turn),
        "second_looks": {
            row["label"]: second_looks.measure(of) for row, of in zip(rows, (untrained, main), strict=True)
        },
        "controls": compared, "independent": independent,
        "validations": training["validations"], "left_out": read_rows(problems / "left-out.jsonl"),
        "iterations": list(iter_rows(trained / "metrics.jsonl")) if (trained / "metrics.jsonl").is_file() else [],
    }  # fmt: skip
    if training["method"] == "archer":
        facts["criterion"] = criterion.judge(trained, training["config"]["warmup_iter"])
    if clean is not None:
        facts["contamination"] = contamination.read(clean)
    write_json(out / "report.json", facts)
    (out / "report.md").write_text(
        "\n".join([*lines(facts), *overlap.lines(facts.get("contamination"))]) + "\n", encoding="utf-8"
    )


def lines(facts: Mapping[str, Any]) -> list[str]:
    """The page."""
    mode = f", {facts['mode']}" if facts["mode"] else ""
    found = [
        f"# {escaped(facts['title'])}", "",
        f"{escaped(facts['method'])}{mode} on {facts['env_type']}, base {escaped(facts['base'])}, "
        f"seed {facts['seed']}. {facts['steps']} iterations; the policies of iteration {facts['exported_step']} "
        f"were kept (by {facts['chosen_by']}).", "",
        *TOLD.get(str(facts.get("show_error")), []),
        "## Both turns", "",
        "Greedy, every test problem, turn 2 whether or not turn 1 was right. Unscored problems are left out.", "",
        *table(facts["rows"]), "",
    ]  # fmt: skip
    row, turn = facts["trained_against_untrained"], facts["trained_turn"]
    found += [
        f"Turn {turn}, which is trained, against untrained on the same problems (N={row['n']}): {row['only_main']} "
        f"right for the trained policy alone, {row['only_control']} for the untrained; McNemar's exact p "
        f"{p_value(row['p'])}.", "",
    ]  # fmt: skip
    found += [f"- {second_looks.sentence(label, row)}" for label, row in facts["second_looks"].items()] + [""]
    if "criterion" in facts:
        found += [criterion.sentence(facts["criterion"]), ""]
    found += controls_section(facts)
    found += ["## Signals of the trained model", "", *signals(facts["rows"]), ""]
    found += ["## Training", "", *validations(facts["validations"]), ""]
    if facts["left_out"]:
        found += [f"## Left out: {len(facts['left_out'])} rows", ""]
        found += [
            f"- row {r['row']} of {escaped(r['set'])}: {escaped(r['reason'])}" for r in facts["left_out"][:20]
        ]
    return found


def controls_section(facts: Mapping[str, Any]) -> list[str]:
    """Controls on the same first attempts, and two independent attempts at equal compute."""
    if not facts["controls"] and not facts["independent"]:
        return []
    found = ["## Controls", ""]
    if facts["controls"]:
        found += [*table(list(facts["controls"].values())), ""]
        found += [
            f"- `{name}` {MEANING[name]}: turn 2 against the trained pair's, p {p_value(row['p'])} "
            f"({row['only_main']} problems right for the trained pair alone, {row['only_control']} for the control)"
            for name, row in facts["controls"].items()
        ]
    if (other := facts["independent"]) and other["n"]:
        found.append(f"- {equal.sentence(other)}")
    return [*found, ""]


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Rows of both turns."""
    head = ["", "N", "acc@t1", "acc@t2", "Δ", "95 % of Δ", "i→c", "c→i", "p, turn 2"]
    found = [table_row(list(head)), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        two = row["two_turns"]
        found.append(
            table_row([
                row["label"], two["n"], _interval(two["acc_t1"]), _interval(two["acc_t2"]), f"{two['delta']:+.3f}",
                f"{two['delta_low']:+.3f} to {two['delta_high']:+.3f}", two["i_to_c"], two["c_to_i"], p_value(two["p"]),
            ])
        )  # fmt: skip
    return found


def signals(rows: list[dict[str, Any]]) -> list[str]:
    """Collapse, truncation, leak and hacking rates, trained beside untrained."""
    before, after = rows[0]["signals"], rows[1]["signals"]
    names = [name for name in SIGNALS if name in after]
    return [
        f"- {name.replace('_', ' ')}: {after[name]:.3f} (untrained {before.get(name, 0.0):.3f})"
        for name in names
    ]


def validations(found: list[dict[str, Any]]) -> list[str]:
    """The validation accuracy by iteration."""
    head = ["iteration", "acc@t1", "acc@t2", "Δ"]
    rows = [table_row(list(head)), "|---:|---:|---:|---:|"]
    for v in found:
        rows.append(
            table_row(
                [int(v["step"]), *(f"{v[k]:.3f}" if k in v else "—" for k in ("acc_t1", "acc_t2", "delta"))]
            )
        )
    return rows


def _row(label: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {"label": label, **facts}


def against(main: Sequence[Episode], other: Sequence[Episode], turn: int) -> dict[str, Any]:
    """McNemar on a solver turn over the problems that both have scored; one episode a problem."""
    first, second = ({e.problem_id: reward_at(e, turn) for e in episodes} for episodes in (main, other))
    pairs = [(first[i], second[i]) for i in first.keys() & second.keys()]
    scored = [(a, b) for a, b in pairs if a is not None and b is not None]
    b, c = sum(x > y for x, y in scored), sum(x < y for x, y in scored)
    return {"n": len(scored), "only_main": b, "only_control": c, "p": mcnemar_exact(b, c)}


def _episodes(folder: Path) -> list[Episode]:
    return [Episode.from_row(row) for row in iter_rows(folder / "episodes.jsonl")]


def _interval(estimate: dict[str, Any]) -> str:
    if not estimate["n"]:
        return "—"
    return f"{estimate['value']:.3f} ({estimate['low']:.3f}–{estimate['high']:.3f})"


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
