#pragma once

#include <hdf5.h>

#include <string>

namespace ashlar::data {

/// Owns one HDF5 id and closes it with the function for its kind, such as H5Fclose. The destructor ignores a failed
/// close; call close() to detect the failure.
class Hdf5Handle {
 public:
  using Closer = herr_t (*)(hid_t);

  Hdf5Handle() = default;
  Hdf5Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(other.id_), closer_(other.closer_) { other.id_ = -1; }
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;
  ~Hdf5Handle();  ///< keeps the HDF5 error stack, so that hdf5_reason() stays valid

  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }
  bool close();                 ///< returns false on an HDF5 error
  void abandon() { id_ = -1; }  ///< leaves the id open: closing it after a failed write may crash HDF5 1.10

 private:
  hid_t id_ = -1;
  Closer closer_ = nullptr;
};

/// While an object of this class exists, HDF5 prints no errors in this thread. Ashlar reports the errors itself, with
/// the file name. The first object in a process also disables HDF5's cleanup at exit, which would print "infinite loop
/// closing library" after a failed open. HDF5 needs no cleanup, since the owner of every file closes the file before
/// the exit, or leaves it open on purpose after a failed write.
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

/// Returns the innermost reason of the last failed HDF5 call in this thread, on one line.
std::string hdf5_reason();

}  // namespace ashlar::data
