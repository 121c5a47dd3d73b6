#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "nn/init.h"
#include "nn/linear.h"
#include "nn/models/transformer_xl.h"
#include "ops/create.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;
using testing::same_bits;

namespace {

// Returns the resident bytes of this process; −1 if the system does not report them.
int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = -1;
  if (!(statm >> all >> resident)) return -1;
  return resident * int64_t(::sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("SkipInit leaves tensors and the random state unchanged") {
  manual_seed(7);
  const Tensor x = full({4, 6}, 3);
  {
    const nn::SkipInit skip;
    CHECK(nn::SkipInit::active());
    nn::constant_(x, 1);
    nn::uniform_(x);
    nn::normal_(x);
    nn::trunc_normal_(x);
    nn::xavier_uniform_(x);
    nn::xavier_normal_(x);
    nn::kaiming_uniform_(x);
    nn::kaiming_normal_(x);
    nn::orthogonal_(x);
    { const nn::SkipInit again; }
    CHECK(nn::SkipInit::active());
  }
  CHECK_FALSE(nn::SkipInit::active());
  CHECK(same_bits(x, full({4, 6}, 3)));
  const Tensor y = full({4, 6}, 3);
  nn::normal_(x);
  manual_seed(7);
  nn::normal_(y);
  CHECK(same_bits(x, y));
}

TEST_CASE("count_parameters constructs the module without filling it") {
  CHECK(nn::count_parameters<nn::Linear>({.in = 3, .out = 5}) == 20);
  // 600 MB, of which little may become resident while the module exists.
  const int64_t before = resident_bytes();
  if (before < 0) STRETTO_SKIP("no /proc/self/statm");
  const nn::SkipInit skip;
  const DefaultDevice host(cpu);
  const nn::LanguageModel model(nn::wt103_base());
  CHECK(model.parameter_count() == 151'107'538);
  const char* const exact = std::getenv("STRETTO_ALLOC");  // fills new memory with NaN
  if (!exact || !*exact) CHECK(resident_bytes() - before < 151'107'538 * 4 / 10);
}

TEST_CASE("SkipInit gives new parameters a dtype") {
  {
    const nn::SkipInit skip(bf16);
    CHECK(nn::SkipInit::active());
    const nn::Linear linear({.in = 3, .out = 4});
    CHECK(linear.weight.dtype() == bf16);
    CHECK(linear.weight.shape() == Shape{4, 3});
    CHECK(linear.weight.requires_grad());
    {
      const nn::SkipInit inner;
      CHECK(nn::Linear({.in = 3, .out = 4}).weight.dtype() == f32);
    }
    CHECK(nn::Linear({.in = 3, .out = 4}).weight.dtype() == bf16);
  }
  CHECK(nn::Linear({.in = 3, .out = 4}).weight.dtype() == f32);
  {  // parameters that a module registers after their construction
    const nn::SkipInit skip(f64);
    struct Parent : nn::Module {
    } parent;
    const nn::InputEmbedding embedding(
        parent, "embedding",
        {.vocabulary = 9, .d_model = 4, .adaptive = nn::AdaptiveOptions{.cutoffs = {3}, .div = 2}});
    CHECK(embedding.tables.weights[1].dtype() == f64);
    CHECK(embedding.get_parameter("weight1").same(embedding.tables.weights[1]));
  }
  CHECK_THROWS_WITH(nn::SkipInit(i64), Containing("dtype i64; must be floating"));
}
