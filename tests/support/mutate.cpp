#include "tests/support/mutate.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <exception>
#include <iterator>

#include "core/base/philox.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "tests/support/cpu_time.h"
#include "tests/support/long_form.h"

namespace ashlar::testing {
namespace {

/// What parsers stumble over.
constexpr std::string_view kWords[] = {"0",
                                       "-1",
                                       "1e999",
                                       "0.5",
                                       "2147483648",
                                       "16777216",
                                       "9223372036854775807",
                                       "18446744073709551616",
                                       "null",
                                       "true",
                                       "NaN",
                                       "\"\"",
                                       "[]",
                                       "{}",
                                       "[[1]]",
                                       "{\"a\":1}",
                                       "\"",
                                       "\\",
                                       "\\ud800",
                                       ",",
                                       ":",
                                       "=",
                                       "]",
                                       "}",
                                       "(",
                                       "*",
                                       "\n",
                                       " ",
                                       "\xef\xbb\xbf",
                                       "\xff",
                                       "\xf0\x9f\x98",
                                       "\x7f",
                                       "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"};
constexpr std::string_view kBrackets[] = {"[", "{\"a\":", "("};

class Draws {
 public:
  Draws(uint64_t seed, uint64_t trial) : seed_(seed), trial_(trial) {}
  /// A whole number from 0 to `end` - 1.
  size_t below(size_t end) {
    if (left_ == 0) {
      block_ = Philox::block(seed_, trial_, index_++);
      left_ = 4;
    }
    const uint32_t word = block_[--left_];
    return end == 0 ? 0 : word % end;
  }

 private:
  uint64_t seed_, trial_, index_ = 0;
  Philox::Counter block_{};
  size_t left_ = 0;
};

/// Part of a text: where it begins and how long it is, mostly short.
struct Range {
  size_t begin = 0, size = 0;
};
Range range_of(const std::string& text, Draws& draw) {
  const size_t begin = draw.below(text.size() + 1);
  const size_t most = draw.below(4) == 0 ? text.size() : 16;
  return {begin, std::min(draw.below(most + 1), text.size() - begin)};
}

void damage(std::string& text, Draws& draw) {
  const Range part = range_of(text, draw);
  switch (draw.below(9)) {
    case 0:
      if (part.begin < text.size()) text[part.begin] = static_cast<char>(text[part.begin] ^ (1 << draw.below(8)));
      break;
    case 1:
      if (part.begin < text.size()) text[part.begin] = static_cast<char>(draw.below(256));
      break;
    case 2: text.erase(part.begin, part.size); break;
    case 3: text.insert(part.begin, text.substr(part.begin, part.size)); break;
    case 4: text.resize(part.begin); break;
    case 5: {
      const std::string moved = text.substr(part.begin, part.size);
      text.erase(part.begin, part.size);
      text.insert(draw.below(text.size() + 1), moved);
      break;
    }
    case 6: {
      // A number becomes another one; where there is none, a word comes in.
      const size_t digit = text.find_first_of("0123456789", part.begin);
      const size_t at = digit == std::string::npos ? part.begin : digit;
      const size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
      text.replace(at, digit == std::string::npos ? 0 : end - at, kWords[draw.below(std::size(kWords))]);
      break;
    }
    case 7: {
      const std::string_view bracket = kBrackets[draw.below(std::size(kBrackets))];
      std::string deep;
      for (size_t n = 100 + draw.below(5000); n > 0; --n) deep += bracket;
      text.insert(part.begin, deep);
      break;
    }
    default: text.insert(part.begin, kWords[draw.below(std::size(kWords))]);
  }
}

int64_t peak_memory_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

/// What is wrong with how the parser took the input; empty when nothing is.
std::string complaint(const MutationTrials& trials, const std::function<void(const std::string&)>& parse,
                      const std::string& input) {
  try {
    parse(input);
  } catch (const Error& e) {
    const std::string said = e.what();
    if (std::find(trials.codes.begin(), trials.codes.end(), e.code()) == trials.codes.end())
      return str_cat("code ", static_cast<int>(e.code()), ": ", said);
    if (said.find('\n') != std::string::npos) return str_cat("not one line: ", said);
  } catch (const std::exception& e) {
    return str_cat("no Error: ", e.what());
  }
  return "";
}

}  // namespace

std::string mutated(std::string_view input, uint64_t seed, uint64_t trial) {
  std::string text(input);
  Draws draw(seed, trial);
  for (size_t n = 1 + draw.below(4); n > 0; --n) damage(text, draw);
  return text;
}

void expect_bounded(const MutationTrials& trials, const std::function<void(const std::string& input)>& parse) {
  ASSERT_FALSE(trials.inputs.empty());
  for (const std::string& input : trials.inputs) {
    const std::string wrong = complaint(trials, parse, input);
    ASSERT_EQ(wrong, "") << "an input that was to be good";
  }
  const int64_t before_mb = peak_memory_mb(), count = long_form() ? trials.long_trials : trials.trials;
  int failures = 0;
  for (int64_t trial = 0; trial < count && failures < 5; ++trial) {
    const std::string input = mutated(trials.inputs[static_cast<size_t>(trial) % trials.inputs.size()], trials.seed,
                                      static_cast<uint64_t>(trial));
    const double start = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    std::string wrong = complaint(trials, parse, input);
    const double took = cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - start;
    if (wrong.empty() && took > trials.most_cpu_sec) wrong = str_cat(took, " s of CPU time");
    if (wrong.empty()) continue;
    ++failures;
    ADD_FAILURE() << "seed " << trials.seed << ", trial " << trial << ": " << wrong << "\ninput of " << input.size()
                  << " bytes: " << escaped(input, 2000);
  }
  EXPECT_LE(peak_memory_mb() - before_mb, trials.most_memory_mb) << "MB over " << count << " trials";
}

}  // namespace ashlar::testing
