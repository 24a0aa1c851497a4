"""The scripts end to end, on a tiny model; what they measure here means nothing."""

import re

import pytest

from tests.commands import command


def run(script, *flags):
    """Runs a script of bench/ as its users do, and returns what it prints."""
    done = command(f"bench/{script}", *flags, PYTHONPATH="")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def rows_of(text, first_column):
    """Cells by name, for table rows whose first cell starts with `first_column`."""
    result, header = [], None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not cells:
            header = None
        elif header is None:
            header = cells
        elif cells[0].startswith(first_column) and not set(cells) <= {"---", "---:"}:
            result.append(dict(zip(header, cells, strict=True)))
    return result


@pytest.mark.slow
def test_compare_agrees_and_prints_every_work():
    text = run(
        "compare.py", "--sizes=tiny", "--works=sample,prefill,score,grpo,ragged", "--repeats=2",
        "--engines=torch,torch16,ours,narrow",
    )  # fmt: skip
    assert 0 < float(re.search(r"between engines (\S+);", text)[1]) < 1e-4
    for work in ("sample", "prefill", "score", "grpo"):
        (row,) = rows_of(text, work)
        theirs, ours, narrow = (float(row[f"{k}, s"].split()[0]) for k in ("HF", "ours", "narrow"))
        assert float(row["HF / ours"]) == pytest.approx(theirs / ours, rel=0.02)
        assert float(row["HF / narrow"]) == pytest.approx(theirs / narrow, rel=0.02)
        assert float(row["HF bf16 / narrow"]) > 0 and float(row["narrow / bfloat16 floor"]) > 0
        assert float(row["ours / float32 floor"]) > 1 and float(row["float32 floor, s"]) > 0
    assert len(rows_of(text, "ours, ")) == 2 and len(rows_of(text, "HF, ")) == 1  # ragged lengths
    assert "pinned to core" in text and "`python bench/compare.py --sizes=tiny" in text


@pytest.mark.slow
def test_a_given_model_is_compared_on_a_benchmarks_prompts(tiny_model):
    """Prompts of several lengths, which torch pads on the left and we on the right."""
    text = run(
        "compare.py", f"--model={tiny_model}", "--benchmark=dial", "--prompt_tokens=100",
        "--works=sample,prefill,grpo", "--repeats=1",
    )  # fmt: skip
    assert 0 < float(re.search(r"between engines (\S+);", text)[1]) < 1e-4
    assert "prompts of dial" in text
    (row,) = rows_of(text, "sample")
    shortest, longest = map(int, re.search(r"(\d+)–(\d+) \+ 64 tokens", row["work"]).groups())
    assert 70 <= shortest < longest <= 100


@pytest.mark.slow
def test_a_models_parity(tiny_model):
    text = run(
        "parity.py", "--config=configs/smollm2.py:dial", f"--config.model.path={tiny_model}",
        "--lengths=60,80", "--new_tokens=8",
    )  # fmt: skip
    assert "greedy answers of 8 tokens at most: 2 of 2 equal" in text
    for how in ("dtype bfloat16", "matmul_dtype bfloat16"):
        assert re.search(rf"^{how}: log-probs of \d+ tokens, sampler against the trainer", text, re.M)


@pytest.mark.slow
def test_the_accelerator_s_table_on_the_cpu():
    text = run(
        "gpu.py", "--models=tiny", "--rows=8,16", "--group=4", "--update_rows=8", "--prompt=8",
        "--new_tokens=128", "--repeats=2",
    )  # fmt: skip
    table = [row for row in rows_of(text, "tiny") if "ms a step" in row]
    assert [row["rows"] for row in table] == ["8", "16"]
    assert all(float(row["ms a step"]) > 0 for row in table)
    (update,) = [row for row in rows_of(text, "tiny") if "MFU" in row]
    assert float(update["step, s"]) > 0 and update["MFU"].endswith("%")


def test_bad_flags_are_named():
    def refused(script, *flags):
        done = command(f"bench/{script}", *flags, PYTHONPATH="")
        assert done.returncode == 2
        return done.stderr

    assert "['XL'] unknown; expected some of tiny, S, M" in refused("compare.py", "--sizes=XL")
    assert "--benchmark is for --model" in refused("compare.py", "--benchmark=dial")
    assert "expected multiples of --group=8" in refused("gpu.py", "--rows=12")
    assert "['GPT-2'] unknown" in refused("gpu.py", "--models=GPT-2")
