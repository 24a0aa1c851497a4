"""Reading and writing model directories: exact both ways, and every fault named."""

import json
import pathlib
import shutil
import signal

import huggingface_hub
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from huggingface_hub.utils import filter_repo_objects

from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.huggingface import atomic, writer
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.system import signals
from tests import tiny

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
Q = "model.layers.1.self_attn.q_proj.weight"


def config_of(path):
    return TransformerConfig.from_huggingface(huggingface.read_config(path))


def load(path, **options):
    return huggingface.load_params(path, config_of(path), **options)


def assert_same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    assert jax.tree.map(lambda x: x.dtype, got) == jax.tree.map(lambda x: x.dtype, want)
    jax.tree.map(np.testing.assert_array_equal, got, want)


def tensors_of(path):
    tensors = {}
    for file in sorted(path.glob("*.safetensors")):
        tensors |= safetensors.numpy.load_file(file)
    return tensors


@pytest.fixture
def model(tmp_path):
    return tiny.write_model(tmp_path / "model", tokenizer=False)


@pytest.fixture
def sharded(tmp_path):
    return tiny.write_model(tmp_path / "sharded", tokenizer=False, shards=3)


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_the_text_model_of_a_model_that_sees_pictures(tmp_path, prefix):
    text = tiny.write_model(tmp_path / "text", family="gemma3_text")
    want = LanguageModel.load(text)
    tensors = safetensors.numpy.load_file(text / "model.safetensors")
    whole = {prefix + key.removeprefix("model."): x for key, x in tensors.items()}
    shutil.copytree(text, tmp_path / "whole")
    tiny.save_tensors(tmp_path / "whole/model.safetensors", whole | {"vision_tower.x": np.ones(3)})
    inner = {k: v for k, v in want.hf_config.items() if not k.endswith("_token_id")}
    outer = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"]}
    outer |= {"text_config": inner, "eos_token_id": 303, "vision_config": {}}
    (tmp_path / "whole/config.json").write_text(json.dumps(outer))
    found = LanguageModel.load(tmp_path / "whole")
    assert found.config == want.config and found.eos_ids == want.eos_ids
    jax.tree.map(np.testing.assert_array_equal, found.load_params(), want.load_params())
    saved = LanguageModel.load(found.save(tmp_path / "saved", found.load_params()))
    assert saved.config == want.config and saved.hf_config["model_type"] == "gemma3_text"


def test_what_is_no_directory_of_a_model(tmp_path):
    for name, message in (
        ("", r"holds no config\.json; expected a Hugging Face model directory$"),
        ("checkpoint-2/config.json", "model directory, found checkpoint-2$"),
        ("model-00001-of-00002.safetensors", "found model-00001-of-00002.safetensors$"),
        ("adapter_config.json", "it is an adapter: expected its base with"),
    ):
        if name:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("{}")
        with pytest.raises(FileNotFoundError, match=message):
            huggingface.read_config(tmp_path)
    for text, message in (
        (POINTER, r"config\.json is a Git LFS pointer; expected the file itself"),
        ("{", r"config\.json is not valid JSON"),
        ("[" * 100_000, r"config\.json is not valid JSON"),
        ("\xff", r"config\.json is not valid JSON"),
        ("[1]", r"config\.json holds a JSON list; expected an object"),
    ):
        (tmp_path / "config.json").write_bytes(text.encode("latin1"))
        with pytest.raises(ValueError, match=message):
            huggingface.read_config(tmp_path)
    with pytest.raises(FileNotFoundError, match="directory .*nowhere does not exist"):
        huggingface.read_config(tmp_path / "nowhere")


