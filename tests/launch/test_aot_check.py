"""launch/aot_check.py on machines without a TPU."""

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
from unittest import mock

import jax
import numpy as np
import pytest

from genenv_jax.config import default_config, validate
from genenv_jax.experiment.arms import ARMS
from genenv_jax.models.config import Window
from genenv_jax.parallel.mesh import make_mesh
from tests import commands, tiny
from tests.commands import ROOT
from tests.sampling import small_model

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "launch")
    names = ("aot", "aot_check", "aot_costs", "aot_programs", "aot_table")
    aot, aot_check, aot_costs, aot_programs, aot_table = map(importlib.import_module, names)
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu, the TPU compiler, is not installed"
)
MADE = {"benchmark.name": "dial", "model.make.vocab_size": 512}
# Small in every way.
SMALL = {
    "model.remat": "none", "model.attention": "xla", "agent.batch_size": 8, "agent.minibatch_size": 8,
    "agent.micro_batches": 2, "agent.group_size": 4, "simulator.batch_size": 8, "simulator.minibatch_size": 8,
    "limits.agent_prompt": 16, "limits.agent_response": 8, "limits.simulator_prompt": 16,
    "limits.simulator_response": 8, "limits.prompt_buckets": (),
}  # fmt: skip


@pytest.fixture
def model(tmp_path):
    """A config.json of a decoder that compiles in seconds."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(tiny.config_dict()))
    return str(path)


def small_config(**settings):
    config = default_config()
    config.update_from_flattened_dict(MADE | SMALL | settings)
    return validate(config)


def test_every_program_is_called_as_a_run_calls_it(model):
    config = small_config()
    decoder = aot_check.model_config(model, config, 4)
    mesh = make_mesh(1, 4, 2, devices=jax.devices())
    for program in aot_programs.programs(config, decoder, mesh):
        assert program.lower()


def test_what_a_run_holds_and_computes(model):
    """Whole episodes; the other player's state if it is trained; the simulator's programs if it has any."""
    assert aot_programs.player_work(small_config(**{"limits.agent_episode": 64}))["agent"].completion == 64
    decoder = aot_check.model_config(model, small_config(), 0)
    mesh = make_mesh(1, 4, 2, devices=jax.devices())
    named = {}
    for arm in ("genenv", "frozen", "seeds"):
        of = small_config(**ARMS[arm])
        named[arm] = {program.name: program for program in aot_programs.programs(of, decoder, mesh)}
    assert named["genenv"].keys() - named["frozen"].keys() == {"update simulator (RWR)"}
    assert not any("simulator" in name for name in named["seeds"])
    sizes = aot_programs.tree_bytes(decoder, mesh, "float32", separate_start=True)
    score = named["genenv"]["score agent"]
    both = aot_programs.residents(score, sizes, "none", lora=False)
    alone = aot_programs.residents(score, sizes, "none", lora=False, other=False)
    assert both.keys() - alone.keys() == {"other parameters", "other moments"}
    assert alone.keys() == {"own parameters", "own moments", "other reference"}


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("lora", [0, 4])
def test_every_program(model, lora):
    """What main() measures: with adapters, all but the base waits in host memory while another phase runs."""
    config = small_config(**{"memory.offload": "phase"} if lora else {})
    part = aot.parse_slice("v5e:2x2")
    decoder = aot_check.model_config(model, config, lora)
    mesh = aot_check.choose_mesh("1,2,2" if lora else "auto", config, decoder, aot.slice_devices(part))
    rows = {row.name: row for row in aot_check.measure_all(config, decoder, mesh, part, [])}
    assert list(rows) == [
        "prefill agent", "decode agent", "score agent", "old logp agent",
        "prefill simulator", "decode simulator", "score simulator", "old logp simulator",
        "update agent (GRPO)", "update simulator (RWR)",
    ]  # fmt: skip
    for row in rows.values():
        footprint = row.footprint
        parts = ("arguments", "temporaries", "outputs", "code")
        assert not footprint["error"] and footprint["total"] == sum(footprint[k] for k in parts)
        assert row.total == footprint["total"] + sum(row.residents.values())
        assert footprint["collectives"]  # the parameters are split over the chips
        assert row.flops > 0 and row.traffic > 0 and row.seconds > 0
    trees = aot_programs.tree_bytes(decoder, mesh, config.memory.moments)
    score, update = rows["score agent"], rows["update agent (GRPO)"]
    if lora:
        assert trees["own parameters"] < trees["reference"] and score.residents == {}
        return
    # float32 parameters, two moments of the same size, and the reference in bfloat16.
    assert trees["own parameters"] == 2 * trees["reference"]
    assert 0 <= trees["own moments"] - 2 * trees["own parameters"] < 100
    assert score.footprint["arguments"] >= trees["reference"]
    assert score.residents == {k: v for k, v in trees.items() if k != "reference"}
    state = trees["own parameters"] + trees["own moments"]
    assert update.footprint["arguments"] >= state
    assert update.footprint["aliased"] >= 0.99 * state  # donated, and written in place
    assert update.residents == {k: trees[k] for k in ("other moments", "other parameters", "reference")}


LIBTPU = 'libtpu==0.0.42.*; extra == "tpu"'


@pytest.mark.parametrize(
    ("installed", "requirement", "found"),
    [
        ("0.0.42.1", LIBTPU, ("0.0.42.1", "")),
        ("0.0.52", LIBTPU, ("0.0.52", "==0.0.42.*")),
        ("0.0.52", "scipy>=1.14", ("0.0.52", "")),
        (None, LIBTPU, ("of unknown version", "==0.0.42.*")),
    ],
)
def test_compiler_of_another_jax(monkeypatch, installed, requirement, found):
    def version(name):
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr("importlib.metadata.version", version)
    monkeypatch.setattr("importlib.metadata.requires", {"jax": ["numpy>=2.0", requirement]}.get)
    assert aot.compiler() == found


def command(*arguments, config="configs/bfcl.py", environment=None, **settings):
    """Exit code, standard output and standard error of the command."""
    given = {"config": config} | {f"config.{k}": v for k, v in (SMALL | settings).items()}
    flags = (f"--{key}={value}" for key, value in given.items())
    environment = {"XLA_FLAGS": ""} | (environment or {})
    done = commands.command("launch/aot_check.py", *flags, *arguments, **environment)
    return done.returncode, done.stdout, done.stderr


@needs_libtpu
@pytest.mark.slow
def test_the_table_and_the_verdict(model):
    """A small model fits anywhere; two players of 7 B parameters do not fit four chips."""
    only = "--programs=score agent"
    code, out, err = command(only, f"--model={model}", "--topology=v5e:2x2")
    assert (code, err) == (0, "")
    assert "LoRA" not in out and "on v5e-4 (v5e:2x2, 4 chips of 15.75 GiB)" in out.splitlines()[0]
    assert out.splitlines()[-1].startswith("FITS: 'score agent' needs")

    code, out, _ = command(only, f"--model={model}", "--topology=v5e:2x2", "--lora=4", "--json")
    assert code == 0 and json.loads(out)["lora"] == 4

    code, out, _ = command(only, "--model=Qwen2.5-7B", "--topology=v5e-4")
    assert code == 1
    assert "DOES NOT FIT by" in out
    assert out.splitlines()[-1].startswith("DOES NOT FIT: 'score agent' needs")


def test_what_cannot_be_checked_is_one_line(model, tmp_path):
    """An unknown slice; and libtpu, where a module that cannot be imported stands for a missing one."""
    (tmp_path / "libtpu.py").write_text("raise ImportError('no libtpu')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    for topology, message in (("h100-8", "topology 'h100-8'"), ("v5e:2x2", 'install "jax[tpu]"')):
        given = (f"--model={model}", f"--topology={topology}")
        code, out, err = command(*given, environment={"PYTHONPATH": path})
        assert (code, out) == (2, "") and message in err and len(err.splitlines()) == 1


@needs_libtpu
@pytest.mark.parametrize(
    ("mesh", "changes", "message"),
    [
        ("4", {}, "--mesh='4': expected data,fsdp,tensor such as 1,16,1, or auto"),
        ("1,3,1", {}, r"fsdp=3, tensor=1\) needs 3 devices, but there are 4"),
        ("1,1,4", {}, "'mlp'.* has size 50.* such as 2"),
        ("auto", {"agent.minibatch_size": 3, "agent.micro_batches": 3}, "no mesh of 4 chips suits"),
    ],
)
def test_meshes_that_do_not_fit(tmp_path, mesh, changes, message):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(tiny.config_dict(intermediate_size=50, hidden_size=36, head_dim=8)))
    config = small_config(**changes)
    decoder = aot_check.model_config(str(path), config, 0)
    devices = aot.slice_devices(aot.parse_slice("v5e:2x2"))
    with pytest.raises(ValueError, match=message):
        aot_check.choose_mesh(mesh, config, decoder, devices)


@needs_libtpu
@pytest.mark.parametrize(
    ("minibatch", "want"),
    [
        (16, {"data": 1, "fsdp": 16, "tensor": 1}),
        (8, {"data": 1, "fsdp": 8, "tensor": 2}),  # fewer prompts than chips: split the model too
        (2, {"data": 1, "fsdp": 2, "tensor": 8}),
    ],
)
def test_a_mesh_is_picked(minibatch, want):
    sizes = {f"{p}.minibatch_size": minibatch for p in ("agent", "simulator")}
    sizes |= {f"{p}.batch_size": 64 for p in ("agent", "simulator")}
    config = small_config(**sizes, **{"agent.micro_batches": 1})
    decoder = aot_check.model_config("Qwen2.5-14B", config, 0)
    devices = aot.slice_devices(aot.parse_slice("v5e:4x4"))
    assert dict(aot_check.choose_mesh("auto", config, decoder, devices).shape) == want


def test_models(tmp_path):
    config = small_config()
    decoder = aot_check.model_config("Qwen/Qwen2.5-7B-Instruct", config, 8)
    assert (decoder.hidden_size, decoder.lora.rank, decoder.dtype) == (3584, 8, "bfloat16")
    assert aot_check.model_config("", config, 0).vocab_size == 512
    path = tmp_path / "config.json"
    path.write_text("{")
    with pytest.raises(ValueError, match="config.json: not JSON"):
        aot_check.model_config(str(path), config, 0)
    path.write_text(json.dumps(tiny.config_dict(model_type="gpt2")))
    with pytest.raises(ValueError, match="gpt2"):
        aot_check.model_config(str(path), config, 0)


def _programs(config, decoder):
    """(programs by name on one device, its mesh, the agent's work)."""
    mesh = make_mesh(1, 1, 1, devices=jax.devices()[:1])
    programs = {p.name: p for p in aot_programs.programs(config, decoder, mesh)}
    return programs, mesh, aot_programs.player_work(config)["agent"]


@pytest.mark.slow
def test_operations_are_counted_as_the_compiler_counts_them(model):
    """Layers unrolled, one micro-batch and one chunk: then the compiler's figure is complete."""
    config = small_config(**{"agent.micro_batches": 1, "model.dtype": "float32"})
    decoder = aot_check.model_config(model, config, 0)
    wide = {"hidden_size": 256, "head_dim": 32, "intermediate_size": 512}
    decoder = dataclasses.replace(decoder, unroll_layers=True, **wide)
    programs, _, work = _programs(config, decoder)
    for name in ("prefill agent", "score agent", "update agent (GRPO)"):
        counted = programs[name].lower().compile().cost_analysis()["flops"]
        assert aot_costs.flops(programs[name], work, decoder) == pytest.approx(counted, rel=0.1)


def test_the_roofline():
    """Decoding is bound by what it reads; an update by its operations, to which remat adds a third."""
    config = small_config(**{"model.remat": "full", "limits.agent_prompt": 2048})
    decoder = aot_check.model_config("Qwen2.5-0.5B", config, 0)
    programs, mesh, work = _programs(config, decoder)
    decode, update = programs["decode agent"], programs["update agent (GRPO)"]
    part = aot.parse_slice("v5e-1")
    read = aot_costs.memory_traffic(decode, work, decoder, mesh)
    assert aot_costs.least_seconds(decode, work, decoder, mesh, part) == read / 819e9
    rate = aot_costs.flops(update, work, decoder) / aot_costs.least_seconds(update, work, decoder, mesh, part)
    assert rate / 197e12 == pytest.approx(0.75)


@pytest.mark.parametrize("tokens", [3, 16])
def test_windows_leave_out_pairs_and_cached_keys(tokens):
    """As counted in the mask of each layer, and in its cache."""
    config = dataclasses.replace(small_model.CONFIG, window=Window(5, (True, False, True), 1e4), num_layers=3)
    back = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    masks = [(back >= 0) & (back < (5 if local else tokens)) for local in config.window.layers]
    assert aot_costs._pairs(config, tokens) == sum(map(np.sum, masks))
    assert aot_costs._cached(config, tokens) == sum(mask[-1].sum() for mask in masks)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("v5e:4x4", ("v5e-16", "v5e:4x4", 16, 15.75)),
        ("v5litepod-8", ("v5e-8", "v5e:2x4", 8, 15.75)),
        ("v5p-8", ("v5p-8", "v5p:2x2x1", 4, 95.0)),
        ("V5P:2x2x2", ("v5p-16", "v5p:2x2x2", 8, 95.0)),
    ],
)
def test_names_of_slices(text, want):
    part = aot.parse_slice(text)
    assert (part.name, part.topology, part.chips, part.hbm) == want


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v5e", "expected a generation"),
        ("v5e-12", r"expected one of \['v5e-1', 'v5e-4', 'v5e-8'"),
        ("v5e:2x2x1", "v5e shapes have 2 dimensions"),
        pytest.param("v5e:3x5", "refused by the TPU compiler", marks=needs_libtpu),
    ],
)
def test_names_that_no_slice_has(text, message):
    with pytest.raises(ValueError, match=message):
        aot.slice_devices(aot.parse_slice(text))


