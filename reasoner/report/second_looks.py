"""Where a second turn's difference comes from: first attempts cut at the token limit, or ones that came to their end.

A second turn that follows a cut attempt has seen the attempt's text and has new tokens to answer with, so it can be
right more often without correcting anything. It is a second look where the attempt came to its end.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reasoner.methods.multiturn.episode import Episode, Turn
from reasoner.methods.multiturn.metrics import two_turns


def measure(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Both turns of the scored episodes whose attempt came to its end, and what the cut ones add.

    `cut` of `n` attempts ended at the limit, and `mended_cut` of the `mended` problems are among them. `whole` is a row
    of `TwoTurns` over the others: to `changed` of them turn 2 gives another answer (spaces apart), to `unanswered` none
    where turn 1 had one, and in `cut_again` it ended at the limit itself. `from_cut`: Δ is above 0 over all, not over
    `whole`, and cut attempts bring more than half of it. Raises UsageError for a single-turn episode.
    """
    scored = [e for e in episodes if e.scored]
    whole = [e for e in scored if not e.attempt.cut]
    everything, ended = two_turns(scored), two_turns(whole)
    gain, gain_ended = (two.i_to_c - two.c_to_i for two in (everything, ended))
    answers = [(_answer(e.attempt), _answer(e.refinement)) for e in whole]
    return {
        "n": len(scored), "cut": len(scored) - len(whole),
        "mended": everything.i_to_c, "mended_cut": everything.i_to_c - ended.i_to_c,
        "whole": ended.to_row(),
        "changed": sum(second is not None and first != second for first, second in answers),
        "unanswered": sum(first is not None and second is None for first, second in answers),
        "cut_again": sum(e.refinement is not None and e.refinement.cut for e in whole),
        "from_cut": everything.delta_low > 0 >= ended.delta_low and gain > 2 * gain_ended,
    }  # fmt: skip


def sentence(label: str, found: Mapping[str, Any]) -> str:
    """What was measured, of the policy that `label` names."""
    two, said = found["whole"], [f"{label}:"]
    if found["cut"]:
        said.append(f"{found['cut']} of {found['n']} first attempts were cut at the token limit")
        if found["mended"]:
            said[-1] += (
                f", and {found['mended_cut']} of the {found['mended']} problems that turn 2 mends are among them"
            )
        said[-1] += "."
    if two["n"]:
        said.append(
            f"Where the attempt came to its end (N={two['n']}), turn 2 gives another answer to {found['changed']}"
        )
        if found["unanswered"]:
            said[-1] += f" and none to {found['unanswered']}"
        if found["cut_again"]:
            said[-1] += f" (it was cut in {found['cut_again']})"
        if found["cut"]:
            said[-1] += (
                f": turn 1 {two['acc_t1']['value']:.3f}, turn 2 {two['acc_t2']['value']:.3f}, Δ {two['delta']:+.3f} "
                f"({two['delta_low']:+.3f} to {two['delta_high']:+.3f}), {two['i_to_c']} mended, {two['c_to_i']} spoilt"
            )
        said[-1] += "."
    if found["from_cut"]:
        said.append("Δ is that of cut attempts, no self-correction is shown: raise max_tokens.")
    return " ".join(said)


def _answer(turn: Turn | None) -> str | None:
    if turn is None or turn.judged is None or turn.judged.verdict.extracted is None:
        return None
    return "".join(turn.judged.verdict.extracted.split())
