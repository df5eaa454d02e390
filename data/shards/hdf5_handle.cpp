#include "data/shards/hdf5_handle.h"

#include <algorithm>
#include <string_view>

namespace ashlar::data {

Hdf5Handle& Hdf5Handle::operator=(Hdf5Handle&& other) noexcept {
  if (this != &other) {
    close();
    id_ = other.id_;
    closer_ = other.closer_;
    other.id_ = -1;
  }
  return *this;
}

Hdf5Handle::~Hdf5Handle() {
  if (id_ < 0) return;
  const hid_t reasons = H5Eget_num(H5E_DEFAULT) > 0 ? H5Eget_current_stack() : -1;
  close();
  if (reasons >= 0) H5Eset_current_stack(reasons);
}

bool Hdf5Handle::close() {
  if (id_ < 0) return true;
  const Hdf5Quiet quiet;
  const hid_t id = id_;
  id_ = -1;
  return closer_(id) >= 0;
}

Hdf5Quiet::Hdf5Quiet() {
  H5dont_atexit();  // must precede every call that initialises the library; later calls have no effect
  H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Quiet::~Hdf5Quiet() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }

std::string hdf5_reason() {
  std::string reason;
  const H5E_walk2_t first = [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
    if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first, &reason);
  // HDF5 describes a failed system call in a paragraph. The reason is the quoted text after `error message = `.
  static constexpr std::string_view kQuoted = "error message = '";
  const size_t quoted = reason.find(kQuoted);
  if (quoted != std::string::npos) {
    reason.erase(0, quoted + kQuoted.size());
    reason.erase(std::min(reason.find('\''), reason.size()));
  }
  for (char& c : reason) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return reason.empty() ? "HDF5 gives no reason" : reason;
}

}  // namespace ashlar::data
