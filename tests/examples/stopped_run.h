// What every training program must do when it is stopped.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "tests/examples/program.h"
#include "tests/support/catch.h"

namespace stretto::examples::testing {

/// A run that Ctrl-C stops says how to go on, and then ends with the checkpoint of one that was not
/// stopped. `Tiny` makes command lines into a folder of its own: command(), run(), resume(), out()
/// and checkpoint().
template <class Tiny>
void check_stopped_run_goes_on(const std::string& program, const std::vector<std::string>& longer) {
  const Tiny whole, tiny;
  REQUIRE(whole.run(longer).status == 0);
  {
    Program running(program, tiny.command(longer));
    REQUIRE(running.wait_for("step "));
    running.signal(SIGINT);
    const Ended ended = running.wait();
    INFO(ended.err << ended.out);
    CHECK(ended.status == 130);
    CHECK_THAT(ended.out, Containing("repeat the command with --resume " +
                                     tiny.out("checkpoint.safetensors") + "\n"));
  }
  CHECK(tiny.checkpoint() != whole.checkpoint());
  REQUIRE(tiny.resume(longer).status == 0);
  CHECK(tiny.checkpoint() == whole.checkpoint());
}

}  // namespace stretto::examples::testing
