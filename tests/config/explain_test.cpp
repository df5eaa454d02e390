// What `ashlar explain` says of keys, and what it guesses of words that are none.
#include "launch/config/explain.h"

#include <gtest/gtest.h>

#include "core/base/strings.h"
#include "tests/config/fixture.h"

namespace ashlar::config::testing {
namespace {

TEST(Explain, GuessesAreNeverWild) {
  const auto guess = [](const char* what) -> std::string {
    try {
      explain(what);
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  EXPECT_NE(guess("rop").find("did you mean the section rope?"), std::string::npos) << guess("rop");
  EXPECT_NE(guess("optimiser").find("the section optimizer?"), std::string::npos) << guess("optimiser");
  EXPECT_NE(guess("d_modle").find("did you mean model.d_model?"), std::string::npos) << guess("d_modle");
  EXPECT_NE(guess("warmup").find("did you mean schedule.warmup_steps?"), std::string::npos) << guess("warmup");
  for (const char* what : {"quantum", "quantum.foam", "zz"})
    EXPECT_NE(guess(what).find("expected one of run, model, vocab,"), std::string::npos) << guess(what);
  EXPECT_NE(guess("mixtral").find("; the text of moe.renormalize has that word"), std::string::npos)
      << guess("mixtral");
  EXPECT_NE(guess("num_experts_per_tok").find("moe.top_k has that word"), std::string::npos);
  EXPECT_EQ(guess("layer").find("the text of"), std::string::npos) << "too many have it";
  EXPECT_EQ(nearest_key("quantum", "foam"), "");
  EXPECT_EQ(nearest_key("quantum", "d_model"), "model.d_model");
  expect_one(errors_of({}, str_cat(kMinimal, "[quantum]\nfoam = 1\n")), "quantum.foam", "unknown section");
}

TEST(Explain, SaysWhatTheSchemaKnows) {
  const std::string text = explain("model.d_ff");
  EXPECT_NE(text.find("8/3 d_model"), std::string::npos);
  EXPECT_NE(text.find("on resume: fixed"), std::string::npos);
  EXPECT_NE(explain("optimizer.kind").find("not supported by this version: adam, adafactor"), std::string::npos);
  EXPECT_NE(explain("rope").find("rope.style"), std::string::npos);
  const std::string all = explain("all");
  for (const KeySpec& spec : schema())
    EXPECT_NE(all.find(str_cat(spec.name(), ": ")), std::string::npos) << spec.name();
  try {
    explain("model.dff");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput);
    EXPECT_NE(std::string(e.what()).find("did you mean model.d_ff?"), std::string::npos);
  }
}

}  // namespace
}  // namespace ashlar::config::testing
