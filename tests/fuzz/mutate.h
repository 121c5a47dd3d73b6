// Fuzzing: a reader of files is fed with damaged ones, and must read or refuse each in good order.
//
// The ordinary tests (fuzz_test.cpp) run a few thousand inputs. The long run is the same test under
// the sanitizers (cmake --preset asan-ubsan, build stretto_tests), and is the same every time:
//
//   STRETTO_FUZZ_ROUNDS=10000000 build/asan-ubsan/tests/stretto_tests "[fuzz]"
//
// Guided by coverage, where clang with libFuzzer is, each target is a program of its own:
//
//   cmake -B build/fuzz -G Ninja -D CMAKE_CXX_COMPILER=clang++ -D CMAKE_BUILD_TYPE=RelWithDebInfo
//         -D STRETTO_CUDA=OFF
//         -D STRETTO_SANITIZE="address;undefined;fuzzer-no-link"
//   cmake --build build/fuzz --target midi_fuzz safetensors_fuzz tsv_fuzz
//   mkdir -p build/fuzz/midi build/fuzz/safetensors build/fuzz/tsv
//   build/fuzz/tests/midi_fuzz -runs=10000000 -max_len=4096 -malloc_limit_mb=64 build/fuzz/midi
//         [a folder of MIDI files]
//   build/fuzz/tests/safetensors_fuzz -runs=10000000 -max_len=4096 -malloc_limit_mb=64
//         build/fuzz/safetensors tests/conformance/cases
//   build/fuzz/tests/tsv_fuzz -runs=10000000 -max_len=4096 -malloc_limit_mb=64 build/fuzz/tsv
//
// A program stops at the first defect and leaves the input that shows it in the folder where it was
// called; given that file alone, it shows it again. Long files help little: what is over -max_len
// is cut off.
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

/// The reader did with an input what no reader may.
struct FuzzFailure : std::logic_error {
  using std::logic_error::logic_error;
};

/// A reader and good inputs for it.
struct FuzzTarget {
  /// True where the input is accepted, false where it is refused; throws FuzzFailure, or anything
  /// else, for a defect of the reader.
  bool (*run)(std::string_view input);
  std::vector<std::string> seeds;
  std::vector<std::string> words;  // that inputs are made of
};

FuzzTarget midi_target();
FuzzTarget safetensors_target();
FuzzTarget safetensors_index_target();
/// Data sets of text lines (examples/lra) and pictures: what any of the readers accepts.
FuzzTarget tsv_target();

/// `input` with one to eight changes: bits flipped; bytes set, put in, taken out, moved or doubled;
/// a number of 1 to 8 bytes or of decimal digits made an extreme one; a word or a piece of another
/// seed put in; the end cut off. At most `max_size` bytes.
std::string mutate(std::string input, const FuzzTarget& target, PortableRandom& random,
                   std::size_t max_size = 1024);

struct FuzzCount {
  std::int64_t accepted = 0;
  std::int64_t refused = 0;
};

/// Runs the seeds, all of which must be accepted, then `rounds` mutated inputs, made of the seeds
/// and of mutated inputs that were accepted. The same for the same `seed`. Throws FuzzFailure with
/// the round, the defect and the input in hexadecimal digits.
FuzzCount fuzz(const FuzzTarget& target, std::int64_t rounds, std::uint64_t seed);

}  // namespace stretto::testing
