#include "data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/utf8.h"

namespace ashlar::data {
namespace {

constexpr size_t kStackBytes = size_t{64} << 20;

template <auto Free>
struct Release {
  template <typename T>
  void operator()(T* p) const {
    Free(p);
  }
};

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, Release<pcre2_code_free>> code;
  bool compiled = false;  // true if the pattern is compiled to machine code
};

struct Regex::Scratch::Parts {
  std::unique_ptr<pcre2_match_data, Release<pcre2_match_data_free>> data;
  std::unique_ptr<pcre2_match_context, Release<pcre2_match_context_free>> context;
  std::unique_ptr<pcre2_jit_stack, Release<pcre2_jit_stack_free>> stack;
};

Regex::Scratch::Scratch() : parts_(std::make_unique<Parts>()) {
  parts_->data.reset(pcre2_match_data_create(1, nullptr));
  parts_->context.reset(pcre2_match_context_create(nullptr));
  parts_->stack.reset(pcre2_jit_stack_create(size_t{32} << 10, kStackBytes, nullptr));
  pcre2_jit_stack_assign(parts_->context.get(), nullptr, parts_->stack.get());
}

Regex::Scratch::~Scratch() = default;

Regex::Regex(std::string_view pattern, Dialect dialect, const std::string& where)
    : code_(std::make_unique<Code>()), where_(where) {
  if (pattern.size() > kMaxPatternBytes)
    throw input_error("tokenizer", where, ": a pattern of ", pattern.size(), " bytes, at most ", kMaxPatternBytes,
                      " are allowed; shorten it");
  const std::string text = translated_pattern(pattern, dialect, where);
  const std::unique_ptr<pcre2_compile_context, Release<pcre2_compile_context_free>> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const uint32_t options = PCRE2_UTF | (dialect == Dialect::kOniguruma ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY);
  int error = 0;
  size_t at = 0;
  code_->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options, &error, &at, context.get()));
  if (code_->code == nullptr) {
    char message[256] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    throw input_error("tokenizer", where, ": the pattern cannot be compiled (", message,
                      "); correct it: ", printable(pattern, 200));
  }
  code_->compiled = pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::next(Finder& finder, Scratch& scratch) const {
  const std::string_view text = finder.text;
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  pcre2_match_data* const data = scratch.parts_->data.get();
  while (finder.at <= text.size()) {
    const int result = code_->compiled ? pcre2_jit_match(code_->code.get(), subject, text.size(), finder.at,
                                                         PCRE2_NO_UTF_CHECK, data, scratch.parts_->context.get())
                                       : pcre2_match(code_->code.get(), subject, text.size(), finder.at,
                                                     PCRE2_NO_UTF_CHECK, data, scratch.parts_->context.get());
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0) {
      char message[256] = "";
      pcre2_get_error_message(result, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
      // A match can fail, since some patterns take exponential time. The failure is an input error, since pattern and
      // text come from the user.
      throw input_error("tokenizer", where_, ": the pattern cannot be matched at byte ", finder.at, " of a text of ",
                        text.size(), " bytes (", message,
                        "); the pattern takes too many steps for this text: simplify the pattern or split the text");
    }
    const size_t* const bounds = pcre2_get_ovector_pointer(data);
    // An empty match directly after a match is skipped.
    if (bounds[0] == bounds[1] && finder.after_match && bounds[1] == finder.found.end) {
      if (finder.at >= text.size()) return false;
      finder.at += static_cast<size_t>(next_code_point(text.substr(finder.at)).bytes);
      continue;
    }
    finder.found = {static_cast<uint32_t>(bounds[0]), static_cast<uint32_t>(bounds[1])};
    finder.at = bounds[1];
    finder.after_match = true;
    return true;
  }
  return false;
}

}  // namespace ashlar::data
