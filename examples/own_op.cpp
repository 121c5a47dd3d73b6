#include <stretto/stretto.h>

#include <cstdio>
using namespace stretto;

// x · sigmoid(βx). The backward pass is written in ops, so it can be differentiated again.
Tensor swish(const Tensor& x, double beta) {
  Tensor y = x.detach() * sigmoid(x.detach() * beta);
  return record("swish", {x}, y, [x = Saved(x), beta](Backward& b) {
    Tensor s = sigmoid(x() * beta);
    return Tensors{b.grad() * (s + beta * x() * s * (1 - s))};
  });
}

int main(int argc, char** argv) {
  const nn::DeviceConfig config = nn::parse_device_args(argc, argv);  // --device cuda, --dtype bf16
  Tensor x = linspace(-2, 2, 5).to(config.device).to(config.dtype).set_requires_grad();
  Tensor slope = grad({sum(swish(x, 1.5))}, {x}, {}, {.create_graph = true})[0];
  sum(slope).backward();
  std::printf("slope %s\ncurvature %s\n", to_string(slope).c_str(), to_string(x.grad()).c_str());
}
