#pragma once

#include <iosfwd>
#include <span>
#include <string>

namespace ashlar::launch {

/// `ashlar bench tokenizer TOKENIZER FILE... [--seconds S]`: MB of text per second that one thread encodes and decodes.
/// The files are split at line ends into documents of about 10 kB, which are encoded one by one, all of them repeatedly
/// for S seconds. Prints the median, the fastest and the slowest round. Throws Error.
int run_bench_tokenizer(std::span<const std::string> words, std::ostream& out);

}  // namespace ashlar::launch
