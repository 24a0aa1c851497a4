"""Suites whose runs need no model: `fake_main` stands in for `genenv_jax.main`."""

import pathlib
import sys
import warnings

from absl import flags
from ml_collections import config_flags

from genenv_jax.experiment.plan import default_suite, make_plan

BASE = str(pathlib.Path(__file__).with_name("base.py"))
FAKE = (sys.executable, "-m", "tests.experiment.fake_main")


def arm(gain, behaviour=""):
    """Settings of an arm whose held-out score rises by `gain`.

    behaviour: "" ends well, "fails" exits with code 3, "short" ends one epoch early, "slow" takes its time.
    """
    return {"agent.learning_rate": gain} | ({"model.path": behaviour} if behaviour else {})


def fake_suite(seeds=(3, 5), overrides=None, **arms):
    """A suite of arms that `arm` describes."""
    suite = default_suite(arms or {"a": arm(0.3), "b": arm(0.1)}, overrides)
    suite.base = BASE
    suite.seeds = seeds
    suite.bootstrap = 200
    return suite


def fake_plan(seeds=(3, 5), contrasts=(), **gains):
    """The plan of a suite of arms with these gains."""
    suite = fake_suite(seeds, **{name: arm(gain) for name, gain in gains.items()})
    suite.contrasts = contrasts
    return make_plan(suite)


def parsed(*arguments):
    """The configuration that a command with these flags gets, as `genenv_jax.cli` defines --config."""
    values, command = flags.FlagValues(), ["command", *arguments]
    config = config_flags.DEFINE_config_file(
        "config", flag_values=values, lock_config=False, accept_new_attributes=True, sys_argv=command
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from ml_collections' import of a file
        values(command)
    return config.value
