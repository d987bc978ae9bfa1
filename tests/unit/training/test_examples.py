"""The loss falls on the completion and its end token, and on nothing else."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.errors import DataError, ModelError, TrainingError
from reasoner.preflight.mask import IGNORED, check_batches
from reasoner.records import TrainingExample
from reasoner.training.examples import Encoded, Encoder, read_examples
from tests.support import tiny_training as tiny
from tests.support.tiny_llama import END, START

TOKENIZER = tiny.make_tokenizer()


def encoder(tokenizer: Any = TOKENIZER, end: str = END, special: bool = False) -> Encoder:
    return Encoder(tokenizer, end, add_special_tokens=special)


def example(prompt: str, completion: str) -> TrainingExample:
    return TrainingExample("p1", prompt, completion)


def metaspace_tokenizer() -> Any:
    """A tokenizer that writes a space before the first word of a text, as SentencePiece models do."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    raw.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(special_tokens=["<unk>", START, END], vocab_size=200, show_progress=False)
    raw.train_from_iterator([*tiny.CORPUS, "abcdefghijklmnopqrstuvwxyz"], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=START, eos_token=END, unk_token="<unk>")


def test_mask_covers_exactly_completion_and_end_token() -> None:
    [row] = tiny.make_examples(1)
    encoded = encoder().encode(row)
    inside = [i for i, label in enumerate(encoded.labels) if label != IGNORED]
    assert inside == list(range(encoded.prompt_length, len(encoded.input_ids)))
    assert TOKENIZER.decode([encoded.input_ids[i] for i in inside]) == row.completion
    assert TOKENIZER.decode(encoded.input_ids[: encoded.prompt_length]) == row.prompt
    assert encoded.labels[-1] == TOKENIZER.convert_tokens_to_ids(END)


@settings(max_examples=150, deadline=None)
@given(st.text(min_size=1, max_size=40), st.text(max_size=40))
def test_any_text_keeps_its_prompt_tokens_and_its_completion(prompt: str, text: str) -> None:
    plain = TOKENIZER.encode(prompt, add_special_tokens=False)
    try:
        encoded = encoder().encode(example(prompt, text + END))
    except TrainingError as error:
        assert END in text or "empty prompt" in str(error)
        return
    assert list(encoded.input_ids[: len(plain)]) == plain
    assert TOKENIZER.decode(encoded.input_ids[len(plain) :]) == text + END


def test_a_merge_across_the_boundary_is_not_taken() -> None:
    # "Thought" is one token of the corpus: joined, it swallows the end of the prompt.
    prompt, completion = "Chain of Tho", f"ught: 3{END}"
    before = TOKENIZER.encode(prompt, add_special_tokens=False)
    joined = TOKENIZER.encode(prompt + completion, add_special_tokens=False)
    assert joined[: len(before)] != before, "this pair must merge, or the test shows nothing"
    encoded = encoder().encode(example(prompt, completion))
    assert list(encoded.input_ids[: len(before)]) == before
    assert encoded.prompt_length == len(before)
    assert TOKENIZER.decode(encoded.input_ids[len(before) :]) == completion


def test_a_tokenizer_that_prepends_a_space_does_not_add_one_to_the_completion() -> None:
    tokenizer = metaspace_tokenizer()
    prompt, completion = f"pens{END}", f"answer is{END}"
    alone = tokenizer.encode(completion, add_special_tokens=False)
    encoded = encoder(tokenizer).encode(example(prompt, completion))
    joined = tokenizer.encode(prompt + completion, add_special_tokens=False)
    before = tokenizer.encode(prompt, add_special_tokens=False)
    assert tokenizer.decode([*before, *alone]) != tokenizer.decode(joined), "the hard case is not met"
    assert list(encoded.input_ids) == joined
    assert encoded.prompt_length == len(before)
    assert encoded.labels[-1] == tokenizer.convert_tokens_to_ids(END)


def test_where_prompt_and_completion_cannot_be_told_apart_it_is_an_error() -> None:
    tokenizer = metaspace_tokenizer()
    prompt, completion = "answ", f"er{END}"
    assert tokenizer.encode(prompt + completion)[: len(tokenizer.encode(prompt))] != tokenizer.encode(prompt)
    with pytest.raises(TrainingError, match=r"p1.*merge across the end of the prompt"):
        encoder(tokenizer).encode(example(prompt, completion))


