"""Reading and writing model directories: exact both ways, and every fault named."""

import json
import pathlib
import shutil
import signal

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import transformers

from genenv_jax import signals
from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.huggingface import atomic
from genenv_jax.parallel.rules import param_shapes
from tests import tiny

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


def rewrite(path, change):
    """Applies `change` to the dict of a single file's tensors."""
    tensors = dict(tensors_of(path))
    change(tensors)
    safetensors.numpy.save_file(tensors, path / "model.safetensors", {"format": "pt"})


@pytest.fixture
def model(tmp_path):
    return tiny.write_model(tmp_path / "model", tokenizer=False)


@pytest.fixture
def sharded(tmp_path):
    return tiny.write_model(tmp_path / "sharded", tokenizer=False, shards=3)


# --- reading ---


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shards", [1, 3])
def test_all_types_and_shards_give_the_same_parameters(tmp_path, model, dtype, shards):
    path = tiny.write_model(tmp_path / "other", tokenizer=False, dtype=dtype, shards=shards)
    params = load(path)
    assert_same(params, load(model))
    shapes = param_shapes(config_of(path))
    assert jax.tree.map(lambda x: x.shape, params) == jax.tree.map(lambda x: x.shape, shapes)


def test_parameters_keep_the_type_asked_for(model):
    params = load(model, param_dtype=jnp.bfloat16)
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype(jnp.bfloat16)}
    want = jax.tree.map(lambda x: x.astype(jnp.bfloat16), load(model))
    assert_same(params, want)


def test_layout_of_each_kernel(model):
    """Independent of the table: what Linen contracts is what PyTorch's (out, in) rows contract."""
    params, tensors = load(model), tensors_of(model)
    layers = params["layers"]
    k = tensors["model.layers.0.self_attn.k_proj.weight"]
    np.testing.assert_array_equal(layers["attention"]["k"]["kernel"][0, :, 1], k[8:16].T)
    o = tensors["model.layers.1.self_attn.o_proj.weight"]
    np.testing.assert_array_equal(layers["attention"]["o"]["kernel"][1, 3], o[:, 24:].T)
    up = tensors["model.layers.1.mlp.up_proj.weight"]
    np.testing.assert_array_equal(layers["mlp"]["up"]["kernel"][1], up.T)
    np.testing.assert_array_equal(params["lm_head"]["kernel"], tensors["lm_head.weight"].T)
    np.testing.assert_array_equal(params["embedding"], tensors["model.embed_tokens.weight"])


def test_large_matrices_are_transposed_whole(tmp_path):
    """More rows than one strip of the blocked transpose, and not a multiple of it."""
    path = tiny.write_model(
        tmp_path / "model", tokenizer=False, vocab_size=333, intermediate_size=130, hidden_size=72
    )
    params, tensors = load(path), tensors_of(path)
    np.testing.assert_array_equal(params["lm_head"]["kernel"], tensors["lm_head.weight"].T)
    gate = tensors["model.layers.0.mlp.gate_proj.weight"]
    np.testing.assert_array_equal(params["layers"]["mlp"]["gate"]["kernel"][0], gate.T)


def test_tied_checkpoint_may_carry_an_equal_head(tmp_path):
    path = tiny.write_model(tmp_path / "model", tokenizer=False, tie_word_embeddings=True)
    want = load(path)
    assert "lm_head" not in want
    embedding = tensors_of(path)["model.embed_tokens.weight"]
    rewrite(path, lambda t: t.update({"lm_head.weight": embedding}))
    assert_same(load(path), want)
    rewrite(path, lambda t: t.update({"lm_head.weight": embedding + np.float32(2**-20)}))
    with pytest.raises(
        ValueError, match=r"model\.safetensors: lm_head\.weight differs .* tie_word"
    ):
        load(path)


# --- faults of a checkpoint ---


def test_missing_directory_and_config(tmp_path):
    with pytest.raises(FileNotFoundError, match="directory .*nowhere does not exist"):
        huggingface.read_config(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"holds no config\.json"):
        huggingface.read_config(tmp_path)


