"""Pushes a folder to the Hub as one commit, as a program: `python -m reasoner.hub.push SPEC.json`.

A program of its own, since huggingface_hub reads its environment when it is imported. The token comes from
HF_TOKEN in the child's environment, never from the spec. What was pushed is remembered in the repository
itself (`reasoner.json`): the same content is not pushed a second time, whatever this machine has forgotten.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.errors import PublishError, UsageError
from reasoner.hub.secrets import require_clean
from reasoner.ids import content_hash, file_hash
from reasoner.training.specs import Spec

MARKER = "reasoner.json"
CARD = "README.md"
RESULT = "publication.json"
WEIGHTS = (".safetensors", ".safetensors.index.json")


@dataclass(frozen=True)
class PushSpec(Spec):
    """One push of everything in `folder`, a flat folder, to the model repository `repo`."""

    folder: Path
    repo: str
    """`owner/name`."""
    work: Path
    """Folder for publication.json and error.json."""
    private: bool = True
    message: str = "Upload by reasoner"


def content_of(folder: Path) -> str:
    """The digest of all files but the card and the marker: what makes two pushes the same."""
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.name not in (CARD, MARKER))
    return content_hash([[p.name, file_hash(p)] for p in files])


def push(spec: PushSpec) -> dict[str, Any]:
    """Push, or find that it was pushed; returns repo, commit, url, content and `pushed`.

    Raises PublishError without a token or permission, and where the folder holds what must not be published.
    """
    import httpx
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    from huggingface_hub.errors import HfHubHTTPError

    require_clean(spec.folder)
    content = content_of(spec.folder)
    api = HfApi(token=os.environ.get("HF_TOKEN") or None)
    try:
        api.create_repo(spec.repo, private=spec.private, exist_ok=True)
        info = api.model_info(spec.repo)
        if spec.private and not info.private:
            raise PublishError(
                f"{spec.repo} is public already and the model is to be private; nothing was pushed. Make it private on "
                "the Hub, choose another name, or let it be public (publish.private=false, or no --private)"
            )
        head = info.sha
        known = _marker(api, spec.repo)
        if known == content:
            return _result(spec, content, str(head), pushed=False)
        (spec.folder / MARKER).write_text(json.dumps({"content": content}) + "\n", encoding="utf-8")
        names = sorted(p.name for p in spec.folder.iterdir() if p.is_file())
        there = [sibling.rfilename for sibling in info.siblings or []]
        # Shards of an earlier model beside the new ones would be loaded with them.
        stale = [CommitOperationDelete(n) for n in there if n not in names and n.endswith(WEIGHTS)]
        # parent_commit: somebody else's push in between is an error, not half of theirs and half of ours.
        done = api.create_commit(
            spec.repo, [*stale, *(CommitOperationAdd(name, spec.folder / name) for name in names)],
            commit_message=spec.message, parent_commit=head,
        )  # fmt: skip
    except HfHubHTTPError as error:
        raise PublishError(_explained(spec.repo, error)) from error
    except (OSError, RuntimeError, httpx.HTTPError) as error:
        raise PublishError(
            f"the Hub can't be reached for {spec.repo} ({_first(error)}); the model is kept"
        ) from error
    return _result(spec, content, str(done.oid), pushed=True)


def _marker(api: Any, repo: str) -> str | None:
    """The content that the repository's marker names, or None."""
    from huggingface_hub.errors import EntryNotFoundError

    try:
        path = api.hf_hub_download(repo, MARKER, force_download=True)
    except EntryNotFoundError:
        return None
    try:
        return str(json.loads(Path(path).read_text(encoding="utf-8"))["content"])
    except (ValueError, KeyError, TypeError):
        return None


def _result(spec: PushSpec, content: str, commit: str, *, pushed: bool) -> dict[str, Any]:
    from huggingface_hub import constants

    url = f"{constants.ENDPOINT}/{spec.repo}"
    return {"repo": spec.repo, "commit": commit, "url": url, "content": content, "pushed": pushed}


def _explained(repo: str, error: Any) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return f"the Hub refuses to write to {repo} ({status}); set HF_TOKEN to a token with write permission there"
    if status == 412:
        return f"{repo} was changed by somebody else during the push; run the same command again"
    return f"the Hub answered {status} for {repo}: {_first(error)}"


def _first(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def main(arguments: Sequence[str]) -> int:
    """Exit status 0 when the content is on the Hub; see `runtime.run_program` for failures."""
    from reasoner.training.checkpoints import write_json
    from reasoner.training.runtime import run_program

    try:
        if len(arguments) != 1:
            raise UsageError("give one argument, the spec: python -m reasoner.hub.push SPEC.json")
        spec = PushSpec.load(Path(arguments[0]))
    except UsageError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    os.environ.update({"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"})
    os.environ.pop("HF_HUB_OFFLINE", None)  # pushing is what was asked for
    return run_program(spec.work, lambda: write_json(spec.work / RESULT, push(spec)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
