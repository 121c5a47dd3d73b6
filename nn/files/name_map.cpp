#include "nn/files/name_map.h"

#include <algorithm>

#include "autograd/tape.h"
#include "core/one_line.h"
#include "ops/indexing.h"

namespace stretto::nn {
namespace {

using Holes = NamePattern::Holes;
using Part = NameMap::Part;
using SplitOptions = NameMap::SplitOptions;

// The end of an error text about a rule.
constexpr const char* not_enough =
    "\": the name in the model has too few {} or * to restore the name in the file";

std::string fill(const std::string& pattern, const Holes& holes) {
  return NamePattern(pattern).fill(holes);
}

Tensor converted(const char* op, const std::string& name, const Tensor& x,
                 const std::function<Tensor(const Tensor&)>& f) {
  try {
    return f(x);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    fail(op, one_line(name), ": has ", x, "; ", e.what());
  }
}

// The inverse of a conversion, if there is one. `name` is that in the model, `from` the rule's pattern.
Tensor converted_back(const std::string& name, const Tensor& x, const std::string& from,
                      const Conversion& conversion) {
  if (!conversion.there) return x;
  check(bool(conversion.back), "save", name, ": not invertible: \"", from, "\" is ",
        conversion.name, ", which has no inverse");
  return converted("save", name, x, conversion.back);
}

int64_t total(const std::vector<Part>& parts) {
  int64_t sum = 0;
  for (const Part& part : parts) sum += part.share;
  return sum;
}

std::string shares_text(const std::vector<Part>& parts) {
  std::string text;
  for (const Part& part : parts) text += str(text.empty() ? "" : " : ", part.share);
  return text;
}

bool equal_parts(const std::vector<Part>& parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const Part& p) { return p.share == parts[0].share; });
}

// x with dimension `dim` as [groups, size / groups].
Tensor in_groups(const Tensor& x, int64_t dim, int64_t groups) {
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  shape[size_t(dim)] /= groups;
  shape.insert(shape.begin() + dim, groups);
  return x.reshape(Shape(shape));
}

Tensor out_of_groups(const Tensor& x, int64_t dim) {
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  shape[size_t(dim)] *= shape[size_t(dim) + 1];
  shape.erase(shape.begin() + dim + 1);
  return x.reshape(Shape(shape));
}

Tensors cut(const char* op, const std::string& name, const Tensor& x,
            const std::vector<Part>& parts, const SplitOptions& o) {
  const int64_t units = total(parts);
  const bool fits = units > 0 && x.dim() > o.dim && x.dim() < Shape::max_dims &&
                    x.size(o.dim) % o.groups == 0 && x.size(o.dim) / o.groups % units == 0;
  const std::string how =
      equal_parts(parts) ? str(parts.size(), " equal parts") : str("parts of ", shares_text(parts));
  const std::string where = o.groups == 1 ? "" : str(" in each of ", o.groups, " groups");
  check(fits, op, one_line(name), ": ", op == std::string("load") ? "file" : "model", " has ", x,
        ", which cannot be split into ", how, where,
        o.dim == 0 ? "" : str(" along dimension ", o.dim));
  const Tensor grouped = in_groups(x, o.dim, o.groups);
  const int64_t unit = grouped.size(o.dim + 1) / units;
  Tensors pieces;
  int64_t at = 0;
  for (const Part& part : parts) {
    const int64_t end = at + part.share * unit;
    pieces.push_back(out_of_groups(grouped.slice(o.dim + 1, at, end), o.dim));
    at = end;
  }
  return pieces;
}

