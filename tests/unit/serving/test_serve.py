"""What is served: base and adapter that belong together, and nothing that could run a repository's code."""

import json
from pathlib import Path

import pytest

from reasoner.errors import ModelError, UsageError
from reasoner.home import Home
from reasoner.models import fingerprint
from reasoner.serving.own_base import base_of
from reasoner.serving.serve import Served, parse_adapter, server_command
from reasoner.store import Store
from tests.support.tiny_llama import make_model


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("bases")
    return make_model(folder / "one"), make_model(folder / "two", seed=8)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def adapter(folder: Path, base: str, recorded: str | None = None, kind: str = "LORA") -> Path:
    folder.mkdir(parents=True)
    config = {"peft_type": kind, "r": 12, "base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "adapter_model.safetensors").write_bytes(b"x")
    if recorded is not None:
        (folder / "training.json").write_text(json.dumps({"base": {"name": base, "fingerprint": recorded}}))
    return folder


def test_the_content_of_the_base_decides(bases: tuple[Path, Path], home: Home, tmp_path: Path) -> None:
    one, two = bases
    own = adapter(tmp_path / "own", "org/base", fingerprint(one, home.path))
    assert base_of(own, str(one), home).name == "org/base"
    with pytest.raises(ModelError, match=r"trained on other weights than .*two"):
        base_of(own, str(two), home)
    # A flow's training records the digest of the base as an artifact.
    digest = Store(tmp_path / "store").register("model", one).digest
    flows = adapter(tmp_path / "flows", "org/base", digest)
    assert base_of(flows, str(one), home).folder == one
    with pytest.raises(ModelError, match="other weights"):
        base_of(flows, str(two), home)


def test_without_a_record_the_name_decides(bases: tuple[Path, Path], home: Home, tmp_path: Path) -> None:
    one, two = map(str, bases)
    named = adapter(tmp_path / "named", one)
    assert base_of(named, None, home).folder == bases[0] == base_of(named, one, home).folder
    with pytest.raises(ModelError, match="was trained on"):
        base_of(named, two, home)
    with pytest.raises(ModelError, match="does not name its base"):
        base_of(adapter(tmp_path / "nameless", ""), None, home)
    with pytest.raises(ModelError, match="only LORA"):
        base_of(adapter(tmp_path / "other", one, kind="IA3"), one, home)
    with pytest.raises(ModelError, match=r"adapter_config\.json is missing"):
        base_of(tmp_path / "nothing", one, home)


def test_the_servers_command(bases: tuple[Path, Path], home: Home, tmp_path: Path) -> None:
    own = adapter(tmp_path / "own", str(bases[0]))
    command = server_command(
        Served(("recursive_reasoner", own), port=8123, more=("--max-num-seqs", "4")), home
    )
    text = " ".join(command)
    assert "-m vllm.entrypoints.openai.api_server" in text and text.endswith("--max-num-seqs 4")
    assert (
        f"--lora-modules recursive_reasoner={own}" in text
        and "--port 8123" in text
        and "--enable-lora" in text
    )
    assert command[command.index("--max-lora-rank") + 1] == "16", "vLLM serves ranks 8, 16, 32, …"
    assert "--host 127.0.0.1" in text and "--chat-template" not in command and "trust" not in text
    with pytest.raises(UsageError, match="not passed on"):
        server_command(Served(("x", own), more=("--trust-remote-code=true",)), home)


def test_a_base_without_a_chat_template_gets_the_layout_of_training(home: Home, tmp_path: Path) -> None:
    from jinja2 import Environment

    from reasoner.prompts import ChatRenderer

    base = make_model(tmp_path / "plain")
    (base / "chat_template.jinja").unlink()
    command = server_command(Served(("x", adapter(tmp_path / "own", str(base)))), home)
    template = command[command.index("--chat-template") + 1]
    messages = [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "How many?"}]
    shown = Environment().from_string(template).render(messages=messages, add_generation_prompt=True)
    assert shown == ChatRenderer(base).render(messages).text


def test_adapters_by_name() -> None:
    assert parse_adapter("a=./b=c") == ("a", Path("b=c"))
    for text in ("a", "=b", "a="):
        with pytest.raises(UsageError, match="NAME=FOLDER"):
            parse_adapter(text)
