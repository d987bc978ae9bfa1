"""A home folder as runs leave it, made of small stages by hand: no Prefect, no model."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from reasoner.home import Home
from reasoner.ids import content_hash
from reasoner.lineage import journal
from reasoner.lineage.calls import Call
from reasoner.records import ArtifactRef
from reasoner.store import Store

ENGINE = {"kind": "scripted", "dtype": "auto", "options": {"script": "x:y"}}
PACKAGES = {"packages": {"torch": "2.13.0"}, "revision": "abc", "dirty": False}


def run_id(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012d}"


class Built:
    """Makes artifacts with manifests, cached results, journals and run folders."""

    def __init__(self, path: Path) -> None:
        self.home, self.store = Home(path), Store(path / "artifacts")
        self.calls: dict[str, Call] = {}
        for folder in (self.home.results, self.home.runs):
            folder.mkdir(parents=True)

    def put(
        self, stage: str, kind: str, text: str, *, label: str = "", version: int = 1, external: Any = None,
        environment: dict[str, Any] = PACKAGES, **arguments: Any,
    ) -> ArtifactRef:  # fmt: skip
        """An artifact of `stage` with `text` as its content."""
        encoded = json.loads(json.dumps(arguments, default=lambda ref: ref.to_row()))
        key = f"{stage}-{version}-{content_hash([arguments, external], 32)}"
        facts = {"stage": stage, "label": label or stage, "version": version, "key": key, "arguments": encoded,
                 "environment": environment, "external": {"prompt text": external} if external else {}}  # fmt: skip
        with self.store.writer(kind, facts) as draft:
            (draft.path / "a.txt").write_text(text)
        ref = draft.ref
        row = {"metadata": {"storage_key": key}, "result": json.dumps(ref.to_row())}
        (self.home.results / key).write_text(json.dumps(row))
        self.calls[ref.digest] = Call(stage, facts["label"], version, key, encoded, facts["external"], ref)
        return ref

    def chain(
        self, seed: int = 0, temperature: float = 0.0, lr: float = 0.1, note: str = ""
    ) -> list[ArtifactRef]:
        """Problems, base, completions, verdicts, records, adapter, merged model: what a small method makes."""
        tag = f"{note} {seed}"
        problems = self.put(
            "problems", "problems", f"p {tag}", seed=seed, data={"pool": {"mine": {"limit": 3}}}
        )
        base = self.put("model", "model", "base", model={"path": "base-1b", "revision": None})
        few_shot = {"shots": 8, "decoding": {"temperature": temperature}}
        said = self.put("few-shot", "completions", f"c {tag} {temperature}", label="few-shot cot pool",
                        problems=problems, model=base, few_shot=few_shot, engine=ENGINE, seed=seed)  # fmt: skip
        judged = self.put("verify", "attempts", f"v {tag} {temperature}", label="verify few-shot cot pool",
                          completions=said, config={"timeout": 2.0})  # fmt: skip
        records = self.put("records-epoch1", "records", f"r {tag} {temperature}", problems=problems,
                           attempts=[judged], seed=seed)  # fmt: skip
        adapter = self.put("train", "adapter", f"a {tag} {temperature} {lr}", label="train epoch 1", records=records,
                           model=base, config={"lr": lr}, epoch=1)  # fmt: skip
        merged = self.put("merge", "model", f"m {tag} {temperature} {lr}", label="merge epoch 1", model=base,
                          adapter=adapter, records=records, epoch=1)  # fmt: skip
        return [problems, base, said, judged, records, adapter, merged]

    def run(
        self, number: int, refs: list[ArtifactRef], *, done: bool = True, state: str = journal.MADE
    ) -> Path:
        """A run's folder with a journal of these artifacts; finished with the last of them as its model."""
        folder = self.home.runs / f"smart-demo-{run_id(number)}"
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        for ref in refs:
            journal.append(folder, state, self.calls[ref.digest])
        if done:
            place = str(self.store.open(refs[-1]))
            (folder / "result.json").write_text(json.dumps({"model": refs[-1].to_row(), "model_path": place}))
        return folder

    def started(self, folder: Path, stage: str, key: str) -> None:
        """Say in a run's journal that a stage was begun and not ended."""
        call = dataclasses.replace(next(iter(self.calls.values())), stage=stage, key=key, ref=None)
        journal.append(folder, journal.STARTED, call)
