"""Finds evaluation questions in a pool of training questions: word for word, by long n-grams, and nearly.

`exact`: the normalised texts are equal. `ngram`: both hold the same n words in a row, and enough of the numbers of the
one that has fewer stand in the other. `near`: MinHash with locality sensitive hashing (Broder 1997; Indyk and Motwani
1998; the package datasketch) proposes pairs of like words and numbers, and a pair counts where its likeness reaches the
threshold:

    likeness = text^(1 − w) · numbers^w
    text     = (J(words) + J(neighbours) + J(near pairs)) / 3
    numbers  = (J(numbers) + order(numbers)) / 2

J(words) is the weighted Jaccard similarity of the word sets, a word weighing its inverse document frequency in the
pool (idf = ln(1 + (1 + N) / (1 + n)), Spärck Jones 1972, smoothed): questions share their common words by chance, rare
ones when they are one question. Neighbours are two tokens in a row, near pairs two at most NEAR places apart in their
order (skip-bigrams, Lin and Och 2004), every number masked: they tell a text that is built alike from one that has some
words of it. J(numbers) is that of the multisets of numbers, order(numbers) the length of their longest common
subsequence, as Dice's coefficient. The same text with other numbers is another question, and the geometric mean lets no
likeness of the one make up for a want of the other. Texts are tokenised as English is; in other languages with spaces
everything works but number words. Weights and thresholds: docs/contamination.md.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from reasoner.config.contamination import ContaminationConfig
from reasoner.records import Problem, Record, normalised_text

VERSION = 3
"""Part of the stage's key; counts up when other pairs may match."""

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+")
NUMBER_COPIES = 5
NEAR = 3
"""Places that the two tokens of a near pair are apart at most."""
MASK = "#"
_WORDS = "two three four five six seven eight nine ten eleven twelve"
NUMBER_WORDS = {
    "zero": "0", **{word: str(value) for value, word in enumerate(_WORDS.split(), 2)},
    "twice": "2", "double": "2", "thrice": "3", "triple": "3",
}  # fmt: skip
"""Words that are read as numbers. `one` is not among them: it mostly stands for a thing or for nobody."""


@dataclass(frozen=True, slots=True)
class Match(Record):
    """A training question that is an evaluation question."""

    set_name: str
    kind: str
    """`exact`, `ngram` or `near`, the strongest that holds."""
    likeness: float
    evaluation_id: str
    train_id: str
    evaluation_text: str
    train_text: str


@dataclass(frozen=True, slots=True)
class Features:
    """What a question is compared by."""

    words: frozenset[str]
    numbers: Mapping[str, int]
    """Number as text, and how often it stands there."""
    tokens: tuple[str, ...]
    """All words and numbers, in order, for n-grams."""
    order: tuple[str, ...]
    """The numbers, in order."""
    masked: tuple[str, ...]
    """All tokens, in order, every number as MASK."""


def features(text: str) -> Features:
    """Word set without numbers, the numbers, and all tokens."""
    text = text.replace("’s", "").replace("'s", "")
    tokens = tuple(_TOKEN.findall(text.casefold()))
    read = [NUMBER_WORDS.get(token, token) for token in tokens]
    order = tuple(_plain_number(token) for token in read if token[0].isdigit())
    words = frozenset(token for token in read if not token[0].isdigit())
    masked = tuple(MASK if token[0].isdigit() else token for token in read)
    return Features(words, Counter(order), tokens, order, masked)


def _plain_number(token: str) -> str:
    token = token.replace(",", "")
    return token.rstrip("0").rstrip(".") if "." in token else token


