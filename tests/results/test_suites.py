import numpy as np
import pytest

from genenv_jax.results.suites import Metric, curve, load_results, run_dir
from tests.experiment.fake_main import write_run
from tests.experiment.suites import fake_plan
from tests.runs import lines

KEY = "in_distribution/sampled"
SCORE = f"eval/{KEY}/accuracy"


def lines_of(workdir, arm, seed):
    return lines(run_dir(workdir, arm, seed))


def one_run(workdir, change):
    """The results of one run whose lines `change` has changed."""
    write_run(run_dir(workdir, "random", 0), 0.2, 0, change=change)
    return load_results(fake_plan((0,), random=0.2), workdir)


def test_the_scores_of_a_run_by_hand(finished, results):
    plan, workdir = finished
    records = lines_of(workdir, "random", 2)
    x = [record.get("tokens/total", 0) for record in records]
    y = [record[SCORE] for record in records]
    horizon = min(lines_of(workdir, *run)[-1]["tokens/total"] for run in plan.runs())
    assert results.horizon == horizon
    fine = np.linspace(0, horizon, 200_001)
    scores = results.scores["random"][2]
    assert scores[f"auc/{KEY}"] == pytest.approx(np.interp(fine, x, y).mean(), abs=1e-5)
    end = np.interp(horizon, x, y)
    assert scores[f"final/{KEY}"] == pytest.approx(end)
    assert scores[f"gain/{KEY}"] == pytest.approx(end - y[0])
    depths = [
        np.interp(horizon, x, [record[f"eval/{KEY}/depth_{d}"] for record in records]) for d in range(1, 7)
    ]
    assert scores["stratum/depth_3"] == pytest.approx(depths[2])
    late = [record["generated/p_hat_mean"] for record in records[3:]]
    assert scores["p_hat/epochs_in_band"] == np.mean([0.4 <= p <= 0.6 for p in late])
    assert scores["p_hat/mean"] == pytest.approx(np.mean(late))
    again = [record["generated/p_rerolled_mean"] for record in records[3:]]
    assert scores["p_hat/rerolled"] == pytest.approx(np.mean(again))
    assert "p_hat/gap" not in scores  # what no run recorded
    assert scores["minutes"] == pytest.approx(0.5)
    assert scores["diversity/distinct_signatures"] == pytest.approx(
        records[-1]["generated/distinct_signatures"] / records[1]["generated/distinct_signatures"]
    )
    assert scores["tokens/total"] == x[-1]


def test_a_curve_needs_its_cost(tmp_path):
    def change(lines):
        del lines[2]["tokens/total"]  # no place on the axis
        del lines[3][SCORE]  # not evaluated
        lines[3]["nonfinite"] = ["x"]
        lines.insert(4, lines[4] | {"step": 9, SCORE: 0.5})  # of equal costs the last one counts

    (run,), records = one_run(tmp_path, change).all_runs(), lines_of(tmp_path, "random", 0)
    x, y = curve(run, SCORE, "tokens")
    assert list(x) == [0, records[1]["tokens/total"], records[4]["tokens/total"]] and y[-1] == 0.5
    assert not len(curve(run, "no/such", "tokens")[0])


def test_the_order_of_strata_and_scores(results):
    assert [m.name for m in results.strata] == [f"depth_{d}" for d in range(1, 7)]
    assert [m.key for m in results.accuracies] == [
        "in_distribution/sampled", "in_distribution/greedy", "deeper/sampled", "deeper/greedy",
        "renamed/sampled", "renamed/greedy",
    ]  # fmt: skip
    assert Metric.parse("generated/x") is None
    assert str(Metric.parse("eval/a/b/c/d")) == "eval/a/b/c/d"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda x: x.pop(SCORE), "is not recorded: expected one of .*greedy"),
        (lambda x: x.pop("tokens/total", 0), "from 0 to 0 processed tokens"),
        (lambda x: x.update({"tokens/total": 7}), "recorded from 7 to 7 processed tokens"),
        (lambda x: x.update({"tokens/total": 9 * x["step"] % 30}), "expected a curve"),
    ],
)
def test_a_run_without_a_curve_is_named(tmp_path, damage, message):
    with pytest.raises(ValueError, match=f"seed-0.*{message}"):
        one_run(tmp_path, lambda lines: [damage(line) for line in lines])
