"""Published models and tokenizers of text."""

import os

import numpy

from ._library import apply, call


def ids_array(ids):
    """Returns ids as an array of the library."""
    return numpy.asarray(ids, numpy.int64)


def ids_list(result):
    """Returns the ids of a result."""
    return result.outputs(numpy.from_dlpack)[0][0].tolist()


class Tokenizer:
    """The tokenizer of a published model: a tokenizer.json, a SentencePiece model, or a folder."""

    def __init__(self, path, *, _result=None):
        self._result = _result or call("load_tokenizer", options={"path": os.fspath(path)})

    def encode(self, text, **options):
        """Returns the ids of a text. Options: add_special_tokens and allow_special, both True."""
        return ids_list(call("encode", options={"text": text, **options}, owner=self._result))

    def decode(self, ids, **options):
        """Returns the text of ids. Option: skip_special_tokens, True."""
        return call("decode", [("ids", ids_array(ids))], options, owner=self._result).json


class Pretrained:
    """A published model; load_pretrained() returns it."""

    def __init__(self, result):
        self._result = result
        self.model_type, self.max_length = result.json

    @property
    def tokenizer(self):
        """The tokenizer in the folder of the model; an error if it has none."""
        return Tokenizer(None, _result=call("tokenizer_of", owner=self._result))

    def generate(self, prompt, *, end_tokens=None, **options):
        """Continues a text, and returns the new text; or ids, and returns the new ids.

        Options: max_tokens, seed, temperature, top_k, top_p, min_p, repetition_penalty. The defaults
        are those of the model's generation_config.json.
        """
        is_text = isinstance(prompt, str)
        ids = self.tokenizer.encode(prompt) if is_text else prompt
        arrays = [("prompt", ids_array(ids))]
        arrays += [] if end_tokens is None else [("end_tokens", ids_array(end_tokens))]
        new = ids_list(call("generate", arrays, options, owner=self._result))
        return self.tokenizer.decode(new) if is_text else new

    def chat(self, messages, **options):
        """Returns the answer to messages [{"role": …, "content": …}, …], or to one text of the user."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return call("chat", options={"messages": messages, **options}, owner=self._result).json

    def logits(self, tokens):
        """Returns the logits [B, L, V] of tokens [B, L], integers of 64 bits; without gradients."""
        return apply("logits", {"tokens": tokens}, {}, owner=self._result)[0][0]


def load_pretrained(path, *, dtype="f32"):
    """Loads a folder of Hugging Face's hub or a GGUF file; dtype is "f32", "f64" or "bf16"."""
    return Pretrained(call("load_pretrained", options={"path": os.fspath(path), "dtype": dtype}))
