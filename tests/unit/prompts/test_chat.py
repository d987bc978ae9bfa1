"""Chat rendering with tiny tokenizers whose templates end a turn as the models of configs/model/ do."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from reasoner.errors import ModelError
from reasoner.prompts import ChatRenderer, load_template

CHATML = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}"
    "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n'"
    " + m['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + '[/INST]' }}"
    "{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}"
)
DATED = "{{ strftime_now('%Y-%m-%d') }} {% for m in messages %}{{ m['content'] }}<eos>{% endfor %}"
SPECIALS = ["<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>", "<|eot_id|>"]
QUESTION = [{"role": "user", "content": "How many?"}]


def model(
    folder: Path, template: str | None, stops: int | list[int] | None, eos: str | None = "<eos>"
) -> Path:
    """A folder with a word-level tokenizer; `stops` is the generation config's eos_token_id."""
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate([*SPECIALS, "<unk>", "How", "many"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<bos>",
        eos_token=eos,
        additional_special_tokens=[token for token in SPECIALS if token.startswith("<|") or "turn" in token],
    )
    fast.chat_template = template
    folder.mkdir(parents=True, exist_ok=True)
    fast.save_pretrained(folder)
    if stops is not None:
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}))
    return folder


@pytest.mark.parametrize(
    ("template", "stops", "end", "text"),
    [
        (CHATML, 3, "<|im_end|>", "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n"),
        (
            GEMMA,
            [1, 5],
            "<end_of_turn>",
            "<bos><start_of_turn>user\nHow many?<end_of_turn>\n<start_of_turn>model\n",
        ),
        (
            LLAMA,
            [1, 6],
            "<|eot_id|>",
            "<bos><|start_header_id|>user<|end_header_id|>\n\nHow many?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (MISTRAL, 1, "<eos>", "<bos>[INST] How many?[/INST]"),
    ],
    ids=["chatml", "gemma", "llama", "mistral"],
)
def test_the_template_renders_and_its_end_of_turn_ends_a_completion(tmp_path, template, stops, end, text):
    chat = ChatRenderer(model(tmp_path, template, stops))
    assert chat.has_chat_template
    assert chat.render(QUESTION) == (text, False)
    assert chat.end_token == end
    assert chat.end_token_id in ([stops] if isinstance(stops, int) else stops)
    assert chat.completion_text("Chain of Thought: 3") == f"Chain of Thought: 3{end}"


def test_an_end_of_turn_that_stops_nothing_gives_way_to_the_end_token(tmp_path):
    # a base model with a chat template: only <eos> stops it
    assert ChatRenderer(model(tmp_path, CHATML, 1)).end_token == "<eos>"


def test_no_stop_token_at_all_is_an_error_that_names_the_ids(tmp_path):
    with pytest.raises(
        ModelError, match=r"'<\|im_end\|>' \(id 3\) and '<eos>' \(id 1\).*stops only at \[2\]"
    ):
        ChatRenderer(model(tmp_path, CHATML, 2))


def test_the_model_config_counts_where_there_is_no_generation_config(tmp_path):
    folder = model(tmp_path, CHATML, None)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 3}))
    assert ChatRenderer(folder).end_token == "<|im_end|>"


def test_a_tokenizer_without_template_and_without_end_token_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no end token"):
        ChatRenderer(model(tmp_path, None, None, eos=None))


def test_without_a_template_the_layout_is_plain_and_the_tokenizer_adds_its_begin_token(tmp_path):
    chat = ChatRenderer(model(tmp_path, None, 1))
    assert not chat.has_chat_template
    assert chat.render(QUESTION) == ("User:\nHow many?\n\nAssistant:\n", True)
    assert chat.end_token == "<eos>"


def test_a_scripted_model_without_tokenizer_is_rendered_plainly(tmp_path):
    chat = ChatRenderer(tmp_path)
    assert chat.render(QUESTION) == ("User:\nHow many?\n\nAssistant:\n", False)
    assert (chat.end_token, chat.end_token_id) == ("", None)
    assert chat.completion_text("x") == "x"


def test_a_template_that_prints_the_date_prints_the_same_one_always(tmp_path):
    chat = ChatRenderer(model(tmp_path, DATED, 1))
    assert chat.render(QUESTION).text == "2024-07-26 How many?<eos>"


def test_the_policys_turn_passes_unchanged(tmp_path):
    messages = load_template("smart").messages("None of {{ 7 }} eggs <b>?")
    text, _ = ChatRenderer(model(tmp_path, CHATML, 3)).render(messages)
    assert text == f"<|im_start|>user\n{messages[0]['content']}<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_that_cannot_render_is_a_model_error(tmp_path):
    chat = model(tmp_path, "{{ raise_exception('Only users may speak') }}", 1)
    with pytest.raises(ModelError, match="Only users may speak"):
        ChatRenderer(chat)


def test_a_template_cannot_reach_python(tmp_path):
    folder = model(tmp_path, "{{ messages.__class__.__mro__[1].__subclasses__() }}", 1)
    with pytest.raises(ModelError, match="can't render"):
        ChatRenderer(folder)


def test_a_broken_tokenizer_is_a_model_error(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="can't be loaded"):
        ChatRenderer(tmp_path)
