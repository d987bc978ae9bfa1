"""A lineage as text: one line an artifact, its settings below, and at the end where it all began."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from reasoner.lineage.tree import Node

WIDTH = 110
MOST = 4
"""Lines of settings that are shown of an artifact."""


def lines(root: Node, full: bool = False) -> Iterator[str]:
    """The tree, then its sources. `full` shows every setting, and what stages found."""
    yield from _lines(root, "", "", "", full)
    yield ""
    yield from sources(root)


def sources(root: Node) -> Iterator[str]:
    """Base models, problems, seeds, code: what stands at the bottom of the tree."""
    nodes = list(root.walk())
    for node in nodes:
        if node.ref.kind == "model" and not node.inputs:
            revision = node.facts.get("revision")
            named = f"{node.facts.get('model', '?')}{f' at {revision}' if revision else ''}"
            yield f"base model  {named}  {node.ref.digest[:12]}"
        elif node.ref.kind == "problems" and not node.inputs:
            yield f"problems    {node.ref.digest[:12]}  {_short(node.facts.get('counts', {}), WIDTH - 26)}"
    seeds = {str(value) for node in nodes for name, value in node.settings().items() if _is_seed(name)}
    yield f"seeds       {', '.join(sorted(seeds)) or 'none'}"
    code = {_code(node) for node in nodes if node.call and node.call.environment}
    yield f"code        {'; '.join(sorted(code)) or 'unknown'}"
    gone = [node for node in nodes if node.problem]
    if gone:
        yield f"gone        {', '.join(f'{node.name} {node.ref.digest[:12]}' for node in gone)}"


def _lines(node: Node, first: str, rest: str, argument: str, full: bool) -> Iterator[str]:
    given = f"{argument}: " if argument and argument != node.ref.kind else ""
    head = f"{first}{given}{node.name}  {node.ref.kind} {node.ref.digest[:12]}"
    if node.repeated:
        yield f"{head}  (as above)"
        return
    if node.problem:
        head += f"  ({node.problem})"
    yield f"{head}  {node.call.created[:19]}" if node.call and node.call.created else head
    settings = "  ".join(f"{name}={_value(value)}" for name, value in node.settings().items())
    bar = f"{rest}│    " if node.inputs else f"{rest}     "
    wrapped = textwrap.wrap(settings, max(WIDTH - len(bar), 40), break_on_hyphens=False)
    for text in wrapped if full else wrapped[:MOST]:
        yield f"{bar}{text}"
    if len(wrapped) > MOST and not full:
        yield f"{bar}… (--full shows all)"
    if full and node.facts:
        yield f"{bar}{json.dumps(node.facts, ensure_ascii=False, sort_keys=True)}"
    for number, (name, inner) in enumerate(node.inputs):
        last = number == len(node.inputs) - 1
        yield from _lines(
            inner, f"{rest}{'└─ ' if last else '├─ '}", f"{rest}{'   ' if last else '│  '}", name, full
        )


def _is_seed(name: str) -> bool:
    return name.rpartition(".")[2] == "seed"


def _code(node: Node) -> str:
    assert node.call is not None
    found = node.call.environment
    revision = str(found.get("revision") or "no revision")[:12]
    packages = found.get("packages", {})
    told = " ".join(
        f"{name} {packages[name]}" for name in ("torch", "transformers", "vllm", "trl") if name in packages
    )
    return f"{revision}{' (changed since)' if found.get('dirty') else ''} {told}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(value: Any, width: int) -> str:
    return _cut(json.dumps(value, ensure_ascii=False), width)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width, 10) - 1] + "…"
