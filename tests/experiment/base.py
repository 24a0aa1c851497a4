"""What the runs of the tests' suites start from; no model is there."""

from genenv_jax.config import default_config


def get_config():
    config = default_config()
    config.epochs = 4
    config.model.path = "/no/such/model"
    config.benchmark.name = "dial"
    return config
