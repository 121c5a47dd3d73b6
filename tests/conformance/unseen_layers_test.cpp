// Generated cases: layers and the adaptive softmax by loops that follow README.md.
#include "ops/create.h"
#include "tests/conformance/example.h"
#include "tests/conformance/layer_examples.h"
#include "tests/support/catch.h"

using namespace stretto;
using conformance::check_everywhere;
using conformance::EncoderSetting;
using conformance::Example;
using conformance::XLSetting;
using testing::Number;

namespace {

using Row = std::vector<Number>;

}  // namespace

TEST_CASE("conformance, unseen: layer.encoder") {
  for (const EncoderSetting& s : {EncoderSetting{1, 1, 2, 1, 1, false, false, true, false},
                                  EncoderSetting{2, 9, 6, 3, 7, false, true, false, true},
                                  EncoderSetting{1, 5, 10, 5, 4, true, false, true, true},
                                  EncoderSetting{2, 3, 4, 2, 9, true, true, false, false}})
    check_everywhere(encoder_example(s));
}

TEST_CASE("conformance, unseen: layer.xl") {
  for (const XLSetting& s : {XLSetting{1, 1, 0, 2, 1, 1, 0}, XLSetting{2, 1, 6, 6, 3, 5, 2},
                             XLSetting{1, 7, 2, 4, 1, 3, 1}, XLSetting{2, 3, 4, 10, 5, 4, 6},
                             XLSetting{1, 4, 3, 4, 2, 3, 100}})
    check_everywhere(xl_example(s));
}

TEST_CASE("conformance, unseen: loss.adaptive_softmax") {
  struct Setting {
    int64_t n, d, v;
    std::vector<int64_t> cutoffs;
    int64_t div;
    DType index;
  };
  for (const Setting& s : {Setting{1, 5, 4, {1}, 1, i64}, Setting{11, 9, 13, {2, 3, 7}, 2, i32},
                           Setting{6, 7, 9, {4, 6}, 1, i64}, Setting{5, 6, 7, {}, 1, u8},
                           Setting{0, 4, 5, {2}, 2, i64}, Setting{4, 41, 10, {9}, 3, i64}}) {
    std::string cutoffs;
    for (const int64_t c : s.cutoffs) cutoffs += (cutoffs.empty() ? "" : ", ") + std::to_string(c);
    Example x("loss.adaptive_softmax",
              str(R"({"n": )", s.n, R"(, "D": )", s.d, R"(, "V": )", s.v, R"(, "cutoffs": [)",
                  cutoffs, s.div > 1 ? str(R"(], "div": )", s.div, "}") : "]}"));
    const auto clusters = int64_t(s.cutoffs.size()) + 1;
    std::vector<int64_t> ends = s.cutoffs, widths;
    ends.push_back(s.v);
    x.input("in.x", {s.n, s.d});
    for (int64_t i = 0, width = s.d; i < clusters; ++i, width /= s.div) {
      const int64_t rows = i == 0 ? ends[0] + clusters - 1 : ends[size_t(i)] - ends[size_t(i - 1)];
      widths.push_back(width);
      x.input(str("param.weight.", i), {rows, width});
      x.input(str("param.bias.", i), {rows});
      if (s.div > 1) x.input(str("param.proj.", i), {s.d, width});
    }
    Tensor target = zeros({s.n}, {.dtype = i64, .device = cpu});
    for (int64_t t = 0; t < s.n; ++t) target.data<int64_t>()[t] = (5 * t + s.v - 1) % s.v;
    x.constant("in.target", target.to(s.index));

    // −log of one entry of the softmax of cluster i.
    auto nll = [&](int64_t t, int64_t i, int64_t row) {
      Row hidden;
      for (int64_t c = 0; c < widths[size_t(i)]; ++c) {
        Number sum = s.div > 1 ? Number() : x("in.x", t, c);
        for (int64_t d = 0; d < s.d && s.div > 1; ++d)
          sum = sum + x("in.x", t, d) * x(str("param.proj.", i), d, c);
        hidden.push_back(sum);
      }
      const int64_t rows = i == 0 ? ends[0] + clusters - 1 : ends[size_t(i)] - ends[size_t(i - 1)];
      Number total, chosen;
      for (int64_t o = 0; o < rows; ++o) {
        Number logit = x(str("param.bias.", i), o);
        for (size_t c = 0; c < hidden.size(); ++c)
          logit = logit + hidden[c] * x(str("param.weight.", i), o, int64_t(c));
        total = total + exp(logit);
        if (o == row) chosen = logit;
      }
      return log(total) - chosen;
    };
    Row y;
    for (int64_t t = 0; t < s.n; ++t) {
      const int64_t word = target.data<int64_t>()[t];
      int64_t i = 0;
      while (word >= ends[size_t(i)]) ++i;
      y.push_back(i == 0 ? nll(t, 0, word)
                         : nll(t, 0, ends[0] + i - 1) + nll(t, i, word - ends[size_t(i - 1)]));
    }
    check_everywhere(x.finish("y", {s.n}, y));
  }
}
