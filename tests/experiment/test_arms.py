import itertools

import pytest

from genenv_jax.cli import load_config
from genenv_jax.config import default_config, flatten, validate
from genenv_jax.experiment.arms import ARMS, EQUAL_ROLLOUTS, apply_arm
from genenv_jax.experiment.plan import make_plan
from genenv_jax.experiment.runner import Runner
from tests.experiment.suites import parsed

SUITES = {
    **{f"suite.py{argument}": f"suite.py{argument}" for argument in ("", ":growth", ":quick")},
    **{name: f"studies.py:{name}" for name in ("batch", "range", "steering")},
}
TUNING = ("batch", "range")


def suite(name):
    return load_config(f"configs/ablations/{SUITES[name]}", "a suite")


def differences(one, other):
    """Settings of the second that differ from the first's."""
    one, other = flatten(one.to_dict()), flatten(other.to_dict())
    assert one.keys() == other.keys()
    return {key: value for key, value in other.items() if value != one[key]}


@pytest.mark.parametrize("name", ARMS)
@pytest.mark.parametrize("file", ["configs/quickstart.py", "configs/bfcl.py:debug"])
def test_an_arm_changes_what_it_says_in_any_configuration(name, file):
    before, changed = load_config(file, "config"), load_config(file, "config")
    apply_arm(changed, name)
    others = {k: v for k, v in ARMS[name].items() if v != flatten(before.to_dict())[k]}
    assert differences(before, changed) == others
    validate(changed)


def test_an_unknown_arm_is_refused():
    config = load_config("configs/quickstart.py", "config")
    with pytest.raises(ValueError, match="--arm=nothing: expected one of genenv, paper, rwr-4, "):
        apply_arm(config, "nothing")
    with pytest.raises(ValueError, match=r"--arm=randm: did you mean random\?"):
        apply_arm(config, "randm")


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_is_a_plan_of_different_arms_that_main_understands(name, tmp_path):
    plan = make_plan(suite(name))
    assert all(a != b for a, b in itertools.combinations(plan.configs.values(), 2))
    if name != "suite.py:quick":
        assert plan.suite.overrides.keys() >= EQUAL_ROLLOUTS.keys()
    runner = Runner(plan, tmp_path)
    for arm, expected in plan.configs.items():
        _, module, name, *flags, workdir = runner.arguments(arm, 7)
        assert (module, name) == ("-m", "genenv_jax.main")
        assert workdir == f"--workdir={tmp_path / arm / 'seed-7'}"
        assert flatten(validate(parsed(*flags)).to_dict()) == {**expected, "seed": 7}


@pytest.mark.parametrize("name", ["suite.py", "suite.py:growth"])
def test_the_main_comparisons(name):
    whole = suite(name)
    assert flatten(whole.arms["random"].to_dict()) == ARMS["random"]
    assert len(whole.seeds) == 8  # fresh ones
    assert not set(whole.seeds) & {seed for study in TUNING for seed in suite(study).seeds}
    assert len(whole.contrasts) >= 2 and {first for first, _ in whole.contrasts} <= {"genenv", "rwr-4"}


def test_the_papers_arm_is_the_papers():
    """Whatever a configuration sets, the arm has the values of `default_config`, which are the paper's."""
    config, paper = load_config("configs/quickstart.py", "config"), default_config()
    apply_arm(config, "paper")
    for key in flatten(ARMS["paper"]) | {"curriculum.alpha": 0.5}:
        group, name = key.split(".")
        assert config[group][name] == paper[group][name], key


@pytest.mark.parametrize("file", ["suite.py", "studies.py"])
def test_an_unknown_argument_is_refused(file):
    with pytest.raises(ValueError, match=f"{file} takes .*got 'nothing'"):
        load_config(f"configs/ablations/{file}:nothing", "a suite")
