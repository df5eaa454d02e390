#include "core/io/json.h"

#include <nlohmann/json.hpp>

#include "core/base/strings.h"

namespace ashlar::io {
namespace {

/// Text of a file may be in the library's message: kept to plain characters and to one short line.
std::string plain(std::string_view text) {
  constexpr size_t kMost = 80;
  std::string out;
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  return text.size() > kMost ? out + "..." : out;
}

/// What the library says after its `[json.exception.NAME.ID] `.
std::string own_words(const nlohmann::json::exception& error) {
  const std::string_view text = error.what();
  const size_t end = text.find("] ");
  return plain(end == std::string_view::npos ? text : text.substr(end + 2));
}

}  // namespace

void reading_json(const std::function<Error(const std::string& sentence)>& problem, const std::function<void()>& read) {
  try {
    read();
  } catch (const nlohmann::json::parse_error& error) {
    throw problem(str_cat("it is not valid JSON at byte ", error.byte));
  } catch (const nlohmann::json::out_of_range& error) {
    throw problem(str_cat("a number or place is out of range: ", own_words(error)));
  } catch (const nlohmann::json::type_error& error) {
    throw problem(str_cat("a value has another type than expected: ", own_words(error)));
  } catch (const nlohmann::json::exception& error) {
    throw problem(own_words(error));
  }
}

}  // namespace ashlar::io
