"""Finds evaluation questions in a pool of training questions: word for word, by long n-grams, and nearly.

`exact`: the normalised texts are equal. `ngram`: both hold the same n words in a row. `near`: MinHash with locality
sensitive hashing (Broder 1997; Indyk and Motwani 1998; the package datasketch) proposes pairs of like words and
numbers, and a pair counts where its likeness reaches the threshold:

    likeness = (1 − w) · J(words) + w · J(numbers)

J(words) is the Jaccard similarity of the word sets, J(numbers) that of the multisets of numbers: the same text with
other numbers is another question. Texts are tokenised as English is; in other languages with spaces everything works
but number words. Weights and threshold: docs/contamination.md.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reasoner.config.contamination import ContaminationConfig
from reasoner.records import Problem, Record, normalised_text

VERSION = 1
"""Part of the stage's key; counts up when other pairs may match."""

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+")
NUMBER_COPIES = 5
_WORDS = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBER_WORDS = {word: str(value) for value, word in enumerate(_WORDS.split())}


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


def features(text: str) -> Features:
    """Word set without numbers, the numbers, and all tokens."""
    text = text.replace("’s", "").replace("'s", "")
    tokens = tuple(_TOKEN.findall(text.casefold()))
    numbers: Counter[str] = Counter()
    words = set()
    for token in tokens:
        token = NUMBER_WORDS.get(token, token)
        if token[0].isdigit():
            numbers[_plain_number(token)] += 1
        else:
            words.add(token)
    return Features(frozenset(words), numbers, tokens)


def _plain_number(token: str) -> str:
    token = token.replace(",", "")
    return token.rstrip("0").rstrip(".") if "." in token else token


class Pool:
    """Training questions, ready to be searched. Building it costs about a millisecond a question."""

    def __init__(self, problems: Sequence[Problem], config: ContaminationConfig) -> None:
        from datasketch import MinHashLSH

        self._config, self._problems = config, list(problems)
        self._features = [features(p.question) for p in self._problems]
        self._exact: dict[str, int] = {}
        self._ngrams: dict[int, int] = {}
        for number, problem in enumerate(self._problems):
            self._exact.setdefault(normalised_text(problem.question), number)
            for gram in self._grams(self._features[number]):
                self._ngrams.setdefault(gram, number)
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
        """From 0 to 1; questions without numbers on both sides are compared by their words alone."""
        words = len(a.words & b.words) / len(a.words | b.words) if a.words or b.words else 1.0
        if not a.numbers and not b.numbers:
            return words
        weight = self._config.numbers
        return (1 - weight) * words + weight * multiset_jaccard(a.numbers, b.numbers)

    def _match(self, problem: Problem, own: Features, sketch: Any, set_name: str) -> Match | None:
        # A training question that rephrases the evaluation question (`original`) is in its group.
        exact = self._exact.get(normalised_text(problem.question), self._groups.get(problem.group))
        if exact is not None:
            return self._made(problem, exact, "exact", 1.0, set_name)
        numbers = (number for gram in self._grams(own) if (number := self._ngrams.get(gram)) is not None)
        ngram = next(numbers, None)
        if ngram is not None:
            return self._made(problem, ngram, "ngram", self.likeness(own, self._features[ngram]), set_name)
        best, number = max(
            ((self.likeness(own, self._features[n]), n) for n in self._lsh.query(sketch)),
            key=lambda pair: (pair[0], -pair[1]),
            default=(0.0, -1),
        )
        return self._made(problem, number, "near", best, set_name) if best >= self._config.threshold else None

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


def multiset_jaccard(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """Intersection over union of two multisets; two empty ones are equal."""
    union = sum(max(a.get(key, 0), b.get(key, 0)) for key in {*a, *b})
    return sum(min(count, b.get(key, 0)) for key, count in a.items()) / union if union else 1.0


def search(
    train: Sequence[Problem], evaluation: Mapping[str, Sequence[Problem]], config: ContaminationConfig
) -> list[Match]:
    """The best match of every evaluation question that has one in `train`."""
    pool = Pool(train, config)
    return [match for name, problems in evaluation.items() for match in pool.search(problems, name)]
