#include "pretrained/files/pytorch/pickle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "core/one_line.h"
#include "pretrained/files/pytorch/pickle_globals.h"

namespace stretto::nn::files {
namespace {

using Kind = PickleValue::Kind;
using Value = PickleValue;
using Values = std::vector<Value>;

constexpr uint8_t max_protocol = 5;
constexpr int64_t max_bytes = 100'000'000;
constexpr size_t max_values = 5'000'000;  // a tensor has about 30
constexpr size_t max_line = 1000;

class PickleReader {
 public:
  explicit PickleReader(ByteReader& in) : in_(in), begin_(in.position()) {}

  Pickle read() {
    if (in_.remaining() < 2 || in_.get<uint8_t>() != 0x80)
      bad("does not begin with a protocol number");
    if (const auto protocol = in_.get<uint8_t>(); protocol > max_protocol)
      bad("has protocol ", int(protocol), "; at most ", int(max_protocol), " is supported");
    for (;;) {
      if (in_.position() - begin_ > max_bytes) bad("has more than ", max_bytes, " bytes");
      const auto code = in_.get<uint8_t>();
      if (code == '.') break;
      if (!scalar(code) && !text(code) && !container(code) && !memo(code) && !other(code))
        unknown(code);
    }
    pickle_.root = pop();
    return std::move(pickle_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    in_.bad("the pickle ", parts..., " (byte ", in_.position() - begin_, " of it)");
  }
  [[noreturn]] void unknown(uint8_t code) const {
    if (const char* name = refused_opcode(code))
      bad("has the opcode ", name, ", which is not supported; nothing was executed");
    bad("has the unknown opcode ", int(code));
  }

  // Returns the items of a tuple or dict with at most 16 items, else nothing: a copy, whose time is
  // bounded, as it may be made for every tensor.
  Values few_items(Value v) const {
    const bool has_items = v.kind == Kind::tuple || v.kind == Kind::dict;
    return has_items && pickle_.items(v).size() <= 16 ? pickle_.items(v) : Values();
  }

  // The stack.

  Value pop() {
    if (stack_.empty()) bad("takes a value from the empty stack");
    const Value v = stack_.back();
    if (v.kind == Kind::mark) bad("takes a value below a mark");
    stack_.pop_back();
    return v;
  }
  Value& top() {
    if (stack_.empty() || stack_.back().kind == Kind::mark) bad("needs a value below an opcode");
    return stack_.back();
  }
  Values pop_to_mark() {
    auto at = stack_.end();
    while (at != stack_.begin() && (at - 1)->kind != Kind::mark) --at;
    if (at == stack_.begin()) bad("has no mark");
    Values all(at, stack_.end());
    stack_.erase(at - 1, stack_.end());
    return all;
  }
  Value with_index(Kind kind, size_t index) {
    Value v{.kind = kind};
    v.index = index;
    return v;
  }
  Value made(Kind kind, std::string text) {
    pickle_.texts.push_back(std::move(text));
    return with_index(kind, pickle_.texts.size() - 1);
  }
  Value made(Kind kind, Values items) {
    pickle_.containers.push_back(std::move(items));
    return with_index(kind, pickle_.containers.size() - 1);
  }
  void push(Value v) {
    if (++n_values_ > max_values) bad("has more than ", max_values, " values");
    stack_.push_back(v);
  }
  void push_integer(int64_t i) {
    Value v{.kind = Kind::integer};
    v.integer = i;
    push(v);
  }

  // Opcodes, in groups. Each returns false if the opcode is in another group.

  bool scalar(uint8_t code) {
    switch (code) {
      case 'N':
        push({});
        return true;
      case 0x88:
      case 0x89:
        push_integer(code == 0x88);
        stack_.back().kind = Kind::boolean;
        return true;
      case 'J':
        push_integer(in_.get<int32_t>());
        return true;
      case 'K':
        push_integer(in_.get<uint8_t>());
        return true;
      case 'M':
        push_integer(in_.get<uint16_t>());
        return true;
      case 0x8a:
        long_integer(in_.get<uint8_t>());
        return true;
      case 0x8b:
        long_integer(in_.get<uint32_t>());
        return true;
      case 'G': {
        Value v{.kind = Kind::real};
        v.real = std::bit_cast<double>(__builtin_bswap64(in_.get<uint64_t>()));
        push(v);
        return true;
      }
      default:
        return false;
    }
  }

  // n bytes in two's complement, little-endian.
  void long_integer(uint64_t n) {
    const std::string bytes = in_.text(n);
    uint64_t bits = 0;
    if (n > 8) return push(made(Kind::big_integer, bytes));
    for (size_t i = 0; i < n; ++i) bits |= uint64_t(uint8_t(bytes[i])) << 8 * i;
    if (n > 0 && n < 8 && (bytes.back() & 0x80) != 0) bits |= ~uint64_t(0) << 8 * n;
    push_integer(int64_t(bits));
  }

  bool text(uint8_t code) {
    switch (code) {
      case 'X':
      case 'T':
        push(made(Kind::text, in_.text(in_.get<uint32_t>())));
        return true;
      case 0x8c:
      case 'U':
        push(made(Kind::text, in_.text(in_.get<uint8_t>())));
        return true;
      case 0x8d:
        push(made(Kind::text, in_.text(in_.get<uint64_t>())));
        return true;
      case 'B':
        push(made(Kind::bytes, in_.text(in_.get<uint32_t>())));
        return true;
      case 'C':
        push(made(Kind::bytes, in_.text(in_.get<uint8_t>())));
        return true;
      case 0x8e:
      case 0x96:
        push(made(Kind::bytes, in_.text(in_.get<uint64_t>())));
        return true;
      default:
        return false;
    }
  }

  bool container(uint8_t code) {
    switch (code) {
      case ')':
        push(made(Kind::tuple, Values()));
        return true;
      case 't':
        push(made(Kind::tuple, pop_to_mark()));
        return true;
      case 0x85:
      case 0x86:
      case 0x87: {
        Values items(code - 0x84);
        for (size_t i = items.size(); i-- > 0;) items[i] = pop();
        push(made(Kind::tuple, std::move(items)));
        return true;
      }
      case ']':
      case 0x8f:  // a set
        push(made(Kind::list, Values()));
        return true;
      case 0x91:  // a frozen set
        push(made(Kind::list, pop_to_mark()));
        return true;
      case '}':
        push(made(Kind::dict, Values()));
        return true;
      case 'a':
        extend(Kind::list, {pop()});
        return true;
      case 'e':
      case 0x90:
        extend(Kind::list, pop_to_mark());
        return true;
      case 's': {
        const Value value = pop(), key = pop();
        extend(Kind::dict, {key, value});
        return true;
      }
      case 'u':
        extend(Kind::dict, pop_to_mark());
        return true;
      default:
        return false;
    }
  }

  void extend(Kind kind, const Values& items) {
    if (top().kind != kind) bad("adds items to something that is not a list or dict");
    if (kind == Kind::dict && items.size() % 2 != 0) bad("has a key without value");
    Values& all = pickle_.containers[top().index];
    all.insert(all.end(), items.begin(), items.end());
  }

  bool memo(uint8_t code) {
    switch (code) {
      case 'h':
        recall(in_.get<uint8_t>());
        return true;
      case 'j':
        recall(in_.get<uint32_t>());
        return true;
      case 'q':
        remember(in_.get<uint8_t>());
        return true;
      case 'r':
        remember(in_.get<uint32_t>());
        return true;
      case 0x94:
        remember(uint32_t(memo_.size()));
        return true;
      default:
        return false;
    }
  }
  void remember(uint32_t number) {
    memo_[number] = top();
    if (memo_.size() > max_values) bad("has more than ", max_values, " values");
  }
  void recall(uint32_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) bad("recalls value ", number, ", which it did not store");
    push(found->second);
  }

