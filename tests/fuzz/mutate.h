// Fuzzing: passes damaged files to a reader, which must accept or reject each without a defect.
//
// The ordinary tests (fuzz_test.cpp) run a few thousand inputs. A long run is the same test with
// sanitizers (cmake --preset asan-ubsan, build stretto_tests); it is deterministic:
//
//   STRETTO_FUZZ_ROUNDS=10000000 build/asan-ubsan/tests/stretto_tests "[fuzz]"
//
// For coverage-guided fuzzing with clang and libFuzzer each target is a separate program:
//
//   cmake -B build/fuzz -G Ninja -D CMAKE_CXX_COMPILER=clang++ -D CMAKE_BUILD_TYPE=RelWithDebInfo
//         -D STRETTO_CUDA=OFF
//         -D STRETTO_SANITIZE="address;undefined;fuzzer-no-link"
//   cmake --build build/fuzz --target gguf_fuzz midi_fuzz pytorch_fuzz safetensors_fuzz tsv_fuzz
//   mkdir -p build/fuzz/midi build/fuzz/safetensors build/fuzz/tsv
//   build/fuzz/tests/midi_fuzz -runs=10000000 -max_len=4096 -malloc_limit_mb=64 build/fuzz/midi
//         [a folder of MIDI files]
//   build/fuzz/tests/safetensors_fuzz -runs=10000000 -max_len=4096 -malloc_limit_mb=64
//         build/fuzz/safetensors tests/conformance/cases
//   build/fuzz/tests/tsv_fuzz -runs=10000000 -max_len=4096 -malloc_limit_mb=64 build/fuzz/tsv
//
// A program stops at the first defect and writes the input to the current directory; run with only
// that file it reproduces the defect. Long input files are cut off at -max_len.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "examples/common/portable_random.h"

namespace stretto::testing {

using examples::PortableRandom;

/// A defect of a reader.
struct FuzzFailure : std::logic_error {
  using std::logic_error::logic_error;
};

/// A reader and valid inputs for it.
struct FuzzTarget {
  /// Returns true if the input is accepted, false if it is rejected; throws FuzzFailure or any
  /// other exception for a defect of the reader.
  bool (*run)(std::string_view input);
  std::vector<std::string> seeds;
  std::vector<std::string> words;  // frequent parts of inputs
};

FuzzTarget gguf_target();
FuzzTarget midi_target();
FuzzTarget npy_target();
FuzzTarget npz_target();
FuzzTarget pytorch_target();
FuzzTarget safetensors_target();
FuzzTarget safetensors_index_target();
FuzzTarget chat_template_target();
FuzzTarget model_config_target();
/// Data sets of text lines (examples/lra) and images; accepted if any of the readers accepts them.
FuzzTarget tsv_target();
FuzzTarget tokenizer_json_target();
FuzzTarget sentencepiece_target();
/// vocab.json and merges.txt, with a zero byte between them.
FuzzTarget bpe_files_target();
/// vocab.txt and tokenizer_config.json, with a zero byte between them.
FuzzTarget word_piece_folder_target();
FuzzTarget gguf_vocabulary_target();

/// Returns `input` with one to eight changes: flips bits; sets, inserts, removes, moves or
/// duplicates bytes; replaces a number of 1 to 8 bytes or of decimal digits by an extreme one;
/// inserts a word or a part of another seed; cuts off the end. At most `max_size` bytes.
std::string mutate(std::string input, const FuzzTarget& target, PortableRandom& random,
                   std::size_t max_size = 1024);

struct FuzzCount {
  std::int64_t accepted = 0;
  std::int64_t refused = 0;
};

/// Runs the seeds, which must all be accepted, then `rounds` mutations of the seeds and of accepted
/// mutations. Deterministic for a `seed`. Throws FuzzFailure with the round, the defect and the
/// input in hexadecimal digits.
FuzzCount fuzz(const FuzzTarget& target, std::int64_t rounds, std::uint64_t seed);

}  // namespace stretto::testing
