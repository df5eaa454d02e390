#pragma once

#include <cstdint>
#include <string>

/// The functions of libcudnn.so.9, loaded at run time. cudnn_functions.cpp defines every cudnn* function that cuDNN's
/// frontend calls, under the same name, and forwards the call to the loaded library. So the program is linked without
/// cuDNN and starts on machines without cuDNN.
namespace ashlar::cudnn {

/// Loads cuDNN: libcudnn.so.9, or the file that the environment variable ASHLAR_CUDNN names. If cuDNN is missing,
/// throws an input_error that says how to get it. The cudnn* functions then throw the same error.
void load_library();
int64_t library_version();  ///< 91900 is 9.19.0
const std::string& library_path();

}  // namespace ashlar::cudnn
