"""What counts as the same mathematical answer where sane people differ. The reasons stand in
docs/verdicts.md.
"""

from typing import Literal

from reasoner.config.base import Section


class MathPolicy(Section):
    """Conventions of the math grader. Every value is part of a manifest of verdicts."""

    boxes: Literal["group", "last"] = "group"
    """`group`: boxes joined only by commas, "and" or "or" are one list; `last`: only the last box counts."""
    box_required: bool = False
    """Whether an answer without a box is no answer."""
    stated: Literal["anywhere", "marked"] = "anywhere"
    """`marked`: a longer response must box its answer or mark it ("the answer is"); a number in passing is
    none.
    """
    run_on: Literal["cut", "keep"] = "cut"
    """Whether text behind an answer is dropped where the model goes on to invent a new question."""
    percent: Literal["optional", "value"] = "optional"
    """`optional`: 28% is 0.28, and 28 where one side drops the sign of a plain number; `value`: 28% is 0.28
    only.
    """
    units: Literal["compare", "ignore"] = "compare"
    """`compare`: a unit may be left out, but two different known units are different answers."""
    base: Literal["optional", "required"] = "optional"
    """Whether the subscript of a number in another base may be left out."""
    lists: Literal["unordered", "ordered"] = "unordered"
    """Whether `1, 2` is `2, 1`. Tuples are always ordered, sets never."""
    left_side: Literal["optional", "required"] = "optional"
    """Whether `x = 5` may be answered with `5`."""
    intervals: Literal["notation_free", "strict"] = "notation_free"
    """Whether `1 < x < 2` is `(1, 2)`."""
    number_styles: bool = True
    """Whether `1 000` is a thousand and `1,22` may be a decimal, where the other side is one number."""
    rounded_gold: bool = False
    """Whether an exact answer that rounds to a decimal gold is correct (66.7 against 200/3)."""
    overescaped: bool = True
    """Whether LaTeX whose every command has a doubled backslash is read with single ones."""
    variable_names: Literal["matter", "free"] = "matter"
    """Whether f(x) and f(y) differ."""
