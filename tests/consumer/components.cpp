// A user's program that links both components.
#include <stretto/stretto_music.h>
#include <stretto/stretto_pretrained.h>

#include <cstdio>

int main() {
  const auto tokens = stretto::music::tokenizer("remi");
  const stretto::nn::SubwordTokenizer words =
      stretto::nn::train_bpe("a b a b", {.vocabulary = 260});
  std::printf("components: %lld tokens of music, %lld of text\n",
              static_cast<long long>(tokens->size()), static_cast<long long>(words.size()));
  return words.decode(words.encode("a b")) == "a b" ? 0 : 1;
}