@pytest.mark.parametrize("text", ["{", "", "\xff", "[" * 100_000])
def test_config_that_is_not_json(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode("latin1"))
    with pytest.raises(ValueError, match=r"config\.json is not valid JSON"):
        huggingface.read_config(tmp_path)


def test_config_that_is_no_object(tmp_path):
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"config\.json holds a JSON list; expected an object"):
        huggingface.read_config(tmp_path)


def test_no_weights(model):
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"neither model\.safetensors.*pytorch_model\.bin"):
        load(model)


def test_missing_shard(sharded):
    (sharded / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"00002-of-00003\.safetensors is missing; .* expects"
    ):
        load(sharded)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "is not valid JSON"),
        ("{}", "lacks 'weight_map'"),
        ('{"weight_map": {"a": "../../etc/passwd"}}', "a is mapped to '../../etc/passwd'"),
        ('{"weight_map": {"a": 3}}', "a is mapped to 3; expected a plain file name"),
    ],
)
def test_damaged_index(sharded, index, message):
    (sharded / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ValueError, match=message):
        load(sharded)


def test_index_that_disagrees_with_a_shard(sharded):
    file = sharded / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    index["weight_map"]["extra.weight"] = index["weight_map"].pop(Q)
    file.write_text(json.dumps(index))
    with pytest.raises(ValueError, match=rf"missing key extra\.weight; unexpected key {Q}"):
        load(sharded)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-100],
        lambda data: data[: len(data) // 2],
        lambda data: data[:20],
        lambda data: data[:3],
        lambda data: b"",
        lambda data: data + b"tail",
        lambda data: b"\xff" * 8 + data[8:],
        lambda data: data[:30] + b"\x00" * 40 + data[70:],
    ],
    ids=["tail-cut", "half", "header-cut", "3-bytes", "empty", "longer", "header-size", "header"],
)
def test_truncated_or_damaged_file(model, damage):
    file = model / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"model\.safetensors is not a whole safetensors file"):
        load(model)


def test_wrong_shape(model):
    rewrite(model, lambda t: t.update({Q: t[Q][:-1]}))
    with pytest.raises(
        ValueError, match=rf"model\.safetensors: {Q} has shape \(31, 32\); expected \(32, 32\)"
    ):
        load(model)


def test_transposed_kernel_is_not_taken_for_the_right_one(model):
    key = "model.layers.0.mlp.up_proj.weight"
    rewrite(model, lambda t: t.update({key: np.ascontiguousarray(t[key].T)}))
    with pytest.raises(ValueError, match=rf"{key} has shape \(32, 48\); expected \(48, 32\)"):
        load(model)


def test_unexpected_key(model):
    rewrite(model, lambda t: t.update({"model.layers.2.mlp.bias": t[Q]}))
    with pytest.raises(
        ValueError, match=r"safetensors: unexpected key model\.layers\.2\.mlp\.bias"
    ):
        load(model)


@pytest.mark.parametrize("key", [Q, "lm_head.weight", "model.layers.0.self_attn.v_proj.bias"])
def test_missing_key(model, key):
    rewrite(model, lambda t: t.pop(key))
    with pytest.raises(ValueError, match=rf"model: missing key {key}; expected {key} of shape \("):
        load(model)


def test_too_few_layers_in_the_configuration(model):
    config = config_of(model)
    shallow = TransformerConfig(**{**vars(config), "num_layers": 1})
    with pytest.raises(ValueError, match=r"unexpected key model\.layers\.1\..* and 8 more"):
        huggingface.load_params(model, shallow)


def test_integer_weights(model):
    rewrite(model, lambda t: t.update({Q: t[Q].astype(np.int8)}))
    with pytest.raises(ValueError, match=rf"{Q} has type I8; expected one of F32, BF16, F16"):
        load(model)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_nan_or_infinity(model, bad, dtype):
    def spoil(tensors):
        tensors[Q] = tensors[Q].astype(dtype)
        tensors[Q][17, 5] = bad

    rewrite(model, spoil)
    with pytest.raises(ValueError, match=rf"model\.safetensors: {Q} holds NaN or infinity"):
        load(model)


