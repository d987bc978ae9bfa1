"""Times of a step: parts exclude each other and never exceed the wall time."""

import pytest

from reasoner.onpolicy.parts import Part, Parts


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_inner_part_is_not_counted_in_the_outer_one() -> None:
    clock = Clock()
    parts = Parts(clock=clock)
    clock.now += 1
    with parts.part(Part.FORWARD_BACKWARD):
        clock.now += 2
        with parts.part(Part.LOGPROBS):
            clock.now += 4
        clock.now += 8
    with parts.part(Part.LOGPROBS):
        clock.now += 16
    clock.now += 32
    times = parts.take_step()
    assert times.parts == {"forward_backward": 10, "logprobs": 20}
    assert (times.wall, times.other) == (63, 33)
    assert times.share(Part.LOGPROBS) == pytest.approx(20 / 63)
    assert times.metrics() == {
        "time/forward_backward": 10, "time/logprobs": 20, "time/other": 33, "time/wall": 63,
    }  # fmt: skip
    assert parts.take() == {}
    with parts.part(Part.LOGPROBS):
        clock.now += 1
    parts.take()
    assert parts.whole.parts == {"forward_backward": 10, "logprobs": 21} and parts.whole.wall == 64


def test_a_part_that_fails_is_counted_and_closed() -> None:
    clock = Clock()
    parts = Parts(clock=clock)
    with pytest.raises(KeyError), parts.part(Part.SYNC):
        clock.now += 3
        raise KeyError
    clock.now += 5
    assert parts.take() == {"sync": 3}


def test_a_step_that_is_taken_inside_a_part_keeps_the_part_running() -> None:
    clock = Clock()
    parts = Parts(clock=clock)
    with parts.part(Part.GENERATE):
        clock.now += 2
        assert parts.take() == {"generate": 2}
        clock.now += 3
    assert parts.take() == {"generate": 3}


def test_each_switch_waits_for_the_device() -> None:
    waited: list[int] = []
    parts = Parts(synchronise=lambda: waited.append(1))
    with parts.part(Part.SYNC):
        pass
    parts.take()
    assert len(waited) == 3
