"""Checks whether a configuration fits a TPU slice, before you pay for the slice.

    python launch/aot_check.py --config=configs/bfcl.py --topology=v5e:4x4

compiles every program of the run with the TPU compiler, which needs no TPU.  It prints what each program
needs on one chip, together with everything else resident at that time.  It runs nothing and reads no weights.

    --model=Qwen2.5-7B       a published shape (launch/published_models.json), a directory, a config.json
                             or a hub id; by default the configuration's model
    --mesh=1,16,1            data, fsdp, tensor; "auto": the configuration's, or one that divides everything
    --lora=32                rank of the adapters; by default the configuration's
    --programs=sample,score  only programs whose names contain one of these
    --fast                   compile with little effort: a fifth of the time, up to a fifth more memory
    --json                   one JSON object instead of the table
    --config.KEY=VALUE       any setting, such as --config.memory.offload=player

Exit code 0: everything fits; 1: something does not; 2: bad input, with a one-line message.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import sys
from typing import TYPE_CHECKING, Any

# Described devices are enough to compile for TPUs; this process must not take an accelerator.
os.environ["JAX_PLATFORMS"] = "cpu"

from absl import flags

from genenv_jax import cli

if TYPE_CHECKING:
    from genenv_jax.config import Config

GIB = 2**30
_SHAPES = pathlib.Path(__file__).with_name("published_models.json")


def read_model(name: str, config: Config) -> dict[str, Any]:
    """Reads the config.json that `name` refers to: a published shape, a file, a directory or a hub id."""
    from genenv_jax.models import huggingface

    shapes = json.loads(_SHAPES.read_text(encoding="utf-8"))
    short = name.rsplit("/", 1)[-1].removesuffix("-Instruct")
    if short in shapes and not pathlib.Path(name).exists():
        return shapes[short]
    if not name:
        return made_model(config)
    path = pathlib.Path(name)
    if path.suffix == ".json":
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: not JSON ({error}); expected a config.json") from None
    try:
        return huggingface.read_config(huggingface.resolve(name, weights=False))
    except FileNotFoundError as error:
        raise ValueError(f"--model={name}: {error}; published shapes are {sorted(shapes)}") from error


def made_model(config: Config) -> dict[str, Any]:
    """The config.json of the small model that a configuration creates itself."""
    c = config.model.make
    return {
        "model_type": "qwen2",
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads,
        "tie_word_embeddings": True,
    }


def model_config(name: str, config: Config, lora_rank: int | None):
    """The players' decoder: --model or the configuration's model, with the configured options."""
    from genenv_jax.models.config import TransformerConfig

    lora = config.lora
    if lora_rank is not None:
        lora = dataclasses.replace(lora, rank=lora_rank)
    shape = read_model(name or config.model.path, config)
    options = config.model.options("tpu") | {"lora": lora if lora.rank else None}
    return TransformerConfig.from_huggingface(shape, **options)


def choose_mesh(text: str, config: Config, model, devices):
    """The mesh requested by --mesh.

    "auto" takes the configuration's sizes if they fit devices, model and batches; otherwise the
    widest "fsdp" that fits, then "tensor", then "data".  Raises ValueError if nothing fits.
    """
    from genenv_jax.parallel.mesh import make_mesh

    if text != "auto":
        sizes = text.split(",")
        if len(sizes) != 3 or not all(size.strip().lstrip("-").isdigit() for size in sizes):
            raise ValueError(f"--mesh={text!r}: expected data,fsdp,tensor such as 1,16,1, or auto")
        mesh = make_mesh(*map(int, sizes), devices=devices)
        check_mesh(mesh, config, model)
        return mesh
    chips = len(devices)
    wanted = (config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    divisors = [n for n in range(chips, 0, -1) if chips % n == 0]
    candidates = [
        (chips // (fsdp * tensor), fsdp, tensor)
        for fsdp in divisors
        for tensor in reversed(divisors)
        if chips % (fsdp * tensor) == 0
    ]
    candidates.sort(key=lambda sizes: (-sizes[1], sizes[0]))
    reasons = []
    for sizes in [wanted, *candidates]:
        try:
            mesh = make_mesh(*sizes, devices=devices)
            check_mesh(mesh, config, model)
            return mesh
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError(f"no mesh of {chips} chips suits model and batches; as configured: {reasons[0]}")


def check_mesh(mesh, config: Config, model) -> None:
    """Raises ValueError if a mesh does not divide the model or the batches."""
    from genenv_jax.parallel.rules import param_shardings
    from genenv_jax.players.build import check_batches

    check_batches(config, mesh)
    param_shardings(model, mesh)


@dataclasses.dataclass(frozen=True)
class Row:
    """A program in the table: bytes per chip, flops of all chips, memory traffic of one, least seconds."""

    name: str
    phase: str
    footprint: dict[str, Any]
    residents: dict[str, int]
    flops: float
    traffic: float
    seconds: float

    @property
    def total(self) -> int:
        return self.footprint["total"] + sum(self.residents.values())


def measure_all(config: Config, model, mesh, part, wanted: list[str], report=lambda row: None):
    """Compiles the programs whose names contain one of `wanted` (all if empty); returns their rows.

    Compiles one program per core at a time, because a compilation keeps one core busy.
    """
    import aot
    import aot_costs
    import aot_programs

    sizes = aot_programs.tree_bytes(model, mesh, config.memory.moments, config.separate_start)
    work = aot_programs.player_work(config)
    programs = [
        program
        for program in aot_programs.programs(config, model, mesh)
        if not wanted or any(name in program.name for name in wanted)
    ]
    rows = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        compiling = [pool.submit(aot.measure, program.lower()) for program in programs]
        for program, footprint in zip(programs, compiling, strict=True):
            other = config.trains_simulator or program.player == "simulator"
            beside = aot_programs.residents(program, sizes, config.memory.offload, bool(model.lora), other)
            row = Row(
                program.name,
                program.phase,
                dataclasses.asdict(footprint.result()),
                beside,
                aot_costs.flops(program, work[program.player], model),
                aot_costs.memory_traffic(program, work[program.player], model, mesh),
                aot_costs.least_seconds(program, work[program.player], model, mesh, part),
            )
            rows.append(row)
            report(row)
    return rows


_COLUMNS = ("arguments", "temporaries", "outputs", "aliased")


def table_header() -> str:
    """The table's header line."""
    names = ("args", "temp", "out", "(alias)", "beside", "total", "left")
    names += ("TFLOP", "GiB r/w", "least s", "most MFU")
    return f"{'program':24}" + "".join(f"{name:>9}" for name in names)