// The inverse of cut(). `names` are the names of the parts in the model, for errors.
Tensor uncut(const Tensors& pieces, const std::vector<std::string>& names,
             const std::vector<Part>& parts, const SplitOptions& o) {
  const Tensor& first = pieces[0];
  Tensors grouped;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Tensor& x = pieces[i];
    Shape rest = x.shape();
    if (x.dim() > o.dim && first.dim() > o.dim) rest[o.dim] = first.size(o.dim);
    const bool fits = x.dim() > o.dim && x.dim() < Shape::max_dims && rest == first.shape() &&
                      x.dtype() == first.dtype() && x.size(o.dim) % o.groups == 0 &&
                      x.size(o.dim) * parts[0].share == first.size(o.dim) * parts[i].share;
    check(fits, "save", names[i], ": model has ", x, ", which cannot be joined to ", names[0], ", ",
          first, ", in parts of ", shares_text(parts));
    grouped.push_back(in_groups(x, o.dim, o.groups));
  }
  return out_of_groups(cat(grouped, o.dim + 1), o.dim);
}

bool same_values(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         a.to_vector<double>() == b.to_vector<double>();
}

}  // namespace

Conversion transposed() {
  const auto swap = [](const Tensor& x) {
    check(x.dim() == 2, "transposed", "a matrix has 2 dimensions");
    return x.transpose(0, 1);
  };
  return {"transposed", swap, swap, true};
}

NameMap::NameMap(std::initializer_list<std::pair<std::string, std::string>> renames) {
  for (const auto& [from, to] : renames) to.empty() ? drop(from) : rename(from, to);
}

NameMap& NameMap::add(Rule rule) {
  for (const Part& part : rule.to) {
    const NamePattern to(part.to);
    check(!to.has_optional_text(), "NameMap", "\"", part.to,
          "\": [text] is allowed only in names of the file");
    check(to.filled_by(rule.from), "NameMap", "\"", part.to, "\" has more {} or * than \"",
          rule.from.text(), "\"");
    check(part.share > 0, "NameMap", "\"", part.to, "\" has a share of ", part.share,
          "; must be positive");
  }
  check(rule.cut.dim >= 0 && rule.cut.dim < Shape::max_dims && rule.cut.groups > 0, "NameMap", "\"",
        rule.from.text(), "\": splits dimension ", rule.cut.dim, " into ", rule.cut.groups,
        " groups; the dimension must be 0 to ", Shape::max_dims - 1,
        ", and the number of groups at least 1");
  rules_.push_back(std::move(rule));
  return *this;
}

NameMap& NameMap::rename(std::string from, std::string to) {
  return add({Kind::rename, NamePattern(std::move(from)), {std::move(to)}});
}

NameMap& NameMap::drop(std::string from) {
  return add({Kind::drop, NamePattern(std::move(from)), {}});
}

NameMap& NameMap::copy(std::string from, std::vector<std::string> to) {
  check(!to.empty(), "NameMap", "\"", from, "\" is copied to no tensors");
  return add({Kind::copy, NamePattern(std::move(from)), {to.begin(), to.end()}});
}

NameMap& NameMap::split(std::string from, std::vector<Part> parts, SplitOptions options) {
  check(!parts.empty(), "NameMap", "\"", from, "\" is split into no parts");
  return add({Kind::split, NamePattern(std::move(from)), std::move(parts), std::move(options)});
}

NameMap& NameMap::split(std::string from, std::vector<Part> parts) {
  return split(std::move(from), std::move(parts), {});
}

NameMap& NameMap::join(std::string from, std::string to, std::vector<int64_t> shares) {
  NamePattern pattern(std::move(from));
  check(pattern.has_numbers(), "NameMap", "\"", pattern.text(),
        "\" has no {}, which orders the parts");
  return add({Kind::join, std::move(pattern), {std::move(to)}, {}, std::move(shares)});
}

NameMap& NameMap::join_named(const std::vector<std::string>& from, const std::string& to,
                             const std::vector<int64_t>& shares, const Conversion& conversion) {
  check(!from.empty() && (shares.empty() || shares.size() == from.size()), "NameMap", "\"", to,
        "\" is joined from ", from.size(), " tensors with ", shares.size(),
        " shares; expected at least one tensor, and no shares or one per tensor");
  const std::vector<NamePattern> all(from.begin(), from.end());
  for (size_t i = 0; i < all.size(); ++i)
    add({Kind::join, all[i], {to}, {.first = conversion}, shares, all, int64_t(i)});
  return *this;
}