def test_shardings_of_another_model(model):
    shardings = {"embedding": jax.sharding.SingleDeviceSharding(jax.devices()[0])}
    with pytest.raises(
        ValueError, match="shardings do not fit the parameters: layers/.* and 10 more"
    ):
        load(model, shardings=shardings)


# --- writing ---


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("max_shard_bytes", [10**9, 20_000])
def test_round_trip_is_exact(tmp_path, dtype, max_shard_bytes):
    source = tiny.write_model(tmp_path / "model", tokenizer=False, dtype=dtype)
    params = load(source, param_dtype=dtype)
    out = huggingface.save_model(
        tmp_path / "out",
        params,
        huggingface.read_config(source) | {"_name_or_path": "/a/place/of/its/author"},
        max_shard_bytes=max_shard_bytes,
    )
    files = sorted(out.glob("*.safetensors"))
    assert (len(files) > 3) == (max_shard_bytes == 20_000)
    assert (out / "model.safetensors.index.json").exists() == (len(files) > 1)
    if len(files) > 1:
        # Only a tensor that is larger than the limit by itself may exceed it.
        assert all(f.stat().st_size < 20_000 + 4_096 for f in files if len(tensors_at(f)) > 1)
    assert huggingface.read_config(out)["torch_dtype"] == dtype
    assert "_name_or_path" not in huggingface.read_config(out)
    want, got = tensors_of(source), tensors_of(out)
    assert want.keys() == got.keys()
    for key in want:
        assert want[key].dtype == got[key].dtype
        assert want[key].tobytes() == got[key].tobytes(), key
    assert_same(load(out, param_dtype=dtype), params)


def tensors_at(file):
    return safetensors.numpy.load_file(file)


def test_full_float32_round_trip(tmp_path, model):
    """Values that need every bit."""
    params = jax.tree.map(lambda x: x * jnp.float32(1 / 3), load(model))
    out = huggingface.save_model(tmp_path / "out", params, huggingface.read_config(model))
    assert_same(load(out), params)


def save_with_tokenizer(path, source, **options):
    """Reads `source` and writes it to `path`."""
    return huggingface.save_model(
        path,
        load(source),
        huggingface.read_config(source),
        transformers.AutoTokenizer.from_pretrained(source),
        generation_config=huggingface.read_generation_config(source),
        **options,
    )


def test_saved_tokenizer_and_generation_config_load_in_transformers(tmp_path, tiny_model):
    out = save_with_tokenizer(tmp_path / "out", tiny_model)
    assert transformers.GenerationConfig.from_pretrained(out).eos_token_id == [303, 301]
    text = "The agent<|im_end|>\n é"
    got, want = (transformers.AutoTokenizer.from_pretrained(p)(text) for p in (out, tiny_model))
    assert got == want


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("max_shard_bytes", [10**9, 20_000])
def test_saved_model_loads_in_transformers(tmp_path, tied, max_shard_bytes):
    torch = pytest.importorskip("torch")
    source = tiny.write_model(tmp_path / "model", tie_word_embeddings=tied)
    out = save_with_tokenizer(tmp_path / "out", source, max_shard_bytes=max_shard_bytes)
    tokens = torch.arange(3, 40)[None]
    with torch.no_grad():
        got, want = (
            transformers.AutoModelForCausalLM.from_pretrained(p).eval()(tokens).logits
            for p in (out, source)
        )
    assert torch.equal(got, want)


def save_bfloat16(path, model):
    return huggingface.save_model(
        path, load(model), huggingface.read_config(model), dtype="bfloat16"
    )


def test_type_on_disk(tmp_path, model):
    out = save_bfloat16(tmp_path / "out", model)
    assert {x.dtype for x in tensors_of(out).values()} == {np.dtype(ml_dtypes.bfloat16)}
    assert_same(load(out), load(model))  # the tiny weights are exact in bfloat16


@pytest.mark.slow
def test_type_on_disk_is_that_in_transformers(tmp_path, model):
    torch = pytest.importorskip("torch")
    out = save_bfloat16(tmp_path / "out", model)
    assert transformers.AutoModelForCausalLM.from_pretrained(out).dtype == torch.bfloat16


