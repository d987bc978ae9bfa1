"""The scan before a push: what it must find, what it must leave alone."""

from pathlib import Path

import pytest

from reasoner.errors import PublishError
from reasoner.hub.secrets import require_clean, scan

PLANTED = {
    "a Hugging Face token": "hf_" + "aB3" * 12,
    "an API key": "sk-" + "proj_" + "x9" * 20,
    "an AWS key": "AKIA" + "ABCDEFGH12345678",
    "a GitHub token": "ghp_" + "a1" * 18,
    "a GitLab token": "glpat-" + "a1b2" * 6,
    "a Slack token": "xoxb-" + "12345678901-abcdefghij",
    "a Google key": "AIza" + "S" * 35,
    "a private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "an address with a password": "https://me:" + "longpassword1@host/x",
    "a W&B key": "WANDB_API_" + "KEY=" + "0f" * 20,
}


@pytest.mark.parametrize("what", PLANTED)
@pytest.mark.parametrize(
    "name", ["README.md", "tokenizer_config.json", "chat_template.jinja", "model.safetensors"]
)
def test_a_planted_secret_is_found(tmp_path: Path, what: str, name: str) -> None:
    (tmp_path / name).write_bytes(b"line one\n\x00\xff x: " + PLANTED[what].encode() + b"\n")
    found = scan(tmp_path, {})
    assert [(f.file, f.line, f.what) for f in found] == [(name, 2, what)]
    with pytest.raises(PublishError, match=r"line 2 holds .*nothing was pushed") as error:
        require_clean(tmp_path)
    assert PLANTED[what] not in str(error.value), "the message does not repeat the secret"


def test_a_clean_folder(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "hf_ and sk-learn, https://host/a:b@c, sha256 " + "ab" * 32 + ", https://user@host/x\n"
    )
    (tmp_path / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    assert (
        scan(tmp_path, {"PATH": "/usr/bin", "MY_TOKEN": "short", "SSH_AUTH_SOCK": "/tmp/agent.123456"}) == []
    )
    require_clean(tmp_path)


def test_the_environments_own_secrets_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"note": "correct horse battery"}')
    found = scan(tmp_path, {"MY_SECRET": "correct horse battery", "COLOUR": "note"})
    assert [f.what for f in found] == ["the value of the environment variable MY_SECRET"]


@pytest.mark.parametrize("name", ["pytorch_model.bin", "training_args.pt", "run.sh", ".env", "x.pkl"])
def test_files_that_could_run_or_hide_something_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(PublishError, match="a kind of file that is not published"):
        require_clean(tmp_path)
