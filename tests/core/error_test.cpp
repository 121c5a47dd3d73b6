// The text of errors [core/error.h].
#include "core/error.h"

#include "core/device.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "tests/support/catch.h"

namespace stretto {

TEST_CASE("str joins its arguments", "[core]") {
  CHECK(str() == "");
  CHECK(str("a", std::string("b"), 'c', 1, -2, 3u, int64_t(-4), size_t(5), true, false) ==
        "abc1-23-45truefalse");
  CHECK(str(0.5, " ", 1e-5, " ", 2.0, " ", 0.1f) == "0.5 1e-05 2 0.1");
  CHECK(str(1e300 * 1e10, " ", INT64_MIN) == "inf -9223372036854775808");
  CHECK(str(Shape{2, 3}, " ", f32, " ", cpu, " ", Device("cuda:3")) == "[2, 3] f32 cpu cuda:3");
  CHECK(str(empty({2, 3}, {.dtype = bf16})) == "bf16 [2, 3]");
  CHECK(str(Tensor()) == "undefined");
}

TEST_CASE("an error starts with the name of the op", "[core]") {
  CHECK_THROWS_WITH(fail("matmul", "got ", 3), "[matmul] got 3");
  CHECK_THROWS_AS(fail("matmul", "got ", 3), Error);
  CHECK_NOTHROW(check(true, "op", "no"));
  CHECK_THROWS_WITH(check(false, "op", "size ", 1.5), "[op] size 1.5");
  // One exception type for all errors; it derives from std::exception.
  CHECK_THROWS_AS(fail("op"), std::runtime_error);
  static_assert(std::is_base_of_v<Error, OutOfMemory>);
}

namespace {
struct Counted {
  int* texts;
};
void append_text(std::string& to, const Counted& c) {
  ++*c.texts;
  to += "counted";
}
}  // namespace

TEST_CASE("an error message is built only on failure", "[core]") {
  int texts = 0;
  check(true, "op", Counted{&texts});
  CHECK(texts == 0);
  CHECK_THROWS_WITH(check(false, "op", Counted{&texts}), "[op] counted");
  CHECK(texts == 1);
}

}  // namespace stretto
