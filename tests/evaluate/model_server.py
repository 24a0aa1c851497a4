"""A server that runs an exported model directory with torch.

It knows only the directory: chat template, end tokens and weights all come from there.
"""

import contextlib
import threading

from tests.evaluate.fake_server import completion, serve


def torch(directory):
    """A greedy answer with the model classes of transformers: `(messages, max_tokens) -> (text, ended)`."""
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
