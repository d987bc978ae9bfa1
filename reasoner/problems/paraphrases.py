"""Paraphrases of word problems by rules: what is planted to measure how many the contamination check finds.

Four rules, alone or together: `names` renames people, `units` exchanges units and converts hours, weeks and dozens,
`order` moves phrases, clauses and sentences, `synonyms` exchanges words. They were written and committed before any
threshold of the check was chosen, and the check knows none of these lists. English only; a paraphrase need not be
elegant, and where a rule finds nothing to change the text stays as it is.
"""

import re
from collections.abc import Callable, Sequence
from random import Random

from reasoner.ids import derived_seed

VERSION = 1

# fmt: off
PEOPLE = (
    "Aurelio", "Beatrix", "Caspian", "Delphine", "Emeka", "Fenella", "Giorgos", "Hanneke", "Ingrid", "Jiro", "Katya",
    "Lorcan", "Maarten", "Nkechi", "Odalys", "Petronella", "Quillon", "Rashida", "Soren", "Tamsin", "Ulrike", "Vasco",
    "Wilhelmina", "Xiomara", "Yannick", "Zuleika",
)
NO_NAMES = frozenset((
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "Christmas", "Easter",
    "Halloween", "Thanksgiving", "American", "English", "French", "Spanish", "Chinese", "Mr", "Mrs", "Ms", "Dr", "TV",
    "PM", "AM", "US", "USA", "CD", "DVD", "GB", "MB", "The", "If", "How", "What", "When", "Where",
    "Which", "Who", "Why",
    "There", "Each", "Every", "He", "She", "They", "It", "We", "You", "His", "Her", "Their", "Its", "In", "On", "At",
    "For", "From", "After", "Before", "During", "Then", "Today", "Yesterday", "Tomorrow", "Last",
    "Next", "This", "That",
    "These", "Those", "All", "Half", "One", "Two", "Three", "Four", "Five", "Six", "Seven",
    "Eight", "Nine", "Ten", "An",
    "And", "But", "So", "Out", "Of", "By", "To", "As", "With", "While", "Given", "Assume", "Assuming", "Suppose",
    "Find", "Calculate", "Determine", "Some", "Both", "Only", "Since", "Because", "Now", "Later", "Once", "Unless",
))
VERBS = (
    "has", "had", "have", "is", "was", "buys", "bought", "wants", "wanted", "can", "needs", "needed", "makes", "made",
    "earns", "earned", "sells", "sold", "gets", "got", "goes", "went", "runs", "ran", "works",
    "worked", "reads", "read",
    "spends", "spent", "and", "gave", "gives", "plans", "decides", "decided", "takes", "took", "eats", "ate", "bakes",
    "baked", "drives", "drove", "lives", "pays", "paid", "walks", "collects", "collected", "starts", "uses", "picks",
)
UNITS = (
    (r"\$ ?(\d[\d,]*(?:\.\d+)?)", r"\1 euros"), (r"\bdollars\b", "euros"), (r"\bdollar\b", "euro"),
    (r"\bcents\b", "pence"), (r"\bmiles\b", "kilometers"), (r"\bmile\b", "kilometer"), (r"\bmph\b", "km/h"),
    (r"\bfeet\b", "meters"), (r"\bfoot\b", "meter"), (r"\binches\b", "centimeters"), (r"\binch\b", "centimeter"),
    (r"\byards\b", "meters"), (r"\bpounds\b", "kilograms"), (r"\bpound\b", "kilogram"), (r"\blbs\b", "kg"),
    (r"\bounces\b", "grams"), (r"\bounce\b", "gram"), (r"\bgallons\b", "liters"), (r"\bgallon\b", "liter"),
    (r"\bquarts\b", "liters"), (r"\bacres\b", "hectares"), (r"\bacre\b", "hectare"),
)
CONVERSIONS = (
    (r"\b(\d+) hours\b", 60, "minutes"), (r"\b(\d+) weeks\b", 7, "days"), (r"\b(\d+) dozen\b", 12, ""),
)
SYNONYMS = {
    "buys": "purchases", "bought": "purchased", "buy": "purchase", "buying": "purchasing", "gives": "hands",
    "gave": "handed", "gets": "receives", "got": "received", "get": "receive", "total": "sum",
    "altogether": "overall",
    "each": "every", "also": "additionally", "costs": "is priced at", "cost": "price", "makes": "produces",
    "made": "produced", "make": "produce", "wants": "would like", "wanted": "hoped", "needs": "requires",
    "need": "require", "has": "owns", "had": "owned", "friends": "pals", "friend": "pal", "kids": "children",
    "children": "kids", "students": "pupils", "student": "pupil", "store": "shop", "shop": "store", "house": "home",
    "car": "vehicle", "big": "large", "large": "big", "small": "little", "little": "small", "begin": "start",
    "starts": "begins", "started": "began", "finish": "complete", "finished": "completed", "does": "will",
    "many": "numerous", "left": "remaining", "remaining": "left", "more": "additional", "sells": "markets",
    "sold": "marketed", "spends": "uses up", "spent": "used up", "spend": "use up", "earns": "brings in",
    "earned": "brought in", "earn": "bring in", "twice": "two times", "double": "two times", "triple": "three times",
    "half": "one half", "day": "working day", "money": "cash", "eats": "consumes", "ate": "consumed",
    "eat": "consume", "takes": "requires", "walks": "strolls", "walked": "strolled", "runs": "jogs", "ran": "jogged",
    "drives": "travels", "drove": "travelled", "picks": "gathers", "picked": "gathered", "collects": "gathers",
    "collected": "gathered", "bag": "sack", "bags": "sacks", "box": "crate", "boxes": "crates", "candy": "sweets",
    "candies": "sweets", "cookies": "biscuits", "cookie": "biscuit", "movie": "film", "movies": "films",
    "job": "post", "work": "labour", "works": "labours", "people": "persons", "mother": "mum", "mom": "mum",
    "father": "dad", "brother": "sibling", "sister": "sibling", "gift": "present", "gifts": "presents",
    "decides": "chooses", "decided": "chose", "initially": "at first", "originally": "at first", "however": "yet",
    "if": "supposing", "only": "just", "same": "identical", "number": "count", "amount": "quantity",
    "equally": "evenly", "split": "divided", "remain": "stay", "received": "got",
    "lost": "mislaid", "found": "came upon",
    "read": "leafed through", "pages": "sheets", "trip": "journey", "city": "town", "town": "city", "went": "headed",
    "goes": "heads", "go": "head", "used": "employed", "uses": "employs", "use": "employ", "every": "each",
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
    "nine": "9", "ten": "10",
}
# fmt: on
PRONOUNS = ("he", "she", "they", "it", "his", "her", "their", "then", "this", "that", "these", "the")
_PHRASE = r"^(?P<rest>[A-Z][^,]{12,}?) (?P<phrase>(?:in|on|at|during|after|before|for|from|every|each) [^,]{2,40})\.$"


