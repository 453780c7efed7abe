// Interface of a later Gloo, for tests/gloo_generations.rs.
#pragma once

#include <chrono>

#include "gloo/common/store.h"

#define GLOO_STORE_HAS_STORE_V2 1

namespace gloo {
namespace rendezvous {

class Store : public IStore {
 public:
  virtual void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &) { wait(keys); }
  void wait(const std::vector<std::string> &) override = 0;
  bool has_v2_support() override { return false; }
  std::vector<std::vector<char>> multi_get(const std::vector<std::string> &) override { return {}; }
  void multi_set(const std::vector<std::string> &, const std::vector<std::vector<char>> &) override {}
  void append(const std::string &, const std::vector<char> &) override {}
  std::int64_t add(const std::string &, std::int64_t) override { return 0; }
};

}  // namespace rendezvous
}  // namespace gloo
