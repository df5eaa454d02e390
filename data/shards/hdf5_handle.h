#pragma once

#include <hdf5.h>

#include <string>

namespace ashlar::data {

/// Owns one HDF5 id; closes it with the function of its kind. A failed close in a destructor is ignored; call close()
/// to see it.
class Hdf5Handle {
 public:
  using Closer = herr_t (*)(hid_t);

  Hdf5Handle() = default;
  Hdf5Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(other.id_), closer_(other.closer_) { other.id_ = -1; }
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;
  ~Hdf5Handle();  ///< preserves hdf5_reason(), which any other HDF5 call would clear

  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }
  bool close();                 ///< false on an HDF5 error
  void abandon() { id_ = -1; }  ///< never closed: after a failed write HDF5 1.10 may crash in closing

 private:
  hid_t id_ = -1;
  Closer closer_ = nullptr;
};

/// While it exists, HDF5 prints nothing in this thread; Ashlar reports the errors, with the file name. The first object
/// in a process also disables HDF5's cleanup at exit, which would print "infinite loop closing library" after a failed
/// open. The cleanup is not needed, since every file is closed by its owner before the exit.
class Hdf5Quiet {
 public:
  Hdf5Quiet();
  ~Hdf5Quiet();
  Hdf5Quiet(const Hdf5Quiet&) = delete;
  Hdf5Quiet& operator=(const Hdf5Quiet&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

/// The innermost reason of the last failed call in this thread, on one line.
std::string hdf5_reason();

}  // namespace ashlar::data
