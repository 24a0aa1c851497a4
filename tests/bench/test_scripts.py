"""The scripts end to end, on a tiny model; what they measure here means nothing."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(script, *flags):
    """Runs a script of bench/ from the repository root, as its users do, and returns what it prints."""
    env = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, f"bench/{script}", *flags],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def rows_of(text, first_column):
    """Cells by name of the tables' rows whose first column starts so."""
    result, header = [], None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not cells:
            header = None
        elif header is None:
            header = cells
        elif cells[0].startswith(first_column) and set(cells) != {"---"}:
            result.append(dict(zip(header, cells, strict=True)))
    return result


@pytest.mark.slow
def test_compare_agrees_and_prints_every_work(tmp_path):
    file = tmp_path / "numbers.json"
    text = run(
        "compare.py", "--sizes=tiny", "--works=sample,prefill,score,grpo,ragged,memory", "--repeats=2",
        "--gemm=256", "--engines=torch,ours,narrow", f"--json={file}",
    )  # fmt: skip
    report = json.loads(file.read_text())
    tiny = report["sizes"]["tiny"]
    assert 0 < tiny["log-prob difference"] < 1e-4
    for work in ("sample", "prefill", "score", "grpo"):
        (row,) = rows_of(text, work)
        timings = tiny["works"][work]["timings"]
        assert len(timings["ours"]["cpu"]) == len(timings["torch"]["cpu"]) == 2
        floor = tiny["works"][work]["floor"]
        assert min(timings["ours"]["cpu"]) > floor > 0
        ours, theirs = (float(row[k].split()[0]) for k in ("ours, s", "HF, s"))
        assert float(row["HF / ours"]) == pytest.approx(theirs / ours, rel=0.02)
        assert float(row["ours / floor"]) > 1
        narrow = float(row["narrow, s"].split()[0])
        assert float(row["HF / narrow"]) == pytest.approx(theirs / narrow, rel=0.02)
    assert tiny["works"]["sample"]["timings"]["torch"]["value"] == 2 * 4 * 8
    steps = tiny["works"]["grpo"]["timings"]
    first, narrow = (steps[k]["first"] for k in ("ours", "narrow"))
    assert first == pytest.approx(steps["torch"]["first"], rel=1e-3, abs=1e-5)
    assert narrow != first and narrow == pytest.approx(first, rel=0.1, abs=1e-2)
    assert tiny["memory"]["ours"]["compiled"] < tiny["memory"]["plain JAX"]["compiled"]
    assert {"HF", "ours", "plain JAX"} == {row[""] for row in rows_of(text, "") if "" in row}
    assert "pinned to core" in text and report["about"]["command"] in text


@pytest.mark.slow
def test_a_given_model_is_compared_on_a_benchmarks_prompts(tiny_model, tmp_path):
    """Prompts of several lengths, which torch pads on the left and we on the right."""
    file = tmp_path / "numbers.json"
    text = run(
        "compare.py", f"--model={tiny_model}", "--benchmark=dial", "--prompt_tokens=100",
        "--new_tokens=8", "--works=sample,prefill,step,grpo", "--repeats=1", "--gemm=256",
        f"--json={file}",
    )  # fmt: skip
    (result,) = json.loads(file.read_text())["sizes"].values()
    assert 0 < result["log-prob difference"] < 1e-4
    sample = result["works"]["sample"]
    assert 70 <= sample["shortest prompt"] < sample["work"]["prompt"] <= 100
    assert sample["timings"]["torch"]["value"] == sample["timings"]["ours"]["value"] == 8 * 8 * 8
    name = "part of a decoding step, ours"
    parts = {row[name]: row for row in rows_of(text, "") if name in row}
    assert list(parts) == ["products", "attention", "logits", "draw", "rest", "whole"]
    shares = [float(row["share"].split()[0]) for name, row in parts.items() if name != "whole"]
    assert sum(shares) == pytest.approx(100, abs=3) and parts["whole"]["share"] == "100 %"
    # What the parts need is what sampling needs beyond the first token.
    prefill, numbers = result["works"]["prefill"], result["step"]["parts"]
    least = (sample["GFLOP"] - prefill["GFLOP"]) / (sample["work"]["new"] - 1)
    least /= max(sample["gemm GFLOP/s"], prefill["gemm GFLOP/s"])
    assert numbers["whole"]["by products"] == pytest.approx(least)
    assert least == pytest.approx(
        sum(numbers[part]["by products"] for part in ("products", "attention", "logits"))
    )


@pytest.mark.slow
def test_a_models_parity(tiny_model):
    text = run(
        "parity.py", "--config=configs/smollm2.py:dial", f"--config.model.path={tiny_model}",
        "--lengths=60,80", "--new_tokens=8",
    )  # fmt: skip
    assert "greedy answers of 8 tokens at most: 2 of 2 equal" in text
    for how in ("dtype bfloat16", "matmul_dtype bfloat16"):
        assert re.search(
            rf"^{how}: log-probs of \d+ tokens, sampler against the trainer", text, re.M
        )


@pytest.mark.slow
def test_the_accelerator_s_table_on_the_cpu(tmp_path):
    file = tmp_path / "numbers.json"
    text = run(
        "gpu.py", "--models=tiny", "--rows=8,16", "--group=4", "--update_rows=8", "--prompt=8",
        "--new_tokens=8", "--copy_megabytes=4", "--matmul=64,128", "--repeats=2", f"--json={file}",
    )  # fmt: skip
    result = json.loads(file.read_text())
    decodes = result["decode"]
    assert [case["work"]["prompts"] for case in decodes] == [2, 4]
    table = [row for row in rows_of(text, "tiny") if "ms a step" in row]
    for case, row in zip(decodes, table, strict=True):
        assert row["rows"] == str(4 * case["work"]["prompts"])
        assert float(row["ms a step"]) == pytest.approx(1e3 * case["step"], rel=0.01)
    (update,) = [row for row in rows_of(text, "tiny") if "MFU" in row]
    assert float(update["step, s"]) > 0 and update["MFU"].endswith("%")


def test_bad_flags_are_named():
    def refused(script, *flags):
        done = subprocess.run(
            [sys.executable, f"bench/{script}", *flags],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        return done.stderr

    assert "['XL'] unknown; expected some of tiny, S, M" in refused("compare.py", "--sizes=XL")
    assert "core 9999 is not among" in refused("compare.py", "--core=9999")
    assert "--benchmark is for --model" in refused("compare.py", "--benchmark=dial")
    assert "expected sample and prefill beside it" in refused("compare.py", "--works=step,sample")
    assert "expected multiples of --group=8" in refused("gpu.py", "--rows=12")
    assert "['GPT-2'] unknown" in refused("gpu.py", "--models=GPT-2")
