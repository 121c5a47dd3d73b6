#include "nn/files/matcher.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>

#include "autograd/tape.h"
#include "core/one_line.h"
#include "core/parallel.h"

namespace stretto::nn::files {
namespace {

constexpr size_t max_shown = 3;  // of each kind of problem

// True if no value of n has all bits of its exponent set. Adding 1 to such an exponent sets the bit of
// the sign.
template <class Bits, int fraction_bits>
bool all_finite(const void* values, int64_t n) {
  constexpr Bits sign = Bits(1) << (8 * sizeof(Bits) - 1), one = Bits(1) << fraction_bits;
  Bits found = 0;
  for (int64_t i = 0; i < n; ++i) {
    Bits bits;
    std::memcpy(&bits, static_cast<const char*>(values) + i * int64_t(sizeof bits), sizeof bits);
    found |= Bits((bits & Bits(~sign)) + one);
  }
  return (found & sign) == 0;
}

bool equal(const Tensor& first, const Tensor& second) {
  if (first.shape() != second.shape() || first.dtype() != second.dtype()) return false;
  const Tensor a = first.contiguous(), b = second.contiguous();
  return dispatch(a.dtype(), [&]<class T>() {
    return std::equal(a.data<T>(), a.data<T>() + a.numel(), b.data<T>());
  });
}

// Makes `to` a handle of the memory of `from`, if nothing else refers to either.
bool replaced(const Tensor& to, const Tensor& from) {
  const bool is_own = to.is_leaf() && to.is_contiguous() && !to.grad().defined() &&
                      to.shared_storage().use_count() == 1 && !to.storage().pool;
  const int64_t bytes = from.numel() * item_size(from.dtype());
  const bool is_whole = from.unique() && from.is_contiguous() && from.device().is_cpu() &&
                        from.storage().bytes == bytes;
  if (is_own && is_whole) to.set_data(from);
  return is_own && is_whole;
}

std::set<std::string> pairs_of_letters(const std::string& name) {
  std::set<std::string> pairs;
  for (size_t i = 0; i + 1 < std::min<size_t>(name.size(), 200); ++i)
    pairs.insert(name.substr(i, 2));
  return pairs;
}

// The similarity of two names by their pairs of letters, 0 to 1 (Dice's coefficient).
double similarity(const std::set<std::string>& a, const std::string& other) {
  const std::set<std::string> b = pairs_of_letters(other);
  size_t common = 0;
  for (const std::string& pair : a) common += b.contains(pair);
  return 2.0 * double(common) / double(std::max<size_t>(a.size() + b.size(), 1));
}

std::string listed(const std::vector<std::string>& all, const std::string& more) {
  std::string text;
  for (size_t i = 0; i < std::min(max_shown, all.size()); ++i) text += (i > 0 ? "; " : "") + all[i];
  if (all.size() > max_shown) text += str("; and ", all.size() - max_shown, more);
  return text;
}

}  // namespace

bool has_finite_values(const Tensor& value) {
  if (!is_floating(value.dtype())) return true;
  const Tensor x = value.contiguous();
  std::atomic<bool> finite = true;
  parallel_for(x.numel(), 1 << 18, [&](int64_t begin, int64_t end) {
    const char* at = static_cast<const char*>(x.raw_data()) + begin * item_size(x.dtype());
    const bool all = x.dtype() == f32   ? all_finite<uint32_t, 23>(at, end - begin)
                     : x.dtype() == f64 ? all_finite<uint64_t, 52>(at, end - begin)
                                        : all_finite<uint16_t, 7>(at, end - begin);
    if (!all) finite = false;
  });
  return finite;
}

std::vector<NamedTensor> state_of(const Module& model) {
  std::vector<NamedTensor> all = model.named_parameters();
  for (NamedTensor& n : model.persistent_buffers()) all.push_back(std::move(n));
  return all;
}

FirstNames::FirstNames(const Module& model) {
  std::unordered_map<const void*, std::string> seen;
  for (const NamedTensor& n : model.named_tensors())
    if (const auto [it, is_new] = seen.emplace(n.tensor.id(), n.name); !is_new)
      first_.emplace(n.name, it->second);
}

const std::string& FirstNames::operator()(const std::string& name) const {
  const auto found = first_.find(name);
  return found == first_.end() ? name : found->second;
}

std::string Matcher::Named::shown() const {
  return one_line(name) + (name == name_in_file ? "" : " (" + one_line(name_in_file) + ")");
}

void Matcher::offer(const NamedTensor& value, const std::string& name_in_file) {
  if (found_.emplace(value.name, value.tensor).second) {
    origins_[value.name] = name_in_file;
    order_.push_back(value.name);
  } else if (!equal(found_.at(value.name), value.tensor)) {
    problem(Named{value.name, name_in_file, ""}.shown() +
            ": in the file twice, with different values");
  }
}

void Matcher::leave(const std::string& name, const std::string& name_in_file,
                    const std::string& what) {
  left_.push_back({name, name_in_file, what});
}

std::string Matcher::named(const std::string& name) const {
  return Named{name, origins_.at(name), ""}.shown();
}

Tensor Matcher::take(const std::string& name, const std::string& what) {
  const auto it = found_.find(name);
  if (it == found_.end()) {
    missing_.push_back({name, name, what});
    return {};
  }
  Tensor value = std::move(it->second);
  found_.erase(it);
  return value;
}

void Matcher::check_finite(const NamedTensor& value) {
  if (!allow_not_finite_ && has_finite_values(value.tensor)) finite_.insert(value.name);
}

void Matcher::need_finite(const std::string& name, const Tensor& value) {
  if (!allow_not_finite_ && !has_finite_values(value))
    problem(name + ": holds values that are not finite");
}

// The unexpected tensors of the file that are most similar to a missing one, by name and shape.
std::string Matcher::nearest(const Named& missing) const {
  const std::set<std::string> letters = pairs_of_letters(missing.name);
  std::vector<std::pair<double, const Named*>> ranked;
  for (const Named& n : left_) {
    const double score = std::max(similarity(letters, n.name), similarity(letters, n.name_in_file));
    ranked.push_back({score + (n.what == missing.what ? 0.5 : 0), &n});
  }
  const size_t shown = std::min<size_t>(2, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + int64_t(shown), ranked.end(),
                    [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (size_t i = 0; i < shown; ++i)
    text += str(i > 0 ? ", " : "", one_line(ranked[i].second->name_in_file), " ",
                one_line(ranked[i].second->what));
  return text;
}

void Matcher::finish(bool strict) {
  for (const std::string& name : order_)
    if (const auto it = found_.find(name); it != found_.end())
      left_.push_back({name, origins_.at(name), str(it->second)});
  std::vector<std::string> groups;
  if (!problems_.empty()) groups.push_back(listed(problems_, " more"));
  if (strict && !missing_.empty()) {
    std::vector<std::string> lines;
    for (const Named& n : missing_) {
      lines.push_back(one_line(n.name) + ": not in the file");
      if (lines.size() > max_shown || left_.empty()) continue;
      lines.back() += str(" (", n.what.empty() ? "" : "expected " + n.what + "; ",
                          "similar: ", nearest(n), ")");
    }
    groups.push_back(listed(lines, " more that are not in the file"));
  }
  if (strict && !left_.empty()) {
    std::vector<std::string> lines;
    for (const Named& n : left_) lines.push_back(n.shown() + ": in the file, but not expected");
    groups.push_back(listed(lines, " more that are not expected"));
  }
  std::string text;
  for (const std::string& group : groups) text += (text.empty() ? "" : "; ") + group;
  check(text.empty(), "load", text, " (", path_, ")");
}

std::vector<std::string> Matcher::missing() const {
  std::vector<std::string> names;
  for (const Named& n : missing_) names.push_back(n.name);
  return names;
}

std::vector<std::string> Matcher::unused() const {
  std::vector<std::string> names;
  for (const Named& n : left_)
    if (names.empty() || names.back() != n.name_in_file) names.push_back(n.name_in_file);
  return names;
}

std::vector<Assignment> match_tensors(const std::vector<NamedTensor>& tensors, Matcher& matcher,
                                      bool convert, std::optional<DType> loaded) {
  std::vector<Assignment> assignments;
  for (const NamedTensor& n : tensors) {
    const std::string expected = str(n.tensor.dtype(), " ", n.tensor.shape());
    const Tensor value = matcher.take(n.name, expected);
    if (!value.defined()) continue;
    const bool dtypes_fit =
        value.dtype() == n.tensor.dtype() ||
        (convert && is_floating(value.dtype()) && is_floating(n.tensor.dtype()));
    if (value.shape() != n.tensor.shape() || !dtypes_fit)
      matcher.problem(str(matcher.named(n.name), ": file has ", value.dtype(), " ", value.shape(),
                          ", the model ", expected));
    const bool is_final = !dtypes_fit || value.dtype() == loaded;
    assignments.push_back({n.tensor, is_final ? value : value.to(n.tensor.dtype()).contiguous()});
    if (!matcher.is_finite(n.name) || !assignments.back().from.same(value))
      matcher.need_finite(matcher.named(n.name), assignments.back().from);
  }
  return assignments;
}

void assign(const std::vector<Assignment>& assignments, bool replace) {
  NoGrad guard;
  for (const auto& [to, from] : assignments) {
    if (replace && to.device().is_cpu() && replaced(to, from)) continue;
    if (to.device().is_cpu() && to.is_contiguous() && to.dtype() == from.dtype()) {
      copy_bytes(to.raw_data(), cpu, from.raw_data(), cpu, to.numel() * item_size(to.dtype()));
      ++to.storage().version;
    } else {
      Tensor(to).copy_(from);
    }
  }
}

}  // namespace stretto::nn::files
