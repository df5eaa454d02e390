#pragma once

#include "launch/new_config/annotated_toml.h"
#include "launch/new_config/family.h"
#include "launch/new_config/shape.h"

namespace ashlar::new_config {

/// Writes the model sections: the sizes of `shape`, the options of `family`, each with its reason and source.
void write_model(const Family& family, const Shape& shape, AnnotatedToml& toml);

}  // namespace ashlar::new_config
