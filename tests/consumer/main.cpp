// A user's program: prints the version and a gradient computed by the installed library.
#include <stretto/stretto.h>

#include <cstdio>

int main() {
  using namespace stretto;
  const std::string version =
      str(STRETTO_VERSION_MAJOR, ".", STRETTO_VERSION_MINOR, ".", STRETTO_VERSION_PATCH);
  std::printf("consumer: stretto %s, package %s\n", version.c_str(), PACKAGE_VERSION);
  if (version != PACKAGE_VERSION) return 1;

  Tensor x = tensor({1.0, 2.0, 3.0}).set_requires_grad();
  sum(square(x)).backward();
  const double slope = x.grad()[2].item();
  std::printf("consumer: d(x·x)/dx at 3 is %g\n", slope);

  try {  // exceptions of the library can be caught by type here
    matmul(x, zeros({2}));
    return 1;
  } catch (const Error& e) {
    std::printf("consumer: refused, %s\n", e.what());
  }
  return slope == 6.0 ? 0 : 1;
}
