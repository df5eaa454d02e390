#include "launch/hf/json_reader.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "core/io/posix_file.h"

namespace ashlar::hf {
namespace {

std::string brief(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  constexpr size_t kMaxShown = 60;
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

}  // namespace

JsonReader::JsonReader(const nlohmann::json& object, std::string where, std::vector<std::string>& errors,
                       std::vector<std::string>& notes)
    : object_(object), where_(std::move(where)), errors_(errors), notes_(notes) {}

bool JsonReader::has(const char* key) const { return object_.contains(key); }
bool JsonReader::has_value(const char* key) const { return has(key) && !object_[key].is_null(); }

std::string JsonReader::shown(const char* key) const {
  return str_cat(where_, key, " = ", has(key) ? brief(object_[key]) : std::string("(absent)"));
}

const nlohmann::json* JsonReader::find(const Keys& keys, const char** name) {
  const nlohmann::json* found = nullptr;
  for (const char* key : keys) {
    read_.insert(key);
    if (!has(key)) continue;
    if (found == nullptr) {
      found = &object_[key];
      *name = key;
    } else if (*found != object_[key]) {
      add_error(str_cat(shown(*name), " and ", shown(key), " are two names of one value, but differ; remove one key"));
    }
  }
  return found;
}

int64_t JsonReader::size(const Keys& keys, int64_t fallback) {
  const char* name = *keys.begin();
  const nlohmann::json* value = find(keys, &name);
  if (value == nullptr) {
    add_note(str_cat(where_, name, " is absent: using ", fallback, ", the default of the class"));
    return fallback;
  }
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{kMax}) ||
      value->get<int64_t>() < 1 || value->get<int64_t>() > kMax) {
    refuse(name, "expected an integer from 1 to ", kMax);
    return fallback;
  }
  return value->get<int64_t>();
}

std::optional<int64_t> JsonReader::optional_size(const Keys& keys) {
  const char* name = *keys.begin();
  const nlohmann::json* value = find(keys, &name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return size({name}, 1);
}

template <typename T, typename Is>
T JsonReader::typed(const Keys& keys, T fallback, const Is& is, const char* expected) {
  const char* name = *keys.begin();
  const nlohmann::json* value = find(keys, &name);
  if (value == nullptr) return fallback;
  if (is(*value)) return value->get<T>();
  refuse(name, "expected ", expected);
  return fallback;
}

double JsonReader::number(const Keys& keys, double fallback) {
  return typed(
      keys, fallback, [](const nlohmann::json& value) { return value.is_number(); }, "a number");
}

std::optional<double> JsonReader::optional_number(const Keys& keys) {
  const char* name = *keys.begin();
  const nlohmann::json* value = find(keys, &name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return number({name}, 0);
}

bool JsonReader::boolean(const Keys& keys, bool fallback) {
  return typed(
      keys, fallback, [](const nlohmann::json& value) { return value.is_boolean(); }, "true or false");
}

std::string JsonReader::text(const Keys& keys, std::string_view fallback) {
  const auto is_text = [](const nlohmann::json& value) { return value.is_string(); };
  return typed(keys, std::string(fallback), is_text, "a string");
}

const nlohmann::json* JsonReader::object(const char* key) {
  const nlohmann::json* value = raw(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) {
    refuse(key, "expected an object or null; correct this key");
    return nullptr;
  }
  return value->empty() ? nullptr : value;
}

const nlohmann::json* JsonReader::raw(const char* key) {
  read_.insert(key);
  return has_value(key) ? &object_[key] : nullptr;
}

const nlohmann::json* JsonReader::peek(const char* key) const { return has_value(key) ? &object_[key] : nullptr; }

void JsonReader::ignore(const Keys& keys) { read_.insert(keys.begin(), keys.end()); }

std::vector<std::string> JsonReader::unread_keys() const {
  std::vector<std::string> unread;
  for (const auto& [key, value] : object_.items()) {
    // transformers writes null for an option that is not in use.
    if (!read_.contains(key) && !value.is_null()) unread.push_back(key);
  }
  return unread;
}

}  // namespace ashlar::hf