def paraphrase(question: str, rules: Sequence[str], seed: int = 0) -> str:
    """`question` changed by `rules`, names of RULES, in the order given. The same seed gives the same text.

    Raises KeyError for a rule that there is not.
    """
    text = " ".join(question.split())
    for rule in rules:
        text = RULES[rule](text, Random(derived_seed("paraphrase", VERSION, rule, seed, question)))
    return text


def rename(text: str, random: Random) -> str:
    """Every person by another name, the same one throughout."""
    names = _names(text)
    new = dict(zip(names, random.sample(PEOPLE, min(len(names), len(PEOPLE))), strict=False))
    return re.sub(r"\b[A-Z][a-z]+\b", lambda found: new.get(found[0], found[0]), text)


def change_units(text: str, _: Random) -> str:
    """Money and measures of another system; hours, weeks and dozens converted."""
    for pattern, factor, unit in CONVERSIONS:
        text = re.sub(pattern, lambda m, f=factor, u=unit: f"{int(m[1]) * f} {u}".strip(), text)  # type: ignore[misc]
    for pattern, other in UNITS:
        text = re.sub(pattern, other, text)
    return text


def reorder(text: str, _: Random) -> str:
    """Trailing phrases first, joined things and clauses exchanged, two statements exchanged, the question turned."""
    sentences = [_reordered(sentence) for sentence in re.split(r"(?<=[.!?]) ", text)]
    if len(sentences) >= 4 and not any(s.split()[0].casefold() in PRONOUNS for s in sentences[1:3]):
        sentences[1], sentences[2] = sentences[2], sentences[1]
    return " ".join(sentences)


def exchange_words(text: str, _: Random) -> str:
    """Words by others of like meaning."""

    def other(found: re.Match[str]) -> str:
        word = SYNONYMS.get(found[0].casefold())
        if word is None:
            return found[0]
        return word[0].upper() + word[1:] if found[0][0].isupper() else word

    return re.sub(r"\b[A-Za-z]+\b", other, text)


RULES: dict[str, Callable[[str, Random], str]] = {
    "names": rename,
    "units": change_units,
    "order": reorder,
    "synonyms": exchange_words,
}


def _names(text: str) -> list[str]:
    """People: capitalised words within a sentence, or before a verb or 's at its start; in order of appearance."""
    found: dict[str, None] = {}
    for match in re.finditer(r"\b[A-Z][a-z]+\b", text):
        word, before, after = match[0], text[: match.start()], text[match.end() :]
        within = bool(before) and not re.search(r"[.!?:\"] *$", before)
        acts = after.startswith("'s") or re.match(rf" (?:{'|'.join(VERBS)})\b", after) is not None
        if word not in NO_NAMES and (within or acts):
            found[word] = None
    return list(found)


def _reordered(sentence: str) -> str:
    sentence = re.sub(r"\b(\d+ [a-z]+) and (\d+ [a-z]+)\b", r"\2 and \1", sentence)
    if turned := re.match(r"^If (.+), (how|what) (.+)\?$", sentence):
        return f"{turned[2].capitalize()} {turned[3]} if {turned[1]}?"
    if asked := re.match(r"^(How|What) (.+) (in total|altogether|in all|now|each day|per week)\?$", sentence):
        return f"{asked[3][0].upper()}{asked[3][1:]}, {asked[1].lower()} {asked[2]}?"
    clauses = re.match(r"^([A-Z][^,]{12,}), and ([^,]{12,})\.$", sentence)
    if clauses and " then " not in sentence:
        return f"{clauses[2][0].upper()}{clauses[2][1:]}, and {clauses[1]}."
    if moved := re.match(_PHRASE, sentence):
        phrase = moved["phrase"]
        return f"{phrase[0].upper()}{phrase[1:]}, {moved['rest']}."
    return sentence
