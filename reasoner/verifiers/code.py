"""Verdicts on model-written code, from values that leave a sandbox; see `reasoner.sandbox`.

MBPP style: a program and a list of Python statements. HumanEval style: a prompt, a completion, and a test
that defines `check(candidate)`. The candidate runs in one sandbox; expected values stay in this process,
or, for tests that are more than `call == literal`, in a second sandbox that sees only plain values of the
first.

A program is correct when every test passes. What the candidate does wrong is `incorrect`; a test that cannot
be run, or a sandbox that failed, makes the verdict `unscored`. Not covered: code that needs packages beyond
the standard library, tests on objects that are not plain data (a class under test, callbacks given to the
candidate by a test of the second kind).
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Event

from reasoner.records import Outcome, Record, Verdict
from reasoner.sandbox.jobs import Limits, Result, Status
from reasoner.sandbox.pool import stream_map
from reasoner.sandbox.sandbox import Sandbox
from reasoner.sandbox.session import Session
from reasoner.sandbox.tester import TesterJob, run_tests
from reasoner.verifiers.asserts import Question, TestPlan, plan_tests
from reasoner.verifiers.extract_code import Extracted, complete_prompt, extract_code
from reasoner.verifiers.hacks import hack_signs

VERSION = "1"
"""Goes into stage keys: raise it when a verdict could change."""
TIMEOUT_SECONDS = 10.0
"""Wall-clock limit of a candidate with all its tests."""
OUTPUT_KIB = 4096
"""Bytes of all answers to all tests of a problem."""


@dataclass(frozen=True, slots=True)
class CodeItem:
    """A response and the tests of its problem (MBPP style)."""

    program: str
    """The whole response: fenced or bare."""
    tests: tuple[str, ...]
    setup: str = ""
    """Runs after the program, in its namespace (MBPP's `test_setup_code`)."""
    imports: tuple[str, ...] = ()
    """Import statements that the tests need (sanitized MBPP's `test_imports`)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tests", tuple(self.tests))
        object.__setattr__(self, "imports", tuple(self.imports))


@dataclass(frozen=True, slots=True)
class PromptItem:
    """A completion of a prompt (HumanEval style): `test` defines `check(candidate)`."""

    prompt: str
    completion: str
    test: str
    entry_point: str


@dataclass(frozen=True, slots=True)
class TestResult(Record):
    """One test: `reason` is `pass`, `assert_fail`, `unsupported_test` or the status word of the sandbox."""

    __test__ = False
    test: str
    reason: str
    detail: str = ""

    @property
    def passed(self) -> bool:
        return self.reason == "pass"


@dataclass(frozen=True, slots=True)
class CodeVerdict:
    """The verdict on a program, with its tests. `verdict.reason` is that of the first test that failed."""

    verdict: Verdict
    tests: tuple[TestResult, ...] = ()
    tester_tests: int = 0
    """How many tests needed the second sandbox."""
    signs: tuple[str, ...] = ()
    """Signs of an attack on the judge (`reasoner.verifiers.hacks`); they change no verdict."""

    @property
    def fraction(self) -> float:
        """Share of the tests that passed; 0 where there are none."""
        return sum(t.passed for t in self.tests) / len(self.tests) if self.tests else 0.0


def verify_code(
    item: CodeItem | PromptItem,
    sandbox: Sandbox | None = None,
    *,
    timeout: float = TIMEOUT_SECONDS,
    cancel: Event | None = None,
) -> CodeVerdict:
    """Judge one program. Raises SandboxUnavailableError where programs cannot be isolated."""
    sandbox = sandbox or Sandbox.detect()
    started = time.monotonic()
    limits = replace(sandbox.limits, wall_seconds=timeout, output_kib=OUTPUT_KIB)
    try:
        found, plan, setup, preamble = _prepare(item)
    except (SyntaxError, ValueError, RecursionError) as error:
        return CodeVerdict(Verdict(Outcome.UNSCORED, "bad_test", f"{type(error).__name__}: {error}"))
    if not plan.tests:
        return CodeVerdict(Verdict(Outcome.UNSCORED, "no_tests"))
    if not found.code.strip():
        return CodeVerdict(Verdict(Outcome.INCORRECT, "unparsed"))
    with Session(sandbox, found.code, setup=setup, limits=limits, cancel=cancel) as session:
        results = _run(sandbox, session, plan, preamble, limits, cancel)
        load = session.load
    verdict = _verdict(found, load, results, time.monotonic() - started)
    return CodeVerdict(verdict, results, len(plan.tests) - plan.split, _signs(item, found))


def stream_verdicts(
    items: Iterable[CodeItem | PromptItem],
    *,
    workers: int | None = None,
    timeout: float = TIMEOUT_SECONDS,
    sandbox: Sandbox | None = None,
) -> Iterator[tuple[int, CodeVerdict]]:
    """Yield `(i, verdict)` of the i-th item as soon as it is known; `workers` items at a time (the cores)."""
    found = sandbox or Sandbox.detect()
    return stream_map(
        lambda item, cancel: verify_code(item, found, timeout=timeout, cancel=cancel), items, workers
    )


def _prepare(item: CodeItem | PromptItem) -> tuple[Extracted, TestPlan, str, str]:
    """The program, the plan of its tests, the set-up for the candidate and the preamble for the tester."""
    if isinstance(item, CodeItem):
        preamble = "\n".join(item.imports)
        plan = plan_tests(item.tests, preamble)
        return extract_code(item.program, plan.function), plan, item.setup, preamble
    # The prompt's own helpers serve the test; those of the completion cannot replace them there.
    preamble = f"{item.prompt.rstrip()}\n    pass\n\n{item.test}\n"
    call = f"check({item.entry_point})"
    plan = replace(plan_tests([call], preamble), questions=(None,), stubs=(item.entry_point,))
    return complete_prompt(item.prompt, item.completion, item.entry_point), plan, "", preamble


def _signs(item: CodeItem | PromptItem, found: Extracted) -> tuple[str, ...]:
    """Signs in what the model wrote, which a prompt is not."""
    if isinstance(item, CodeItem):
        return hack_signs(found.code, item.tests)
    return hack_signs(item.completion, (item.test,))


def _run(
    sandbox: Sandbox,
    session: Session,
    plan: TestPlan,
    preamble: str,
    limits: Limits,
    cancel: Event | None,
) -> tuple[TestResult, ...]:
    results: list[TestResult | None] = [
        None if questions is None else _ask(session, test, questions)
        for test, questions in zip(plan.tests, plan.questions, strict=True)
    ]
    left = [index for index, result in enumerate(results) if result is None]
    if left and session.stopped is not None:
        for index in left:
            results[index] = _failed(plan.tests[index], session.stopped)
    elif left:
        job = TesterJob(
            statements=[plan.tests[index] for index in left],
            stubs={name: name for name in plan.stubs},
            modules=plan.modules,
            preamble=preamble,
        )
        rest = replace(limits, wall_seconds=session.seconds_left)
        outcomes = run_tests(sandbox, session, job, rest, cancel=cancel)
        for index, outcome in zip(left, outcomes, strict=True):
            reason = "unsupported_test" if outcome.outcome == "unsupported" else outcome.outcome
            results[index] = TestResult(plan.tests[index], reason, outcome.detail[:500])
    return tuple(result for result in results if result is not None)


def _ask(session: Session, test: str, questions: Sequence[Question]) -> TestResult:
    for question in questions:
        result = session.evaluate(question.expression)
        if result.status is Status.BAD_VALUE and session.stopped is None:
            return TestResult(test, "assert_fail", f"not plain data: {result.message}")
        if not result.ok:
            return _failed(test, result)
        if not question.holds(result.value):
            return TestResult(test, "assert_fail", _shown(result.value))
    return TestResult(test, "pass")


def _shown(value: object) -> str:
    """A value in at most 200 characters (an integer of any size: `repr` refuses long ones)."""
    if isinstance(value, int) and value.bit_length() > 4096:
        return f"an integer of {value.bit_length()} bits"
    try:
        return repr(value)[:200]
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"


def _failed(test: str, result: Result) -> TestResult:
    return TestResult(test, result.status.value, f"{result.type_name} {result.message}".strip()[:500])


def _verdict(found: Extracted, load: Result, results: Sequence[TestResult], seconds: float) -> Verdict:
    """One word for all: the program's own failure goes before one of the tests or the sandbox."""
    code = found.code
    if load.status is Status.HARNESS_ERROR:
        return Verdict(Outcome.UNSCORED, "harness_error", code, seconds)
    if load.status is Status.SYNTAX_ERROR and not found.fenced:
        return Verdict(Outcome.INCORRECT, "unparsed", None, seconds)
    if not load.ok:
        return Verdict(Outcome.INCORRECT, load.status.value, code, seconds)
    ours = ("unsupported_test", Status.HARNESS_ERROR.value)
    failed = [r.reason for r in results if not r.passed]
    theirs = [reason for reason in failed if reason not in ours]
    if theirs:
        return Verdict(Outcome.INCORRECT, theirs[0], code, seconds)
    if failed:
        return Verdict(Outcome.UNSCORED, failed[0], code, seconds)
    return Verdict(Outcome.CORRECT, "pass", code, seconds)
