"""Arms of the tests' suites: --config=tests/experiments/arms.py:GAIN[,BEHAVIOUR].

BEHAVIOUR: "" ends well, "fails" exits with code 3, "short" ends one epoch early, "slow" takes its time.
"""

from genenv_jax.config import default_config


def get_config(arg: str = "0.2"):
    gain, _, behaviour = arg.partition(",")
    config = default_config()
    config.epochs = 4
    config.model.path = "/none"
    config.benchmark.name = "fake"
    config.benchmark.gain = float(gain)
    config.benchmark.behaviour = behaviour
    return config
