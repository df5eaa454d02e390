#pragma once

#include <iosfwd>
#include <span>
#include <string>

namespace ashlar::launch {

/// `ashlar bench tokenizer TOKENIZER FILE... [--seconds S]`: MB of text a second that one thread encodes, and decodes
/// back. The files are cut at line ends into documents of about 10 kB, which are encoded one by one, all of them again
/// and again for S seconds: the median of the rounds, the fastest and the slowest. Throws Error.
int run_bench_tokenizer(std::span<const std::string> words, std::ostream& out);

}  // namespace ashlar::launch