NameMap& NameMap::convert(std::string from, std::string to, Conversion conversion) {
  check(bool(conversion.there), "NameMap", "\"", from, "\" is converted without a function");
  return add({Kind::rename,
              NamePattern(std::move(from)),
              {std::move(to)},
              {.first = std::move(conversion)}});
}

NameMap& NameMap::convert(std::string from, std::string to,
                          std::function<Tensor(const Tensor&)> f) {
  return convert(std::move(from), std::move(to), Conversion{"converted", std::move(f)});
}

NameMap& NameMap::set_modules(NameMap map) {
  modules_ = std::make_shared<const NameMap>(std::move(map));
  return *this;
}

NameMap& NameMap::strip(std::string prefix) {
  prefixes_.push_back(std::move(prefix));
  return *this;
}

NameMap& NameMap::prefer(const NameMap& other) {
  const NameMap before = other;  // a copy: `other` may be this map
  rules_.insert(rules_.begin(), before.rules_.begin(), before.rules_.end());
  prefixes_.insert(prefixes_.begin(), before.prefixes_.begin(), before.prefixes_.end());
  return *this;
}

std::string NameMap::describe() const {
  size_t width = 0;
  for (const Rule& rule : rules_) width = std::max(width, rule.from.text().size());
  std::string text;
  for (const std::string& prefix : prefixes_)
    text += str(prefix, std::string(width - std::min(width, prefix.size()), ' '),
                "  stripped from every name\n");
  for (const Rule& rule : rules_) {
    text += rule.from.text() + std::string(width - rule.from.text().size(), ' ');
    text += rule.kind == Kind::drop ? "  dropped" : "  → ";
    const bool unequal = !rule.to.empty() && !equal_parts(rule.to);
    for (size_t i = 0; i < rule.to.size(); ++i) {
      text += str(i > 0 ? ", " : "", rule.to[i].to);
      if (unequal) text += str(" (", rule.to[i].share, ")");
    }
    std::vector<std::string> notes;
    if (rule.cut.first.there) notes.push_back(rule.cut.first.name);
    if (rule.kind == Kind::split) {
      notes.push_back(str("split along dimension ", rule.cut.dim));
      if (rule.cut.groups > 1) notes.back() += str(" in each of ", rule.cut.groups, " groups");
    }
    if (rule.kind == Kind::join)
      notes.push_back(rule.joined.empty()
                          ? "joined in the order of the numbers"
                          : str("joined as part ", rule.number + 1, " of ", rule.joined.size()));
    if (rule.kind == Kind::copy) notes.push_back("to each");
    for (size_t i = 0; i < notes.size(); ++i) text += (i == 0 ? "; " : ", ") + notes[i];
    text += '\n';
  }
  return text;
}

NameMap::Found NameMap::find(const std::string& full) const {
  Found found{.name = full};
  for (const std::string& prefix : prefixes_)
    if (found.name.starts_with(prefix)) found.name.erase(0, prefix.size());
  for (const Rule& rule : rules_)
    if (std::optional<Holes> holes = rule.from.match(found.name)) {
      found.rule = &rule;
      found.holes = *std::move(holes);
      break;
    }
  return found;
}

std::vector<std::string> NameMap::targets(const std::string& name) const {
  const Found found = find(name);
  if (!found.rule) return {found.name};
  std::vector<std::string> all;
  for (const Part& part : found.rule->to) all.push_back(fill(part.to, found.holes));
  return all;
}

bool NameMap::moves_only(const std::string& name) const {
  const Found found = find(name);
  return !found.rule || !found.rule->cut.first.there || found.rule->cut.first.moves_only;
}

bool NameMap::is_joined(const std::string& name) const {
  const Found found = find(name);
  return found.rule && found.rule->kind == Kind::join;
}

