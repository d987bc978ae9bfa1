"""Are two mathematical expressions equal? math-verify parses them, and decides on sets, relations and
matrices.

Plain expressions are compared by exact or high-precision evaluation at fixed points, because math-verify
alone calls 1/120! and 1/122! equal (it compares 15 digits after the point) and may simplify for minutes.
Values too large to write down are never evaluated: only equal forms are equal there. Not covered: what is no
single expression (equivalence.py cuts lists and units off first), wall-clock limits (pool.py).
"""

import logging
import math
import re
from functools import lru_cache
from typing import Any

from reasoner.verifiers.latex import plain_syntax
from reasoner.verifiers.policy import MathPolicy

DIGITS = 40
"""Significant digits that expressions are evaluated to."""
MAX_MAGNITUDE = 5000
"""Decimal digits of the largest value that is evaluated."""

# The points at which expressions in variables are compared: all positive, then of mixed sign.
_POINTS = (
    ("1.3179", "2.6431", "0.7283", "3.1973", "1.9467", "0.3391", "4.2617", "2.1713"),
    ("0.4127", "1.7393", "5.2239", "0.8861", "2.4449", "3.3071", "0.6553", "1.1887"),
    ("-1.2743", "0.9371", "-2.3557", "1.5877", "-0.4663", "2.8739", "-3.6047", "0.2917"),
    ("-0.5239", "-1.8413", "1.4327", "-2.2091", "0.7753", "-0.3617", "2.5171", "-4.1369"),
)


_BIG_BINOMIAL = re.compile(r"\\[dt]?binom.*?(?:[0-9]{5}|\^)", re.DOTALL)


_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_DEGREES = re.compile(r"([0-9.]+)\s*\^\{\\circ\}")
# The parser adds a whole number and any positive one behind it, as in 3\frac{1}{2}: (2)(3), 2\binom{5}{2} and 3x^0
# would be 5, 12 and 4. It reads 1e3 as 3e; a minus behind the e is an exponent only where all is one number.
_NUMBER = r"(?<![A-Za-z_^0-9.}\\])([0-9]+(?:\.[0-9]+)?)\s*"
_FACTORS = (
    re.compile(r"((?<!\\right)[)\]]|\\\})\s*(?=[(\[0-9]|\\\{|\\(?:frac|[dt]?binom)(?![A-Za-z]))"),
    re.compile(rf"{_NUMBER}(?=\(|\\[dt]?binom(?![A-Za-z])|[A-Za-z]\s*\^\s*\{{?\s*0(?![0-9.]))"),
    re.compile(r"(\\[dt]?binom\s*\{[^{}]*\}\s*\{[^{}]*\})\s*(?=[(\[0-9]|\\(?:frac|[dt]?binom)(?![A-Za-z]))"),
)
_SHORT_BINOMIAL = re.compile(r"\\([dt]?)binom\s*([0-9A-Za-z])\s*([0-9A-Za-z])")
_BARE_GROUP = re.compile(r"(?<![A-Za-z0-9}\]_^\\*])\{\s*([0-9.]+)\s*\}")
_POWER_OF_TEN = re.compile(r"(?<![A-Za-z0-9\\.])([0-9]+(?:\.[0-9]+)?)[eE](\+?[0-9]{1,6})(?![0-9.A-Za-z])")
_SCIENTIFIC = re.compile(r"([-+]?[0-9]+(?:\.[0-9]+)?)[eE]([-+]?[0-9]{1,6})")


class TooLarge(ValueError):
    """A value has too many digits to be evaluated."""


