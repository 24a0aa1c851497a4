"""A server that runs an exported model directory, with our own sampler or with torch.

Beyond the directory it knows nothing: chat template, end tokens and weights are those that lie there.
"""

import contextlib
import functools
import threading

import jax

from genenv_jax.models.language_model import LanguageModel
from genenv_jax.players.policy import Policy
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine
from tests.evaluate.fake_server import completion, serve


def ours(directory, width):
    """A greedy answer with our decoder: `(messages, max_tokens) -> (text, ended)`."""
    model = LanguageModel.load(directory)
    params = model.load_params()

    @functools.cache
    def engine(max_tokens):
        options = SamplingParams(max_tokens, 1, model.eos_ids, temperature=0.0)
        return Engine(model.config, options, 1, (width,), lambda tree: tree, 1)

    def answer(messages, max_tokens):
        found = []
        policy = Policy(model, engine(max_tokens), params, jax.random.key(0))
        policy.answer([messages], found.append)
        (completion,) = found
        return model.decode(completion.content), completion.ended

    return answer


def torch(directory, width):
    """The same with the model classes of transformers, as the card says."""
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory)

    def answer(messages, max_tokens):
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        whole = model.generate(**prompt, max_new_tokens=max_tokens, do_sample=False)[0].tolist()
        tokens = whole[prompt["input_ids"].shape[1] :]
        ends = model.generation_config.eos_token_id
        done = tokens[-1] in (ends if isinstance(ends, list) else [ends])
        return tokenizer.decode(tokens, skip_special_tokens=True), done

    return answer


@contextlib.contextmanager
def serving(answer):
    """The URL at which `answer` is served, one request at a time, and the requests so far."""
    lock = threading.Lock()

    def reply(request):
        assert request["temperature"] == 0
        with lock:
            text, ended = answer(request["messages"], request["max_tokens"])
        return 200, completion(text, "stop" if ended else "length")

    with serve(reply) as served:
        yield served
