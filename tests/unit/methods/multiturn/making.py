"""Small episodes for tests of the pure logic."""

from reasoner.methods.multiturn.episode import Episode, Judged, Kind, Turn
from reasoner.records import Outcome, Verdict


def turn(kind: Kind, problem: str, reward: float | None = None, text: str = "", length: int = 2) -> Turn:
    """A turn of `length` tokens; `reward` None is no verdict, -1 an unscored one."""
    judged = None
    if reward is not None:
        outcome = {1.0: Outcome.CORRECT, 0.0: Outcome.INCORRECT}.get(float(reward), Outcome.UNSCORED)
        judged = Judged(Verdict(outcome, "test"))
    ids = tuple(range(5, 5 + length))
    return Turn(kind, problem, (1, 2, 3), ids, (-0.5,) * length, text, "stop", length, judged)


def episode(
    problem: str, index: int, r1: float, r2: float | None, *, leak: bool | None = None, guided: bool = True,
    texts: tuple[str, str, str] = ("a", "b", "c"),
) -> Episode:  # fmt: skip
    return Episode(
        problem,
        index,
        turn(Kind.ATTEMPT, problem, r1, texts[0]),
        turn(Kind.FEEDBACK, problem, None, texts[1]) if guided and r2 is not None else None,
        turn(Kind.REFINEMENT, problem, r2, texts[2]) if r2 is not None else None,
        texts[1],
        leak,
        leak,
    )