std::vector<NameMap::Mapped> NameMap::operator()(const std::vector<NamedTensor>& file) const {
  std::vector<Mapped> result;
  std::map<std::string, std::map<int64_t, NamedTensor>> joined;  // by target, then by number
  for (const NamedTensor& source : file) {
    const auto add = [&](std::string name, const Tensor& value) {
      result.push_back({{std::move(name), value}, source.name});
    };
    const Found found = find(source.name);
    if (!found.rule) {
      add(found.name, source.tensor);
      continue;
    }
    const Rule& rule = *found.rule;
    if (rule.kind == Kind::drop) continue;
    const auto& forward = rule.cut.first.there;
    const Tensor value =
        forward ? converted("load", source.name, source.tensor, forward) : source.tensor;
    if (rule.kind == Kind::join) {
      const std::string target = fill(rule.to[0].to, found.holes);
      const int64_t number =
          rule.joined.empty() ? std::stoll(found.holes.numbers.back()) : rule.number;
      const auto [first, is_new] = joined[target].emplace(number, NamedTensor{source.name, value});
      check(is_new, "load", one_line(source.name), ": is number ", number, " of ", one_line(target),
            ", and so is ", one_line(first->second.name));
      continue;
    }
    const Tensors pieces = rule.kind == Kind::split
                               ? cut("load", source.name, value, rule.to, rule.cut)
                               : Tensors(rule.to.size(), value);
    for (size_t i = 0; i < pieces.size(); ++i) add(fill(rule.to[i].to, found.holes), pieces[i]);
  }
  for (const auto& [name, sources] : joined) {
    const NamedTensor& first = sources.begin()->second;
    Tensors pieces;
    for (const auto& [number, source] : sources) {
      const Tensor& x = source.tensor;
      Shape rest = x.shape();
      if (x.dim() >= 1) rest[0] = first.tensor.dim() >= 1 ? first.tensor.size(0) : 0;
      check(x.dim() >= 1 && rest == first.tensor.shape() && x.dtype() == first.tensor.dtype(),
            "load", one_line(source.name), ": file has ", x.dtype(), " ", x.shape(),
            ", which cannot be joined to ", one_line(first.name), ", ", first.tensor.dtype(), " ",
            first.tensor.shape());
      pieces.push_back(x);
    }
    const std::string origin =
        sources.size() == 1 ? first.name : first.name + " and those after it";
    result.push_back({{name, cat(pieces, 0)}, origin});
  }
  return result;
}

std::string NameMap::with_prefixes(std::string name) const {
  for (size_t i = prefixes_.size(); i-- > 0;) name = prefixes_[i] + name;
  return name;
}

// Finds the first rule that yields `name` and the index of the part; the result has the name in the
// file without prefixes.
NameMap::Found NameMap::find_back(const std::string& name, size_t& part) const {
  std::string reason;
  for (const Rule& rule : rules_)
    for (part = 0; part < rule.to.size(); ++part) {
      const NamePattern to(rule.to[part].to);
      std::optional<Holes> holes = to.match(name);
      if (!holes) continue;
      if (rule.kind == Kind::join) return {&rule, *std::move(holes), name};
      if (!rule.from.filled_by(to)) {
        reason = str("\"", rule.from.text(), "\" → \"", to.text(), not_enough);
        continue;
      }
      const std::string in_file = rule.from.fill(*holes);
      const Found found = find(with_prefixes(in_file));
      if (found.rule == &rule) return {&rule, *std::move(holes), in_file};
      reason = str("\"", in_file, "\" would be read by another rule, \"",
                   found.rule ? found.rule->from.text() : in_file, "\"");
    }
  check(reason.empty(), "save", name, ": not invertible: ", reason);
  const Found found = find(with_prefixes(name));
  check(!found.rule, "save", name, ": no rule yields it, and \"",
        found.rule ? found.rule->from.text() : "", "\" would map it to another name");
  return {.name = name};
}

std::optional<std::string> NameMap::whole(const std::string& name) const {
  size_t part = 0;
  const Found found = find_back(name, part);
  if (found.rule && found.rule->kind == Kind::join) return {};
  return with_prefixes(found.name);
}

std::optional<std::string> NameMap::source(const std::string& name) const {
  size_t part = 0;
  const Found found = find_back(name, part);
  const bool is_part = found.rule && found.rule->kind == Kind::split && found.rule->to.size() > 1;
  return is_part ? std::nullopt : whole(name);
}

