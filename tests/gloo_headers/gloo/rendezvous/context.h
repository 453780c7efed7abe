// Interface of a later Gloo, for tests/gloo_generations.rs.
#pragma once

#include <memory>

#include "gloo/common/error.h"
#include "gloo/context.h"
#include "gloo/rendezvous/store.h"
#include "gloo/transport/device.h"

namespace gloo {
namespace rendezvous {

class Context : public ::gloo::Context {
 public:
  Context(int rank, int size, int base = 2);
#if POTLUCK_TEST_GENERATION >= 2025
  void connectFullMesh(std::shared_ptr<Store>, std::shared_ptr<transport::Device> &);
#else
  void connectFullMesh(Store &, std::shared_ptr<transport::Device> &);
#endif
};

}  // namespace rendezvous
}  // namespace gloo
