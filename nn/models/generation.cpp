#include "nn/models/generation.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "autograd/tape.h"
#include "core/random.h"
#include "nn/dropout.h"
#include "nn/models/language_model.h"
#include "nn/models/sequence_to_sequence.h"
#include "ops/attention/position_error.h"
#include "ops/create.h"

namespace stretto::nn {
namespace {

using Sequences = std::vector<std::vector<int64_t>>;

void check_options(const char* op, const GenerationOptions& o) {
  check(o.max_tokens >= 0, op, "max_tokens ", o.max_tokens, "; must be 0 or more");
  check(o.stop_strings.empty() || o.decode, op,
        "stop_strings need the text of the tokens; set GenerationOptions::decode");
  before_stop("", o.stop_strings);  // checks them
}

bool contains(const std::vector<int64_t>& tokens, int64_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

// The continuation of one prompt.
class Continuation {
 public:
  Continuation(const GenerationOptions& options, const std::vector<int64_t>& prompt, int64_t number)
      : o_(options), number_(number), sampler_(options.sampling, prompt) {}

  int64_t number() const { return number_; }
  std::vector<int64_t>& tokens() { return tokens_; }
  size_t length() const { return sampler_.tokens().size(); }  // with the prompt

  // Samples one token from logits [V]. Returns the reason if it is the last one.
  std::optional<GenerationEnd> step(const Tensor& logits,
                                    const std::function<bool(int64_t, int64_t)>& on_token) {
    const double draw = uniform_from_bits(random_bits(key_, tokens_.size()));
    const int64_t token = sampler_(logits, draw);
    tokens_.push_back(token);
    if (on_token && !on_token(number_, token)) return GenerationEnd::callback;
    if (contains(o_.end_tokens, token)) return GenerationEnd::end_token;
    if (!o_.stop_strings.empty() && at_stop_string()) return GenerationEnd::stop_string;
    if (int64_t(tokens_.size()) >= o_.max_tokens) return GenerationEnd::max_tokens;
    return {};
  }

 private:
  std::string text_from(size_t first) const {
    return o_.decode({tokens_.begin() + int64_t(first), tokens_.end()});
  }

  // True if the last token has completed a stop string. Decodes the tokens from first_ on: a long
  // text would otherwise take time quadratic in its length.
  bool at_stop_string() {
    // Without the tokens before it, the first bytes of a text can be others: a blank is removed, a
    // character is incomplete.
    constexpr size_t margin = 64;
    size_t longest = 0;
    for (const std::string& stop : o_.stop_strings) longest = std::max(longest, stop.size());
    std::string text = text_from(first_);
    // A stop string that is new ends after the bytes that are as before.
    const auto same = size_t(
        std::mismatch(text.begin(), text.end(), text_.begin(), text_.end()).first - text.begin());
    const size_t from = std::max(first_ > 0 ? margin : 0, same - std::min(same, longest));
    for (const std::string& stop : o_.stop_strings)
      if (text.find(stop, from) != std::string::npos) return true;
    // Tokens without text, such as special ones, must not stay in the window for ever either.
    const size_t most = 4 * (longest + margin);
    if (text.size() > most || tokens_.size() - first_ > 4 * most) {
      const size_t half = first_ + (tokens_.size() - first_) / 2;
      std::string end = text_from(half);
      if (end.size() >= longest + margin && text.ends_with(std::string_view(end).substr(margin))) {
        first_ = half;
        text = std::move(end);
      }
    }
    text_ = std::move(text);
    return false;
  }

  const GenerationOptions& o_;
  int64_t number_;
  // The last stream. The program's streams start at 0: after manual_seed(seed), stream 0 would give
  // the same random numbers as the first weights.
  RandomKey key_{prompt_seed(o_.seed, number_), ~uint64_t{0}};
  Sampler sampler_;
  std::vector<int64_t> tokens_;
  size_t first_ = 0;
  std::string text_;  // text_from(first_) before the last token
};

// Returns the length of the longest end of `text` that begins `stop`, but is not all of it.
size_t begun(const std::string& text, const std::string& stop) {
  size_t n = std::min(text.size(), stop.size() - 1);
  while (text.compare(text.size() - n, n, stop, 0, n) != 0) --n;
  return n;
}

}  // namespace

uint64_t prompt_seed(uint64_t seed, int64_t i) {
  if (i == 0) return seed;
  const Random4 words = philox({.seed = seed, .stream = uint64_t(i)}, ~uint64_t{0});
  return uint64_t{words.v[0]} << 32 | words.v[1];
}

std::vector<int64_t> generate(const std::function<Tensor(const Tensor&)>& model,
                              const std::vector<int64_t>& prompt, const GenerationOptions& options,
                              const std::function<bool(int64_t)>& on_token) {
  check(!prompt.empty(), "generate", "the prompt is empty; pass at least a start token");
  check_options("generate", options);
  std::function<bool(int64_t, int64_t)> on_any;
  if (on_token) on_any = [&](int64_t, int64_t token) { return on_token(token); };
  return generate_batch([&](const Tensor& tokens, const auto&) { return model(tokens); },
                        [](const Tensor&) {}, {prompt}, options, on_any)[0];
}

Sequences generate_batch(
    const std::function<Tensor(const Tensor&, const std::vector<int64_t>&)>& model,
    const std::function<void(const Tensor&)>& reorder, const Sequences& prompts,
    const GenerationOptions& options, const std::function<bool(int64_t, int64_t)>& on_token) {
  constexpr const char* op = "generate_batch";
  check_options(op, options);
  Sequences all(prompts.size());
  if (prompts.empty()) return all;
  NoGrad guard;
  LeftPadded next = pad_left(prompts);
  std::vector<Continuation> live;
  for (size_t i = 0; i < prompts.size(); ++i) live.emplace_back(options, prompts[i], int64_t(i));
  // Ends the rows for which ended(continuation, row) has a reason, and continues with the others.
  const auto end_rows = [&](auto&& ended) {
    std::vector<Continuation> still;
    std::vector<int64_t> from, tokens;
    for (size_t row = 0; row < live.size(); ++row) {
      Continuation& c = live[row];
      if (const std::optional<GenerationEnd> end = ended(c, int64_t(row))) {
        all[size_t(c.number())] = std::move(c.tokens());
        if (options.on_end) options.on_end(c.number(), *end);
        continue;
      }
      from.push_back(int64_t(row));
      tokens.push_back(c.tokens().back());
      still.push_back(std::move(c));
    }
    const auto n = int64_t(from.size());
    if (n > 0 && n < int64_t(live.size())) reorder(tensor(from, {n}));
    live = std::move(still);
    if (n > 0) next = {tensor(tokens, {n, 1}), {}};
  };
  using End = std::optional<GenerationEnd>;
  if (options.max_tokens == 0)
    end_rows([](auto&, int64_t) -> End { return GenerationEnd::max_tokens; });
  for (bool prompted = false; !live.empty(); prompted = true) {
    Tensor logits;
    try {
      const RefuseDropout refuse(op);
      logits = model(next.tokens, next.left_padding);
    } catch (const PositionError&) {
      if (!prompted) throw;
      size_t longest = 0;
      for (const Continuation& c : live) longest = std::max(longest, c.length());
      end_rows([&](const Continuation& c, int64_t) {
        return c.length() == longest ? End(GenerationEnd::length) : End();
      });
      continue;
    }
    const auto rows = int64_t(live.size());
    check(logits.dim() == 3 && logits.size(0) == rows && logits.size(1) >= 1, op, "logits ", logits,
          "; must be [", rows, ", n, V]");
    end_rows([&](Continuation& c, int64_t row) { return c.step(logits[row][-1], on_token); });
  }
  return all;
}

Sequences generate_batch(const LanguageModel& model, const Sequences& prompts,
                         const GenerationOptions& options,
                         const std::function<bool(int64_t, int64_t)>& on_token,
                         int64_t cache_limit) {
  std::optional<EvalMode> eval;
  if (model.training()) eval.emplace(const_cast<LanguageModel&>(model));
  const MemoryOptions& memory = model.options.memory;
  const bool remembers = cache_limit == 0 && (memory.length > 0 || memory.extended > 0);
  LanguageModel::Cache cache = remembers ? model.make_memory() : model.make_cache(cache_limit);
  cache.last_logits_only = true;
  const Device device = model.device();
  return generate_batch(
      [&](const Tensor& tokens, const std::vector<int64_t>& left_padding) {
        if (cache.position == 0) cache.left_padding = left_padding;
        return model(tokens.to(device), &cache);
      },
      [&](const Tensor& rows) { cache.reorder(rows.to(device)); }, prompts, options, on_token);
}

std::vector<int64_t> generate(const LanguageModel& model, const std::vector<int64_t>& prompt,
                              const GenerationOptions& options,
                              const std::function<bool(int64_t)>& on_token) {
  std::function<bool(int64_t, int64_t)> on_any;
  if (on_token) on_any = [&](int64_t, int64_t token) { return on_token(token); };
  return generate_batch(model, {prompt}, options, on_any)[0];
}

std::vector<int64_t> generate(const SequenceToSequence& model, const std::vector<int64_t>& source,
                              const std::vector<int64_t>& prompt, const GenerationOptions& options,
                              const std::function<bool(int64_t)>& on_token) {
  const NoGrad guard;
  const Device device = model.device();
  const Tensor context = model.encode(tensor(source, {1, int64_t(source.size())}).to(device));
  SequenceToSequence::Cache cache;
  return generate(
      [&](const Tensor& tokens) {
        const bool first = cache.position == 0;
        return model.decode(tokens.to(device), first ? context : Tensor(), {}, &cache);
      },
      prompt, options, on_token);
}

LeftPadded pad_left(const Sequences& sequences) {
  constexpr const char* op = "pad_left";
  const auto batch = int64_t(sequences.size());
  size_t longest = 0;
  for (const auto& sequence : sequences) longest = std::max(longest, sequence.size());
  const auto length = int64_t(longest);
  LeftPadded padded{zeros({batch, length}, {.dtype = i64, .device = cpu}), {}};
  auto* at = padded.tokens.data<int64_t>() + length;
  for (const auto& sequence : sequences) {
    check(!sequence.empty(), op, "sequence ", int64_t(padded.left_padding.size()), " of ", batch,
          " is empty; pass at least a start token");
    std::copy(sequence.begin(), sequence.end(), at - int64_t(sequence.size()));
    padded.left_padding.push_back(length - int64_t(sequence.size()));
    at += length;
  }
  if (std::all_of(padded.left_padding.begin(), padded.left_padding.end(),
                  [](int64_t n) { return n == 0; }))
    padded.left_padding.clear();
  padded.tokens = padded.tokens.to(default_device());
  return padded;
}

TextBeforeStop before_stop(const std::string& text, const std::vector<std::string>& stop_strings) {
  size_t first_end = std::string::npos, length = text.size();
  for (const std::string& stop : stop_strings) {
    check(!stop.empty(), "before_stop", "a stop string is empty; must have at least one byte");
    const size_t begin = text.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < first_end || (end == first_end && begin < length)) first_end = end, length = begin;
  }
  const bool stopped = first_end != std::string::npos;
  if (!stopped)
    for (const std::string& stop : stop_strings)
      length = std::min(length, text.size() - begun(text, stop));
  return {text.substr(0, length), stopped};
}

}  // namespace stretto::nn