  bool other(uint8_t code) {
    switch (code) {
      case '(':
        push({.kind = Kind::mark});
        return true;
      case '0':
        pop();
        return true;
      case '1':
        pop_to_mark();
        return true;
      case '2':
        push(top());
        return true;
      case 0x95:  // the length of a frame
        in_.skip(8);
        return true;
      case 'c': {
        const std::string module = in_.line(max_line);
        global(module + '.' + in_.line(max_line));
        return true;
      }
      case 0x93: {
        const Value name = pop(), module = pop();
        if (name.kind != Kind::text || module.kind != Kind::text) bad("names no class");
        global(pickle_.text(module) + '.' + pickle_.text(name));
        return true;
      }
      case 'R':
        call();
        return true;
      case 'b': {
        pop();  // the attributes of an OrderedDict, e.g. versions of modules
        if (top().kind != Kind::dict) bad("sets attributes of something that is not a dict");
        return true;
      }
      case 'Q':
        storage();
        return true;
      default:
        return false;
    }
  }

  // Classes and functions.

  void global(std::string name) {
    if (find_global(name).kind == PickleGlobal::unknown)
      bad("refers to ", in_quotes(name),
          "; only tensors, dicts, lists and simple values are supported, and nothing was executed");
    push(made(Kind::object, std::move(name)));
  }
  KnownGlobal global_of(Value v) const {
    return v.kind == Kind::object ? find_global(pickle_.text(v)) : KnownGlobal();
  }

