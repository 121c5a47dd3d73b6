// Quoted includes find this project's headers, includes of <stretto/...> the library's.
#include <stretto/nn/transformer.h>
#include <stretto/stretto.h>

#include <cstdio>

#include "core/shape.h"
#include "nn/module.h"
#include "ops/attention/attention.h"
#include "shape.h"
#include "stretto.h"

int main() {
  const int own = own_core_shape_h + own_nn_module_h + own_ops_attention_attention_h + own_shape_h +
                  own_stretto_h;
  const stretto::Tensor x = stretto::ones({2, 3});
  std::printf("own_names: %d headers of its own, %s\n", own, stretto::str(x).c_str());
  return own == 5 && stretto::sum(x).item() == 6 ? 0 : 1;
}
