"""The embedded default: a co-evolution from scratch on a laptop's CPU.

    genenv train --config=configs/quickstart.py --workdir=runs/quickstart

A 0.2 M parameter Qwen2 model is trained on noisy demonstrations (once, then cached) and becomes both
the agent and the simulator of the Dial benchmark.  A run takes 3 to 4 minutes on two cores, more than half of
it for that model, or 40 seconds once the model and the compiled programs are cached.  Expect held-out
accuracy at temperature 1 to rise by 0.2 to 0.8 with most random seeds; a few fail (README.md).  Other
hardware rounds differently and gives a different run.

    genenv train --config=configs/quickstart.py:lora --workdir=runs/quickstart-lora

trains rank-8 adapters on that model instead of all its parameters, with much the same result.

Differences from the paper's settings (`default_config`): p̂ is measured for each task instead of a seed's
four variations, since a batch that mixes easy and hard tasks would be kept because of its mean.  Advantages
are not divided by their standard deviation.  There are few seeds per epoch, a wider band and steeper weights.
Learning rates fit a tiny model, and no base data is mixed in.  docs/results/curriculum.md lists what was
tried.
"""

from genenv_jax.config import default_config
from genenv_jax.configs.recipes import small_curriculum


def get_config(arg: str = ""):
    if arg not in ("", "lora"):
        raise ValueError(f"configs/quickstart.py takes no argument or 'lora', got {arg!r}")
    config = default_config()
    config.epochs = 20
    config.mesh.fsdp = 1

    # The model is made here and trained on noisy demonstrations.
    config.model.make.vocab_size = 512
    config.model.make.num_layers = 3
    config.model.dtype = "float32"
    config.model.remat = "none"
    config.model.unroll_layers = True
    config.warm_start.steps = 1200
    config.warm_start.batch_size = 32
    config.warm_start.learning_rate = 4e-3

    config.benchmark.name = "dial"
    config.benchmark.positions = 5
    # At first the simulator's tasks are too hard for an agent that is wrong about two in three calls: that is
    # what a curriculum is for (configs/ablations/suite.py:growth starts with easier ones).
    config.benchmark.seed_depths = (0.02, 0.05, 0.08, 0.15, 0.3, 0.4)
    config.benchmark.misunderstood = 0.65
    config.limits.agent_prompt = 36
    config.limits.agent_response = 50
    config.limits.simulator_prompt = 36
    config.limits.simulator_response = 36
    config.limits.prompt_buckets = ()

    config.agent.learning_rate = 3e-4
    config.agent.advantages = "centred"
    config.agent.group_size = 10
    # Many small updates, each on informative groups, teach more from the same tokens.
    config.agent.groups = "informative"
    config.agent.batch_size = config.agent.minibatch_size = 4
    config.agent.base_share = 0.0

    # With few seeds per epoch, the simulator follows the agent more closely.
    config.curriculum.seeds_per_epoch = 16
    small_curriculum(config)
    config.simulator.learning_rate = 5e-4
    config.simulator.batch_size = config.simulator.minibatch_size = 16
    config.simulator.kl_coef = 0.2  # keeps its tasks varied
    # A simulator trained on its own tasks drifts towards the calls that the agent already knows.
    # So the initial simulator writes half of the tasks, and rare skills get more weight.
    config.simulator.mixture = 0.5
    config.simulator.coverage = 1.0
    config.verification.near_duplicate = 0.0
    config.verification.pool_epochs = 3

    config.evaluation.every = 2
    config.evaluation.sampled = 4
    if arg == "lora":
        config.lora.rank = 8
        config.lora.alpha = 16.0
        config.agent.learning_rate = 1.5e-3  # adapters are small and start from zero: larger steps
        config.simulator.learning_rate = 1.5e-3
    return config
