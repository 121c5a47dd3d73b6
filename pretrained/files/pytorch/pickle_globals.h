// The classes and functions that pickles of PyTorch may name, and the opcodes that they may not
// have; for pretrained/files/pytorch/pickle.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "../../../nn/files/value_format.h"

namespace stretto::nn::files {

/// What a class or function of the list does in a pickle.
enum class PickleGlobal {
  unknown,
  ordered_dict,                  // collections.OrderedDict(); a state is ignored
  set,                           // set([…])
  encode,                        // _codecs.encode(text, 'latin1'), which is a bytes object
  size,                          // torch.Size((…,))
  device,                        // torch.device('cpu')
  dtype,                         // torch.float32, …
  storage,                       // torch.FloatStorage, …: only in persistent ids
  untyped_storage,               // torch.storage.UntypedStorage
  tensor_class,                  // torch.Tensor, torch.nn.Parameter, …: only as an argument
  rebuild_tensor,                // (storage, offset, size, stride)
  rebuild_tensor_v2,             // (…, requires_grad, hooks[, metadata])
  rebuild_tensor_v3,             // (…, requires_grad, hooks, dtype[, metadata])
  rebuild_parameter,             // (tensor, requires_grad, hooks)
  rebuild_parameter_with_state,  // (tensor, requires_grad, hooks, state)
  rebuild_from_type              // (function, class, arguments, state)
};

/// A known name: for a dtype or storage with the format of its values.
struct KnownGlobal {
  PickleGlobal kind = PickleGlobal::unknown;
  const ValueFormat* format = nullptr;
};

/// Returns the name of an opcode that is known but not supported; null for other numbers.
const char* refused_opcode(uint8_t code);

/// Returns what "module.name" is.
KnownGlobal find_global(const std::string& name);

}  // namespace stretto::nn::files
