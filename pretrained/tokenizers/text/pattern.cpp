// PCRE2 with its just-in-time compiler, chosen over Oniguruma, which `tokenizers` uses, by
// measurement. Equality: both Debian packages have Unicode 14, while the copy in `tokenizers` has
// 16, so that neither is equal by itself; the newer characters are added to the properties, and \s
// is written out because PCRE2's contains U+180E (pattern_syntax.cpp). Then all families find the
// same pieces. Speed: 4 MB of enwik8 take 0.07 s (GPT-2's pattern) and 0.09 s (Llama 3's), with
// Oniguruma 0.20 and 0.17 s.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pretrained/tokenizers/text/pattern.h"

#include <pcre2.h>

#include <new>

#include "core/error.h"
#include "core/one_line.h"
#include "pretrained/tokenizers/text/op.h"

namespace stretto::nn::tokenizers {
namespace {

constexpr size_t smallest_stack = 32 << 10, largest_stack = 8 << 20;

}  // namespace

const char* const gpt2_pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct MatchScratch::Data {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(smallest_stack, largest_stack, nullptr);

  Data() {
    if (match == nullptr || context == nullptr || stack == nullptr) {
      release();
      throw std::bad_alloc();
    }
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Data() { release(); }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  void release() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

MatchScratch::MatchScratch() : data_(std::make_unique<Data>()) {}
MatchScratch::~MatchScratch() = default;

void MatchScratch::refuse_growth() const {
  fail(op, "the rules of the tokenizer make a text of more than ", largest_, " bytes");
}

struct Pattern::Code {
  std::string expression, name;
  pcre2_code* code = nullptr;
  bool is_native = false;

  ~Code() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& expression, const std::string& name) {
  const auto made = std::make_shared<Code>();
  made->expression = expression;
  made->name = name;
  const std::string pattern = pcre_pattern(expression, name);
  int error = 0;
  PCRE2_SIZE at = 0;
  made->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE, &error,
                    &at, nullptr);
  if (made->code == nullptr) {
    char reason[256];
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof reason);
    fail(op, name, ": the pattern ", in_quotes(expression), ": ", one_line(reason));
  }
  made->is_native =
      pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE) == 0;  // else it is interpreted
  code_ = made;
}

bool Pattern::find(std::string_view text, size_t from, Span& match, MatchScratch& scratch) const {
  const MatchScratch::Data& data = *scratch.data_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const int result = code_->is_native ? pcre2_jit_match(code_->code, subject, text.size(), from, 0,
                                                        data.match, data.context)
                                      : pcre2_match(code_->code, subject, text.size(), from,
                                                    PCRE2_NO_UTF_CHECK, data.match, data.context);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  check(result >= 0, op, code_->name, ": the pattern ", in_quotes(code_->expression),
        " needs too much memory or time for this text");
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.match);
  match = {ends[0], ends[1]};
  return true;
}

}  // namespace stretto::nn::tokenizers
