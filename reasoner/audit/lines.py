"""An audit as plain lines: a table of counts, what they are made of, and the first example of each finding."""

from collections.abc import Iterator

from reasoner.audit.findings import Audit, Finding

WORDS = {
    "changed": "judged otherwise by today's verifier",
    "paid_alone": "paid, called wrong by math-verify",
    "refused_alone": "refused, called right by math-verify",
    "unsteady": "programs that answer otherwise when run again",
    "unscored": "unscored (no reward)",
    "suspects": "programs with a sign of a hack",
    "suspects_paid": "  of those paid",
    "truncated_paid": "paid although cut off",
    "workless_paid": "paid without a step shown",
}
MOST = 5
"""Kinds shown below a finding."""
WIDTH = 100


def lines(audit: Audit) -> Iterator[str]:
    """The audit for a terminal; every figure has its denominator."""
    yield f"{audit.run}: {audit.attempts} attempts"
    yield from _sources(audit)
    yield ""
    width = max(map(len, WORDS.values()))
    for name, words in WORDS.items():
        finding: Finding = getattr(audit, name)
        share = f"{finding.count / finding.of:8.2%}" if finding.of else "       -"
        yield f"{words:<{width}}  {finding.count:>6} of {finding.of:<6} {share}"
        for kind, count in sorted(finding.by.items(), key=lambda pair: -pair[1])[:MOST]:
            yield f"{'':<{width}}  {count:>6}  {kind}"
    if audit.not_run:
        yield f"{audit.not_run} programs were not run: no sandbox on this machine (reasoner doctor says why)"
    if audit.missing:
        yield f"artifacts that are gone, whose attempts are not counted: {', '.join(audit.missing)}"
    yield from _examples(audit)


def _sources(audit: Audit) -> Iterator[str]:
    names = ("correct", "incorrect", "unscored")
    width = max((len(source) for source in audit.sources), default=0)
    yield f"{'recorded':<{width}}  " + "  ".join(f"{name:>9}" for name in names)
    for source, counts in audit.sources.items():
        yield f"{source:<{width}}  " + "  ".join(f"{counts.get(name, 0):>9}" for name in names)


def _examples(audit: Audit) -> Iterator[str]:
    for name, words in WORDS.items():
        finding: Finding = getattr(audit, name)
        if not finding.examples or name in ("suspects", "unscored"):
            continue
        one = finding.examples[0]
        yield ""
        yield f"{words.strip()}, for example {one['source']}, problem {one['problem_id']}, sample {one['index']}:"
        yield f"  gold {one['gold']!r}, recorded {one['extracted']!r} as {one['recorded']}"
        yield f"  now {one['now']}, second opinion {one['second']} with {one['second_extracted']!r}"
        yield f"  ...{' '.join(one['solution'].split())[-WIDTH:]}"
