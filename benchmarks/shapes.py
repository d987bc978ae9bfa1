"""What the stages of SMART ask of an engine, made up: prompts in the product's order, lengths fixed beforehand.

Prompts of one shape share their worked examples, so that the prefix cache serves everybody alike; those of another
round share none with them. Samples of a prompt stand beside each other.
"""

import random
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Shape:
    """`prompts` questions behind `shots` worked examples, `samples` of each, of `low` to `high` tokens."""

    shots: int
    prompts: int
    samples: int
    low: int
    high: int
    temperature: float

    def scaled(self, prompts: int | None, length: float) -> "Shape":
        """With another number of prompts, and answers of `length` times as many tokens: for slower machines."""
        count = self.prompts if prompts is None else prompts
        low, high = (max(1, round(tokens * length)) for tokens in (self.low, self.high))
        return replace(self, prompts=count, low=low, high=high)

    def load(self, seed: int) -> "Load":
        """Every request of a round."""
        draw = random.Random(seed)
        shots = "".join(f"{_question(draw)}\n{_solution(draw)}\n\n" for _ in range(self.shots))
        questions = [f"{shots}{_question(draw)}\nSolution:" for _ in range(self.prompts)]
        prompts = [prompt for prompt in questions for _ in range(self.samples)]
        return Load(prompts, [draw.randint(self.low, self.high) for _ in prompts], self.temperature)


@dataclass(frozen=True, slots=True)
class Load:
    """Requests: `lengths[i]` tokens are wanted behind `prompts[i]`."""

    prompts: list[str]
    lengths: list[int]
    temperature: float


SHAPES = {
    "few_shot": Shape(8, 512, 1, 150, 320, 0.0),
    "sampling": Shape(0, 256, 8, 80, 170, 0.7),
    "decode": Shape(0, 256, 1, 512, 512, 0.0),
}
"""Step 0 on a pool (8 shots are about 1,200 tokens), several samples of a policy, and 256 sequences in step."""


def _question(draw: random.Random) -> str:
    a, b, c = draw.randint(2, 60), draw.randint(2, 60), draw.randint(2, 9)
    return (
        f"Problem: A shelf in the reading room holds {a} red and {b} blue books. The library has {c} shelves of this "
        "kind, each filled in the same way. How many books stand on all of the shelves together?"
    )


def _solution(draw: random.Random) -> str:
    a, b, c = draw.randint(2, 60), draw.randint(2, 60), draw.randint(2, 9)
    return (
        f"Solution: First count the books on one shelf. There are {a} red books and {b} blue books on it, which makes "
        f"{a} + {b} = {a + b} books. There are {c} such shelves, so the number of all the books is that of one shelf "
        f"times the number of shelves, {a + b} * {c} = {(a + b) * c}. The answer is {(a + b) * c}."
    )
