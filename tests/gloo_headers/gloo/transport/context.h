// Interface of a later Gloo, for tests/gloo_generations.rs.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "gloo/common/store.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/unbound_buffer.h"

namespace gloo {
namespace transport {

class Context {
 public:
  Context(int rank, int size);
  virtual ~Context();

  const int rank;
  const int size;

  virtual std::unique_ptr<Pair> &getPair(int);
  virtual std::unique_ptr<Pair> &createPair(int) = 0;
#if POTLUCK_TEST_GENERATION >= 2025
  virtual void createAndConnectAllPairs(std::shared_ptr<IStore>);
#else
  virtual void createAndConnectAllPairs(IStore &);
#endif
  virtual std::unique_ptr<UnboundBuffer> createUnboundBuffer(void *, std::size_t) = 0;
  void setTimeout(std::chrono::milliseconds);
  std::chrono::milliseconds getTimeout() const;

 protected:
  std::vector<std::unique_ptr<Pair>> pairs_;
};

}  // namespace transport
}  // namespace gloo
