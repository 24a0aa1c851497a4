"""Shapes of the models of launch/published_models.json, and how many parameters they have.

The counts are those of the safetensors headers on the model pages.
"""

import json

from tests.commands import ROOT

_KNOWN = json.loads((ROOT / "launch/published_models.json").read_text())
_COUNTS = {
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen3-8B": 8_190_735_360,
    "Llama-3.1-8B": 8_030_261_248,
    "Gemma-3-270M": 268_098_176,
    "Gemma-3-1B": 999_885_952,
    "Gemma-3-4B": 3_880_263_168,
    "Gemma-3-12B": 11_766_034_176,
    "Gemma-3-27B": 27_009_346_304,
}
MODELS = {name: (_KNOWN[name], count) for name, count in _COUNTS.items()}
