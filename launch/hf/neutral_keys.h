#pragma once

#include <string_view>
#include <vector>

#include "launch/hf/json_reader.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

/// A key of config.json that changes no logit in any class. It concerns bookkeeping, storage, the precision of a sum,
/// generation, training or other tasks, or its only accepted value is what every class does.
struct NeutralKey {
  const char* key;
  const char* only;  ///< the one value, as JSON, at which it is neutral; "": every value. Null is neutral always.
};

/// All neutral keys. They are the same for every family.
std::vector<NeutralKey> neutral_keys();

/// Marks the neutral keys of the object as read. Called after the rows of the family, since a key that a row has read
/// has a meaning in that family.
void accept_neutral_keys(JsonReader& reader);

/// The one value at which a key is neutral, for messages; "" for a key without such a value.
std::string_view neutral_value(std::string_view key);

}  // namespace ashlar::hf
