#pragma once

#include "launch/hf/table_rows.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

/// What config.json says of the models of one class, for both directions.
struct ClassTable {
  model::ModelConfig base;  ///< the axes that every model of the class has, which no key says
  Rows rows;
};

ClassTable class_table(Family family);

}  // namespace ashlar::hf
