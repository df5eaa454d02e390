#include "launch/plan/dry_comm.h"

#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "parallel/comm/self_comm.h"

namespace ashlar::plan {

DryComm::DryComm(const mesh::MeshShape& shape, const mesh::Coordinates& at)
    : Communicator(static_cast<int>(mesh::index_of(shape, at, kAllAxes)), static_cast<int>(shape.ranks()), "world",
                   std::make_shared<comm::ProgressEngine>()),
      shape_(shape),
      at_(at) {}

DryComm::DryComm(const DryComm& world, AxisSet axes, std::string name)
    : Communicator(static_cast<int>(mesh::index_of(world.shape_, world.at_, axes)),
                   static_cast<int>(world.shape_.size(axes)), std::move(name), world.engine()),
      shape_(world.shape_),
      at_(world.at_) {}

comm::Communicator::OperationPtr DryComm::make(const comm::DeviceOperation& args, Stream& stream) {
  check_on_host(stream);
  const auto* const gather = std::get_if<comm::AllGather>(&args);
  if (gather == nullptr || is_floating(gather->in.dtype)) return nullptr;
  for (const comm::Range& range : gather->parts) {
    const MutView part = comm::part_of(gather->out, range);
    ASHLAR_CHECK(part.size() == gather->in.size(), "a dry run gathers equal parts of integers, got ", part.size(),
                 " and ", gather->in.size());
    std::memmove(part.data, gather->in.data, static_cast<size_t>(part.size() * size_of(part.dtype)));
  }
  return nullptr;
}

std::unique_ptr<comm::Communicator> DryComm::make_split(const comm::Split& args) {
  if (args.color < 0) return nullptr;
  if (args.control) return std::make_unique<comm::SelfComm>(args.name, engine());
  const std::string of_axes = args.name.substr(0, args.name.find(' '));  // "replica 2": another group of these ranks
  for (uint32_t bits = 1; bits < (1U << kNumAxes); ++bits) {
    const AxisSet axes(bits);
    if (text_of(axes) == of_axes) return std::unique_ptr<Communicator>(new DryComm(*this, axes, args.name));
  }
  throw Bug(str_cat("[dry run] a group named ", args.name, ": expected the axes of the mesh in its name"));
}

}  // namespace ashlar::plan
