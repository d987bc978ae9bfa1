"""The generator `word-problems`: one- and two-step word problems of 16 templates, for demos and tests.

Numbers are small, names and things are drawn from the seed; no answer is negative or a fraction, and no
question comes twice. Every problem carries the one-line program that solves it (`tags["program"]`), so that a
scripted model can answer. Problem i is made by template i mod 16 from the draws before it: a larger count
begins with the same problems. Says nothing about reasoning in general: held-out problems are the same
templates with other numbers.
"""

from collections.abc import Callable
from random import Random

from reasoner.errors import DataError
from reasoner.records import Problem, normalised_text

NAME = "word-problems"
VERSION = 2
"""Counts up whenever the same seed would make other problems."""
TRIES = 500

# fmt: off
NAMES = (
    "Ada", "Bilal", "Chloe", "Dmitri", "Elena", "Farid", "Greta", "Hugo", "Imani", "Jonas", "Keiko", "Lucas",
    "Mira", "Nadia", "Omar", "Paula", "Quentin", "Rosa", "Samir", "Tessa", "Uma", "Victor", "Wanda", "Yusuf",
)
THINGS = (
    "apples", "pencils", "stickers", "marbles", "coins", "books", "stamps", "shells", "cards", "buttons",
    "beads", "balloons",
)
# fmt: on
SWEETS = ("cookies", "muffins", "grapes", "pancakes", "plums", "dumplings")

Made = tuple[str, str]
"""A question and the arithmetic expression that answers it."""