@lru_cache(maxsize=256)
def parse(text: str) -> Any | None:
    """The sympy object that a cleaned LaTeX text writes as a whole, or None."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig
    from math_verify import parse as parse_response

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    if _BIG_BINOMIAL.search(text):
        raise TooLarge  # the parser would evaluate it
    text = _with_products(re.sub(r"(?<=\{)\s+|\s+(?=\})", "", plain_syntax(text)))
    if _TRIGONOMETRIC.search(text):
        text = _DEGREES.sub(r"(\1 \\cdot \\frac{\\pi}{180})", text)
    found = parse_response(
        f"${text}$",
        # Its removal of units would read 3t as 3 and 1/( e ) as 1/(.
        [
            LatexExtractionConfig(
                normalization_config=NormalizationConfig(
                    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
                )
            )
        ],
        fallback_mode="no_fallback",
        parsing_timeout=None,
    )
    return _with_imaginary_unit(found[0]) if found else None


def _with_products(text: str) -> str:
    """`text` with the product signs that the parser needs to see."""
    if number := _SCIENTIFIC.fullmatch(text.strip()):
        return rf"{number[1]} \cdot 10^{{{number[2]}}}"
    text = _POWER_OF_TEN.sub(r"(\1 \\cdot 10^{\2})", text)
    text = _SHORT_BINOMIAL.sub(r"\\\1binom{\2}{\3}", _BARE_GROUP.sub(r" \1 ", text))
    for pattern in _FACTORS:
        text = pattern.sub(r"\1 \\cdot ", text)
    return text


def _with_imaginary_unit(expression: Any) -> Any:
    """`expression` with the symbol i read as the imaginary unit, except where it counts a sum."""
    from sympy import Basic, I, MatrixBase, Product, Sum

    if not isinstance(expression, Basic | MatrixBase) or expression.has(Sum, Product):
        return expression
    units = {symbol: I for symbol in expression.free_symbols if getattr(symbol, "name", "") == "i"}
    return expression.xreplace(units) if units else expression


def equal(gold: str, prediction: str, policy: MathPolicy) -> tuple[bool, str]:
    """Whether two cleaned texts are the same expression, relation or set, and a word why."""
    try:
        left, right = parse(gold), parse(prediction)
        if left is None:
            return False, "gold_unparsed"
        if right is None:
            return False, "unparsed"
        return same(left, right, policy)
    except TooLarge:
        return False, "too_large"
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # sympy raises nearly everything on nonsense such as 1/0 inside a matrix
        logging.getLogger(__name__).debug("not comparable: %s", type(error).__name__)
        return False, "not_comparable"


def same(gold: Any, prediction: Any, policy: MathPolicy) -> tuple[bool, str]:
    """Whether two sympy objects are equal. Raises TooLarge."""
    from sympy import Expr, MatrixBase
    from sympy.core.relational import Relational

    for side in (gold, prediction):
        _check_magnitude(side)
    if isinstance(gold, MatrixBase) and isinstance(prediction, MatrixBase):
        if gold.shape != prediction.shape:
            return False, "shape"
        cells = zip(gold.flat(), prediction.flat(), strict=True)
        return all(same(a, b, policy)[0] for a, b in cells), "cells"
    if isinstance(gold, Expr) and isinstance(prediction, Expr):
        decided = _equal_values(gold, prediction, policy)
        if decided is not None:
            return decided, "value"
    if isinstance(gold, Relational) and isinstance(prediction, Relational):
        if _proportional(gold, prediction):
            return True, "equation"
        if not _solvable(gold, prediction):
            return False, "equation"
    return _verified(gold, prediction, policy), "math_verify"


def _solvable(*relations: Any) -> bool:
    """Whether solving can't take long: rational in its variables, with small exponents."""
    from sympy import Abs, Function, Pow, preorder_traversal

    for relation in relations:
        for node in preorder_traversal(relation):
            if isinstance(node, Function) and node.free_symbols and not isinstance(node, Abs):
                return False
            if not isinstance(node, Pow) or not node.free_symbols:
                continue
            if node.exp.free_symbols or not node.exp.is_Rational or abs(node.exp.p) > 6:
                return False
    return True


def _verified(gold: Any, prediction: Any, policy: MathPolicy) -> bool:
    from math_verify import verify

    return bool(
        verify(
            gold,
            prediction,
            strict=policy.variable_names == "matter",
            allow_set_relation_comp=policy.intervals == "notation_free",
            timeout_seconds=None,
        )
    )


def _check_magnitude(expression: Any) -> None:
    """Raise TooLarge where a number in the tree has more than MAX_MAGNITUDE digits; nothing is evaluated."""
    from sympy import Basic, Expr, Function, Integer, MatrixBase, Pow, exp, log

    if isinstance(expression, MatrixBase):
        for cell in expression.flat():
            _check_magnitude(cell)
        return
    stack = [expression] if isinstance(expression, Basic) else []
    while stack:
        node = stack.pop()
        stack.extend(node.args)
        if isinstance(node, Integer) and abs(node.p).bit_length() > MAX_MAGNITUDE * 3:
            raise TooLarge
        if isinstance(node, Pow | exp):
            base, exponent = node.as_base_exp()
            if isinstance(exponent, Expr) and not exponent.free_symbols:
                digits = 1.0 if base.free_symbols else max(1.0, _log10(base))
                if _small(exponent) * digits > MAX_MAGNITUDE:
                    raise TooLarge
            continue
        if not isinstance(node, Function) or isinstance(node, log):
            continue
        # factorials, gamma and the like grow faster than any power; sine of 1500 is no loss
        if any(_small(arg) > 1500 for arg in node.args if isinstance(arg, Expr) and not arg.free_symbols):
            raise TooLarge


def _small(expression: Any) -> float:
    """The value of a number of which nothing is known yet, or TooLarge."""
    _check_magnitude_below(expression)
    try:
        return abs(float(expression.evalf(8)))
    except (TypeError, OverflowError):
        return 1.0


