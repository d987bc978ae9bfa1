"""The trend of a release in Markdown: a line of bars a set, then the nights as a table."""

from collections.abc import Sequence

from reasoner.releases.night import Night
from reasoner.releases.release import Release
from reasoner.report.markdown import escaped, table_row
from reasoner.statistics.worse import Change

BARS = "▁▂▃▄▅▆▇█"
SHOWN = 60
"""Nights in the line of bars."""
ROWS = 30
"""Nights in the table, the newest first."""
HEADER = ["night", "set", "N", "accuracy", "95 %", "at release", "lost", "gained", "p", "p (Holm)", ""]


def bars(values: Sequence[float]) -> str:
    """One character a value, from the lowest of them to the highest; one height where all are equal."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if high == low:
        return BARS[len(BARS) // 2] * len(values)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in values)


def trend(release: Release, nights: Sequence[Night]) -> str:
    """The page of one release, from its nights in order."""
    revision = f", `{release.hub_repo}` at `{release.hub_revision[:12]}`" if release.hub_revision else ""
    lines = [
        f"# {release.name}", "",
        f"{escaped(release.base)} trained by {release.method}, model `{release.model.digest[:16]}`{revision}; released"
        f" {release.date[:10]} from run {escaped(release.run)}.", "",
    ]  # fmt: skip
    if not nights:
        return "\n".join([*lines, "No night yet.", ""])
    for name in nights[-1].sets:
        lines += [*_line(name, [n.sets[name] for n in nights if name in n.sets][-SHOWN:]), ""]
    lines += [table_row(list(HEADER)), "|---|---|---:|---:|---|---:|---:|---:|---:|---:|---|"]
    for night in reversed(nights[-ROWS:]):
        lines += [table_row(_cells(night.night, name, change)) for name, change in night.sets.items()]
    notes = [f"- {escaped(note)}" for note in nights[-1].notes]
    if notes:
        lines += ["", "Changed around the model since its release:", "", *notes]
    return "\n".join([*lines, ""])


def sentence(name: str, change: Change) -> str:
    """One comparison in words."""
    k0, k1, n = change.before.k, change.now.k, change.n
    verdict = "significantly worse" if change.worse else "no significant drop"
    return (
        f"{name}: {k0}/{n} at release, {k1}/{n} now ({change.lost} lost, {change.gained} gained, one-sided exact"
        f" McNemar p = {change.p:.2g}, Holm {change.p_holm:.2g}): {verdict}"
    )


def page(night: str, found: Sequence[Night], failed: Sequence[str]) -> str:
    """One night of all releases."""
    lines = [f"# Night {escaped(night)}", ""]
    if not found and not failed:
        lines += ["There are no releases: `reasoner release RUN NAME` makes one.", ""]
    for each in found:
        lines += [f"## {each.release}", ""]
        lines += [f"- {escaped(sentence(name, change))}" for name, change in each.sets.items()]
        lines += ["", f"Model `{each.model[:16]}`, alpha {each.alpha:g}.", ""]
        if each.notes:
            lines += ["Changed since the release: " + "; ".join(map(escaped, each.notes)) + ".", ""]
    if failed:
        lines += ["## Not measured", "", *(f"- {escaped(line)}" for line in failed), ""]
    return "\n".join(lines)


def _line(name: str, found: Sequence[Change]) -> list[str]:
    shares = [found[0].before.value or 0.0, *(change.now.value or 0.0 for change in found)]
    return [
        f"**{escaped(name)}** `{bars(shares)}` from {shares[0]:.1%} at release (first bar) to {shares[-1]:.1%};"
        f" lowest {min(shares):.1%}, highest {max(shares):.1%}"
    ]


def _cells(night: str, name: str, change: Change) -> list[object]:
    now = change.now
    return [
        night, name, change.n, f"{now.value:.1%}", f"{now.low:.1%} to {now.high:.1%}", f"{change.before.value:.1%}",
        change.lost, change.gained, f"{change.p:.2g}", f"{change.p_holm:.2g}", "WORSE" if change.worse else "",
    ]  # fmt: skip
