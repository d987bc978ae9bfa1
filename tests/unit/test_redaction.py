"""Secrets are found and taken out: in text, in log records with exceptions, in the output of children, in configs."""

import io
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reasoner import redaction
from reasoner.config.compose import load
from reasoner.config.smart import SmartConfig
from reasoner.errors import ConfigurationError, DataError, InfrastructureError, without_secrets
from reasoner.process.child import run_child
from reasoner.redaction import RedactingStream, find_secret, install, own_secrets, redact

WANDB = "0123456789abcdef0123456789abcdef01234567"
HUB = "hf_" + "Canary0123456789" * 2


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", WANDB)
    monkeypatch.setenv("MY_SERVICE_TOKEN", "a word with spaces")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent.socket")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody Else")


def test_own_values_and_known_shapes_are_taken_out_and_nothing_else() -> None:
    assert redact(f"key {WANDB}, said a word with spaces") == (
        "key [redacted: WANDB_API_KEY], said [redacted: MY_SERVICE_TOKEN]"
    )
    assert HUB not in redact(f"Bearer {HUB}") and "Canary" not in redact(HUB)
    assert "hunter22" not in redact("postgresql://me:hunter22@db/x")
    plain = "lr=1e-5 /run/agent.socket Somebody Else 7f9c2ba4e88f827d616045507605853ed73b8093 hf_hub"
    assert redact(plain) == plain and find_secret(plain) is None
    assert set(own_secrets()) >= {"WANDB_API_KEY", "MY_SERVICE_TOKEN"}


@pytest.fixture
def handler() -> Iterator[io.StringIO]:
    before = logging.getLogRecordFactory()
    install()
    install()
    out = io.StringIO()
    stream, log = logging.StreamHandler(out), logging.getLogger("tests.redaction")
    log.addHandler(stream)
    yield out
    log.removeHandler(stream)
    logging.setLogRecordFactory(before)


def test_every_handler_gets_redacted_records(handler: io.StringIO) -> None:
    log = logging.getLogger("tests.redaction")
    log.error("with %s and %d", WANDB, 3)
    try:
        raise ValueError(f"refused: {HUB}")
    except ValueError:
        log.exception("it failed")
    said = handler.getvalue()
    assert WANDB not in said and HUB not in said
    assert "with [redacted: WANDB_API_KEY] and 3" in said and "Traceback" in said and "it failed" in said


def test_an_error_that_holds_a_secret_is_shown_without_it() -> None:
    assert WANDB not in str(DataError(f"no rows at {WANDB}")) and WANDB not in repr(DataError(WANDB))
    foreign = RuntimeError(f"401 for {HUB}")
    told = without_secrets(foreign)
    assert isinstance(told, InfrastructureError) and "RuntimeError: 401 for [redacted" in str(told)
    harmless = RuntimeError("no such file")
    assert without_secrets(harmless) is harmless
    ours = DataError("cannot read the set")
    ours.__cause__ = foreign
    assert without_secrets(ours) is ours and ours.__cause__ is None


def test_a_configuration_with_a_secret_is_refused_without_showing_it() -> None:
    for value, name in ((HUB, "a Hugging Face token"), (WANDB, "WANDB_API_KEY")):
        with pytest.raises(ConfigurationError, match=name) as caught:
            load("smart-demo", [f"engine.options.key={value}"], SmartConfig)
        assert "engine.options.key" in str(caught.value) and value not in str(caught.value)
        with pytest.raises(ConfigurationError) as caught:
            load("smart-demo", [value], SmartConfig)
        assert value not in str(caught.value)


def test_a_secret_in_pieces_of_a_stream_is_found_and_the_rest_comes_in_time() -> None:
    text = f"a line\nbar 10%\rtoken={WANDB} end\npart {WANDB[:20]}".encode()
    for size in (1, 3, 7, len(text)):
        stream, out = RedactingStream(own_secrets()), b""
        for at in range(0, len(text), size):
            out += stream.feed(text[at : at + size])
            out += stream.idle()
        out += stream.feed(WANDB[20:].encode() + b"\n\xff\xfe\n") + stream.end()
        assert WANDB.encode() not in out and out.count(b"[redacted: WANDB_API_KEY]") == 2
        assert out.startswith(b"a line\nbar 10%\r") and out.endswith(b"\n\xff\xfe\n")
    stream = RedactingStream(own_secrets())
    assert stream.feed(b"epoch 1 of ") + stream.idle() == b"epoch 1 of "


def test_a_child_that_was_given_a_secret_cannot_write_it_into_its_log(tmp_path: Path) -> None:
    program = (
        "import os, sys, time; k = os.environ['WANDB_API_KEY']; print('key', k, flush=True);"
        "sys.stderr.write(k[:11]); sys.stderr.flush(); time.sleep(1.2); sys.stderr.write(k[11:] + '\\nlast\\n')"
    )
    log = tmp_path / "log"
    run_child([sys.executable, "-c", program], log=log, env={"WANDB_API_KEY": WANDB})
    said = log.read_text()
    assert said.count("[redacted: WANDB_API_KEY]") == 2 and WANDB not in said and said.endswith("last\n")


def test_a_full_disk_does_not_hold_up_who_writes_to_a_log() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        command = [sys.executable, "-I", "-S", redaction.__file__]
        done = subprocess.run(command, input=b"a line\n" * 50_000, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