def _check_magnitude_below(expression: Any) -> None:
    if expression.args:
        _check_magnitude(expression)


def _log10(expression: Any) -> float:
    value = _small(expression)
    return abs(math.log10(value)) if value else 0.0


def _equal_values(gold: Any, prediction: Any, policy: MathPolicy) -> bool | None:
    """Equality by value at points; None where the expressions can't be evaluated."""
    from sympy import Derivative, Float, Integral, Limit, Product, Sum

    unevaluated = (Integral, Sum, Limit, Derivative, Product)
    if gold.has(*unevaluated) or prediction.has(*unevaluated):
        gold, prediction = gold.doit(), prediction.doit()
    names, others = _names(gold), _names(prediction)
    if policy.variable_names == "free" and len(names) == len(others):
        prediction = prediction.subs(dict(zip(_symbols(prediction), _symbols(gold), strict=True)))
        others = names
    if names and others and not set(names) & set(others):
        return False
    rounded = gold.has(Float) or prediction.has(Float)
    everything = sorted({*names, *others})
    compared = False
    for number, point in enumerate(_POINTS):
        left, right = _at(gold, everything, point), _at(prediction, everything, point)
        verdict = _equal_at(left, right, rounded)
        if verdict is False and (number < 2 or _both_real(left, right)):
            return False
        compared = compared or verdict is True
        if not everything:
            break
    return True if compared else None


def _symbols(expression: Any) -> list[Any]:
    return sorted(expression.free_symbols, key=lambda symbol: symbol.name)


def _names(expression: Any) -> list[str]:
    return [symbol.name for symbol in _symbols(expression)]


def _at(expression: Any, names: list[str], point: tuple[str, ...]) -> Any:
    """`expression` with the i-th name set to the i-th coordinate; symbols count by name, not by
    assumptions.
    """
    from sympy import Rational

    values = {name: Rational(point[i % len(point)]) + i // len(point) for i, name in enumerate(names)}
    return expression.subs({symbol: values[symbol.name] for symbol in expression.free_symbols})


def _both_real(left: Any, right: Any) -> bool:
    return all(value.evalf(15).is_real for value in (left, right))


def _equal_at(gold: Any, prediction: Any, rounded: bool) -> bool | None:
    """Equality of two numbers; None where one has no value."""
    from sympy import oo, zoo

    if gold == prediction and gold.is_number and not gold.has(zoo):
        return True
    infinite = (oo, -oo)
    if gold in infinite or prediction in infinite:
        return bool(gold == prediction)
    left, right = gold.doit(), prediction.doit()
    if left.is_Rational and right.is_Rational and not rounded:
        return bool(left == right)
    magnitude = max(_digits_of(gold), _digits_of(prediction))
    if magnitude > MAX_MAGNITUDE:
        raise TooLarge
    digits = DIGITS + int(magnitude)
    a, b = gold.evalf(digits), prediction.evalf(digits)
    if not all(part.is_Float or part.is_Rational for value in (a, b) for part in value.as_real_imag()):
        return None
    difference = (gold - prediction).evalf(digits)
    size = max(abs(a), abs(b))
    limit = min(max(1, abs(a)) / 10**6, abs(a) / 10**4) if rounded else size / 10 ** (digits - 15)
    for part in difference.as_real_imag():
        if part.is_zero or getattr(part, "_prec", 0) == 1:
            continue
        if not (part.is_Float or part.is_Rational):
            return None
        if abs(part) > limit:
            return False
    return True


def _digits_of(expression: Any) -> float:
    """Decimal digits before the point."""
    from sympy import Abs, log

    size = Abs(expression.evalf(8))
    return max(0.0, float(log(size, 10).evalf(8))) if size.is_Float and not size.is_zero else 0.0


def _proportional(gold: Any, prediction: Any) -> bool | None:
    """Whether two equations or inequalities are constant multiples of each other (lhs - rhs).

    A negative factor turns an inequality around.
    """
    from sympy import Eq, Ne

    left, right = gold.lhs - gold.rhs, prediction.lhs - prediction.rhs
    names = _names(left)
    if names != _names(right) or not names:
        return None
    ratios = []
    for point in _POINTS[:2]:
        value = (_at(left, names, point) / _at(right, names, point)).evalf(DIGITS)
        if not value.is_Float or value.is_zero:
            return None
        ratios.append(value)
    if abs(ratios[0] - ratios[1]) > abs(ratios[0]) / 10**20:
        return False
    if isinstance(gold, Eq | Ne):
        return isinstance(prediction, type(gold))
    return isinstance(prediction, type(gold if ratios[0] > 0 else gold.reversed))
