"""Shapes of published models (from their config.json) and how many parameters they have.

The counts are those of the safetensors headers on the model pages.  The files of Qwen3-0.6B and 1.7B
carry their tied head a second time; the counts here have it once.
"""


def _qwen2(layers, d, f, heads, kv_heads, *, tied, vocab=151_936):
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "num_hidden_layers": layers,
        "hidden_size": d,
        "intermediate_size": f,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
        "rope_theta": 1_000_000.0,
        "max_position_embeddings": 32_768,
        "use_sliding_window": False,
        "sliding_window": 131_072,
        "max_window_layers": layers,
    }


def _qwen3(layers, d, f, heads, *, tied):
    return _qwen2(layers, d, f, heads, 8, tied=tied) | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 128,
        "attention_bias": False,
        "max_position_embeddings": 40_960,
        "rope_scaling": None,
    }


def _llama(layers, d, f, heads, *, head_dim=128, tied=False, factor=8.0):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": d,
        "intermediate_size": f,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": head_dim,
        "vocab_size": 128_256,
        "tie_word_embeddings": tied,
        "attention_bias": False,
        "mlp_bias": False,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "rope_scaling": {
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8_192,
            "rope_type": "llama3",
        },
        "max_position_embeddings": 131_072,
    }


_WIDE = 152_064  # vocabulary of the larger Qwen2.5
MODELS = {
    "Qwen2.5-0.5B": (_qwen2(24, 896, 4_864, 14, 2, tied=True), 494_032_768),
    "Qwen2.5-1.5B": (_qwen2(28, 1_536, 8_960, 12, 2, tied=True), 1_543_714_304),
    "Qwen2.5-3B": (_qwen2(36, 2_048, 11_008, 16, 2, tied=True), 3_085_938_688),
    "Qwen2.5-7B": (_qwen2(28, 3_584, 18_944, 28, 4, tied=False, vocab=_WIDE), 7_615_616_512),
    "Qwen2.5-14B": (_qwen2(48, 5_120, 13_824, 40, 8, tied=False, vocab=_WIDE), 14_770_033_664),
    "Qwen2.5-32B": (_qwen2(64, 5_120, 27_648, 40, 8, tied=False, vocab=_WIDE), 32_763_876_352),
    "Qwen2.5-72B": (_qwen2(80, 8_192, 29_568, 64, 8, tied=False, vocab=_WIDE), 72_706_203_648),
    "Qwen3-0.6B": (_qwen3(28, 1_024, 3_072, 16, tied=True), 596_049_920),
    "Qwen3-1.7B": (_qwen3(28, 2_048, 6_144, 16, tied=True), 1_720_574_976),
    "Qwen3-4B": (_qwen3(36, 2_560, 9_728, 32, tied=True), 4_022_468_096),
    "Qwen3-8B": (_qwen3(36, 4_096, 12_288, 32, tied=False), 8_190_735_360),
    "Qwen3-14B": (_qwen3(40, 5_120, 17_408, 40, tied=False), 14_768_307_200),
    "Qwen3-32B": (_qwen3(64, 5_120, 25_600, 64, tied=False), 32_762_123_264),
    "Llama-3.1-8B": (_llama(32, 4_096, 14_336, 32), 8_030_261_248),
    "Llama-3.1-70B": (_llama(80, 8_192, 28_672, 64), 70_553_706_496),
    "Llama-3.1-405B": (_llama(126, 16_384, 53_248, 128), 405_853_388_800),
    "Llama-3.2-1B": (
        _llama(16, 2_048, 8_192, 32, head_dim=64, tied=True, factor=32.0),
        1_235_814_400,
    ),
    "Llama-3.2-3B": (_llama(28, 3_072, 8_192, 24, tied=True, factor=32.0), 3_212_749_824),
}
