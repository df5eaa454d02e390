#pragma once

#include <string>
#include <string_view>

#include "launch/tasks/task.h"

namespace ashlar::tasks {

/// Returns the document of a record of the Allen Institute's form: question.stem, question.choices (a list of text and
/// label) and answerKey. The continuations are the choices' texts.
Document labelled_choices(const Record& record, const std::string& context);

}  // namespace ashlar::tasks