def test_end_tokens_come_from_the_configuration(tmp_path, model):
    out = huggingface.save_model(tmp_path / "out", load(model), huggingface.read_config(model))
    assert huggingface.read_generation_config(out) == {"eos_token_id": 303}


def test_existing_directory_is_kept_unless_told(tmp_path, model):
    params, config = load(model), huggingface.read_config(model)
    out = tmp_path / "out"
    out.mkdir()
    huggingface.save_model(out, params, config)  # an empty directory is no loss
    before = huggingface.fingerprint(out)
    other = jax.tree.map(jnp.zeros_like, params)
    with pytest.raises(FileExistsError, match="out exists"):
        huggingface.save_model(out, other, config)
    assert huggingface.fingerprint(out) == before
    huggingface.save_model(out, other, config, overwrite=True)
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
            huggingface.save_model(path, params, config, overwrite=True)
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
        huggingface.save_model(out, jax.tree.map(jnp.zeros_like, params), config, overwrite=True)
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


def test_parameters_that_do_not_fit(tmp_path, model):
    params, config = load(model), huggingface.read_config(model)
    with pytest.raises(ValueError, match=r"embedding has shape \(320, 32\), expected \(321, 32\)"):
        huggingface.save_model(tmp_path / "out", params, config | {"vocab_size": 321})
    with pytest.raises(ValueError, match=r"lm_head/kernel has shape \(32, 320\), expected None"):
        huggingface.save_model(tmp_path / "out", params, config | {"tie_word_embeddings": True})
    params["norm"]["scale"] = params["norm"]["scale"].at[3].set(jnp.nan)
    with pytest.raises(ValueError, match=r"model\.norm\.weight holds NaN or infinity"):
        huggingface.save_model(tmp_path / "out", params, config)
    assert not (tmp_path / "out").exists()


# --- naming ---


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
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        data = bytearray((copy / name).read_bytes())
        data[-20] ^= 1
        (copy / name).write_bytes(data)
        seen.add(huggingface.fingerprint(copy))
    assert len(seen) == 4
    (copy / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        huggingface.fingerprint(copy)


def test_fingerprint_of_shards(sharded):
    want = huggingface.fingerprint(sharded)
    file = sharded / "model-00003-of-00003.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert huggingface.fingerprint(sharded) != want


def test_resolve(model, tmp_path):
    assert huggingface.resolve(model) == model
    assert huggingface.resolve(str(model)) == model
    with pytest.raises(NotADirectoryError, match=r"config\.json is a file"):
        huggingface.resolve(model / "config.json")


@pytest.mark.parametrize(
    "name", ["/no/where", "./here", "../a/b", "~/nowhere", "no/such/directory"]
)
def test_a_directory_is_never_asked_for_on_the_hub(name, monkeypatch):
    monkeypatch.setattr("huggingface_hub.snapshot_download", None)
    with pytest.raises(FileNotFoundError, match=f"^{name}: no such directory; expected a model"):
        huggingface.resolve(name)


def test_resolve_names_what_was_tried(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "bad name!"
    with pytest.raises(FileNotFoundError) as caught:
        huggingface.resolve(name)
    text = str(caught.value)
    assert text.startswith(f"{name} is neither a directory nor a model on the hub; tried")
    assert str((tmp_path / name).absolute()) in text
    assert len(text) < 1_000


def test_a_hub_out_of_reach_is_one_line():
    with pytest.raises(FileNotFoundError) as caught:
        huggingface.resolve("nobody/nothing")
    assert str(caught.value) == (
        "nobody/nothing could not be fetched from the hub (no network?) and is not cached; give a directory "
        "with --config.model.path=DIR"
    )


def test_resolve_finds_what_the_hub_cache_holds(tmp_path, monkeypatch):
    """The layout of a finished download: a snapshot that refs/main points to."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "models--some--model"
    tiny.write_model(repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    path = huggingface.resolve("some/model")
    assert path == repo / "snapshots" / commit
    assert jax.tree.leaves(load(path))