class Pool:
    """Training questions, ready to be searched. Building it costs about a millisecond a question."""

    def __init__(self, problems: Sequence[Problem], config: ContaminationConfig) -> None:
        from datasketch import MinHashLSH

        self._config, self._problems = config, list(problems)
        self._features = [features(p.question) for p in self._problems]
        self._holding = Counter(word for one in self._features for word in one.words)
        self._exact: dict[str, int] = {}
        self._ngrams: dict[int, int] = {}
        self._again: dict[int, list[int]] = {}
        """Further questions that hold an n-gram, which few n-grams have."""
        for number, problem in enumerate(self._problems):
            self._exact.setdefault(normalised_text(problem.question), number)
            for gram in self._grams(self._features[number]):
                if self._ngrams.setdefault(gram, number) != number:
                    self._again.setdefault(gram, []).append(number)
        self._groups = {
            problem.group: number for number, problem in reversed(list(enumerate(self._problems)))
        }
        self._lsh = MinHashLSH(threshold=config.candidates, num_perm=config.permutations, weights=(0.1, 0.9))
        with self._lsh.insertion_session() as session:
            for number, sketch in enumerate(self._sketches(self._features)):
                session.insert(number, sketch)

    def search(self, problems: Sequence[Problem], set_name: str) -> list[Match]:
        """The best match of each evaluation question that has one, in their order."""
        found = []
        every = [features(p.question) for p in problems]
        for problem, own, sketch in zip(problems, every, self._sketches(every), strict=True):
            match = self._match(problem, own, sketch, set_name)
            if match is not None:
                found.append(match)
        return found

    def likeness(self, a: Features, b: Features) -> float:
        """From 0 to 1; questions without numbers on both sides are compared by their text alone."""
        if not a.numbers and not b.numbers:
            return self._text(a, b)
        weight = self._config.numbers
        counted = (multiset_jaccard(a.numbers, b.numbers) + common_order(a.order, b.order)) / 2
        if counted**weight < self._config.threshold:  # no text makes up for that
            return 0.0
        return float(self._text(a, b) ** (1 - weight) * counted**weight)

    def _text(self, a: Features, b: Features) -> float:
        words = 1.0
        if a.words or b.words:
            shared, union = (
                sum(map(self.weight, sorted(some))) for some in (a.words & b.words, a.words | b.words)
            )
            words = shared / union
        neighbours, near = (jaccard(pairs(a.masked, n), pairs(b.masked, n)) for n in (1, NEAR))
        return (words + neighbours + near) / 3

    def weight(self, word: str) -> float:
        """Inverse document frequency in the pool; at least ln 2, for a word of every question."""
        return math.log(1 + (1 + len(self._problems)) / (1 + self._holding[word]))

    def _match(self, problem: Problem, own: Features, sketch: Any, set_name: str) -> Match | None:
        # A training question that rephrases the evaluation question (`original`) is in its group.
        exact = self._exact.get(normalised_text(problem.question), self._groups.get(problem.group))
        if exact is not None:
            return self._made(problem, exact, "exact", 1.0, set_name)
        ngram = next(self._quoting(own), None)
        if ngram is not None:
            return self._made(problem, ngram, "ngram", self.likeness(own, self._features[ngram]), set_name)
        best, number = max(
            ((self.likeness(own, self._features[n]), n) for n in self._lsh.query(sketch)),
            key=lambda pair: (pair[0], -pair[1]),
            default=(0.0, -1),
        )
        counted = bool(own.numbers or (number >= 0 and self._features[number].numbers))
        enough = self._config.threshold if counted else self._config.threshold_of_words
        return self._made(problem, number, "near", best, set_name) if best >= enough else None

    def _quoting(self, own: Features) -> Iterator[int]:
        """Training questions that share n words in a row and most numbers."""
        for gram in self._grams(own):
            first = self._ngrams.get(gram)
            for number in () if first is None else (first, *self._again.get(gram, ())):
                if overlap(own.numbers, self._features[number].numbers) >= self._config.ngram_numbers:
                    yield number

    def _made(self, problem: Problem, number: int, kind: str, likeness: float, set_name: str) -> Match:
        other = self._problems[number]
        texts = (" ".join(one.question.split())[:300] for one in (problem, other))
        return Match(set_name, kind, round(likeness, 4), problem.id, other.id, *texts)

    def _grams(self, one: Features) -> Iterable[int]:
        size = self._config.ngram
        return (hash(one.tokens[i : i + size]) for i in range(len(one.tokens) - size + 1))

    def _sketches(self, every: Sequence[Features]) -> Iterable[Any]:
        from datasketch import MinHash

        sets = [sorted(token.encode() for token in sketched(one)) for one in every]
        return MinHash.generator(sets, num_perm=self._config.permutations, seed=1)


def sketched(one: Features) -> set[str]:
    """What MinHash sees: the words, and each number as several tokens, since numbers weigh more than words."""
    numbers = {
        f"#{number}/{place}/{copy}"
        for number, count in one.numbers.items()
        for place in range(count)
        for copy in range(NUMBER_COPIES)
    }
    return {*one.words, *numbers}


@lru_cache(maxsize=4096)
def pairs(tokens: tuple[str, ...], apart: int) -> frozenset[tuple[str, str]]:
    """Ordered pairs of tokens at most `apart` places from each other."""
    gaps = range(1, apart + 1)
    return frozenset(pair for gap in gaps for pair in zip(tokens, tokens[gap:], strict=False))


def jaccard(a: Set[Any], b: Set[Any]) -> float:
    """Intersection over union; two empty sets are equal."""
    return len(a & b) / len(a | b) if a or b else 1.0


def common_order(a: Sequence[str], b: Sequence[str]) -> float:
    """Twice the length of the longest common subsequence over the sum of the lengths; two empty ones are equal."""
    if not a and not b:
        return 1.0
    longest = [0] * (len(b) + 1)  # of what was read of `a`, with the first n of `b`
    for one in a:
        before = 0
        for n, other in enumerate(b, 1):
            before, longest[n] = longest[n], before + 1 if one == other else max(longest[n], longest[n - 1])
    return 2 * longest[-1] / (len(a) + len(b))


def multiset_jaccard(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """Intersection over union of two multisets; two empty ones are equal."""
    union = sum(max(a.get(key, 0), b.get(key, 0)) for key in {*a, *b})
    return sum(min(count, b.get(key, 0)) for key, count in a.items()) / union if union else 1.0


def overlap(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """Of the smaller multiset the share that the larger one holds; 1 where one is empty."""
    fewer = min(sum(a.values()), sum(b.values()))
    return sum(min(count, b.get(key, 0)) for key, count in a.items()) / fewer if fewer else 1.0


def search(
    train: Sequence[Problem], evaluation: Mapping[str, Sequence[Problem]], config: ContaminationConfig
) -> list[Match]:
    """The best match of every evaluation question that has one in `train`."""
    pool = Pool(train, config)
    return [match for name, problems in evaluation.items() for match in pool.search(problems, name)]
