"""Calls with PyTorch tensors, as a part of PyTorch's autograd."""

import torch

from ._library import call

# False while a backward pass runs that frees the graph; without this function it is always retained.
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def _detached(names, arrays):
    return [(n, x.detach() if isinstance(x, torch.Tensor) else x) for n, x in zip(names, arrays)]


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, names, options, json, *arrays):
        ctx.result = call(function, _detached(names, arrays), options, ctx.needs_input_grad[4:])
        json.append(ctx.result.json)
        outputs, has_gradient = ctx.result.outputs(torch.from_dlpack)
        ctx.mark_non_differentiable(*(x for x, has in zip(outputs, has_gradient) if not has))
        ctx.set_materialize_grads(False)
        # The graph has these tensors already; PyTorch then detects changes in place.
        ctx.save_for_backward(*(x for x in arrays if isinstance(x, torch.Tensor)), *outputs)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *gradients):
        if torch.is_grad_enabled():
            raise RuntimeError("[stretto] create_graph=True; second derivatives are not supported")
        ctx.saved_tensors  # noqa: B018: raises if one was changed, or if the graph was freed
        retain_graph = _keeps_graph()
        computed = iter(ctx.result.backward(gradients, retain_graph).outputs(torch.from_dlpack)[0])
        if not retain_graph:
            ctx.result = None
        return (None,) * 4 + tuple(next(computed) if x else None for x in ctx.needs_input_grad[4:])


@torch.compiler.disable
def apply(function, arrays, options, owner=None):
    names, tensors = zip(*arrays)
    if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in tensors):
        json = []
        return _Call.apply(function, names, options, json, *tensors), json[0]
    result = call(function, _detached(names, tensors), options, owner=owner)
    return result.outputs(torch.from_dlpack)[0], result.json
