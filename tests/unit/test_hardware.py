"""The environment of a child that computes: memory that is kept on a processor, few threads beside a card."""

import os

import pytest

from reasoner import hardware


def test_beside_a_card_a_child_has_few_threads_unless_somebody_said_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(hardware, "has_nvidia", lambda: True)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert hardware.compute_environment() == {"OMP_NUM_THREADS": str(hardware.FEW_THREADS)}
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert hardware.compute_environment() == {"OMP_NUM_THREADS": "2"}
    monkeypatch.setenv("OMP_NUM_THREADS", "32")
    assert hardware.compute_environment() == {}, "what the user said reaches the child by itself"


def test_on_a_processor_threads_wait_as_the_user_said_else_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "has_nvidia", lambda: False)
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    assert hardware.compute_environment() == hardware.KEPT_MEMORY | {"GOMP_SPINCOUNT": "1000"}
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert hardware.compute_environment() == hardware.KEPT_MEMORY
