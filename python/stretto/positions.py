"""Tables of relative positions for attention()."""

from typing import Any, NamedTuple

from ._library import apply


class RelativeTable(NamedTuple):
    """A table indexed by relative position: row zero_row + r belongs to relative position r.

    rows is [H or 1, R, D] for keys, [H or 1, R, Dv] for values, [H or 1, R] for a bias. zero_row is
    R − 1 for a table of the past only, (R − 1) // 2 for both directions. A relative position without
    a row contributes nothing ("zero"), the outermost row ("clip"), or is an error ("error").
    """

    rows: Any
    zero_row: int
    out_of_range: str = "zero"


def t5_bias(table, n_queries, n_keys, *, max_distance=128, bidirectional=True):
    """Returns T5's relative_bias [H, R] from its table [buckets, H]; differentiable."""
    options = {"n_queries": n_queries, "n_keys": n_keys, "max_distance": max_distance}
    options["bidirectional"] = bidirectional
    (rows,), zero_row = apply("t5_bias", {"table": table}, options)
    return RelativeTable(rows, zero_row)
