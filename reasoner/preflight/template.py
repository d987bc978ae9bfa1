"""Gates on a chat template and its end token.

A template is prefix-preserving where the prompt that a model is given is the beginning of the conversation as it is
shown afterwards, the answer follows it directly, and the next turn changes nothing before it. Otherwise the model is
trained on other tokens than it will see in a chat (templates that drop or insert a reasoning block do that).
"""

from collections.abc import Collection
from typing import Any

from reasoner.errors import ModelError

QUESTION, ANSWER, AGAIN = "What is 2 + 3?", "The answer is qx5xq.", "And 4 + 4?"


def require_prefix(renderer: Any) -> None:
    """`renderer` is a `prompts.ChatRenderer`. Raises ModelError; a model without a template has nothing to break."""
    if not renderer.has_chat_template:
        return
    user, assistant = {"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}
    prompt = renderer.render([user]).text
    shown = renderer.conversation([user, assistant])
    later = renderer.render([user, assistant, {"role": "user", "content": AGAIN}]).text
    where = f"{renderer.folder}: its chat template is not prefix-preserving"
    todo = "set a template for training as chat_template in its tokenizer_config.json"
    if not shown.startswith(prompt):
        raise ModelError(f"{where}: an answered conversation does not begin with its prompt; {todo}")
    if not shown[len(prompt) :].lstrip().startswith(ANSWER):
        raise ModelError(f"{where}: it writes {shown[len(prompt) :][:30]!r} before the answer; {todo}")
    if not later.startswith(shown.rstrip()):
        raise ModelError(f"{where}: a second question changes what stands before it; {todo}")


def require_stop(name: str, end_token: str, end_id: int, stop_ids: Collection[int]) -> None:
    """Raises ModelError where a generation would run on after the token that the answers end with."""
    if end_id not in stop_ids:
        raise ModelError(
            f"{name} does not stop generating at {end_token!r}: not its end token; add {end_id} to eos_token_id in its "
            "generation_config.json"
        )