def test_missing_files(model, sharded):
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"neither model\.safetensors.*pytorch_model\.bin"):
        load(model)
    (sharded / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"00002-of-00003\.safetensors is missing"):
        load(sharded)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "is not valid JSON"),
        ("{}", "lacks 'weight_map'"),
        ('{"weight_map": {"a": "../../etc/passwd"}}', "a is mapped to '../../etc/passwd'"),
        ('{"weight_map": {"a": 3}}', "a is mapped to 3; expected a plain file name"),
        (None, rf"missing key extra\.weight; unexpected key {Q}"),
    ],
)
def test_damaged_index(sharded, index, message):
    file = sharded / "model.safetensors.index.json"
    file.write_text(file.read_text().replace(Q, "extra.weight") if index is None else index)
    with pytest.raises(ValueError, match=message):
        load(sharded)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-100],
        lambda data: data[:20],
        lambda data: b"",
        lambda data: data + b"tail",
        lambda data: b"\xff" * 8 + data[8:],
        lambda data: data[:30] + b"\x00" * 40 + data[70:],
        lambda data: POINTER.encode(),
    ],
    ids=["tail-cut", "header-cut", "empty", "longer", "header-size", "header", "pointer"],
)
def test_truncated_or_damaged_file(model, damage):
    file = model / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    message = r"model\.safetensors is (not a whole safetensors file|a Git LFS pointer)"
    with pytest.raises(ValueError, match=message) as caught:
        load(model)
    assert ("Git LFS" in str(caught.value)) == (file.read_bytes() == POINTER.encode())
    file.with_name("model.safetensors.index.json").write_text(POINTER)
    file.unlink()
    with pytest.raises(ValueError, match=r"index\.json is a Git LFS pointer"):
        load(model)


def spoiled(dtype, value):
    def change(tensors):
        tensors[Q] = tensors[Q].astype(dtype)
        tensors[Q][17, 5] = value

    return change


UP, V_BIAS = "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.v_proj.bias"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({Q: t[Q][:-1]}), rf"{Q} has shape \(31, 32\); expected \(32, 32\)"),
        (lambda t: t.update({UP: np.ascontiguousarray(t[UP].T)}),
         rf"{UP} has shape \(32, 48\); expected \(48, 32\)"),
        (lambda t: t.update({"model.layers.2.mlp.bias": t[Q]}), r"unexpected key model\.layers\.2"),
        (lambda t: t.pop("lm_head.weight"), r"missing key lm_head.weight; expected .* of shape \("),
        (lambda t: t.pop(V_BIAS), f"missing key {V_BIAS}"),
        (lambda t: t.update({Q: t[Q].astype(np.int8)}), rf"{Q} has type I8; expected one of F32, BF16, F16"),
        (spoiled(np.float32, np.nan), rf"model\.safetensors: {Q} holds NaN or infinity"),
        (spoiled(np.float16, np.inf), rf"model\.safetensors: {Q} holds NaN or infinity"),
        (spoiled(ml_dtypes.bfloat16, -np.inf), rf"model\.safetensors: {Q} holds NaN or infinity"),
    ],
)  # fmt: skip
def test_tensors_that_are_not_the_models(model, change, message):
    tensors = tensors_of(model)
    change(tensors)
    safetensors.numpy.save_file(tensors, model / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=message):
        load(model)


def test_too_few_layers_in_the_configuration(model):
    shallow = TransformerConfig(**{**vars(config_of(model)), "num_layers": 1})
    with pytest.raises(ValueError, match=r"unexpected key model\.layers\.1\..* and 8 more"):
        huggingface.load_params(model, shallow)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("max_shard_bytes", [10**9, 20_000])
