"""`reasoner audit-rewards`: were a run's rewards right, and does anybody else agree?"""

import json
import sys

from reasoner.home import Home


def audit_rewards(name: str, as_json: bool, limit: int | None, workers: int | None) -> None:
    """Print the audit of the run called `name`. What it finds is no error: exit status 0."""
    from reasoner.audit import findings, opinions, runs
    from reasoner.audit.lines import lines
    from tasks.progress import Progress

    home = Home.from_environment()
    run = runs.open_run(runs.find_run(name, home), home)
    progress = Progress()
    try:
        reviewed = opinions.review(run, limit=limit, workers=workers, show=progress.update)
    finally:
        progress.close()
    audit = findings.find(run.name, reviewed, run.missing)
    if as_json:
        json.dump(audit.to_row(), sys.stdout, indent=1, ensure_ascii=False)
        print()
    else:
        for line in lines(audit):
            print(line)
