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

/// All neutral keys, which are those of every family.
std::vector<NeutralKey> neutral_keys();

/// Marks the neutral keys of the object as read. Called after the rows of the family: a key that these read has a
/// meaning there.
void accept_neutral_keys(JsonReader& reader);

/// The one value at which a key is neutral, for messages; "" for a key without such a value.
std::string_view neutral_value(std::string_view key);

}  // namespace ashlar::hf
