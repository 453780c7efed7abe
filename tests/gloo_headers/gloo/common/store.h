// Interface of a later Gloo, for tests/gloo_generations.rs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#if POTLUCK_TEST_GENERATION >= 2025
#define GLOO_SHARED_STORE
#endif

namespace gloo {

class IStore {
 public:
  virtual ~IStore() = default;
  virtual void set(const std::string &, const std::vector<char> &) = 0;
  virtual std::vector<char> get(const std::string &) = 0;
  virtual bool has_v2_support() = 0;
  virtual std::vector<std::vector<char>> multi_get(const std::vector<std::string> &) = 0;
  virtual void multi_set(const std::vector<std::string> &, const std::vector<std::vector<char>> &) = 0;
  virtual void append(const std::string &, const std::vector<char> &) = 0;
  virtual std::int64_t add(const std::string &, std::int64_t) = 0;
  virtual void wait(const std::vector<std::string> &) = 0;
};

}  // namespace gloo
