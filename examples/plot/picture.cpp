#include "examples/plot/picture.h"

#include "examples/common/file.h"

namespace stretto::examples {

void write_picture(const std::string& path, const Picture& picture) {
  write_file_atomically(path + ".svg", picture.svg);
  write_file_atomically(path + ".png", picture.png);
}

}  // namespace stretto::examples
