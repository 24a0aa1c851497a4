"""What torch, transformers and PEFT compute on the cases of `torch_cases`.

    python -m tests.models.make_references          # or: make references

stores the numbers in references/, where the tests read them.
"""

import copy
import json
import pathlib
import tempfile

import numpy as np
import peft
import torch
import transformers
from safetensors.numpy import load_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from tests import tiny
from tests.models import torch_cases as cases

_VERSIONS = ("transformers_version", "peft_version")


def load(path):
    """transformers' model of a directory."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def make(options):
    """transformers' model with tiny weights."""
    with tempfile.TemporaryDirectory() as folder:
        return load(tiny.write_model(pathlib.Path(folder) / "model", **options))


def logits(model, tokens, mask=None, positions=None):
    """(rows, t, v) of a pass, float32.  mask: (rows, t), 1 at tokens; positions: (rows, t)."""
    mask = np.ones(tokens.shape) if mask is None else mask
    inputs = {"input_ids": tokens, "attention_mask": mask, "position_ids": positions}
    inputs = {k: torch.from_numpy(x.copy()).long() for k, x in inputs.items() if x is not None}
    with torch.no_grad():
        return model(**inputs).logits.float().numpy()


def masked_logits(model):
    """Logits at the tokens of `padded_batch`."""
    tokens, mask = cases.padded_batch()
    return logits(model, tokens, mask)[mask]


def far_logits(name):
    """Logits (2, 16, v) at `far_batch`."""
    tokens, positions = cases.far_batch()
    # Without a mask the leap would be taken for a second, packed sequence.
    return logits(make(cases.FAR_MODELS[name]), tokens, positions=positions)


def gradients(name):
    """The mean cross-entropy of `padded_batch`, and its gradients under Hugging Face's keys."""
    model = make(cases.GRADIENTS[name][1])
    tokens, mask = cases.padded_batch()
    labels = np.where(mask, tokens, -100)[:, 1:]
    out = model(input_ids=torch.from_numpy(tokens).long(), attention_mask=torch.from_numpy(mask).long())
    loss = torch.nn.functional.cross_entropy(
        out.logits[:, :-1].flatten(0, 1), torch.from_numpy(labels).long().flatten()
    )
    loss.backward()
    return {name: p.grad.numpy() for name, p in model.named_parameters()} | {"loss": np.float32(loss.item())}


def saved_config(options):
    """config.json of a model as transformers spells it."""
    with tempfile.TemporaryDirectory() as folder:
        make(options).save_pretrained(folder)
        return _config(f"{folder}/config.json")


def _config(file):
    content = json.loads(pathlib.Path(file).read_text())
    return {key: value for key, value in content.items() if key not in _VERSIONS}


def adapter(name):
    """(adapter_config.json, arrays) of an adapter that PEFT made, applied, saved and merged.

    The arrays: "logits" at the tokens of `padded_batch`, "merged/<key>" and "saved/<key>".
    """
    settings = peft.LoraConfig(**cases.ADAPTERS[name], task_type="CAUSAL_LM")
    model = peft.get_peft_model(make(cases.ADAPTED), settings).eval()
    rng = np.random.default_rng(0)
    for key, parameter in model.named_parameters():
        if "lora_" in key:
            parameter.data = torch.from_numpy(rng.normal(0, 0.2, parameter.shape).astype(np.float32))
    arrays = {"logits": masked_logits(model)}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        config = _config(f"{folder}/adapter_config.json") | {"base_model_name_or_path": "base"}
        tensors = load_file(f"{folder}/adapter_model.safetensors")
    config["target_modules"] = sorted(config["target_modules"])  # PEFT keeps a set
    arrays |= {f"saved/{key}": x for key, x in tensors.items()}
    merged = model.merge_and_unload().state_dict()
    return config, arrays | {f"merged/{key}": x.numpy() for key, x in merged.items()}


def oracle_config(**changes):
    """transformers' configuration of a tiny Llama."""
    config = copy.deepcopy(tiny.config_dict("llama", **changes))
    config.pop("model_type")
    return transformers.LlamaConfig(**config)


def frequencies(name, head_dim, theta):
    """(inverse frequencies, attention factor) of a scaling."""
    rope, positions = cases.SCALINGS[name]
    config = oracle_config(
        head_dim=head_dim, rope_theta=theta, rope_scaling=rope, max_position_embeddings=positions
    )
    found, factor = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]](config)
    return found.numpy(), np.float64(factor)


def tables(name):
    """Cosines and sines (2, positions, 32) at `ROPE_POSITIONS`; name: of a scaling, "" for none."""
    rope, positions = cases.SCALINGS[name] if name else (None, 32_768)
    config = oracle_config(head_dim=64, rope_scaling=rope, max_position_embeddings=positions)
    at = torch.from_numpy(cases.ROPE_POSITIONS[None])
    return np.stack([x[0, :, :32] for x in LlamaRotaryEmbedding(config)(torch.zeros(1), at)])


def everything():
    """({file name: arrays}, configurations): what `main` stores."""
    models = {f"model/{name}": masked_logits(make(o)) for name, o in cases.MODELS.items()}
    models |= {f"far/{name}": far_logits(name) for name in cases.FAR_MODELS}
    for name in cases.GRADIENTS:
        models |= {f"gradients/{name}/{key}": x for key, x in gradients(name).items()}
    configs = {name: saved_config(options) for name, options in cases.MODELS.items()}
    ropes, adapters = {}, {}
    for name in cases.SCALINGS:
        for head_dim, theta in cases.HEADS:
            found, factor = frequencies(name, head_dim, theta)
            ropes |= {f"{name}/{head_dim}": found, f"{name}/factor": factor}
    ropes |= {f"tables/{name}": tables(name) for name in ("", *cases.SCALINGS)}
    config = oracle_config(rope_scaling=cases.YARN, original_max_position_embeddings=1024)
    ropes["top level"] = ROPE_INIT_FUNCTIONS["yarn"](config)[0].numpy()
    for name in cases.ADAPTERS:
        configs[f"adapter/{name}"], arrays = adapter(name)
        adapters |= {f"{name}/{key}": x for key, x in arrays.items()}
    return {"models": models, "ropes": ropes, "adapters": adapters}, configs


def main():
    arrays, configs = everything()
    cases.FOLDER.mkdir(exist_ok=True)
    for name, content in arrays.items():
        np.savez_compressed(cases.FOLDER / f"{name}.npz", **content)
    (cases.FOLDER / "configs.json").write_text(json.dumps(configs, indent=1) + "\n")


if __name__ == "__main__":
    main()