  void call() {
    const Value arguments = pop(), function = pop();
    if (function.kind != Kind::object || arguments.kind != Kind::tuple)
      bad("calls something that is not a function");
    push(result(function, arguments));
  }

  Value result(Value function, Value arguments) {
    const std::string& name = pickle_.text(function);
    const Values args = few_items(arguments);
    if (args.size() != pickle_.items(arguments).size())
      bad("calls ", in_quotes(name), " with more than 16 arguments");
    const auto is = [&](size_t i, Kind kind) { return i < args.size() && args[i].kind == kind; };
    const PickleGlobal kind = global_of(function).kind;
    switch (kind) {
      case PickleGlobal::ordered_dict:
        if (args.empty()) return made(Kind::dict, Values());
        break;
      case PickleGlobal::set:
        if (args.empty()) return made(Kind::list, Values());
        if (args.size() == 1 && is(0, Kind::list)) return args[0];
        break;
      case PickleGlobal::encode:
        if (is(0, Kind::text)) return with_index(Kind::bytes, args[0].index);
        break;
      case PickleGlobal::size:
        if (args.size() == 1 && is(0, Kind::tuple)) return args[0];
        break;
      case PickleGlobal::device:
        if (is(0, Kind::text)) return with_index(Kind::object, args[0].index);
        break;
      case PickleGlobal::rebuild_tensor:
      case PickleGlobal::rebuild_tensor_v2:
      case PickleGlobal::rebuild_tensor_v3:
        return tensor(name, kind, args);
      case PickleGlobal::rebuild_parameter:
      case PickleGlobal::rebuild_parameter_with_state:
        if (is(0, Kind::tensor)) return args[0];
        break;
      case PickleGlobal::rebuild_from_type:
        if (args.size() == 4 && is(2, Kind::tuple) &&
            global_of(args[1]).kind == PickleGlobal::tensor_class &&
            is_rebuild(global_of(args[0]).kind))
          return result(args[0], args[2]);
        break;
      default:
        bad("calls ", in_quotes(name), ", which is not supported; nothing was executed");
    }
    bad("calls ", in_quotes(name), " with other arguments than PyTorch does");
  }
  // Not rebuild_from_type, so that result() is called once more at most.
  static bool is_rebuild(PickleGlobal kind) {
    return kind >= PickleGlobal::rebuild_tensor && kind < PickleGlobal::rebuild_from_type;
  }

  // A persistent id: ('storage', class, key, location, numel[, view]).
  void storage() {
    const Value id = pop();
    const Values items = few_items(id);
    const bool is_storage = items.size() >= 5 && items[0].kind == Kind::text &&
                            pickle_.text(items[0]) == "storage" && items[2].kind == Kind::text &&
                            items[4].kind == Kind::integer && items[4].integer >= 0;
    if (!is_storage) bad("has a persistent id that is not a storage");
    const KnownGlobal type = global_of(items[1]);
    PickleStorage s{.key = pickle_.text(items[2]), .numel = items[4].integer};
    const bool is_untyped = type.kind == PickleGlobal::untyped_storage;
    if (!is_untyped && type.kind != PickleGlobal::storage) bad("has a storage without dtype");
    s.format = is_untyped ? find_format("U8") : type.format;
    s.end = s.numel;
    if (items.size() > 5 && items[5].kind == Kind::tuple) {  // (key, begin, numel), old format
      const Values view = few_items(items[5]);
      const bool is_view = view.size() == 3 && view[1].kind == Kind::integer &&
                           view[2].kind == Kind::integer && view[1].integer >= 0 &&
                           view[2].integer >= 0 && view[1].integer <= s.numel &&
                           view[2].integer <= s.numel - view[1].integer;
      if (!is_view) bad("has an invalid view of a storage");
      s.begin = view[1].integer;
      s.end = s.begin + view[2].integer;
    }
    pickle_.storages.push_back(std::move(s));
    push(with_index(Kind::storage, pickle_.storages.size() - 1));
  }

