// Every program accepts all positions that its model supports, and reports them otherwise.
#include "nn/models/registry.h"
#include "tests/examples/tiny_run.h"

namespace stretto::examples::testing {

TEST_CASE("every program accepts exactly the positions that its model supports", "[examples]") {
  NEEDS_PROGRAM("lra");
  struct Reader {
    const char* program;
    bool bidirectional;  // its model, or its encoder, is bidirectional
  };
  for (const Reader& r :
       {Reader{"train_chorales", false}, Reader{"harmonize", true}, Reader{"train_lm", false},
        Reader{"train_music", false}, Reader{"groove", false}, Reader{"lra", true}}) {
    for (const nn::PositionEntry& position : nn::positions()) {
      INFO(r.program << " --position " << position.name);
      const nn::PositionTraits traits = position.traits();
      const bool fits = traits.causal && (traits.bidirectional || !r.bidirectional);
      const Ended ended = run(find_program(r.program), {"--attention", "softmax", "--position",
                                                        position.name, "--parameters"});
      CHECK(ended.status == (fits ? 0 : 2));
      if (fits) continue;
      CHECK(ended.one_line());
      CHECK_THAT(ended.complaint(), Containing("--position " + position.name + " is for "));
      CHECK_THAT(ended.complaint(), Containing("; accepted here: none, sinusoid, learned"));
    }
  }
}

}  // namespace stretto::examples::testing
