// The C functions of the library that the Python package loads with ctypes (stretto/_library.py).
//
// A function that fails returns null, and stretto_error() returns the error of this thread. Tensors
// arrive and leave as DLPack's managed tensors; the receiver owns them.
#include <exception>
#include <memory>
#include <new>
#include <set>

#include "autograd/tape.h"
#include "core/dlpack.h"
#include "core/version.h"
#include "python/call.h"

using namespace stretto;  // NOLINT

/// A tensor from Python. `managed` may be null in stretto_backward(): no gradient.
struct StrettoInput {
  const char* name;       ///< Name of the argument.
  void* managed;          ///< DLManagedTensorVersioned or DLManagedTensor.
  int32_t versioned;      ///< Which of the two.
  int32_t requires_grad;  ///< True if stretto_backward() returns its gradient.
};

/// The result of a call, with the graph of its gradients.
struct StrettoResult {
  python::Returned returned;  ///< What the function has returned.
  Tensors leaves;             ///< The inputs that require gradients, in their order.
};

namespace {

thread_local std::string last_error;
thread_local bool out_of_memory = false;

// Runs f, which returns a pointer; null after an exception.
template <class F>
auto guarded(F f) -> decltype(f()) {
  out_of_memory = false;
  try {
    return f();
  } catch (const std::exception& error) {
    last_error = error.what();
    out_of_memory = dynamic_cast<const OutOfMemory*>(&error) != nullptr ||
                    dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  }
  return nullptr;
}

template <class Managed>
Tensor adopted(Managed* managed) {
  try {
    if constexpr (std::is_same_v<Managed, dlpack::DLManagedTensorVersioned>)
      managed->flags &= ~dlpack::read_only;  // no function writes its inputs
    return from_dlpack(managed);
  } catch (...) {
    if (managed->deleter) managed->deleter(managed);
    throw;
  }
}

Tensor adopted(const StrettoInput& x) {
  try {
    if (!x.managed) return {};
    Tensor tensor = x.versioned ? adopted(static_cast<dlpack::DLManagedTensorVersioned*>(x.managed))
                                : adopted(static_cast<dlpack::DLManagedTensor*>(x.managed));
    check(tensor.device().is_cpu(), "from_dlpack", "the tensor is on ", tensor.device(),
          "; accepted: CPU");
    return tensor;
  } catch (const Error& error) {
    throw Error(str(error.what(), " (argument ", x.name, ")"));
  }
}

// Takes over all inputs, also if one of them is not accepted.
Tensors adopted(const StrettoInput* inputs, int64_t count) {
  Tensors all;
  std::exception_ptr first_error;
  for (int64_t i = 0; i < count; ++i) try {
      all.push_back(adopted(inputs[i]));
    } catch (...) {
      if (!first_error) first_error = std::current_exception();
    }
  if (first_error) std::rethrow_exception(first_error);
  return all;
}

}  // namespace

extern "C" {

/// Returns the version of the library.
const char* stretto_version() {
  static const std::string version =
      str(STRETTO_VERSION_MAJOR, ".", STRETTO_VERSION_MINOR, ".", STRETTO_VERSION_PATCH);
  return version.c_str();
}

/// Returns the text of the last error of this thread, until its next call.
const char* stretto_error() { return last_error.c_str(); }

/// Returns 1 if the last error of this thread was a lack of memory.
int stretto_out_of_memory() { return out_of_memory; }

/// Calls a function. `options` is a JSON object; `object` is the result with the model or tokenizer
/// whose member is called, or null.
StrettoResult* stretto_call(const char* function, const char* options, const StrettoInput* inputs,
                            int64_t count, const StrettoResult* object) {
  return guarded([&] {
    const Tensors tensors = adopted(inputs, count);
    auto result = std::make_unique<StrettoResult>();
    std::map<std::string, Tensor> by_name;
    for (int64_t i = 0; i < count; ++i) {
      const Tensor& x = tensors[size_t(i)];
      by_name.emplace(inputs[i].name, x);
      if (inputs[i].requires_grad) result->leaves.push_back(x.set_requires_grad());
    }
    const GradMode mode(!result->leaves.empty());
    python::Arguments arguments(function, options, std::move(by_name),
                                object ? object->returned.object : std::any());
    const auto& functions = python::attention_functions.contains(function)
                                ? python::attention_functions
                                : python::model_functions;
    result->returned = functions.at(function)(arguments);
    arguments.finish();
    return result.release();
  });
}

/// Computes the gradients of Σ outputs·gradients. The tensors of the result are those of the inputs
/// that require gradients. `gradients` has one entry per output.
StrettoResult* stretto_backward(const StrettoResult* result, const StrettoInput* gradients,
                                int64_t count, int retain_graph) {
  return guarded([&] {
    Tensors outputs, given;
    std::set<const Storage*> storages;  // of which no result may be a view
    for (const Tensor& leaf : result->leaves) storages.insert(&leaf.storage());
    const Tensors all = adopted(gradients, count);
    for (size_t i = 0; i < all.size(); ++i) {
      const Tensor& output = result->returned.tensors[i];
      if (!all[i].defined() || !output.requires_grad()) continue;
      outputs.push_back(output);
      given.push_back(all[i]);
      storages.insert(&all[i].storage());
    }
    auto computed = std::make_unique<StrettoResult>();
    Tensors& found = computed->returned.tensors;
    if (!outputs.empty())
      found = grad(outputs, result->leaves, given, {.retain_graph = retain_graph != 0});
    found.resize(result->leaves.size());
    for (Tensor& x : found)
      if (x.defined() && !storages.insert(&x.storage()).second) x = x.clone();
    return computed.release();
  });
}

/// Returns the JSON of the result.
const char* stretto_json(const StrettoResult* result) { return result->returned.json.c_str(); }

/// Returns −1 if there are only i outputs; 0 if output i is missing, as a gradient may be; 2 if it
/// has a gradient; else 1.
int stretto_output_kind(const StrettoResult* result, int64_t i) {
  const Tensors& outputs = result->returned.tensors;
  if (i >= int64_t(outputs.size())) return -1;
  const Tensor& x = outputs[size_t(i)];
  return x.defined() ? 1 + int(x.requires_grad()) : 0;
}

/// Returns output i as DLManagedTensorVersioned or DLManagedTensor, without a copy.
void* stretto_output(const StrettoResult* result, int64_t i, int versioned) {
  return guarded([&]() -> void* {
    const Tensor x = result->returned.tensors[size_t(i)].detach();
    if (versioned) return to_dlpack(x);
    return to_dlpack_unversioned(x);
  });
}

/// Calls the deleter of a tensor of stretto_output() that no library has taken over.
void stretto_delete_output(void* managed, int versioned) {
  const auto release = [](auto* x) { x->deleter(x); };
  if (versioned)
    release(static_cast<dlpack::DLManagedTensorVersioned*>(managed));
  else
    release(static_cast<dlpack::DLManagedTensor*>(managed));
}

/// Deletes a result. Tensors of stretto_output() stay valid.
void stretto_delete(StrettoResult* result) { delete result; }

}  // extern "C"
