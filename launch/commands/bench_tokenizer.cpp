#include "launch/commands/subcommands.h"

#include <algorithm>
#include <functional>
#include <ostream>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/io/posix_file.h"
#include "data/tokenizer/forms.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/timing.h"

namespace ashlar::launch {
namespace {

constexpr size_t kDocumentBytes = 10'000;

std::vector<std::string> documents_of(const std::vector<std::string>& files) {
  std::vector<std::string> documents;
  for (const std::string& file : files) {
    const std::string text = io::read_text_file(file, int64_t{1} << 30);
    for (size_t at = 0; at < text.size();) {
      const size_t newline = text.find('\n', std::min(text.size(), at + kDocumentBytes));
      const size_t stop = newline == std::string::npos ? text.size() : newline + 1;
      documents.push_back(text.substr(at, stop - at));
      at = stop;
    }
  }
  return documents;
}

/// Calls `round` for `seconds`, at least three times, and prints the rates.
void measure_tokenizer(const char* what, double megabytes, double seconds, const std::function<void()>& round,
                       std::ostream& out) {
  std::vector<double> rates;
  const double start = now_sec();
  while (rates.size() < 3 || now_sec() - start < seconds) {
    const double begin = now_sec();
    round();
    rates.push_back(megabytes / std::max(1e-9, now_sec() - begin));
  }
  std::ranges::sort(rates);
  out << absl::StrFormat("  %s  %7.1f MB/s (%.1f to %.1f, %d rounds)\n", what, rates[rates.size() / 2], rates.front(),
                         rates.back(), rates.size());
}

}  // namespace

int run_bench_tokenizer(Words words, Session& session) {
  std::ostream& out = session.out;
  Arguments given("bench tokenizer", words);
  const double seconds = given.number("--seconds", 5, 0, 3600);
  std::vector<std::string> names = given.positionals();
  if (names.size() < 2) {
    throw input_error(given.command(), "expected a tokenizer and files of text, got ", names.size(),
                      " names; usage: ashlar bench tokenizer TOKENIZER FILE...");
  }
  const auto tokenizer = data::open_tokenizer(names[0]);
  names.erase(names.begin());
  const std::vector<std::string> documents = documents_of(names);
  std::vector<std::vector<int32_t>> ids(documents.size());
  size_t bytes = 0, tokens = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    bytes += documents[i].size();
    try {
      tokenizer->encode(documents[i], ids[i]);
    } catch (const data::TextError& e) {
      throw input_error(given.command(), "document ", i, " (counted from 0 over all files), byte offset ", e.offset,
                        ": ", e.reason);
    }
    tokens += ids[i].size();
  }
  if (tokens == 0) throw input_error(given.command(), "the files contain no text; give files with text");
  out << absl::StrFormat("%s, vocabulary %d: %.1f MB in %d documents, %.2f bytes per token; one thread\n",
                         tokenizer->identity(), tokenizer->vocab_size(), static_cast<double>(bytes) / 1e6,
                         documents.size(), static_cast<double>(bytes) / static_cast<double>(tokens));
  std::vector<int32_t> made;
  measure_tokenizer(
      "encode", static_cast<double>(bytes) / 1e6, seconds,
      [&] {
        for (const std::string& document : documents) {
          made.clear();
          tokenizer->encode(document, made);
        }
      },
      out);
  measure_tokenizer(
      "decode", static_cast<double>(bytes) / 1e6, seconds,
      [&] {
        for (const auto& document : ids) tokenizer->decode(document);
      },
      out);
  return 0;
}

}  // namespace ashlar::launch
