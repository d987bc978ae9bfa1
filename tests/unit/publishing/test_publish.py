"""A model folder pushed to a Hub on this machine, by huggingface_hub itself.

Wrong if a push takes more than one commit, if the same content is pushed twice, if a secret leaves the machine, if a
repository is public that should not be, or if a failure is not told in a line.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from flows.commands import planner_steps
from reasoner.errors import PublishError
from reasoner.hub.publish import publish
from tests.support.hub_server import TOKEN, Hub, Repository, serve_hub
from tests.support.tiny_llama import make_adapter, make_model, make_tokenizer

CARD = "---\nlibrary_name: transformers\n---\n\n# A card\n"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with serve_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # as a training's environment has it
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("published") / "model")


def push(model: Path, work: Path, repo: str = "me/planner", card: str = CARD, **more: Any) -> dict[str, Any]:
    return publish(model, card, repo, private=True, work=work, log=work / "log", **more)


def test_one_private_commit_and_never_a_second(hub: Hub, model: Path, tmp_path: Path) -> None:
    first = push(model, tmp_path / "one")
    repository = hub.repositories["me/planner"]
    assert repository.private and repository.commits == ["initial commit", "Upload by reasoner"]
    assert first["pushed"] and first["commit"] == repository.head and first["url"].endswith("/me/planner")
    assert set(repository.files) >= {
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "reasoner.json",
    }
    assert repository.files["model.safetensors"] == (model / "model.safetensors").read_bytes()
    assert repository.files["README.md"].decode() == CARD

    again = push(model, tmp_path / "another-machine", card=CARD + "at another time\n")
    assert not again["pushed"] and again["content"] == first["content"] and len(repository.commits) == 2

    repository.files["old-00001.safetensors"] = b"an earlier shard"
    other = make_model(tmp_path / "other", seed=8)
    assert push(other, tmp_path / "two")["pushed"] and len(repository.commits) == 3
    assert "old-00001.safetensors" not in repository.files and "config.json" in repository.files


def test_a_private_model_does_not_go_to_a_public_repository(hub: Hub, model: Path, tmp_path: Path) -> None:
    hub.repositories["me/planner"] = there = Repository(private=False)
    with pytest.raises(PublishError, match="me/planner is public already"):
        push(model, tmp_path / "one")
    assert there.commits == ["initial commit"]
    there.private = True
    assert push(model, tmp_path / "two")["pushed"]


def test_a_secret_stops_it_before_anything_is_asked(hub: Hub, model: Path, tmp_path: Path) -> None:
    with pytest.raises(PublishError, match=r"README\.md line 7 holds a Hugging Face token"):
        push(model, tmp_path, card=CARD + "\nhf_" + "a1" * 17)
    assert hub.asked == []


def test_failures_are_told_in_a_line(
    hub: Hub, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PublishError, match="refuses to write to forbidden/planner"):
        push(model, tmp_path / "a", "forbidden/planner")

    def meanwhile(repository: Any) -> None:
        repository.commits.append("somebody else")
        hub.before_commit = None

    hub.before_commit = meanwhile
    with pytest.raises(PublishError, match="changed by somebody else"):
        push(model, tmp_path / "b")
    assert push(model, tmp_path / "b")["pushed"], "the same command again"
    monkeypatch.setenv("HF_TOKEN", "not-the-right-token")
    with pytest.raises(PublishError, match="set HF_TOKEN to a token with write permission"):
        push(model, tmp_path / "c")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(PublishError, match="no Hub token"):
        push(model, tmp_path / "d")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(PublishError, match="can't be reached"):
        push(model, tmp_path / "e")


def test_merge_and_push_with_ones_own_card_and_never_twice(
    hub: Hub, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REASONER_HOME", str(tmp_path / "home"))
    app = typer.Typer()
    planner_steps.add_to(app)
    command = typer.main.get_command(app).commands["merge-and-push"]  # type: ignore[attr-defined]
    adapter = make_adapter(model, tmp_path / "adapter", seed=1)
    make_tokenizer().save_pretrained(adapter)
    merged, card = tmp_path / "merged", tmp_path / "card.md"
    card.write_text(CARD)
    options = ("--adapter-path", adapter, "--model-card", card, "--local-save-path", merged)

    def call(repo: str, *more: str) -> dict[str, Any]:
        command.main(["--repo-name", repo, *map(str, options), *more], standalone_mode=False)
        return dict(json.loads(capsys.readouterr().out)["published"])

    first = call("me/merged", "--private")
    repository = hub.repositories["me/merged"]
    assert first["pushed"] and repository.private
    assert repository.files["README.md"].decode() == CARD
    weights = (merged / "model.safetensors").read_bytes()
    assert repository.files["model.safetensors"] == weights != (model / "model.safetensors").read_bytes()
    assert not call("me/merged", "--private")["pushed"]
    assert repository.commits == ["initial commit", "Upload by reasoner"]
    assert call("me/open")["pushed"] and not hub.repositories["me/open"].private