def test_round_trip_is_exact(tmp_path, monkeypatch, dtype, max_shard_bytes):
    monkeypatch.setattr(writer, "MAX_SHARD_BYTES", max_shard_bytes)
    source = tiny.write_model(tmp_path / "model", tokenizer=False, dtype=dtype)
    params = load(source, param_dtype=dtype)
    described = huggingface.read_config(source) | {"_name_or_path": "/a/place/of/its/author"}
    out = huggingface.save_model(tmp_path / "out", params, described)
    files = sorted(out.glob("*.safetensors"))
    assert (len(files) > 3) == (max_shard_bytes == 20_000)
    assert (out / "model.safetensors.index.json").exists() == (len(files) > 1)
    if len(files) > 1:
        # Only a tensor that is larger than the limit by itself may exceed it.
        count = lambda file: len(safetensors.numpy.load_file(file))  # noqa: E731
        assert all(f.stat().st_size < 20_000 + 4_096 for f in files if count(f) > 1)
    assert huggingface.read_config(out)["torch_dtype"] == dtype
    assert "_name_or_path" not in huggingface.read_config(out)
    want, got = tensors_of(source), tensors_of(out)
    assert want.keys() == got.keys()
    for key in want:
        assert want[key].dtype == got[key].dtype
        assert want[key].tobytes() == got[key].tobytes(), key
    assert_same(load(out, param_dtype=dtype), params)


def test_end_tokens_of_the_configuration(tmp_path, model):
    out = huggingface.save_model(tmp_path / "out", load(model), huggingface.read_config(model))
    assert huggingface.read_generation_config(out) == {"eos_token_id": 303}


def test_an_existing_model_is_replaced_and_nothing_else(tmp_path, model):
    params, config = load(model), huggingface.read_config(model)
    (tmp_path / "mine").mkdir()
    huggingface.save_model(tmp_path / "mine", params, config)  # an empty directory is no loss
    (tmp_path / "mine/config.json").unlink()
    with pytest.raises(FileExistsError, match="mine exists and is not a model directory"):
        huggingface.save_model(tmp_path / "mine", params, config)
    assert (tmp_path / "mine/model.safetensors").is_file()
    shutil.rmtree(tmp_path / "mine")
    out = huggingface.save_model(tmp_path / "out", params, config)
    other = jax.tree.map(jnp.zeros_like, params)
    huggingface.save_model(out, other, config)
    assert_same(load(out), other)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "out"]


def test_failure_leaves_nothing_behind(tmp_path, model, monkeypatch):
    params, config = load(model), huggingface.read_config(model)
    out = huggingface.save_model(tmp_path / "out", params, config)
    before = huggingface.fingerprint(out)

    full = OSError(28, "No space left on device")
    rust = safetensors.SafetensorError("I/O error: No space left on device (os error 28)")
    for path, error in ((out, full), (tmp_path / "new", full), (out, rust)):

        def full_disk(*_args, error=error, **_kwargs):
            raise error

        monkeypatch.setattr(safetensors.numpy, "save_file", full_disk)
        with pytest.raises(OSError, match=rf"{path} could not be written: .*No space left"):
            huggingface.save_model(path, params, config)
    assert huggingface.fingerprint(out) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "out"]


def test_failure_of_the_rename_restores_the_old_directory(tmp_path, model, monkeypatch):
    params, config = load(model), huggingface.read_config(model)
    out = huggingface.save_model(tmp_path / "out", params, config)
    before = huggingface.fingerprint(out)
    original = pathlib.Path.rename

    def rename(self, target):
        if self.suffix == ".tmp":
            raise OSError("Input/output error")
        return original(self, target)

    monkeypatch.setattr(pathlib.Path, "rename", rename)
    with pytest.raises(OSError, match="Input/output error"):
        huggingface.save_model(out, jax.tree.map(jnp.zeros_like, params), config)
    assert huggingface.fingerprint(out) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "out"]


@pytest.mark.parametrize("name", ["rename", "rmtree"])
def test_a_signal_does_not_cut_a_replacement_in_two(tmp_path, monkeypatch, name):
    path, owner = tmp_path / "a", shutil if name == "rmtree" else pathlib.Path
    path.mkdir()
    call = getattr(owner, name)

    def struck(*arguments, **options):
        if arguments[0].name.endswith(".old") or name == "rename":
            monkeypatch.undo()
            signal.raise_signal(signal.SIGTERM)
        return call(*arguments, **options)

    ending = signals.ending(signal.SIGTERM), pytest.raises(SystemExit, match="143")
    with ending[0], ending[1], atomic.atomic_directory(path) as directory:
        (directory / "new").touch()
        monkeypatch.setattr(owner, name, struck)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert [p.name for p in path.iterdir()] == ["new"]


