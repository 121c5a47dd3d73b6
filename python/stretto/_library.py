"""Calls the C functions of python/abi.cpp with ctypes, which releases the GIL."""

import ctypes
import json
import os
import pathlib
import sys
import weakref
from ctypes import PYFUNCTYPE, c_char_p, c_int, c_int32, c_int64, c_void_p, py_object

import numpy


class _Input(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("managed", c_void_p)]
    _fields_ += [("versioned", c_int32), ("requires_grad", c_int32)]


_inputs_p = ctypes.POINTER(_Input)
_library = ctypes.CDLL(str(pathlib.Path(__file__).with_name("libstretto_python.so")))
for _name, _result, *_arguments in [
    ("stretto_version", c_char_p),
    ("stretto_error", c_char_p),
    ("stretto_out_of_memory", c_int),
    ("stretto_call", c_void_p, c_char_p, c_char_p, _inputs_p, c_int64, c_void_p),
    ("stretto_backward", c_void_p, c_void_p, _inputs_p, c_int64, c_int),
    ("stretto_json", c_char_p, c_void_p),
    ("stretto_output_kind", c_int, c_void_p, c_int64),
    ("stretto_output", c_void_p, c_void_p, c_int64, c_int),
    ("stretto_delete_output", None, c_void_p, c_int),
    ("stretto_delete", None, c_void_p),
    ("stretto_programs", c_char_p),
    ("stretto_run_program", c_int, c_char_p, c_int, ctypes.POINTER(c_char_p)),
]:
    _function = getattr(_library, _name)
    _function.restype, _function.argtypes = _result, _arguments

version = _library.stretto_version().decode()
programs = _library.stretto_programs().decode().split("\n")

# DLPack's capsules, which are renamed as soon as their tensor has another owner. A destructor gets an
# address: a capsule that is being deleted must get no new references.
_NAMES = [(b"dltensor", b"used_dltensor"), (b"dltensor_versioned", b"used_dltensor_versioned")]
_Destructor = PYFUNCTYPE(None, c_void_p)


def _capsule_function(name, result, *arguments):
    return PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _capsule_function("PyCapsule_New", py_object, c_void_p, c_char_p, _Destructor)
_set_name = _capsule_function("PyCapsule_SetName", c_int, py_object, c_char_p)
_is_valid, _is_valid_at = (
    _capsule_function("PyCapsule_IsValid", c_int, kind, c_char_p) for kind in (py_object, c_void_p)
)
_pointer, _pointer_at = (
    _capsule_function("PyCapsule_GetPointer", c_void_p, kind, c_char_p)
    for kind in (py_object, c_void_p)
)


@_Destructor
def _delete_capsule(capsule):
    for versioned, (name, _) in enumerate(_NAMES):
        if _is_valid_at(capsule, name):
            _library.stretto_delete_output(_pointer_at(capsule, name), versioned)


def _capsule_of(name, x):
    """Returns DLPack's capsule of an array; a copy only of NumPy arrays that DLPack cannot describe."""
    if isinstance(x, numpy.ndarray):
        read_only = not x.flags.writeable and numpy.lib.NumpyVersion(numpy.__version__) < "2.1.0"
        x = x.copy() if read_only or any(stride < 0 for stride in x.strides) else x
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"{name} is a {type(x).__name__}; accepted: NumPy arrays, PyTorch tensors")
    try:
        try:
            return x.__dlpack__(max_version=(1, 0))
        except TypeError:  # a library from before DLPack 1.0
            return x.__dlpack__()
    except (BufferError, RuntimeError, TypeError) as error:
        raise ValueError(f"[from_dlpack] {error} (argument {name})") from error


def _inputs(arrays, requires_grad=None):
    """Returns [(name, array)] as an array of _Input, which owns them; None becomes a null."""
    capsules = [None if x is None else _capsule_of(name, x) for name, x in arrays]
    inputs = (_Input * len(capsules))()
    for i, (entry, capsule) in enumerate(zip(inputs, capsules)):
        entry.name = arrays[i][0].encode()
        entry.requires_grad = bool(requires_grad and requires_grad[i])
        if capsule is not None:
            entry.versioned = _is_valid(capsule, _NAMES[1][0])
            own, used = _NAMES[entry.versioned]
            entry.managed = _pointer(capsule, own)
            _set_name(capsule, used)
    return inputs


def _checked(pointer):
    if pointer is None:
        kind = MemoryError if _library.stretto_out_of_memory() else ValueError
        raise kind(_library.stretto_error().decode(errors="replace"))
    return pointer


class _Output:
    """An output of a result, for from_dlpack()."""

    def __init__(self, result, index):
        self.result, self.index = result, index

    def __dlpack_device__(self):
        return 1, 0  # the CPU

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        versioned = int(max_version is not None and max_version[0] >= 1)
        managed = _checked(_library.stretto_output(self.result.pointer, self.index, versioned))
        return _new(managed, _NAMES[versioned][0], _delete_capsule)


class Result:
    """The result of a call: tensors, JSON, a model or tokenizer, and the graph of the gradients."""

    def __init__(self, pointer):
        self.pointer = _checked(pointer)
        weakref.finalize(self, _library.stretto_delete, pointer)

    @property
    def json(self):
        return json.loads(_library.stretto_json(self.pointer))

    def outputs(self, from_dlpack):
        """Returns the outputs without a copy, None for a missing gradient; and if they have gradients."""
        outputs, has_gradient = [], []
        while (kind := _library.stretto_output_kind(self.pointer, len(outputs))) >= 0:
            outputs.append(from_dlpack(_Output(self, len(outputs))) if kind else None)
            has_gradient.append(kind == 2)
        return outputs, has_gradient

    def backward(self, gradients, retain_graph):
        """Returns the gradients of the inputs that require one, as a Result."""
        inputs = _inputs([(f"gradient {i}", x) for i, x in enumerate(gradients)])
        return Result(_library.stretto_backward(self.pointer, inputs, len(inputs), retain_graph))


def _plain(x):
    """Returns the number in a scalar of NumPy or PyTorch, for JSON."""
    if hasattr(x, "item"):
        return x.item()
    raise TypeError(f"got a {type(x).__name__}; accepted: numbers, text, lists of these")


def call(function, arrays=(), options=None, requires_grad=None, owner=None):
    """Calls a function with [(name, array)] and options; None stands for the default."""
    given = {name: value for name, value in (options or {}).items() if value is not None}
    text = json.dumps(given, allow_nan=False, default=_plain).encode()
    inputs = _inputs(arrays, requires_grad)
    pointer = owner.pointer if owner else None
    return Result(_library.stretto_call(function.encode(), text, inputs, len(inputs), pointer))


def apply(function, arrays, options, owner=None):
    """Returns the output arrays and the JSON; PyTorch tensors if an input is one, else NumPy arrays."""
    arrays = [(name, x) for name, x in arrays.items() if x is not None]
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(x, torch.Tensor) for _, x in arrays):
        from . import _torch

        return _torch.apply(function, arrays, options, owner)
    result = call(function, arrays, options, owner=owner)
    return result.outputs(numpy.from_dlpack)[0], result.json


def run_program(name, arguments):
    """Runs a program, whose messages begin with `stretto NAME`, and returns its exit status."""
    words = [os.fsencode(word) for word in (f"stretto {name}", *arguments)]
    argv = (c_char_p * (len(words) + 1))(*words)
    return _library.stretto_run_program(name.encode(), len(words), argv)
