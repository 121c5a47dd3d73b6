"""Relative attention with gradients of its tables, for NumPy arrays and PyTorch tensors.

Arguments have the names, the meaning and the defaults of the C++ options. Arrays are read and returned
without copies. With PyTorch tensors every function is a part of autograd. An error of the library is a
ValueError.
"""

from . import music, positions
from ._functions import (
    attention,
    attention_scores,
    attention_weights,
    attention_with_lse,
    gated_linear_attention,
    linear_attention,
    manual_seed,
    num_threads,
    set_num_threads,
)
from ._library import version as __version__
from ._models import Pretrained, Tokenizer, load_pretrained
from .positions import ConvCode, RelativeTable, SineCode, spe
