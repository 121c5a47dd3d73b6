// What a project outside sees: a gradient through the installed library.
#include <stretto.h>

#include <cstdio>

int main() {
  using namespace stretto;
  Tensor x = tensor({1.0, 2.0, 3.0}).set_requires_grad();
  sum(square(x)).backward();
  const double slope = x.grad()[2].item();
  std::printf("consumer: d(x·x)/dx at 3 is %g\n", slope);
  return slope == 6.0 ? 0 : 1;
}
