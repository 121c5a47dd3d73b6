// Single-file examples under mpirun: they train in several processes or report that they cannot.
#include "tests/examples/training/mpirun.h"
#include "tests/support/catch.h"

using namespace stretto::examples::testing;
using std::string;

TEST_CASE("character_model writes the same bytes on 1, 2 and 4 processes", "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  string one, output;
  for (const char* n : {"1", "2", "4"}) {
    const TempDir dir;
    const Ended ended =
        run(env, mpirun({"-C", dir.file("")}, {"-n", n, find_program("character_model")}));
    INFO(n << " processes: " << ended.err);
    REQUIRE(ended.status == 0);
    const string bytes = checkpoint_bytes(dir.file("out/character_model"));
    REQUIRE(bytes.size() > 100'000);
    if (one.empty()) one = bytes, output = ended.out;
    CHECK(bytes == one);
    CHECK(ended.out == output);  // printed once
    CHECK(output.find("held out 0.") == 0);
  }
}

TEST_CASE("Examples for one process reject mpirun with several", "[processes]") {
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  for (const string name : {"melody", "chorales", "classifier", "fine_tuning", "translation"}) {
    const TempDir dir;
    const Ended ended = run(env, mpirun({"-C", dir.file("")}, {"-n", "2", find_program(name)}));
    INFO(name << ": " << ended.err);
    CHECK(ended.status != 0);
    CHECK(ended.out.empty());
    const string line = "/" + name + ": supports one process, but mpirun has started 2\n";
    const size_t at = ended.err.find(line);
    CHECK(at != string::npos);
    CHECK(ended.err.find(line, at + 1) == string::npos);
    CHECK(contents(dir.file("")).empty());
  }
}
