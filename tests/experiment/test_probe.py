"""The probe: a short run of Random, and what it comes down to."""

import dataclasses
import json

import numpy as np
import pytest

from genenv_jax.benchmarks.dial.chains import Dial
from genenv_jax.experiment.probe import EPOCHS, Probe, beyond, probe, read, said
from genenv_jax.report.runs import load_run
from tests.runs import lines, toy_config
from tests.toy import Toy


def test_it_is_a_run_of_random_and_its_numbers_are_those_of_the_records(cache, tmp_path):
    text = probe(toy_config(cache, {"epochs": 30}), str(tmp_path / "w"))
    config = json.loads((tmp_path / "w" / "config.json").read_text())
    assert not config["simulator"]["train"] and config["epochs"] == EPOCHS
    steps = [line for line in lines(tmp_path / "w") if line["step"]]
    assert len(steps) == EPOCHS
    tasks = [json.loads(line) for line in (tmp_path / "w" / "tasks.jsonl").open()]
    # Held-out tasks would cost more than the probe.
    assert not any(name.startswith("eval/") for step in steps for name in step)
    rates = [t["successes"] / t["attempts"] for t in tasks if t["attempts"]]
    never, always = (np.mean([rate == end for rate in rates]) for end in (0, 1))
    valid = np.mean([t["verdict"] == "accepted" for t in tasks])
    informative = 1 - np.mean([step["agent/zero_variance_share"] for step in steps])
    assert text["valid"] == f"{valid:.0%} of the generations"
    assert f"{never:.0%} of the tasks never, {always:.0%} always" in text["solved"]
    assert text["informative"].startswith(f"{informative:.0%} of the groups")
    tokens = steps[-1]["tokens/total"] / EPOCHS
    assert (
        f"2 arms × 8 seeds × 30 epochs: {2 * 8 * 30 * tokens / 1e6:,.0f} mill"
        in text["to find out"]
    )
    assert (
        probe(toy_config(cache, {"epochs": 30}), str(tmp_path / "w")) == text
    )  # nothing is repeated


def test_held_out_tasks_are_beyond_where_they_are_harder_than_nearly_all():
    dial = Dial(deeper=())
    easy = [t for t in dial.tasks("seed") if dial.difficulty(t) <= 2]
    held_out = [dial.difficulty(t) for t in dial.tasks("eval")]
    assert beyond(dial, easy) == np.mean([d > 2 for d in held_out])
    deep = [dial.draw(np.random.default_rng(0), "depth_6", str(i)) for i in range(20)]
    assert beyond(dial, easy[:1] * 10 + deep) == 0.0
    assert beyond(dial, easy[:1] * 500 + deep[:1]) > 0.5  # one in 500 is an exception


def test_without_a_valid_task_there_is_nothing_to_say(tmp_path):
    step = {"step": 1, "generated/count": 64, "generated/valid_share": 0.0, "tokens/total": 10}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(step) + "\n")
    with pytest.raises(ValueError, match="none of 64 generations is a valid task: .*warm start"):
        read(load_run(tmp_path), Toy())


@pytest.mark.parametrize(
    ("informative", "valid", "answer"),
    [(0.1, 0.9, "perhaps"), (0.6, 0.9, "no: "), (0.1, 0.3, "not yet"), (0.6, 0.3, "not yet")],
)
def test_the_rule_is_about_what_was_measured(informative, valid, answer):
    found = Probe(
        valid=valid,
        p_hat=(0.1, 0.2),
        informative=informative,
        never=0.7,
        always=0.01,
        kinds=50.0,
        beyond=0.14,
        tokens=2e5,
        seconds=9.0,
    )
    text = said(found, 20)
    assert text["rule"].startswith(answer)
    assert "growth.share" not in text["rule"]
    further = said(dataclasses.replace(found, beyond=0.5), 20)["rule"]
    assert ("growth.share" in further) == (valid >= 0.5) and further.startswith(text["rule"])
    assert text["beyond"].startswith("14% of the held-out tasks") and text["kinds"].startswith(
        "50 "
    )
    assert text["to find out"].endswith("64 million tokens, 48 minutes at the pace of these epochs")
