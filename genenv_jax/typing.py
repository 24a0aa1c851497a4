"""The shape alphabet.  Every shape comment and einsum in the package uses these letters.

b  batch (prompts)            d  model width (hidden size)
g  group (samples a prompt)   n  query heads
t  query tokens               k  key/value heads
s  key tokens                 r  query heads for each key/value head (n = k * r)
p  prompt tokens              h  width of a head
c  completion tokens          f  MLP width
l  layers                     v  vocabulary
"""

from collections.abc import Callable
from typing import Any

import jax

Array = jax.Array
Params = Any  # a pytree of arrays: nested dicts, as made by Linen
PRNGKey = jax.Array  # typed key, from jax.random.key
WarmUp = Callable[[], None]  # compiles one or more of a run's programs
