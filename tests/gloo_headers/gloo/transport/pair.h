// Interface of a later Gloo, for tests/gloo_generations.rs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gloo/common/logging.h"
#include "gloo/transport/address.h"
#include "gloo/transport/buffer.h"
#include "gloo/transport/unbound_buffer.h"

namespace gloo {
namespace transport {

class Pair {
 public:
  virtual ~Pair() = 0;
  virtual const Address &address() const = 0;
  virtual void connect(const std::vector<char> &) = 0;
  virtual void close() = 0;
  virtual void setSync(bool, bool) = 0;
#if POTLUCK_TEST_GENERATION >= 2025
  virtual bool isConnected() = 0;
#endif
  virtual std::unique_ptr<Buffer> createSendBuffer(int, void *, std::size_t) = 0;
  virtual std::unique_ptr<Buffer> createRecvBuffer(int, void *, std::size_t) = 0;
  virtual void send(UnboundBuffer *, std::uint64_t, std::size_t = 0, std::size_t = 0) = 0;
  virtual void recv(UnboundBuffer *, std::uint64_t, std::size_t = 0, std::size_t = 0) = 0;
};

}  // namespace transport
}  // namespace gloo
