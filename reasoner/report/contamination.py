"""What a report says of evaluation questions in the training pool."""

from collections.abc import Mapping
from typing import Any

from reasoner.report.markdown import escaped, table_row
from reasoner.report.words import share

SHOWN = 10
"""Matches on the page; all of them are in report.json."""


def lines(found: Mapping[str, Any] | None) -> list[str]:
    """The section, in Markdown; empty where the check was off."""
    if found is None:
        return []
    said = ["", "## Contamination", ""]
    for name, counts in found["sets"].items():
        kinds = ", ".join(f"{kind} {number}" for kind, number in counts["kinds"].items())
        tail = f" ({kinds})" if kinds else ""
        said.append(
            f"- {escaped(name)}: {counts['matched']} of {counts['questions']} questions stand in the training pool of "
            f"{found['pool']}{tail}."
        )
    if not found["matches"]:
        return [*said, ""]
    said += [
        "",
        "Scores without the matched questions:",
        "",
        table_row(["set", "model", "all", "N", "clean", "N"]),
    ]
    said.append("|---|---|---:|---:|---:|---:|")
    for row in found["scores"]:
        full, clean = row["full"], row["clean"]
        cells = [row["set"], row["label"], share(full["value"]), full["n"], share(clean["value"]), clean["n"]]
        said.append(table_row(cells))
    said += ["", "| kind | likeness | evaluation question | training question |", "|---|---:|---|---|"]
    for match in found["matches"][:SHOWN]:
        texts = [match["evaluation_text"], match["train_text"]]
        said.append(table_row([match["kind"], f"{match['likeness']:.2f}", *texts]))
    if len(found["matches"]) > SHOWN:
        said += ["", f"And {len(found['matches']) - SHOWN} more, in report.json."]
    return [*said, ""]
