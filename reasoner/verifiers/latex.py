"""LaTeX and plain mathematics as one spelling, cut at its own separators.

Covers spellings that mean the same (delimiters, spacing, `\\dfrac`, Unicode signs, `sqrt(2)`), brackets, and
cutting at top level. Does not read values: that is equivalence.py and expressions.py. Linear in the length of
the text.
"""

import re
import unicodedata
from functools import lru_cache

MAX_LENGTH = 8000
"""Longer texts are no answers and are left as they are."""

_UNICODE = {
    **dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d", "-"),
    **dict.fromkeys("\u00a0\u2009\u202f\u2007\u2005\u3000", " "),
    "×": r"\times ", "÷": "/", "·": r"\cdot ", "⋅": r"\cdot ", "∗": "*", "π": r"\pi ", "∞": r"\infty ",
    "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ",
    "∈": r"\in ", "°": r"^{\circ}", "±": r"\pm ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ",
    "≈": r"\approx ", "′": "'", "’": "'", "…": r"\ldots ", "ℝ": r"\mathbb{R}", "∅": r"\emptyset ", "，": ", ",
    "。": ".", "：": ":", "；": ";", "（": "(", "）": ")",
}  # fmt: skip
_TABLE = str.maketrans(_UNICODE)
_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_SUPERSCRIPT_TABLE = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_ROOT = re.compile(r"√\s?(?:\(([^()]*)\)|([0-9.]+|[A-Za-z]))")
_VULGAR = re.compile("[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]")

_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<!\\)\\[()\[\]]|(?<!\\)\$+", " "),
        (r"(?<![0-9A-Za-z)}*])(\*\*?)([A-Za-z$][^*]*|[^*]+(?=\*\*))\1(?![0-9A-Za-z(*])", r"\2"),
        (
            r"\\(?:displaystyle|textstyle|limits|nolimits|big|Big|bigg|Bigg|bigl|bigr|Bigl|Bigr)(?![A-Za-z])",
            "",
        ),
        (r"\\(?:left|right|middle)\s*\.", " "),
        (r"\\(?:left|right|middle)(?![A-Za-z])", ""),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:boxed|fbox)(?![A-Za-z])(?!\s*\{)", ""),
        (r"(?<=[0-9])(?:\{,\}|,\\!\s?|\\,)(?=[0-9]{3}(?![0-9]))", ","),
        (r"(?<!\\)\\[,!;:> ]|(?<!\\)~|\\q?quad(?![A-Za-z])|\\(?:hspace|vspace)\*?\{[^{}]*\}", " "),
        (r"\\\$", " $ "),
        (r"\\([%&#])", r"\1"),
        (r"\\l?dots(?![A-Za-z])|\\cdots(?![A-Za-z])|\.\.\.", r"\\ldots "),
        (r"\\leq?s?lant(?![A-Za-z])|\\leq(?![A-Za-z])|<=", r"\\le "),
        (r"\\geq?s?lant(?![A-Za-z])|\\geq(?![A-Za-z])|>=", r"\\ge "),
        (r"\\neq(?![A-Za-z])|!=", r"\\ne "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"(?<![0-9.])\.(?=[0-9])", "0."),
        (r"(?<=[0-9)\]}])\s*(and|or)(?=[A-Z(\[\\0-9-])", r" \1 "),
        (r"\\(?:land|wedge)(?![A-Za-z])", " and "),
        (r"\\lg(?![A-Za-z])", r"\\log_{10} "),
        (r"\\(?:lor|vee)(?![A-Za-z])", " or "),
        (r"\\degree(?![A-Za-z])|\^\s?\\circ(?![A-Za-z])|\^\s?\{\s?\\circ\s?\}", r"^{\\circ}"),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"(?:\\varnothing|\\emptyset)(?![A-Za-z])", r"\\emptyset "),
    )
)
_WRAPPER = re.compile(
    r"\\(text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mathsf|mathnormal|operatorname|mbox|emph|bm|boldsymbol)"
    r"\s*\{([^{}]*)\}"
)
_FUNCTIONS = "sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|sinh|cosh|tanh|log|ln"
_GREEK = "alpha|beta|gamma|delta|epsilon|theta|lambda|mu|pi|rho|sigma|tau|phi|omega"
_PLAIN_NAME = re.compile(rf"(?<![\\A-Za-z])({_FUNCTIONS}|{_GREEK})(?![A-Za-z])")
_PLAIN_CALL = re.compile(r"(?<![\\A-Za-z])(sqrt|exp)\s*\(")
_INFINITY = re.compile(r"(?<![\\A-Za-z])(?:infinity|inf|oo)(?![A-Za-z])")
_DOUBLED = re.compile(
    r"(?<!\\)\\\\(?=(?:boxed|fbox|[dtc]?frac|sqrt|left|right|text(?:bf|rm|it)?|mathrm|mathbf|mathbb|begin|end|pi|theta|alpha|infty"
    r"|cup|cap|in|leq?|geq?|neq?|pm|cdot|times|circ|q?quad|sin|cos|tan|log|ln)(?![A-Za-z]))"
)
_OPEN = frozenset(("(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil"))
_CLOSE = frozenset((")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil"))
_TOKEN = re.compile(r"\\(?:begin|end)\s*\{[A-Za-z*]*\}|\\[A-Za-z]+|\\.|[A-Za-z]+|.", re.DOTALL)


