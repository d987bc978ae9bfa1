"""Numbers, expressions and collections written in many ways, and text that nobody should write, for hypothesis.

Every spelling is one that docs/verdicts.md says is read. What a spelling means is known here by construction, never
by asking the verifier.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from hypothesis import strategies as st

Spelling = Callable[[Fraction, int], str | None]
"""(value, a small number to vary with) -> how the value is written, or None where it cannot be so."""

RESPONSES = (
    "{}",
    "\\boxed{{{}}}",
    "So it is $\\boxed{{{}}}$.",
    "The answer is {}.",
    "The answer is ${}$.",
    "We try 12 and 13 first.\n#### {}",
    "**Answer:** {}",
    "First \\boxed{{77}}. No, that is wrong, it is \\boxed{{{}}}.",
    "<think>The answer is 77.</think>\nTherefore the answer is \\({}\\).",
    "Final Answer: The final answer is ${}$. I hope it is correct.",
)
"""Responses that state an answer; `{}` is where it stands."""


def places_of(value: Fraction) -> int | None:
    """Decimal places of a value that ends, up to 12; None for any other."""
    for places in range(13):
        if (value * 10**places).denominator == 1:
            return places
    return None


def decimal(value: Fraction, extra: int = 0) -> str | None:
    """`value` with a decimal point where it needs one, and `extra` zeros behind."""
    places = places_of(value)
    if places is None:
        return None
    whole, part = divmod(abs(value.numerator) * 10**places // value.denominator, 10**places)
    digits = (f"{part:0{places}d}" if places else "") + "0" * extra
    return ("-" if value < 0 else "") + str(whole) + (f".{digits}" if digits else "")


def grouped(value: Fraction, comma: str) -> str | None:
    text = decimal(value)
    if text is None or abs(value) < 1000:
        return None
    whole, _, part = text.partition(".")
    return f"{int(whole):,}".replace(",", comma) + (f".{part}" if part else "")


def fraction(value: Fraction, factor: int, pattern: str) -> str:
    top, bottom = abs(value.numerator) * factor, value.denominator * factor
    return ("-" if value < 0 else "") + pattern.format(top, bottom)


def mixed(value: Fraction, pattern: str) -> str | None:
    whole, part = divmod(abs(value), 1)
    if not whole or not part:
        return None
    return ("-" if value < 0 else "") + pattern.format(whole, part.numerator, part.denominator)


def scientific(value: Fraction, shift: int, pattern: str) -> str | None:
    mantissa = decimal(value / Fraction(10) ** shift)
    return None if mantissa is None else pattern.format(mantissa, shift)


PLAIN: tuple[Spelling, ...] = (
    lambda v, n: decimal(v),
    lambda v, n: decimal(v, 1 + n % 3),
    lambda v, n: grouped(v, ","),
    lambda v, n: grouped(v, "{,}"),
    lambda v, n: grouped(v, ",\\!"),
    lambda v, n: (decimal(v) or "").replace("-", "−") or None,
    lambda v, n: (decimal(v) or "").replace("0.", ".", 1) if decimal(v) and 0 < abs(v) < 1 else None,
    lambda v, n: decimal(v) and (decimal(v) or "").translate({ord("0") + i: 0xFF10 + i for i in range(10)}),
    lambda v, n: fraction(v, 1 + n, "{}/{}"),
    lambda v, n: fraction(v, 1 + n, "\\frac{{{}}}{{{}}}"),
    lambda v, n: fraction(v, 1 + n, "\\dfrac{{{}}}{{{}}}"),
    lambda v, n: mixed(v, "{} {}/{}"),
    lambda v, n: mixed(v, "{}\\frac{{{}}}{{{}}}"),
    lambda v, n: mixed(v, "{}\\tfrac{{{}}}{{{}}}"),
    lambda v, n: scientific(v, n % 7 - 2, "{}e{}"),
    lambda v, n: scientific(v, n % 7 - 2, "{} \\times 10^{{{}}}"),
    lambda v, n: scientific(v, n % 7 - 2, "{} \\cdot 10^{{{}}}"),
    lambda v, n: scientific(v, n % 5, "{}*10^{}"),
    lambda v, n: decimal(v) and "$" + (decimal(v) or "") if v >= 0 else None,
    lambda v, n: decimal(v) and f"+{decimal(v)}" if v > 0 else None,
)
"""What both the number reader and the mathematics verifier read."""

MATHEMATICAL: tuple[Spelling, ...] = (
    lambda v, n: f"\\frac{{{-v.numerator}}}{{{-v.denominator}}}",
    lambda v, n: f"\\left({decimal(v)}\\right)" if decimal(v) else None,
    lambda v, n: f"{decimal(v - n)}+{n}" if decimal(v) else None,
    lambda v, n: f"{decimal(v + n + 1)}-{n + 1}" if decimal(v) else None,
    lambda v, n: (
        f"{n + 2} \\cdot {fraction(v / (n + 2), 1, chr(92) + 'frac{{{}}}{{{}}}')}" if v > 0 else None
    ),
    lambda v, n: f"\\sqrt{{{v.numerator**2}}}" if v.denominator == 1 and 0 <= v < 10**6 else None,
    lambda v, n: f"{decimal(v * 100)}\\%" if decimal(v) else None,
    lambda v, n: f"\\text{{{decimal(v)}}}" if decimal(v) else None,
    lambda v, n: f"{{{decimal(v)}}}" if decimal(v) else None,
    lambda v, n: f"x = {decimal(v)}" if decimal(v) else None,
)
"""What only the mathematics verifier reads."""

values = st.one_of(
    st.integers(-(10**9), 10**9).map(Fraction),
    st.integers(-999, 999).map(Fraction),
    st.builds(Fraction, st.integers(-(10**6), 10**6), st.sampled_from([10, 100, 1000, 4, 8, 25])),
    st.builds(Fraction, st.integers(-500, 500), st.integers(1, 60)),
)
"""Exact values that people write."""


@st.composite
def spelt(draw: st.DrawFn, value: Fraction, spellings: tuple[Spelling, ...]) -> str:
    """One way to write `value`."""
    vary = draw(st.integers(0, 9))
    found = [text for spelling in spellings if (text := spelling(value, vary))]
    return draw(st.sampled_from(found))


@dataclass(frozen=True)
class Pair:
    """A gold and a response with what is known about them."""

    gold: str
    response: str
    value: Fraction
    stated: Fraction


@st.composite
def number_pairs(draw: st.DrawFn, spellings: tuple[Spelling, ...], same: bool) -> Pair:
    """A gold and a response that states the same number written differently, or another number."""
    value = draw(values)
    stated = value if same else draw(others(value))
    gold, answer = draw(spelt(value, spellings)), draw(spelt(stated, spellings))
    return Pair(gold, draw(st.sampled_from(RESPONSES)).format(answer), value, stated)


def others(value: Fraction) -> st.SearchStrategy[Fraction]:
    """Numbers that differ from `value` clearly, and not by a factor of a hundred, which a percent sign may mean."""
    near = st.sampled_from(
        [value + 1, value - 1, -value, value * 10, value / 10, value + Fraction(1, 2), 2 * value]
    )
    return st.one_of(near, values).filter(lambda other: _apart(value, other))


def _apart(value: Fraction, other: Fraction) -> bool:
    pairs = ((value, other), (value, other * 100), (value * 100, other))
    return all(abs(a - b) > Fraction(1, 1000) * max(1, abs(a), abs(b)) for a, b in pairs)


@dataclass(frozen=True)
class Expression:
    """An expression in x and y: LaTeX, another spelling of the same, and its value at a point."""

    one: str
    two: str
    value: Callable[[Fraction, Fraction], Fraction]


def _atom(text: str, value: Callable[[Fraction, Fraction], Fraction]) -> Expression:
    return Expression(text, text, value)


ATOMS = st.one_of(
    st.integers(1, 20).map(lambda n: _atom(str(n), lambda x, y: Fraction(n))),
    st.sampled_from([_atom("x", lambda x, y: x), _atom("y", lambda x, y: y)]),
    st.builds(
        lambda p, q: Expression(f"\\frac{{{p}}}{{{q}}}", f"{p}/{q}", lambda x, y: Fraction(p, q)),
        st.integers(1, 9), st.integers(2, 9),
    ),
)  # fmt: skip


def _sum(a: Expression, b: Expression) -> Expression:
    return Expression(f"({a.one}+{b.one})", f"({b.two}+{a.two})", lambda x, y: a.value(x, y) + b.value(x, y))


def _difference(a: Expression, b: Expression) -> Expression:
    return Expression(
        f"({a.one}-{b.one})", f"(-({b.two})+{a.two})", lambda x, y: a.value(x, y) - b.value(x, y)
    )


def _product(a: Expression, b: Expression) -> Expression:
    return Expression(
        f"({a.one}) \\cdot ({b.one})", f"({b.two})*({a.two})", lambda x, y: a.value(x, y) * b.value(x, y)
    )


def _square(a: Expression, _: Expression) -> Expression:
    return Expression(f"({a.one})^2", f"({a.two})({a.two})", lambda x, y: a.value(x, y) ** 2)


expressions = st.recursive(
    ATOMS,
    lambda inner: st.builds(
        lambda build, a, b: build(a, b), st.sampled_from([_sum, _difference, _product, _square]), inner, inner
    ),
    max_leaves=6,
)

PIECES = (
    *"0123456789+-*/^_=<>.,;:!|'()[]{}$% xyzabnie", "\\frac{", "\\sqrt{", "}", "{", "\\boxed{", "\\text{", "\\left(",
    "\\right)", "\\cdot ", "\\pi ", "\\infty ", "\\pm ", "\\cup ", "\\in ", "\\le ", "\\begin{pmatrix}",
    "\\end{pmatrix}", "&", "\\\\", "\\int_0^1 ", "\\sum_{n=1}^{5} ", "\\lim_{x\\to 0} ", "\\sin ", "\\log_2 ", "\\ln ",
    "^{\\circ}", "\\%", "\\$", "\\{", "\\}", "\\mid ", "\\binom{5}{2}", "\\overline{3}", "\\mathbb{R}", "\\emptyset ",
    "\\equiv ", "\\pmod{7}", "answer is ", "Answer: ", "####", "<answer>", "</answer>", "</think>", "or ", "and ",
    "wait, it is ", "Question: ", "\n", "1e3", "10^", "9^{9^{9}}", "!", "1,234", "−", "½", "²", "√", "π", "٣", "ﬁ",
    "\u200b", "\ud800", "\x00", "(A)", "B", "True", "cm", "dollars", "percent", "3:30", "3:4", "34_7",
)  # fmt: skip
garbage = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=12).map(lambda parts: "\\boxed{" + "".join(parts) + "}"),
    st.text(max_size=200),
)
"""Text that a model in trouble writes."""

plain_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8), st.binary(max_size=8)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=4),
        st.frozensets(st.integers(), max_size=4).map(set),
    ),
    max_leaves=12,
)  # fmt: skip
"""What a sandbox may return."""

json_trees = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["v", "e", "o", "r", "i", "f", "c", "b", "t", "s", "z", "d", "n"]), inner
        ),
    ),
    max_leaves=12,
)
"""What a hostile program may write on its result channel."""
