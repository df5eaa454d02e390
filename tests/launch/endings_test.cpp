// What a command leaves behind when its end is not as planned: messages that are true, output that is missed, advice
// that fits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/base/strings.h"
#include "kernels/make_backend.h"
#include "launch/training/engine.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/lone_rank.h"
#include "tests/support/sanitizers.h"

namespace ashlar::testing {
namespace {

// The update before the loss went out of range is the one to name, not the one that did not take place.
TEST(Endings, WeightsThatAnEarlierUpdateLostAreNamed) {
  const auto backend = kernels::make_backend({.threads = 1});
  const auto stream = backend->make_stream();
  mesh::LoneRank lone;
  model::ModelConfig model{.d_model = 8, .n_layers = 1, .n_heads = 2, .n_kv_heads = 2, .head_dim = 4, .d_ff = 8};
  model.vocab_size = 11;
  model.rope.dims = 4;
  model.attn.scale = 0.5;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    training::Engine engine(
        *backend, *stream, lone.mesh,
        {.model = model, .dtype = dtype, .optimizer = optim::OptimizerOptions{}, .sequence_length = 4});
    engine.initialize();
    const auto message = [&](double loss, double z_loss) -> std::string {
      try {
        engine.check_finite({.loss = loss, .z_loss = z_loss}, 7);
        return "nothing";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kNonFinite);
        return error.what();
      }
    };
    const std::string loss = message(std::nan(""), 0);
    EXPECT_NE(loss.find("step 7: the loss is nan; the weights were not updated; nothing"), std::string::npos) << loss;
    const std::string z_loss = message(1.5, INFINITY);
    EXPECT_NE(z_loss.find("step 7: the z-loss is inf; the weights were not updated; nothing"), std::string::npos)
        << z_loss;
    engine.ctx().backend.fill({.dst = engine.optimizer()->master().data.mut_view(), .value = INFINITY}, *stream);
    const std::string earlier = message(std::nan(""), 0);
    EXPECT_NE(earlier.find("the weights of blocks.0.attn.k.weight are not finite since an earlier update; nothing"),
              std::string::npos)
        << earlier;
  }
}

// A result that nobody got is no success; a run is one, and says that its lines are lost.
TEST(Endings, AFullStandardOutput) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=6 run.dir=done").code, 0);
  for (const char* command : {"--help", "--version", "train --help", "explain all", "explain --markdown",
                              "params tiny.toml", "data inspect data", "data verify data", "data --help",
                              "data build text.txt --out other", "eval done --sequences 4", "generate done --tokens 3",
                              "launch -np 2 --dry-run eval done", "bench step tiny.toml --steps 1 --warmup 0",
                              "launch -np 2 params tiny.toml", "bench gemm --shapes char --dtype fp32 --help"}) {
    SCOPED_TRACE(command);
    const ShellResult r = run.ashlar(str_cat(command, " >/dev/full"));
    EXPECT_EQ(r.code, kResource) << r.err;
    EXPECT_NE(r.err.find("standard output"), std::string::npos) << r.err;
  }
  const ShellResult launched = run.ashlar("launch -np 1 train tiny.toml train.steps=6 run.dir=by-launch >/dev/full");
  EXPECT_EQ(launched.code, 0) << launched.err;
  EXPECT_NE(launched.err.find("warning: standard output cannot be written"), std::string::npos) << launched.err;
  const ShellResult trained = run.ashlar("train tiny.toml train.steps=6 run.dir=again >/dev/full");
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(std::count(trained.err.begin(), trained.err.end(), '\n'), 1) << trained.err;
  EXPECT_NE(trained.err.find("warning: standard output cannot be written (No space left on device)"), std::string::npos)
      << trained.err;
  EXPECT_EQ(run.exact_metrics("again"), run.exact_metrics("done"));
}

// Rows that find no space end no run, a last save that finds none does; and nobody is told of checkpoints that are not.
TEST(Endings, AFullDisk) {
  const RunFixture run;
  const std::string train = "train tiny.toml train.steps=30 train.eval_every=0 ";
  ASSERT_EQ(run.ashlar(train + "run.dir=whole").code, 0);
  const std::string full = preloading(ASHLAR_STALL_LIBRARY) + " STALL_CALL=write STALL_DO=nospace STALL_PATH=";
  const ShellResult rows = run.ashlar(train + "run.dir=rows", full + "metrics.jsonl STALL_SKIP=10");
  EXPECT_EQ(rows.code, 0) << rows.err;
  EXPECT_NE(rows.out.find("warning: 'rows/metrics.jsonl' cannot be written: No space left on device"),
            std::string::npos)
      << rows.out;
  EXPECT_NE(rows.out.find("warning: 'rows/metrics.jsonl' has lost 31 rows"), std::string::npos) << rows.out;
  EXPECT_TRUE(std::filesystem::exists(run.dir() / "rows/checkpoints/step-00000030"));
  const ShellResult all = run.ashlar(train + "checkpoint.every=0 run.dir=all", full + "/all/ STALL_SKIP=40");
  EXPECT_EQ(all.code, kResource) << all.out << all.err;
  EXPECT_NE(all.err.find("the last save failed: "), std::string::npos) << all.err;
  EXPECT_NE(all.err.find("; no checkpoint was saved before"), std::string::npos) << all.err;
  EXPECT_FALSE(std::filesystem::exists(run.dir() / "all/committed.json"));
}