@lru_cache(maxsize=512)
def clean(text: str, overescaped: bool = True) -> str:
    """`text` in one spelling, without delimiters, spacing commands, emphasis and a final full stop."""
    if len(text) > MAX_LENGTH:
        return text.strip()
    if overescaped:
        text = unescape(text)
    if not text.isascii():
        text = _SUPERSCRIPT.sub(lambda m: "^{" + m[0].translate(_SUPERSCRIPT_TABLE) + "}", text)
        text = _VULGAR.sub(_vulgar, text).translate(_TABLE)
        text = _ROOT.sub(lambda m: rf"\sqrt{{{m[1] or m[2]}}}", text)
        text = unicodedata.normalize("NFKC", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = re.sub(r"\s+", " ", text).strip()
    for _ in range(20):
        stripped = text.strip(" .,;:*`_").removesuffix("\\").strip()
        if (
            stripped[:1] == "{"
            and closing(stripped, 0) == len(stripped) - 1
            and len(cut(stripped[1:-1])) == 1
        ):
            stripped = stripped[1:-1]
        if stripped.startswith("\\boxed{") and closing(stripped, 6) == len(stripped) - 1:
            stripped = stripped[7:-1]
        if stripped == text:
            break
        text = stripped
    return text


def _vulgar(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match[0]).partition("\u2044")
    return rf"\frac{{{top}}}{{{bottom}}}"


def unescape(text: str) -> str:
    """`text` with the doubled backslash of `\\\\frac` and the like made single.

    A row break directly before a bare command name is no LaTeX that anybody writes, so nothing real is lost.
    """
    return _DOUBLED.sub(r"\\", text) if "\\\\" in text else text


def words_of(text: str) -> str:
    """`text` with `\\text{…}` and its relatives replaced by what they hold, set off by spaces."""
    for _ in range(4):
        text, count = _WRAPPER.subn(r" \2 ", text)
        if not count:
            break
    return re.sub(r"\s+", " ", text).strip()


def plain_syntax(text: str) -> str:
    """Computer algebra spellings in LaTeX: `sqrt(2)`, `exp(x)`, `pi`, `x**2`, `*`."""
    text = re.sub(r"\\(?:mathrm|text|operatorname)\s*\{\s*([A-Za-z])\s*\}", r"\1", text).replace("**", "^")
    text = _INFINITY.sub(r"\\infty ", _PLAIN_NAME.sub(r"\\\1 ", text))
    while match := _PLAIN_CALL.search(text):
        end = closing(text, match.end() - 1)
        if end < 0:
            break
        inner = text[match.end() : end]
        call = rf"\sqrt{{{inner}}}" if match[1] == "sqrt" else f"e^{{{inner}}}"
        text = text[: match.start()] + call + text[end + 1 :]
    return text


def closing(text: str, start: int) -> int:
    """The position of the bracket that closes the one at `start`, whatever kinds are inside; -1 if none
    does.
    """
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += _step(token[0])
        if depth == 0:
            return token.end() - 1
    return -1


def cut(text: str, separators: str | tuple[str, ...] = ",", words: tuple[str, ...] = ()) -> list[str]:
    """The parts of `text` between top-level separators; `words` are separators too. Unbalanced text is one
    part.
    """
    depth, start = 0, 0
    parts: list[str] = []
    for token in _TOKEN.finditer(text):
        kind = token[0]
        depth += _step(kind)
        if depth < 0:
            return [text]
        if depth == 0 and (kind in separators or kind in words):
            parts.append(text[start : token.start()].strip())
            start = token.end()
    if depth:
        return [text]
    parts.append(text[start:].strip())
    return parts


def _step(token: str) -> int:
    if token in _OPEN or token.startswith("\\begin"):
        return 1
    return -1 if token in _CLOSE or token.startswith("\\end") else 0