def test_failures_of_the_compiler():
    """Too little memory is a result; anything else is raised."""
    failing = lambda message: mock.Mock(**{"compile.side_effect": RuntimeError(message)})  # noqa: E731
    for message, gib in (
        ("RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory "
         "required for HLO temporaries (57.44G) exceeds available HBM (15.75G). HLO module: f.", 57.44),
        ("Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm. Exceeded by", 20.5),
    ):  # fmt: skip
        got = aot.measure(failing(message))
        assert got.total == int(gib * 2**30) and got.arguments is None and got.error
    with pytest.raises(RuntimeError, match="Mosaic failed"):
        aot.measure(failing("INTERNAL: Mosaic failed"))


def test_the_table_of_slices():
    """A cell that fits with the other player in host memory, one that cannot, and one that failed."""
    gib = 2**30
    trees = dict.fromkeys(
        (f"{whose} {what}" for whose in ("own", "other") for what in ("parameters", "moments")), gib
    )

    def program(name, phase, size, seconds):
        footprint = {"total": size * gib}
        return {
            "name": name, "phase": phase, "footprint": footprint, "flops": 100e12, "seconds": seconds
        }  # fmt: skip

    programs = [
        program("prefill simulator", "sample", 3, 0.1),
        program("decode simulator", "sample", 4, 0.5),
        program("score simulator", "score", 2, 0.2),
        program("update agent (GRPO)", "update", 13, 1.0),
        program("update simulator (RWR)", "update", 12, 1.0),
    ]
    cell = ("Qwen2.5-0.5B", 0, "v5e-1")
    result = {"lora": 0, "trees": trees | {"reference": gib}, "programs": programs}
    shared = {"settings": aot_table.settings(cell[1], chips=1), "hbm": 15.75}
    lines = {
        cell: shared | {"cell": list(cell), "result": result, "seconds": 41},
        ("Qwen2.5-7B", 0, "v5e-1"): shared | {"impossible": "too large"},
        ("Qwen2.5-7B", 0, "v5e-4"): shared | {"failed": "no result after 9 s"},
    }
    head, *rows = aot_table.table(lines)
    first = dict(zip(head, rows[0], strict=True))
    # 13 GiB, plus the other player's two trees and the reference, or the reference alone.
    assert first["GRPO"] == "13.0" and (first["none"], first["player"]) == ("16.0", "14.0")
    assert first["fits with"] == "player" and first["seconds to compile"] == "41"
    assert first["most tokens/s"] == f"{32 * 4 * 16 / 0.5:.0f}" and first["most MFU"] == "51%"
    assert "no (too large)" in rows[1] and "not compiled: no result after 9 s" in rows[2]
    summary = aot_table.summary(lines)
    assert "| Qwen2.5-0.5B | full |" in summary and " player |" in summary