std::vector<NamedTensor> NameMap::split_outputs(const std::string& name, const Tensor& x) const {
  const Found found = find(name);
  if (!found.rule) return {{found.name, x}};
  const Rule& rule = *found.rule;
  check(rule.kind != Kind::join && rule.cut.dim == 0, "load", one_line(name),
        ": is joined with others, or split along its inputs");
  const Tensors pieces = rule.kind == Kind::split ? cut("load", name, x, rule.to, rule.cut)
                                                  : Tensors(rule.to.size(), x);
  std::vector<NamedTensor> parts;
  for (size_t i = 0; i < pieces.size(); ++i)
    parts.push_back({fill(rule.to[i].to, found.holes), pieces[i]});
  return parts;
}

// Splits a joined tensor into its parts.
std::vector<NamedTensor> NameMap::unjoin(const Rule& rule, const NamedTensor& whole,
                                         Holes holes) const {
  check(!rule.shares.empty(), "save", whole.name, ": not invertible: the shares of \"",
        rule.from.text(), "\" are not known");
  std::vector<Part> parts;
  for (const int64_t share : rule.shares) {
    const bool named = !rule.joined.empty();
    const NamePattern& from = named ? rule.joined[parts.size()] : rule.from;
    if (!named) holes.numbers.push_back(std::to_string(parts.size()));
    check(from.filled_by(holes), "save", whole.name, ": not invertible: \"", from.text(), "\" → \"",
          rule.to[0].to, not_enough);
    parts.push_back({with_prefixes(from.fill(holes)), share});
    if (!named) holes.numbers.pop_back();
  }
  const Tensors pieces = cut("save", whole.name, whole.tensor, parts, {});
  std::vector<NamedTensor> result;
  for (size_t i = 0; i < parts.size(); ++i)
    result.push_back(
        {parts[i].to, converted_back(whole.name, pieces[i], rule.from.text(), rule.cut.first)});
  return result;
}

// Assembles a tensor of the file from its parts in the model.
Tensor NameMap::assembled(const std::string& name, const Rule& rule,
                          const std::map<size_t, NamedTensor>& parts) const {
  Tensors pieces;
  std::vector<std::string> names;
  for (const auto& [number, part] : parts) {
    pieces.push_back(part.tensor);
    names.push_back(part.name);
    check(rule.kind == Kind::split || pieces.size() == 1 || same_values(part.tensor, pieces[0]),
          "save", name, ": ", names[0], " and ", part.name, " both map to it, but differ");
  }
  check(rule.kind != Kind::split || parts.size() == rule.to.size(), "save", name,
        ": the model has only ", parts.size(), " of the ", rule.to.size(),
        " parts of this tensor, for example ", names[0]);
  Tensor whole = rule.kind == Kind::split ? uncut(pieces, names, rule.to, rule.cut) : pieces[0];
  return converted_back(names[0], whole, rule.from.text(), rule.cut.first);
}

std::vector<NamedTensor> NameMap::backwards(const std::vector<NamedTensor>& model) const {
  NoGrad guard;
  struct Whole {
    const Rule* rule = nullptr;
    std::map<size_t, NamedTensor> parts = {};
  };
  std::vector<NamedTensor> result;
  std::map<std::string, Whole> wholes;  // by the file's name
  for (const NamedTensor& own : model) {
    size_t part = 0;
    const Found found = find_back(own.name, part);
    const std::string name = with_prefixes(found.name);
    if (!found.rule) {
      result.push_back({name, own.tensor.detach()});
    } else if (found.rule->kind == Kind::join) {
      for (NamedTensor& n : unjoin(*found.rule, own, found.holes)) result.push_back(std::move(n));
    } else {
      wholes[name].rule = found.rule;
      wholes[name].parts.emplace(part, own);
    }
  }
  for (const auto& [name, whole] : wholes)
    result.push_back({name, assembled(name, *whole.rule, whole.parts).detach()});
  return result;
}

}  // namespace stretto::nn
