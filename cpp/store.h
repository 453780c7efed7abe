// Gloo's rendezvous store on top of the View's board, which is in Rust.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gloo/rendezvous/store.h>

#include "potluck/src/gloo_ffi/bridge.rs.h"

namespace potluck {

class Store final : public ::gloo::rendezvous::Store {
 public:
  Store(rust::Box<Noticeboard> board, std::chrono::milliseconds timeout)
      : board_(std::move(board)), timeout_(timeout) {}

  using ::gloo::rendezvous::Store::wait;

  void set(const std::string &key, const std::vector<char> &value) override {
    board_->set(text(key), {reinterpret_cast<const std::uint8_t *>(value.data()), value.size()});
  }

  // Blocks until the key is set: Gloo's interface of 2022 calls get before wait.
  std::vector<char> get(const std::string &key) override {
    const rust::Vec<std::uint8_t> value = board_->wait(text(key), timeout_.count());
    return {value.begin(), value.end()};
  }

  void wait(const std::vector<std::string> &keys) override { wait(keys, timeout_); }

  void wait(const std::vector<std::string> &keys,
            const std::chrono::milliseconds &timeout) override {
    // Gloo passes the context's timeout, which is for operations and longer.
    for (const std::string &key : keys)
      board_->wait(text(key), std::min(timeout, timeout_).count());
  }

#ifdef GLOO_STORE_HAS_STORE_V2
  bool has_v2_support() override { return true; }

  std::vector<std::vector<char>> multi_get(const std::vector<std::string> &keys) override {
    std::vector<std::vector<char>> values;
    for (const std::string &key : keys) values.push_back(get(key));
    return values;
  }

  void multi_set(const std::vector<std::string> &keys,
                 const std::vector<std::vector<char>> &values) override {
    for (std::size_t i = 0; i < keys.size(); i++) set(keys[i], values.at(i));
  }
#endif

 private:
  static rust::Str text(const std::string &key) { return {key.data(), key.size()}; }

  rust::Box<Noticeboard> board_;
  std::chrono::milliseconds timeout_;
};

}  // namespace potluck