def test_parameters_that_are_not_finite_are_not_written(tmp_path, model):
    params, config = load(model), huggingface.read_config(model)
    params["norm"]["scale"] = params["norm"]["scale"].at[3].set(jnp.nan)
    with pytest.raises(ValueError, match=r"model\.norm\.weight holds NaN or infinity"):
        huggingface.save_model(tmp_path / "out", params, config)
    assert not (tmp_path / "out").exists()


def test_fingerprint_sees_every_byte_and_only_bytes(tmp_path):
    model = tiny.write_model(tmp_path / "model")
    want = huggingface.fingerprint(model)
    assert len(want) == 64
    assert int(want, 16) > 0
    copy = shutil.copytree(model, tmp_path / "copy")
    assert huggingface.fingerprint(copy) == want
    (copy / "README.md").write_text("hello")
    assert huggingface.fingerprint(copy) == want
    seen = {want}
    templates = "chat_template.jinja", "additional_chat_templates/tool_use.jinja"
    (copy / "additional_chat_templates").mkdir()
    for name in templates:
        (copy / name).write_text("{{ messages[0]['content'] }}")
        seen.add(huggingface.fingerprint(copy))
    described = "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"
    for name in (*described, *templates, "model.safetensors"):
        data = bytearray((copy / name).read_bytes())
        data[-20] ^= 1
        (copy / name).write_bytes(data)
        seen.add(huggingface.fingerprint(copy))
    assert len(seen) == 10
    (copy / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        huggingface.fingerprint(copy)


def test_resolve(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert huggingface.resolve(str(model)) == huggingface.resolve(model) == model
    with pytest.raises(NotADirectoryError, match=r"config\.json is a file"):
        huggingface.resolve(model / "config.json")
    with pytest.raises(FileNotFoundError, match="bad name! is neither a directory nor a model on"):
        huggingface.resolve("bad name!")
    with pytest.raises(FileNotFoundError, match="^nobody/nothing could not be fetched from the hub"):
        huggingface.resolve("nobody/nothing")
    monkeypatch.setattr("huggingface_hub.snapshot_download", None)  # never asked for a directory
    for name in ("/no/where", "./here", "../a/b", "~/nowhere", "no/such/directory"):
        with pytest.raises(FileNotFoundError, match=f"^{name}: no such directory; expected a model"):
            huggingface.resolve(name)


def test_a_dry_run_fetches_no_weights(tmp_path, monkeypatch):
    wanted = []

    def download(name, *, allow_patterns, **_):
        wanted.append(set(allow_patterns))
        return tmp_path

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert huggingface.resolve("some/model") == huggingface.resolve("some/model", weights=False)
    assert wanted[0] - wanted[1] == {"*.safetensors"} and "*.json" in wanted[1]


def test_resolve_finds_what_the_hub_cache_holds(tmp_path, monkeypatch):
    """The layout of a finished download: a snapshot that refs/main points to."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "models--some--model"
    tiny.write_model(repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    asked = []
    download = huggingface_hub.snapshot_download
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download",
        lambda name, **options: asked.append(options) or download(name, **options),
    )
    path = huggingface.resolve("some/model")
    template = "additional_chat_templates/tool_use.jinja"
    names = ["config.json", template, "onnx/config.json", "old/model.safetensors", "train.py"]
    assert list(filter_repo_objects(names, **asked[0])) == ["config.json", template]
    assert path == repo / "snapshots" / commit
    assert jax.tree.leaves(load(path))
