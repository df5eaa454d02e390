// Measures which algorithm of cublasLt is fastest for a product, because the order in which the library suggests
// algorithms is only an estimate.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "kernels/cuda/gemm/cublaslt_plans.h"
#include "kernels/cuda/gemm/gemm_epilogue.h"
#include "kernels/cuda/host/cuda_state.h"

namespace ashlar::cuda {

namespace {

constexpr int kRepetitions = 10, kMostRuns = 50, kRounds = 3;
constexpr double kSecondsOfTrial = 0.001;
constexpr int64_t kPatternBytes = int64_t{4} << 20;
constexpr int64_t kMargin = 256;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Returns random numbers in [-1, 1). Zeros would give wrong measurements: a GPU draws less power and runs faster with
/// them, and their sums have the same bits in every order.
std::vector<char> random_pattern(DType dtype) {
  std::vector<char> pattern(kPatternBytes);
  const int64_t size = size_of(dtype);
  for (int64_t i = 0; i < kPatternBytes / size; i += 4) {
    const auto words = Philox::apply({static_cast<uint32_t>(i), 0, 0, 0}, {17, 4});
    for (int64_t j = 0; j < 4; ++j) {
      const double value = static_cast<double>(words[static_cast<size_t>(j)]) / 2147483648.0 - 1;
      char* const to = pattern.data() + (i + j) * size;
      const auto narrow = static_cast<float>(value);
      const BF16 brain(narrow);
      std::memcpy(to,
                  dtype == DType::kFloat64   ? static_cast<const void*>(&value)
                  : dtype == DType::kFloat32 ? static_cast<const void*>(&narrow)
                                             : &brain,
                  static_cast<size_t>(size));
    }
  }
  return pattern;
}

}  // namespace

/// The operands of one product that is timed, with the shapes, strides and alignments of `key`. Also stores the results
/// of the first run, with which the results of later runs are compared. Its memory is given back to the driver.
class CublasLtPlans::Trial {
 public:
  Trial(Device& device, const GemmKey& key, Stream& stream)
      : device_(device), stream_(stream), key_(key), calls_before_(memory().num_system_calls()) {
    try {
      allocate_operands();
    } catch (...) {
      release();
      throw;
    }
  }
  ~Trial() {
    try {
      stream_.synchronize();  // queued work may still use the memory that is released below
    } catch (const std::exception&) {
      // The error is ignored here, since the next call that waits for the stream reports it.
    }
    release();
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  const Gemm& gemm() const { return gemm_; }

  /// True if kRepetitions calls of `run` give the same bits.
  template <typename Run>
  bool repeats(const Run& run) {
    const auto from_start = [&] {
      reset_sums();
      run();
    };
    from_start();
    device_.copy(first_c_, gemm_.c.data, bytes_of(gemm_.c), stream_);
    if (gemm_.pre) device_.copy(first_pre_, gemm_.pre.data, bytes_of(gemm_.pre), stream_);
    uint32_t differences = 0;
    device_.copy(count_, &differences, sizeof(differences), stream_);
    for (int i = 1; i < kRepetitions; ++i) {
      from_start();
      compare(gemm_.c, first_c_);
      if (gemm_.pre) compare(gemm_.pre, first_pre_);
    }
    device_.copy(&differences, count_, sizeof(differences), stream_);
    stream_.synchronize();
    return differences == 0;
  }

 private:
  void allocate_operands() {
    const GemmKey& key = key_;
    const int64_t rows_a = key.transpose_a ? key.k : key.n, cols_a = key.transpose_a ? key.n : key.k;
    const int64_t rows_b = key.transpose_b ? key.m : key.k, cols_b = key.transpose_b ? key.k : key.m;
    gemm_.a = operand(key.storage, rows_a, cols_a, key.stride_a, key.align_a);
    gemm_.b = operand(key.storage, rows_b, cols_b, key.stride_b, key.align_b);
    if (key.align_bias != 0) gemm_.bias = operand(key.result, 1, key.m, key.m, key.align_bias);
    gemm_.c = operand(key.result, key.n, key.m, key.stride_c, key.align_c);
    if (key.align_pre != 0) gemm_.pre = operand(key.result, key.n, key.m, key.stride_pre, key.align_pre);
    gemm_.transpose_a = key.transpose_a != 0;
    gemm_.transpose_b = key.transpose_b != 0;
    gemm_.accumulate = key.accumulate != 0;
    first_c_ = static_cast<char*>(allocate(bytes_of(gemm_.c)));
    if (gemm_.pre) first_pre_ = static_cast<char*>(allocate(bytes_of(gemm_.pre)));
    count_ = static_cast<uint32_t*>(allocate(sizeof(uint32_t)));
    if (!gemm_.accumulate) return;
    start_ = static_cast<char*>(allocate(kPatternBytes));
    device_.copy(start_, patterns_[key.result].data(), kPatternBytes, stream_);
  }
  /// Writes the initial c, to which the product is added: the pattern over and over, as `operand` did.
  void reset_sums() {
    if (start_ == nullptr) return;
    const int64_t bytes = bytes_of(gemm_.c);
    auto* const at = static_cast<char*>(gemm_.c.data);
    for (int64_t done = 0; done < bytes; done += kPatternBytes)
      device_.copy(at + done, start_, std::min(kPatternBytes, bytes - done), stream_);
  }
  void release() {
    for (void* block : blocks_) memory().release(block);
    device_.state().allocators.at(static_cast<size_t>(MemoryKind::kActivations))->give_back_since(calls_before_);
  }
  Allocator& memory() { return device_.allocator(MemoryKind::kActivations); }
  void* allocate(int64_t bytes) {
    blocks_.push_back(memory().allocate(bytes));
    return blocks_.back();
  }
  static int64_t bytes_of(const ConstView& v) { return ((v.rows - 1) * v.stride + v.cols) * size_of(v.dtype); }

  MutView operand(DType dtype, int64_t rows, int64_t cols, int64_t stride, int64_t align) {
    const MutView shape{nullptr, dtype, rows, cols, stride};
    const int64_t bytes = bytes_of(shape);
    auto* const at = static_cast<char*>(allocate(bytes + kMargin)) + align % kMargin;
    std::vector<char>& pattern = patterns_[dtype];
    if (pattern.empty()) pattern = random_pattern(dtype);
    for (int64_t done = 0; done < bytes; done += kPatternBytes)
      device_.copy(at + done, pattern.data(), std::min(kPatternBytes, bytes - done), stream_);
    return {at, dtype, rows, cols, stride};
  }
  void compare(const ConstView& result, const char* first) {
    count_differences(result.data, first, bytes_of(result), count_, stream_);
  }

  Device& device_;
  Stream& stream_;
  const GemmKey key_;
  const int64_t calls_before_;
  Gemm gemm_;
  std::vector<void*> blocks_;
  std::map<DType, std::vector<char>> patterns_;
  char *start_ = nullptr, *first_c_ = nullptr, *first_pre_ = nullptr;
  uint32_t* count_ = nullptr;
};

std::string CublasLtPlans::measure(const GemmKey& key, Stream& stream) {
  struct Candidate {
    cublasLtMatmulHeuristicResult_t result;
    double seconds;
  };
  Plan plan = describe(key);
  std::vector<Candidate> candidates;
  const Suggestions all = suggestions(plan, key, kSuggestions);
  for (const auto& result : all.usable) candidates.push_back({result, 0});
  const auto note = [&](const std::string& outcome) {
    measured_.push_back(str_cat("product ", key.text(), ": ", lt_.version(), " suggests ", all.suggested,
                                " of at most ", kSuggestions, " algorithms, ", all.usable.size(), " usable; ",
                                outcome));
  };
  ASHLAR_CHECK(!candidates.empty(), lt_.version(), " has no algorithm for the product ", key.text());
  std::optional<Trial> trial;
  try {
    trial.emplace(device_, key, stream);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kResource) throw;
    note("the first is taken untimed, since the operands do not fit into memory");
    return text_of(candidates.front().result.algo);
  }
  const auto select = [&](const Candidate& candidate) {
    plan.algo = candidate.result.algo;
    plan.workspace_bytes = candidate.result.workspaceSize;
  };
  const auto run = [&] {
    const auto bytes = static_cast<int64_t>(plan.workspace_bytes);
    multiply(plan, trial->gemm(), trial->gemm().c, bytes > 0 ? device_.scratch(stream, bytes) : nullptr, stream);
  };
  for (Candidate& candidate : candidates) {
    select(candidate);
    const auto time_of = [&](int runs) {
      stream.synchronize();
      const Clock::time_point begin = Clock::now();
      for (int i = 0; i < runs; ++i) run();
      stream.synchronize();
      return seconds_since(begin) / runs;
    };
    time_of(1);  // the first run loads the kernel
    const int runs = std::clamp(static_cast<int>(kSecondsOfTrial / time_of(1)), 1, kMostRuns);
    candidate.seconds = time_of(runs);
    for (int i = 1; i < kRounds; ++i) candidate.seconds = std::min(candidate.seconds, time_of(runs));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& x, const Candidate& y) { return x.seconds < y.seconds; });
  for (size_t i = 0; i < candidates.size(); ++i) {
    select(candidates[i]);
    if (!trial->repeats(run)) continue;
    const auto microseconds = static_cast<int64_t>(candidates[i].seconds * 1e6 + 0.5);
    note(
        str_cat("taken the fastest that repeats to the bit, ", microseconds, " us; ", i, " faster ones do not repeat"));
    return text_of(plan.algo);
  }
  throw Error(ExitCode::kInput, "cuda",
              str_cat("expected an algorithm that gives the same bits each time for the product ", key.text(),
                      ", but none of the ", candidates.size(), " algorithms of ", lt_.version(),
                      " does; install another version of cublasLt"));
}

std::vector<std::string> CublasLtPlans::details() { return std::exchange(measured_, {}); }

TunedChoices CublasLtPlans::measure(const TunedChoices& questions) {
  TunedChoices answers{.device = device_name_, .sections = {}};
  const auto section = questions.sections.find("gemm");
  if (section == questions.sections.end()) return answers;
  TunedChoices::Section& out = answers.sections["gemm"];
  out.library = lt_.version();
  const std::unique_ptr<Stream> stream = device_.make_stream();
  for (const auto& [question, answer] : section->second.choices)
    out.choices[question] = measure(GemmKey::parse(question), *stream);
  return answers;
}

}  // namespace ashlar::cuda
