#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/hf/json_reader.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

/// A key of config.json that changes no logit of any class: bookkeeping, storage, precision of a sum, generation,
/// training, other tasks; or that says what every class does anyway.
struct NeutralKey {
  const char* key;
  const char* only;  ///< the one value, as JSON, at which it is neutral; "": every value. Null is neutral always.
};

/// All of them, for all classes.
std::vector<NeutralKey> neutral_keys();

/// Marks those that are there, with a value at which they are neutral, as read. Behind the table of the class: what
/// that reads has its meaning there.
void accept_neutral_keys(JsonReader& reader);

/// The value at which a key is neutral, for messages; empty for one that is never, or always.
std::string_view neutral_value(std::string_view key);

}  // namespace ashlar::hf
