"""The HTML report in a real browser, offline, from a file.

Wrong if it asks for anything but itself, logs an error, runs what a model wrote, filters or finds other rows than the
data have, holds all rows in the document at once, cannot be used from the keyboard, or shows a diff that is not one.
"""

import json
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from reasoner.home import Home
from reasoner.report.html.build import TEMPLATES, build, write_html
from tests.support.chromium import HOW, Chromium, find_chromium
from tests.support.report_runs import Runs

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

SHOWN = "[...document.querySelectorAll('.row')].map(r => r.innerText.replace(/\\s+/g, ' '))"
TRACE = "document.getElementById('trace-body').innerText"
NAMED = ("button", "combobox", "searchbox", "link", "image", "grid", "region")
"""Roles that say nothing without a name."""
COUNT = "document.getElementById('shown').innerText"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    program = find_chromium()
    if program is None:
        pytest.skip(HOW)
    with Chromium(program) as found:
        yield found


@pytest.fixture(autouse=True)
def calm(browser: Chromium) -> Iterator[None]:
    """No test may leave an error or a request to anywhere behind."""
    browser.errors.clear()
    browser.requests.clear()
    yield
    browser.evaluate("1")  # what the page has sent until now
    assert browser.errors == []
    assert all(address.startswith(("file:", "about:", "blob:")) for address in browser.requests), (
        browser.requests
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One hostile run of each method; the SMART run has more rows than fit a screen."""
    home = tmp_path_factory.mktemp("home")
    runs = Runs(home, hostile=True)
    made = {
        "smart": runs.smart(pool=40, held_out=150),
        "planner": runs.planner(6),
        "multiturn": runs.multiturn(8),
    }
    return {name: write_html(folder, Home(home), chat=False)[0] for name, folder in made.items()}


def choose(browser: Chromium, facet: str, value: str) -> None:
    """A choice of a filter, as a person's change."""
    browser.evaluate(
        f"(() => {{ const s = document.getElementById('f-{facet}'); s.value = {json.dumps(value)}; "
        "s.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def search(browser: Chromium, words: str, rows: str) -> None:
    """Type into the search field and wait for the count."""
    browser.evaluate(
        "document.getElementById('search').value = ''; document.getElementById('search').focus()"
    )
    browser.insert(words)
    browser.wait(f"{COUNT}.startsWith({json.dumps(rows)})")


def test_it_opens_offline_with_few_rows_in_the_document(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["smart"])
    assert browser.evaluate(COUNT) == "870"
    assert 10 < browser.evaluate("document.querySelectorAll('.row').length") < 60
    browser.evaluate("document.getElementById('list').scrollTop = 1e9")
    browser.wait("document.getElementById('row-869') !== null")
    assert browser.evaluate("document.querySelectorAll('.row').length") < 60


@pytest.mark.parametrize("method", ["smart", "planner", "multiturn"])
def test_nothing_that_a_model_wrote_runs(browser: Chromium, pages: dict[str, Path], method: str) -> None:
    browser.open(pages[method])
    for position in (0, 1, 5):
        browser.evaluate(f"document.getElementById('row-{position}').click()")
        browser.wait(f"{TRACE}.includes('window.pwned=1')")
        browser.evaluate("document.getElementById('trace-close').click()")
    assert browser.evaluate("window.pwned === undefined && document.images.length === 0")
    assert browser.evaluate("document.querySelectorAll('script:not([type])').length") == 1


@pytest.mark.parametrize("method", ["smart", "planner", "multiturn"])
def test_a_narrow_window_scrolls_tables_and_not_the_page(
    browser: Chromium, pages: dict[str, Path], method: str
) -> None:
    browser.size(400, 860)
    browser.open(pages[method])
    wide, seen = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    browser.size(1440, 900)
    assert wide == seen == 400


def test_a_filter_with_one_choice_is_left_out(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["smart"])
    shown = {
        name: browser.evaluate(f"document.getElementById('f-{name}').offsetParent !== null")
        for name in ("outcome", "strategy", "arm", "split", "dataset")
    }
    choices = {
        name: browser.evaluate(f"document.getElementById('f-{name}').options.length - 1") for name in shown
    }
    assert shown == {name: count > 1 for name, count in choices.items()}


def test_filters_give_the_rows_that_the_data_have(browser: Chromium, pages: dict[str, Path]) -> None:
    _, collection = build(pages["smart"].parent, Home(pages["smart"].parents[2]), chat=False)
    browser.open(pages["smart"])
    choose(browser, "arm", "epoch 2")
    choose(browser, "outcome", "incorrect")
    wanted = [r for r in collection.rows if r.arm == "epoch 2" and r.outcome == "incorrect"]
    assert browser.evaluate(COUNT) == f"{len(wanted)} of 870"
    assert all("epoch 2" in row and "wrong" in row for row in browser.evaluate(SHOWN))
    option = "[...document.getElementById('f-strategy').options].map(o => o.textContent)"
    cot = sum(r.strategy == "cot" for r in wanted)
    assert f"Chain of Thought ({cot})" in browser.evaluate(option)
    address = browser.evaluate("location.hash")
    assert "arm=epoch+2" in address and "outcome=incorrect" in address
    browser.open(pages["smart"], address)
    assert browser.evaluate(COUNT) == f"{len(wanted)} of 870", "the address brings the filters back"
    browser.evaluate("document.getElementById('clear').click()")
    browser.wait(f"{COUNT} === '870'")


def test_search_reads_every_text_and_marks_what_it_found(browser: Chromium, pages: dict[str, Path]) -> None:
    _, collection = build(pages["smart"].parent, Home(pages["smart"].parents[2]), chat=False)
    browser.open(pages["smart"])
    words = ("apples", "boxes")

    def holds(row: int) -> bool:
        found = collection.rows[row]
        text = f"{found.body['response']} {collection.problems[found.problem].question}".lower()
        return all(word in text for word in words)

    wanted = [i for i in range(len(collection.rows)) if holds(i)]
    assert 0 < len(wanted) < 870
    search(browser, "Apples BOXES", f"{len(wanted)} of")
    browser.press("Enter")
    browser.press("Enter")
    browser.wait("document.querySelectorAll('#trace-body mark').length >= 2")
    browser.press("Escape")
    search(browser, "“box eval-7?”", "5 of")
    search(browser, "no such words anywhere", "0 of")
    assert browser.evaluate("!document.getElementById('none').hidden")


def test_a_trace_holds_prompt_response_verdict_and_tokens(browser: Chromium, pages: dict[str, Path]) -> None:
    _, collection = build(pages["smart"].parent, Home(pages["smart"].parents[2]), chat=False)
    browser.open(pages["smart"])
    browser.click("#row-1")
    browser.wait(f"{TRACE}.includes('Response')")
    row = collection.rows[1]
    shown = browser.evaluate("document.getElementById('trace-body').textContent")
    prompt = collection.problems[row.problem].question.join(collection.prompts[row.body["prompt"]].parts)
    for part in (
        row.body["response"],
        prompt,
        row.reason,
        row.extracted,
        f"{row.tokens} after",
        "checked by its hash",
    ):
        assert part in shown
    browser.evaluate("document.querySelectorAll('.same button')[3].click()")
    browser.wait("document.getElementById('trace-title').textContent.startsWith('epoch 1')")


def test_the_keyboard_is_enough(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["smart"])
    browser.press("j")
    browser.press("ArrowDown")
    active = "document.getElementById('list').getAttribute('aria-activedescendant')"
    assert browser.evaluate(active) == "row-2" and browser.evaluate("document.activeElement.id") == "list"
    browser.press("End")
    assert browser.evaluate(active) == "row-869" and browser.evaluate("!!document.getElementById('row-869')")
    browser.press("Home")
    browser.press("Enter")
    browser.wait("document.getElementById('trace').open && document.activeElement.id === 'trace-title'")
    first = browser.evaluate(TRACE)
    browser.press("j")
    browser.wait(f"{TRACE} !== {json.dumps(first)}")
    browser.press("Escape")
    browser.wait("!document.getElementById('trace').open && document.activeElement.id === 'list'")
    assert browser.evaluate(active) == "row-1"
    browser.press("/")
    assert browser.evaluate("document.activeElement.id") == "search"
    browser.evaluate("document.activeElement.blur()")
    browser.press("?")
    assert browser.evaluate("document.getElementById('help').open")
    browser.press("Escape")
    assert not browser.evaluate("document.getElementById('help').open")


def test_flips_list_their_problems_and_open_traces(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["smart"])
    pattern = "[...document.querySelectorAll('.pattern')].find(b => b.dataset.pattern === '001')"
    count = int(browser.evaluate(f"{pattern}.closest('tr').querySelector('.num').textContent"))
    browser.evaluate(f"{pattern}.click()")
    assert browser.evaluate("document.querySelectorAll('.flip-list li').length") == min(50, count) > 5
    browser.evaluate("document.querySelector('.flip-list li button:last-of-type').click()")
    browser.wait("document.getElementById('trace-title').textContent.startsWith('epoch 2')")
    assert "correct" in browser.evaluate(TRACE)


def test_plans_are_trees_and_refinements_are_diffs(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["planner"])
    choose(browser, "strategy", "decomposed")
    browser.click("#row-0")
    browser.wait("document.querySelectorAll('.tree > li').length === 4")
    assert "token economy" in browser.evaluate(TRACE) and "combination" in browser.evaluate(TRACE)
    browser.open(pages["multiturn"])
    browser.click("#row-1")
    browser.wait("document.querySelector('.diff ins') !== null")
    assert browser.evaluate("document.querySelector('.diff ins').textContent").strip()
    assert "gives the answer away" in browser.evaluate(TRACE)


def test_the_word_diff_gives_both_texts_back(browser: Chromium, tmp_path: Path) -> None:
    draw = random.Random(1)
    words = ["one", "two", " ", "\n", "3", ",", "über", "🙂", "x1"]
    texts = ["".join(draw.choices(words, k=draw.randint(0, 30))) for _ in range(400)]
    pairs = [
        *pairwise(texts),
        ("", ""),
        ("a", ""),
        ("", "a b"),
        ("a " * 4000, "b " * 4000),
    ]
    browser.call("Page.navigate", url="about:blank")
    bad = browser.evaluate(
        f"(() => {{ {(TEMPLATES / 'diff.js').read_text('utf-8')} return {json.dumps(pairs)}.filter(([a, b]) => {{ "
        "const d = wordDiff(a, b), side = (k) => d.filter(([n]) => n === 0 || n === k).map(([, t]) => t).join(''); "
        "return side(-1) !== a || side(1) !== b; }).slice(0, 3); })()"
    )
    assert bad == []
    small = browser.evaluate(
        f"(() => {{ {(TEMPLATES / 'diff.js').read_text('utf-8')} "
        "return wordDiff('4 boxes are 12.', '4 crates are 12.'); })()"
    )
    assert small == [[0, "4 "], [-1, "boxes"], [1, "crates"], [0, " are 12."]]


def test_colours_follow_the_system_and_the_switch_with_enough_contrast(
    browser: Chromium, pages: dict[str, Path]
) -> None:
    browser.open(pages["smart"])
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.prefer("dark")
    dark = browser.evaluate(paper)
    for scheme in ("light", "dark"):
        browser.evaluate(
            f"(() => {{ const s = document.getElementById('theme'); s.value = '{scheme}'; "
            "s.dispatchEvent(new Event('change')); })()"
        )
        assert (browser.evaluate(paper) == dark) == (scheme == "dark")
        for selector in (
            "p.prose",
            "thead th",
            "th[scope=row]",
            ".right",
            ".wrong",
            ".row .soft",
            "nav a",
            "summary",
        ):
            assert browser.evaluate(CONTRAST.replace("SELECTOR", json.dumps(selector))) >= 4.5, (
                scheme,
                selector,
            )
    browser.prefer("light")


def test_everything_has_a_name_for_those_who_do_not_see_it(browser: Chromium, pages: dict[str, Path]) -> None:
    for page in pages.values():
        browser.open(page)
        browser.call("Accessibility.enable")
        nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
        roles = {n["role"]["value"] for n in nodes if not n["ignored"]}
        assert {"banner", "navigation", "main", "region", "search", "grid", "row", "gridcell"} <= roles
        named = [n for n in nodes if not n["ignored"] and n["role"]["value"] in NAMED]
        unnamed = [n["role"]["value"] for n in named if not n.get("name", {}).get("value")]
        assert unnamed == []
        heads = "[...document.querySelectorAll('main :is(h1, h2, h3, h4)')].map(h => +h.tagName[1])"
        levels = browser.evaluate(heads)
        assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))
        browser.call("Accessibility.disable")


CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (c, under) => { canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1); canvas.fillStyle = c;
    canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
  const light = (c) => c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const e = document.querySelector(SELECTOR);
  let behind = e;
  while (behind && getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
  const body = getComputedStyle(document.body).backgroundColor;
  const paper = rgb(behind ? getComputedStyle(behind).backgroundColor : body, body);
  const [a, b] = [light(rgb(getComputedStyle(e).color, '#fff')), light(paper)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
})()"""
