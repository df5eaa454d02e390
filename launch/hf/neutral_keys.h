#pragma once

#include <string_view>
#include <vector>

#include "launch/hf/json_reader.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

/// A key of config.json that changes no logit in any class. It concerns bookkeeping, storage, the precision of a sum,
/// generation, training or other tasks, or its only accepted value describes what every class does anyway.
struct NeutralKey {
  const char* key;
  const char* only;  ///< the only neutral value, as JSON; "": all values are neutral. A null is always neutral.
};

/// All neutral keys. They are the same for every family.
std::vector<NeutralKey> neutral_keys();

/// Marks the neutral keys of the object as read. Call it after the rows of the family have read their keys.
void accept_neutral_keys(JsonReader& reader);

/// Returns the only value at which a key is neutral, for messages; "" if the key has no such value.
std::string_view neutral_value(std::string_view key);

}  // namespace ashlar::hf