def table_row(row: Row, part) -> str:
    """One line of the table: GiB per chip, TFLOP per chip, and the roofline."""
    limit = part.hbm
    cells = [row.footprint[name] for name in _COLUMNS]
    cells += [sum(row.residents.values()), row.total, limit * GIB - row.total]
    text = "".join("        -" if x is None else f"{x / GIB:9.2f}" for x in cells)
    operations = row.flops / part.chips
    text += f"{operations / 1e12:9.1f}{row.traffic / GIB:9.1f}"
    text += f"{row.seconds:9.3g}{operations / row.seconds / part.peaks[0]:9.0%}"
    left = limit - row.total / GIB
    verdict = f"fits, {left:.2f} left" if left >= 0 else f"DOES NOT FIT by {-left:.2f}"
    return f"{row.name:24}{text}  {verdict}"


def collective_lines(rows: list[Row]) -> list[str]:
    """Lines that list each program's collectives by kind."""
    lines = []
    for row in rows:
        kinds = row.footprint["collectives"]
        if row.footprint["error"]:
            text = row.footprint["error"]
        elif kinds is None:
            text = "the compiler cannot print this program"
        else:
            text = ", ".join(f"{kind} {count}" for kind, count in kinds.items()) or "none"
        lines.append(f"  {row.name:24}{text}")
    return lines