// A small run needs few addresses; with fewer still it says which limit it met, whichever thread met it.
TEST(Endings, ALimitOfAddressesIsEnoughOrNamed) {
  if (testing::under_address_sanitizer()) GTEST_SKIP() << "the address sanitizer takes addresses of its own";
  const RunFixture run;
  int done = 0, refused = 0;
  for (const int64_t kilobytes : {150'000, 200'000, 250'000, 300'000, 350'000, 400'000, 500'000, 2'000'000}) {
    SCOPED_TRACE(kilobytes);
    const ShellResult r = run_shell(str_cat("cd ", shell_quote(run.dir().string()), " && ulimit -v ", kilobytes, " && ",
                                            shell_quote(ASHLAR_BINARY),
                                            " train tiny.toml train.steps=5 run.threads=2 run.dir=r", kilobytes));
    if (r.code == 127) continue;  // not even its libraries fit
    EXPECT_TRUE(r.code == 0 || r.code == kResource) << r.code << "\n" << r.out << r.err;
    done += r.code == 0;
    if (r.code == 0) continue;
    ++refused;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    EXPECT_NE(r.err.find(str_cat("ulimit -v ", kilobytes)), std::string::npos) << r.err;
    EXPECT_EQ(r.err.find("GiB"), std::string::npos) << r.err;
  }
  EXPECT_GE(done, 1) << "2 GB are plenty";
  EXPECT_GE(refused, 1);
}

TEST(Endings, OutOfMemoryAdvisesWhatFitsTheCommand) {
  if (testing::under_address_sanitizer())
    GTEST_SKIP() << "the address sanitizer needs more addresses than the limit of this test leaves";
  const RunFixture run;
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=6 run.dir=done").code, 0);
  const auto at = [&](int64_t kilobytes, const std::string& command) {
    return run_shell(str_cat("cd ", shell_quote(run.dir().string()), " && ulimit -v ", kilobytes, " && ",
                             shell_quote(ASHLAR_BINARY), " ", command));
  };
  const auto expect_advice = [](const ShellResult& r, const char* advice) {
    EXPECT_EQ(r.code, kResource) << r.out << r.err;
    EXPECT_NE(r.err.find("[memory]"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find(advice), std::string::npos) << r.err;
  };
  const ShellResult generate = at(4'000'000, "generate done --tokens 1000000000 --prompt a");
  expect_advice(generate, "--tokens");
  EXPECT_EQ(generate.err.find("micro_batch"), std::string::npos) << generate.err;
  expect_advice(at(700'000, "bench step tiny.toml train.sequence_length=2500000 --steps 1"), "train.micro_batch");
  // A batch of eval is never more than the part has: it wants for memory where there is little for the whole program.
  // How little depends on what is linked into it.
  ShellResult eval;
  for (int64_t few = 50'000, enough = 1'000'000; enough - few > 4'000;) {
    const int64_t middle = (few + enough) / 2;
    const ShellResult r = at(middle, "eval done --threads 1");
    (r.code == 0 ? enough : few) = middle;
    if (r.code != 0) eval = r;
  }
  expect_advice(eval, "--batch");
  EXPECT_EQ(eval.err.find("micro_batch"), std::string::npos) << eval.err;
  // A model too large for every rank is one line, and so is one that is too large for some.
  for (const char* mesh : {"mesh.data=2", "mesh.pipeline=2"}) {
    const ShellResult r = run.ashlar(str_cat(
        "launch -np 2 train tiny.toml run.dir=huge model.d_model=65536 ",
        "model.n_heads=512 model.d_ff=1000000 vocab.size=1000000 model.n_layers=8 ", mesh, " train.micro_batch=1"));
    EXPECT_EQ(r.code, kResource) << r.out << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 2) << "the line of mpirun, and the error: " << r.err;
  }
}

}  // namespace
}  // namespace ashlar::testing
