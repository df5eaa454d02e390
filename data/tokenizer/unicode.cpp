#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "data/tokenizer/unicode_tables.h"

namespace ashlar::data {
namespace {

using tables::kCategoryNames;

constexpr CodeRange kWhiteSpace[] = {{0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                     {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                     {0x205F, 0x205F}, {0x3000, 0x3000}};

/// Numeric characters added in Unicode 17.
constexpr CodeRange kNumericOf17[] = {{0x11DE0, 0x11DE9}, {0x16FF4, 0x16FF6}};

void append(CodeSet& set, CodeRange r) {
  if (!set.empty() && set.back().last + 1 == r.first) {
    set.back().last = r.last;
  } else {
    set.push_back(r);
  }
}

std::string_view category_of(char32_t c) {
  const uint32_t key = (static_cast<uint32_t>(c) << 5) | 31U;
  const auto after = std::upper_bound(tables::kCategoryRuns.begin(), tables::kCategoryRuns.end(), key);
  return kCategoryNames[*std::prev(after) & 31U];
}

CodeSet united(CodeSet a, std::span<const CodeRange> b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end(), [](const CodeRange& x, const CodeRange& y) { return x.first < y.first; });
  CodeSet set;
  for (const CodeRange& r : a) append(set, r);
  return set;
}

}  // namespace

bool contains(std::span<const CodeRange> set, char32_t c) {
  const auto after =
      std::upper_bound(set.begin(), set.end(), c, [](char32_t value, const CodeRange& r) { return value < r.first; });
  return after != set.begin() && std::prev(after)->last >= c;
}

CodeSet complement(const CodeSet& set) { return difference({{0, 0xD7FF}, {0xE000, kLastCodePoint}}, set); }

CodeSet difference(const CodeSet& a, const CodeSet& b) {
  CodeSet left;
  auto other = b.begin();
  for (CodeRange r : a) {
    while (other != b.end() && other->last < r.first) ++other;
    bool gone = false;
    for (auto o = other; o != b.end() && o->first <= r.last; ++o) {
      if (o->first > r.first) left.push_back({r.first, o->first - 1});
      gone = o->last >= r.last;
      if (gone) break;
      r.first = o->last + 1;
    }
    if (!gone) left.push_back(r);
  }
  return left;
}

CodeSet category(std::string_view name) {
  CodeSet set;
  const auto runs = tables::kCategoryRuns;
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string_view own = kCategoryNames[runs[i] & 31U];
    if (name.empty() || name.size() > 2 || !own.starts_with(name) || own == "Cs") continue;
    append(set, {runs[i] >> 5, i + 1 < runs.size() ? (runs[i + 1] >> 5) - 1 : kLastCodePoint});
  }
  return set;
}

bool is_white_space(char32_t c) { return contains(kWhiteSpace, c); }
CodeSet white_space() { return {std::begin(kWhiteSpace), std::end(kWhiteSpace)}; }

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return category_of(c)[0] == 'N' || contains(kNumericOf17, c);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
  }
  if (c == 0x166D || c == 0x111C9) return true;  // punctuation in Unicode 8, later a symbol and a mark
  return category_of(c)[0] == 'P' && !contains(tables::kPunctuationSince9, c);
}

bool is_word(char32_t c) {
  const std::string_view own = category_of(c);
  return own[0] == 'L' || own[0] == 'M' || own == "Nd" || own == "Pc" || contains(tables::kOtherAlphabetic, c);
}

CodeSet word_characters() {
  CodeSet set = united(category("L"), category("M"));
  set = united(std::move(set), category("Nd"));
  set = united(std::move(set), category("Pc"));
  return united(std::move(set), tables::kOtherAlphabetic);
}

CodeSet pattern_word_characters() {
  constexpr CodeRange kMore[] = {{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}};
  return united(difference(word_characters(), {{0x200C, 0x200D}}), kMore);
}

void append_lower(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
    return;
  }
  if (c == 0x130) {  // maps to two code points
    out += "i\xCC\x87";
    return;
  }
  const auto runs = tables::kLowerRuns;
  const auto after = std::upper_bound(runs.begin(), runs.end(), c,
                                      [](char32_t value, const tables::LowerRun& r) { return value < r.first; });
  // A run of stride 2 may enclose other runs, so the last three runs that begin at or before c are tried.
  for (auto at = after; at != runs.begin() && after - at < 3;) {
    --at;
    if (c <= at->last && (c - at->first) % static_cast<uint32_t>(at->stride) == 0) {
      append_utf8(static_cast<char32_t>(static_cast<int32_t>(c) + at->distance), out);
      return;
    }
  }
  append_utf8(c, out);
}

namespace {

void append_normalised(int options, std::string_view text, std::string& out) {
  if (text.empty()) return;
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &made, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, std::free);
  ASHLAR_CHECK(n >= 0, utf8proc_errmsg(n));
  out.append(reinterpret_cast<const char*>(made), static_cast<size_t>(n));
}

}  // namespace

std::string normalised(NormalForm form, std::string_view text) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const int options =
      UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0);
  std::string out;
  out.reserve(text.size());
  // Characters newer than Unicode 9 map to themselves, and nothing is reordered or composed across them.
  size_t from = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = next_code_point(text.substr(at));
    const auto n = static_cast<size_t>(std::max(1, c.bytes));
    if (c.value >= tables::kNotInUnicode9.front().first && contains(tables::kNotInUnicode9, c.value)) {
      append_normalised(options, text.substr(from, at - from), out);
      out += text.substr(at, n);
      from = at + n;
    }
    at += n;
  }
  append_normalised(options, text.substr(from), out);
  return out;
}

size_t grapheme_end(std::string_view text, size_t begin) {
  const auto is_control = [](char32_t c) {
    const std::string_view own = category_of(c);
    return own == "Cc" || own == "Zl" || own == "Zp" ||
           (own == "Cf" && c != 0x200C && c != 0x200D && !contains(tables::kPrepend, c) &&
            !contains(tables::kExtendNotMn, c));
  };
  const auto extends = [](char32_t c) {
    const std::string_view own = category_of(c);
    if (c < 0x300) return false;
    return own == "Mn" || own == "Me" || c == 0x200D || contains(tables::kExtendNotMn, c) || c == 0xE33 || c == 0xEB3 ||
           (own == "Mc" && !contains(tables::kNoSpacingMark, c));
  };
  CodePoint before = next_code_point(text.substr(begin));
  size_t at = begin + static_cast<size_t>(std::max(1, before.bytes));
  while (at < text.size()) {
    const CodePoint c = next_code_point(text.substr(at));
    const bool together = before.value == 0xD                        ? c.value == 0xA
                          : is_control(before.value)                 ? false
                          : extends(c.value)                         ? true
                          : contains(tables::kPrepend, before.value) ? !is_control(c.value)
                                                                     : false;
    if (!together) break;
    at += static_cast<size_t>(std::max(1, c.bytes));
    before = c;
  }
  return at;
}

}  // namespace ashlar::data