class Draw:
    """Random parts of a question."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def names(self) -> tuple[str, str]:
        first, second = self._random.sample(NAMES, 2)
        return first, second

    def thing(self, among: tuple[str, ...] = THINGS) -> str:
        return self._random.choice(among)


def joining(draw: Draw) -> Made:
    name, thing, a, b = draw.names()[0], draw.thing(), draw.number(2, 30), draw.number(2, 30)
    return f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?", f"{a} + {b}"


def giving_away(draw: Draw) -> Made:
    (name, friend), thing, b = draw.names(), draw.thing(), draw.number(2, 20)
    a = b + draw.number(2, 25)
    return (
        f"{name} has {a} {thing} and gives {b} of them to {friend}. How many {thing} does {name} have left?",
        f"{a} - {b}",
    )


def boxes(draw: Draw) -> Made:
    name, thing, a, b = draw.names()[0], draw.thing(), draw.number(2, 9), draw.number(2, 12)
    return (
        f"{name} buys {a} boxes of {thing}. Each box holds {b} {thing}. How many {thing} does {name} buy?",
        f"{a} * {b}",
    )


def sharing_equally(draw: Draw) -> Made:
    name, thing, b, each = draw.names()[0], draw.thing(), draw.number(2, 9), draw.number(2, 12)
    return (
        f"{name} shares {b * each} {thing} equally among {b} friends. How many {thing} does each friend get?",
        f"{b * each} // {b}",
    )


def together(draw: Draw) -> Made:
    (name, friend), thing, a, more = draw.names(), draw.thing(), draw.number(2, 20), draw.number(2, 12)
    return (
        f"{name} has {a} {thing}. {friend} has {more} more than {name}. "
        f"How many {thing} do they have together?",
        f"{a} + {a} + {more}",
    )


def boxes_and_loose(draw: Draw) -> Made:
    name, thing, a, b = draw.names()[0], draw.thing(), draw.number(2, 9), draw.number(2, 10)
    loose = draw.number(2, 9)
    return (
        f"{name} has {a} bags with {b} {thing} in each bag, and {loose} loose {thing}. "
        f"How many {thing} does {name} have in all?",
        f"{a} * {b} + {loose}",
    )


def losing_then_finding(draw: Draw) -> Made:
    name, thing, b, c = draw.names()[0], draw.thing(), draw.number(2, 12), draw.number(2, 12)
    a = b + draw.number(2, 20)
    return (
        f"{name} had {a} {thing}, lost {b} of them and then found {c}. "
        f"How many {thing} does {name} have now?",
        f"{a} - {b} + {c}",
    )


def times_as_many(draw: Draw) -> Made:
    (name, friend), thing, a, times = draw.names(), draw.thing(), draw.number(2, 12), draw.number(2, 6)
    return (
        f"{name} has {a} {thing}. {friend} has {times} times as many. How many {thing} does {friend} have?",
        f"{a} * {times}",
    )


def difference(draw: Draw) -> Made:
    (name, friend), thing, b = draw.names(), draw.thing(), draw.number(2, 20)
    a = b + draw.number(2, 25)
    return (
        f"{name} has {a} {thing} and {friend} has {b}. How many more {thing} does {name} have than {friend}?",
        f"{a} - {b}",
    )


def three_addends(draw: Draw) -> Made:
    name, thing = draw.names()[0], draw.thing()
    a, b, c = draw.number(2, 20), draw.number(2, 20), draw.number(2, 20)
    return (
        f"{name} collected {a} {thing} on Monday, {b} on Tuesday and {c} on Wednesday. "
        f"How many {thing} did {name} collect?",
        f"{a} + {b} + {c}",
    )


def age_ahead(draw: Draw) -> Made:
    name, a, years = draw.names()[0], draw.number(4, 40), draw.number(2, 15)
    return f"{name} is {a} years old. How old will {name} be in {years} years?", f"{a} + {years}"


def age_ago(draw: Draw) -> Made:
    name, years = draw.names()[0], draw.number(2, 15)
    a = years + draw.number(2, 30)
    return f"{name} is {a} years old. How old was {name} {years} years ago?", f"{a} - {years}"


def two_eaten(draw: Draw) -> Made:
    name, thing, a = draw.names()[0], draw.thing(SWEETS), draw.number(4, 40)
    return (
        f"There are {a} {thing} on the table of {name}. Two of the {thing} are eaten. "
        f"How many {thing} are left?",
        f"{a} - 2",
    )


def half_given(draw: Draw) -> Made:
    (name, friend), thing, half, c = draw.names(), draw.thing(), draw.number(2, 20), draw.number(2, 15)
    return (
        f"{name} has {2 * half} {thing}, gives half of them to {friend} and buys {c} more. "
        f"How many {thing} does {name} have now?",
        f"{2 * half} // 2 + {c}",
    )


def growth(draw: Draw) -> Made:
    name, day, days = draw.names()[0], draw.number(2, 9), draw.number(2, 12)
    return (
        f"The plant of {name} grows {day} cm a day. How many cm does it grow in {days} days?",
        f"{day} * {days}",
    )


def arrivals(draw: Draw) -> Made:
    name, a, groups, people = draw.names()[0], draw.number(2, 20), draw.number(2, 6), draw.number(2, 8)
    return (
        f"{a} guests are at the party of {name}. Then {groups} cars arrive with {people} guests in each. "
        "How many guests are there now?",
        f"{a} + {groups} * {people}",
    )


TEMPLATES: tuple[Callable[[Draw], Made], ...] = (
    joining,
    giving_away,
    boxes,
    sharing_equally,
    together,
    boxes_and_loose,
    losing_then_finding,
    times_as_many,
    difference,
    three_addends,
    age_ahead,
    age_ago,
    two_eaten,
    half_given,
    growth,
    arrivals,
)


def generate(count: int, seed: int, dataset: str = NAME) -> list[Problem]:
    """`count` problems, no question twice; raises DataError where the templates don't give so many."""
    draw = Draw(Random(f"{NAME}/{VERSION}/{seed}"))
    seen: set[str] = set()
    problems = []
    for index in range(count):
        template = TEMPLATES[index % len(TEMPLATES)]
        for _ in range(TRIES):
            question, expression = template(draw)
            if (key := normalised_text(question)) not in seen:
                break
        else:
            raise DataError(
                f"{NAME}: no new question for template {template.__name__} after {index} problems"
            )
        seen.add(key)
        problems.append(_problem(question, expression, template.__name__, dataset))
    return problems


def _problem(question: str, expression: str, template: str, dataset: str) -> Problem:
    answer = evaluate(expression)
    return Problem.make(
        question,
        str(answer),
        dataset,
        solution=f"{expression.replace('//', '/')} = {answer}. The answer is {answer}.",
        tags={"template": template, "program": f"answer = {expression}"},
    )


def evaluate(expression: str) -> int:
    """The value of an expression of the templates: whole numbers, + - * //, left to right, products first."""
    total, product, sign = 0, 1, 1
    operator = "*"
    for token in [*expression.split(), "+"]:
        if token in ("+", "-"):
            total, product, sign, operator = total + sign * product, 1, 1 if token == "+" else -1, "*"
        elif token in ("*", "//"):
            operator = token
        else:
            product = product * int(token) if operator == "*" else product // int(token)
    return total