@pytest.mark.parametrize(
    ("prompt", "completion", "message"),
    [
        ("Problem", "3 and 4", "does not end with"),
        ("Problem", "", "does not end with"),
        ("Problem", f"3{END} and 4{END}", "stands inside the completion"),
        ("", f"3{END}", "empty prompt"),
    ],
)
def test_a_record_that_cannot_teach_to_stop_is_an_error(prompt: str, completion: str, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        encoder().encode(example(prompt, completion))


def test_the_end_token_must_be_one_token() -> None:
    with pytest.raises(ModelError, match="not one token"):
        encoder(end="<eos>")


def test_two_start_tokens_are_an_error() -> None:
    tokenizer = tiny.make_tokenizer(add_bos=True)
    prompt = tiny.chat_prompt(tokenizer, "3 pens")
    with pytest.raises(TrainingError, match="add_special_tokens must be false"):
        encoder(tokenizer, special=True).encode(example(prompt, f"7{END}"))
    plain = encoder(tokenizer, special=True).encode(example("Problem", f"7{END}"))
    assert plain.input_ids[0] == tokenizer.bos_token_id
    assert plain.input_ids.count(tokenizer.bos_token_id) == 1
    templated = encoder(tokenizer).encode(example(prompt, f"7{END}"))
    assert templated.input_ids[:2].count(tokenizer.bos_token_id) == 1


def test_long_records_are_left_out_and_counted_never_cut() -> None:
    rows = [*tiny.make_examples(3), example("Problem", "3 and 4 make 7. " * 40 + END)]
    everything = encoder().encode_all(rows, 10_000)
    longest = max(len(e.input_ids) for e in everything.kept[:3])
    kept = encoder().encode_all(rows, longest)
    assert (kept.given, len(kept.kept), kept.too_long) == (4, 3, 1)
    assert kept.kept == everything.kept[:3]
    assert encoder().encode_all(rows, longest - 1).too_long >= 2
    assert kept.counts()["longest"] == longest


def collated(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """TRL's own collator."""
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    return dict(DataCollatorForLanguageModeling(pad_token_id=TOKENIZER.pad_token_id)(rows))


def rows_of(encoded: tuple[Encoded, ...]) -> list[dict[str, Any]]:
    return [{"input_ids": list(e.input_ids), "labels": e.labels} for e in encoded]


def uneven() -> tuple[Encoded, ...]:
    """Records of different lengths, so that batches are padded: with the end token, the hard case."""
    rows = [example("Problem: " + "pens " * n, f"{n} and {n}{END}") for n in (1, 5, 2, 9, 3)]
    return encoder().encode_all(rows, 1000).kept


def test_the_batches_of_trl_pass() -> None:
    encoded = uneven()
    check_batches(encoded, rows_of(encoded), collated, encoder(), batch_size=2)


def spoil(change: Any) -> Any:
    def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
        batch = collated(rows)
        change(batch)
        return batch

    return collate


def _end_outside(batch: dict[str, Any]) -> None:
    batch["labels"][batch["labels"] == TOKENIZER.eos_token_id] = IGNORED


def _prompt_inside(batch: dict[str, Any]) -> None:
    batch["labels"][:, 0] = batch["input_ids"][:, 0]


def _all_inside(batch: dict[str, Any]) -> None:
    batch["labels"] = batch["input_ids"].clone()


def _padding_inside(batch: dict[str, Any]) -> None:
    batch["labels"][batch["attention_mask"] == 0] = TOKENIZER.pad_token_id


def _cut(batch: dict[str, Any]) -> None:
    for name in batch:
        batch[name] = batch[name][:, :-1]


def _shifted(batch: dict[str, Any]) -> None:
    batch["labels"] = batch["labels"].roll(1, dims=1)


def _other_prompt(batch: dict[str, Any]) -> None:
    batch["input_ids"][:, 1] += 1


@pytest.mark.parametrize(
    "change", [_end_outside, _prompt_inside, _all_inside, _padding_inside, _cut, _shifted, _other_prompt]
)
def test_a_wrong_batch_is_found(change: Any) -> None:
    encoded = uneven()
    with pytest.raises(TrainingError, match="Bad loss mask in record p1"):
        check_batches(encoded, rows_of(encoded), spoil(change), encoder(), batch_size=2)


def test_a_lost_row_is_found() -> None:
    encoded = uneven()
    with pytest.raises(TrainingError, match="4 of 5"):
        check_batches(encoded, rows_of(encoded)[:-1], collated, encoder(), batch_size=2)


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    path = tiny.write_examples(tmp_path / "rows.jsonl", tiny.make_examples(2))
    assert read_examples(path) == tiny.make_examples(2)
    path.write_text(path.read_text() + '{"problem_id": "x"}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl: row 3"):
        read_examples(path)
    path.write_text("{broken\n")
    with pytest.raises(DataError, match=r"rows\.jsonl:1"):
        read_examples(path)
    with pytest.raises(DataError, match="missing"):
        read_examples(tmp_path / "missing.jsonl")
