"""The arms of the ablations: each changes what it says and nothing else."""

import importlib.util
import pathlib

import pytest
from absl import flags
from ml_collections import config_flags

from genenv_jax import arms
from genenv_jax.config import validate
from genenv_jax.experiments.suite import load_config, make_plan

ABLATIONS = pathlib.Path(__file__).resolve().parent.parent / "configs" / "ablations"


def config_of(arm, argument=""):
    return arms.arm_config(ABLATIONS / "any.py", arm, argument)


@pytest.mark.parametrize(
    ("arm", "argument", "changes"),
    [
        (arms.genenv, "", {}),
        (arms.random, "", {"simulator.train": False}),
        (
            arms.static,
            "64",
            {"simulator.train": False, "tasks.source": "static", "tasks.count": 64},
        ),
        (
            arms.static,
            "variations",
            {"simulator.train": False, "tasks.source": "static", "simulator.variations": 5},
        ),
        (arms.selection, "", {"simulator.train": False, "agent.groups": "frontier"}),
        (
            arms.selection,
            "4",
            {"simulator.train": False, "agent.groups": "frontier", "agent.frontier_factor": 4},
        ),
        (arms.seed_grpo, "", {"simulator.method": "grpo"}),
        (
            arms.teacher,
            "3.3",
            {
                "simulator.train": False,
                "tasks.source": "teacher",
                "tasks.teacher.per_seed": 3.3,
            },
        ),
        (arms.oracle, "", {"simulator.train": False, "tasks.source": "oracle"}),
    ],
)
def test_an_arm_changes_what_it_says(arm, argument, changes):
    expected = config_of(arms.genenv)
    expected.update_from_flattened_dict(changes)
    made = config_of(arm, argument)
    assert made.to_dict() == expected.to_dict()
    validate(made)


def test_an_arm_of_another_benchmark():
    made = config_of(arms.random, ",bfcl:debug")
    assert made.benchmark.name == "bfcl" and made.epochs == 2 and not made.simulator.train
    assert config_of(arms.static, "9,bfcl").tasks.count == 9


def test_an_arm_with_other_settings():
    made = config_of(
        arms.static,
        "64;curriculum.alpha=0.3;benchmark.seed_depths=(0.4, 0.2, 0.1, 0.1, 0.1, 0.1)"
        ";curriculum.estimate=posterior;agent.group_size=4",
    )
    assert made.curriculum.alpha == 0.3 and made.curriculum.estimate == "posterior"
    assert made.benchmark.seed_depths == (0.4, 0.2, 0.1, 0.1, 0.1, 0.1)
    assert made.agent.group_size == 4 and made.tasks.count == 64


def test_a_teacher_behind_a_server_of_any_benchmark():
    path = (
        f"{ABLATIONS / 'teacher.py'}:1.8,bfcl:debug;tasks.teacher.url=http://localhost:8000/v1"
        ";tasks.teacher.model=Qwen/Qwen2.5-72B-Instruct;tasks.teacher.budget=5000"
    )
    made = load_config(path, "config")  # as a flag and a suite load it
    teacher = made.tasks.teacher
    assert (teacher.url, teacher.budget) == ("http://localhost:8000/v1", 5000)
    assert teacher.model == "Qwen/Qwen2.5-72B-Instruct" and teacher.per_seed == 1.8
    assert made.benchmark.name == "bfcl" and made.tasks.source == "teacher"
    validate(made)
    values = flags.FlagValues()
    flag = config_flags.DEFINE_config_file("config", flag_values=values)
    values(["program", f"--config={path}"])
    assert flag.value.to_dict() == made.to_dict()


@pytest.mark.parametrize(
    ("arm", "argument", "message"),
    [
        (arms.genenv, ";curriculum.alfa=0.3", "'curriculum.alfa=0.3': expected key=value"),
        (arms.genenv, ";curriculum.alpha", "'curriculum.alpha': expected key=value"),
        (arms.genenv, ";curriculum.alpha.x=1", "expected key=value"),
        (arms.genenv, ";curriculum.alpha=many", "'curriculum.alpha=many'"),
        (arms.genenv, "1", "'1': expected none"),
        (arms.static, "many", "'many': expected how many tasks"),
        (arms.static, "0", "expected how many tasks"),
        (arms.selection, "-1", "one in how many"),
        (arms.teacher, "", "tasks for each seed"),
        (arms.teacher, "nan", "tasks for each seed"),
        (arms.teacher, "inf", "tasks for each seed"),
        (arms.random, ",nothing", r"no configuration .*nothing\.py"),
    ],
)
def test_a_wrong_argument_is_named(arm, argument, message):
    with pytest.raises(ValueError, match=message):
        config_of(arm, argument)


@pytest.mark.parametrize("study", ["dose", "alpha", "collapse", "admission"])
def test_the_studies_are_plans(study):
    spec = importlib.util.spec_from_file_location("studies", ABLATIONS / "studies.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plan = make_plan(module.get_config(study))
    settings = {name: config.to_dict() for name, config in plan.configs.items()}
    names = list(settings)
    assert len(names) >= 2
    assert all(settings[a] != settings[b] for a in names for b in names if a < b)
    with pytest.raises(ValueError, match="dose"):
        module.get_config("nothing")


@pytest.mark.parametrize("argument", ["", "tuning", "quick"])
def test_the_suite_is_a_plan_of_these_arms(argument):
    spec = importlib.util.spec_from_file_location("suite", ABLATIONS / "suite.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plan = make_plan(module.get_config(argument))
    assert list(plan.arms)[:3] == ["genenv", "random", "static-64"]
    assert {config.rollouts for config in plan.configs.values()} <= {0, 10_000}
    tuned = module.get_config("tuning").seeds
    assert not set(tuned) & set(module.get_config().seeds)  # fresh ones for the claim
