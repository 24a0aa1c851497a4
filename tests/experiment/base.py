"""The base configuration of the tests' suites; its model path does not exist."""

from genenv_jax.config import default_config


def get_config():
    config = default_config()
    config.epochs = 4
    config.model.path = "/no/such/model"
    config.benchmark.name = "dial"
    return config