def main() -> None:
    """Reads the flags, compiles, prints the table, and exits with the verdict."""
    import aot
    import aot_programs
    import jax

    from genenv_jax.config import use_model, validate
    from genenv_jax.experiment.arms import apply_arm

    options = flags.FLAGS
    if options.fast:
        jax.config.update("jax_exec_time_optimization_effort", -1.0)
    with cli.one_line_errors():
        config = options.config
        if options.arm:
            apply_arm(config, options.arm)
        if options.model:
            use_model(config, options.model)
        config = validate(config)
        part = aot.parse_slice(options.topology)
        model = model_config(options.model, config, options.lora)
        try:
            devices = aot.slice_devices(part)
        except RuntimeError as error:
            cli.fail(error)
        libtpu, wanted = aot.compiler()
        if wanted:
            print(
                f"warning: libtpu {libtpu} is not what jax {jax.__version__} requires ({wanted}), so sizes "
                'may differ from those of a run; expected: pip install "jax[tpu]"',
                file=sys.stderr,
            )
        mesh = choose_mesh(options.mesh, config, model, devices)
        shape = dict(mesh.shape)
        text = ", ".join(f"{axis}={size}" for axis, size in shape.items())
        mode = f"LoRA rank {model.lora.rank}" if model.lora else "full"
        if not options.json:
            print(
                f"{options.model or config.model.path or 'made model'}, {mode}, on {part.name} "
                f"({part.topology}, {part.chips} chips of {part.hbm} GiB), mesh {text}, attention "
                f"{model.attention}, moments {config.memory.moments}, offload "
                f"{config.memory.offload}, libtpu {libtpu}.  GiB a chip:\n{table_header()}",
                flush=True,
            )
        show = (lambda row: None) if options.json else (lambda row: print(table_row(row, part), flush=True))
        wanted = [name.strip() for name in options.programs if name.strip()]
        rows = measure_all(config, model, mesh, part, wanted, show)
        if not rows:
            raise ValueError(f"--programs={','.join(wanted)}: no program has such a name")
    fits = all(row.total <= part.hbm * GIB for row in rows)
    if options.json:
        print(
            json.dumps(
                {
                    "slice": dataclasses.asdict(part),
                    "libtpu": libtpu,
                    "mesh": shape,
                    "model": options.model or config.model.path,
                    "lora": model.lora.rank if model.lora else 0,
                    "attention": model.attention,
                    "remat": model.remat,
                    "moments": config.memory.moments,
                    "offload": config.memory.offload,
                    "trees": aot_programs.tree_bytes(
                        model, mesh, config.memory.moments, config.separate_start
                    ),
                    "programs": [dataclasses.asdict(row) | {"total": row.total} for row in rows],
                    "fits": fits,
                }
            )
        )
    else:
        print("collectives, each loop's body counted once:", *collective_lines(rows), sep="\n")
        worst = max(rows, key=lambda row: row.total)
        left = part.hbm - worst.total / GIB
        print(
            f"{'FITS' if fits else 'DOES NOT FIT'}: {worst.name!r} needs "
            f"{worst.total / GIB:.2f} of {part.hbm} GiB, {abs(left):.2f} "
            f"{'to spare' if fits else 'too much'}"
        )
    sys.exit(0 if fits else 1)


if __name__ == "__main__":
    cli.define_config("Configuration file.")
    flags.DEFINE_string("topology", None, "TPU slice, such as v5e:4x4 or v5e-16.")
    flags.DEFINE_string("model", "", "Published shape, config.json, directory or hub id.")
    flags.DEFINE_string("arm", "", "Arm of the ablations.")
    flags.DEFINE_string("mesh", "auto", "data,fsdp,tensor, or auto.")
    flags.DEFINE_integer("lora", None, "Rank of the adapters; 0: full training.", 0)
    flags.DEFINE_list("programs", "", "Only programs whose names contain one of these.")
    flags.DEFINE_bool("fast", False, "Compile with little effort.")
    flags.DEFINE_bool("json", False, "Print one JSON object.")
    flags.mark_flags_as_required(["config", "topology"])
    cli.run(main)
