// Every op of the table (tests/support/op_table.h) against its reference, in every floating dtype;
// gradients against central differences; error texts; the GPU against the same reference. Layouts
// and repetition are in op_layout_test.cpp, special values in op_values_test.cpp.
#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "core/device.h"
#include "core/parallel.h"
#include "tests/support/gpu.h"
#include "tests/support/gradcheck.h"
#include "tests/support/op_check.h"

namespace stretto::testing {
namespace {

// The allowed error is twice the first-order bound, in f64 four times (op_check.h). If an op uses
// more than half of it, the table must give the reason (Op::tight).
void report(DType dtype, const std::map<std::string, Usage>& usages) {
  Usage worst;
  for (const auto& [name, u] : usages) {
    if (u.values > worst.values)
      worst = {u.values, worst.gradients, u.values_at, worst.gradients_at};
    if (u.gradients > worst.gradients)
      worst = {worst.values, u.gradients, worst.values_at, u.gradients_at};
  }
  std::cout << "op table, " << name(dtype) << ": " << usages.size() << " ops; of the allowed error "
            << std::lround(100 * worst.values) << " % used by values (" << worst.values_at << "), "
            << std::lround(100 * worst.gradients) << " % by gradients (" << worst.gradients_at
            << ")\n";
  for (const Op& op : op_table()) {
    const auto it = usages.find(op.name);
    if (it == usages.end()) continue;
    const double used = std::max(it->second.values, it->second.gradients);
    if (used <= 0.5 || used > 1) continue;
    INFO(op.name << " uses " << 100 * used << " % of the allowed error in " << name(dtype));
    CHECK(!op.tight.empty());
  }
}

std::map<std::string, Usage> check_all(DType dtype) {
  std::map<std::string, Usage> usages;
  for_each_sample([&](const Op& op, const Sample& sample) {
    check_against_reference(op, sample, dtype, cpu, usages[op.name]);
  });
  number_tape() = {};
  return usages;
}

}  // namespace

TEST_CASE("the op table is well formed", "[ops]") {
  std::set<std::string> names;
  for (const Op& op : op_table()) {
    INFO(op.name);
    CHECK(names.insert(op.name).second);
    CHECK(!op.samples.empty());
    CHECK(!op.large.empty());
    CHECK(op.call);
    CHECK(op.reference);
  }
  CHECK(op_table().size() > 100);
}

TEST_CASE("ops agree with their reference in f64", "[ops]") { report(f64, check_all(f64)); }
TEST_CASE("ops agree with their reference in f32", "[ops]") { report(f32, check_all(f32)); }
TEST_CASE("ops agree with their reference in bf16", "[ops]") { report(bf16, check_all(bf16)); }

// Tensors that several threads share: chunks must begin and end at the right elements.
TEST_CASE("ops on large tensors agree with their reference", "[ops]") {
  for_each_sample(
      [&](const Op& op, const Sample& sample) {
        Usage usage;
        if (op.any_layout_exact) {
          check_against_reference(op, sample, f32, cpu, usage);
        } else {  // the tape of a large matrix product would fill the memory
          const Tensors inputs = inputs_of(sample, f32);
          check_value(op, inputs, op.call(inputs));
        }
      },
      true);
  number_tape() = {};
}

TEST_CASE("gradients of ops agree with central differences", "[ops]") {
  std::map<std::string, int> checked;
  for_each_sample([&](const Op& op, const Sample& sample) {
    Tensors inputs = inputs_of(sample, f64);
    int64_t elements = 0;
    for (Tensor& x : inputs)
      if (op.differentiable && x.dtype() == f64) elements += x.set_requires_grad().numel();
    if (elements == 0 || elements > 30 || checked[op.name] == 4) return;
    {
      NoGrad guard;
      if (op.call(inputs).numel() > 64) return;
    }
    ++checked[op.name];
    check_gradients(op.call, inputs);
  });
  for (const Op& op : op_table()) {
    INFO(op.name);
    CHECK((!op.differentiable || checked[op.name] >= 1));
  }
}

TEST_CASE("errors of ops have the text in the table", "[ops]") {
  const int64_t live = memory_stats().live;
  for (const Op& op : op_table()) {
    for (size_t i = 0; i < op.errors.size(); ++i) {
      INFO(op.name << ", error case " << i);
      try {
        op.errors[i].call();
        FAIL_CHECK("nothing was thrown; expected: " << op.errors[i].text);
      } catch (const Error& error) {
        CHECK_THAT(error.what(), Containing(op.errors[i].text));
      }
    }
  }
  CHECK(memory_stats().live == live);
}

TEST_CASE("ops on CUDA agree with their reference", "[ops][cuda]") {
  NEEDS_GPU();
  const int64_t live_there = gpu_bytes();
  for (DType dtype : {f32, bf16, f64}) {
    for_each_sample([&](const Op& op, const Sample& sample) {
      Usage usage;
      check_against_reference(op, sample, dtype, gpu, usage);
    });
    CHECK(gpu_bytes() == live_there);
  }
}

}  // namespace stretto::testing