  Shape shape(Value v) {
    if (v.kind != Kind::tuple) bad("has a tensor without sizes");
    const Values& items = pickle_.items(v);
    if (items.size() > size_t(Shape::max_dims))
      bad("has a tensor of ", items.size(), " dimensions; at most ", Shape::max_dims, " allowed");
    Shape sizes;
    for (const Value& item : items) {
      if (item.kind != Kind::integer || item.integer < 0) bad("has a tensor with invalid sizes");
      sizes.push_back(item.integer);
    }
    return sizes;
  }

  Value tensor(const std::string& name, PickleGlobal kind, const Values& args) {
    const size_t needed = kind == PickleGlobal::rebuild_tensor      ? 4
                          : kind == PickleGlobal::rebuild_tensor_v2 ? 6
                                                                    : 7;
    if (args.size() < needed || args[0].kind != Kind::storage || args[1].kind != Kind::integer ||
        args[1].integer < 0)
      bad("calls ", in_quotes(name), " with other arguments than PyTorch does");
    PickleTensor t{.storage = args[0].index, .offset = args[1].integer};
    const PickleStorage& s = pickle_.storages[t.storage];
    t.format = s.format;
    if (kind == PickleGlobal::rebuild_tensor_v3) {
      const KnownGlobal dtype = global_of(args[6]);
      if (dtype.kind != PickleGlobal::dtype) bad("has a tensor without dtype");
      t.format = dtype.format;
    }
    t.shape = shape(args[2]);
    t.strides = shape(args[3]);
    if (args.size() > needed && args[needed].kind == Kind::dict) flags(t, args[needed]);
    check_bounds(t, s);
    pickle_.tensors.push_back(std::move(t));
    return with_index(Kind::tensor, pickle_.tensors.size() - 1);
  }

  void flags(PickleTensor& t, Value metadata) {
    const Values items = few_items(metadata);
    for (size_t i = 0; i + 1 < items.size(); i += 2)
      if (items[i].kind == Kind::text && items[i + 1].kind == Kind::boolean && items[i + 1].integer)
        t.flag = pickle_.text(items[i]);
  }

  void check_bounds(const PickleTensor& t, const PickleStorage& s) {
    if (t.strides.dim() != t.shape.dim())
      bad("has a tensor of shape ", t.shape, " with strides ", t.strides);
    int64_t numel = 1, last = t.offset, size = 0;
    bool overflow = false;
    for (int64_t d = 0; d < t.shape.dim(); ++d) {
      int64_t step = 0;
      overflow |= __builtin_mul_overflow(numel, t.shape[d], &numel);
      overflow |= t.shape[d] > 0 && (__builtin_mul_overflow(t.shape[d] - 1, t.strides[d], &step) ||
                                     __builtin_add_overflow(last, step, &last));
    }
    overflow |= __builtin_mul_overflow(s.end - s.begin, s.format->bytes, &size);
    if (overflow || numel > int64_t(1) << 58)
      bad("has a tensor of shape ", t.shape, ", which is too large");
    if (numel > 0 && last >= size / t.format->bytes)
      bad("has a tensor of shape ", t.shape, " with strides ", t.strides, " from element ",
          t.offset, " on of a storage of ", size / t.format->bytes);
  }

  ByteReader& in_;
  const int64_t begin_;
  Pickle pickle_;
  Values stack_;
  size_t n_values_ = 0;
  std::unordered_map<uint32_t, Value> memo_;
};

}  // namespace

Pickle read_pickle(ByteReader& in) { return PickleReader(in).read(); }

}  // namespace stretto::nn::files
