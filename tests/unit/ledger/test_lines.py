"""One journal line: what is packed comes back, and any damage is seen."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.ledger.lines import HEAD, body_of, line_length, pack

ROW = {"key": "ab" * 16, "text": 'a "quoted" é\n\u2028\ud800', "n": [1, 2.5, None]}


def test_a_line_is_ordinary_json_with_length_and_checksum() -> None:
    line = pack(ROW)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert json.loads(line)["row"] == ROW
    body = body_of(line)
    assert body is not None and json.loads(body) == ROW
    assert line_length(line[:HEAD]) == len(line)
    assert int(json.loads(line)["len"], 16) == len(body)


def test_every_cut_is_seen() -> None:
    line = pack(ROW)
    for end in range(len(line)):
        assert body_of(line[:end]) is None
        if end < len(line) - 1:
            assert body_of(line[:end] + b"\n") is None


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_changed_byte_is_seen(data: st.DataObject) -> None:
    line = bytearray(pack(ROW))
    place = data.draw(st.integers(0, len(line) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda v: v != line[place]))
    line[place] = value
    assert body_of(bytes(line)) is None


@pytest.mark.parametrize("junk", [b"", b"\n", b"}\n", b"{}\n", b"\0" * 100, b"x" * 200 + b"}\n"])
def test_junk_is_no_line(junk: bytes) -> None:
    assert body_of(junk) is None


def test_numbers_that_json_lacks_are_refused() -> None:
    with pytest.raises(ValueError):
        pack({"x": float("nan")})
