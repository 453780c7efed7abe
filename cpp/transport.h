// Gloo's transport interface, on top of the links that Rust owns.
//
// Deliberately thin: matching, credit, bounds and waiting are in Rust (src/gloo_ffi/p2p). Only
// unbound buffers are implemented, which all of Gloo's newer collectives use; the calls of the
// older ones throw.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gloo/transport/address.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include "potluck/src/gloo_ffi/bridge.rs.h"

namespace potluck {

namespace gt = ::gloo::transport;

class Address final : public gt::Address {
 public:
  explicit Address(int rank) : rank_(rank) {}

  std::string str() const override { return "rank " + std::to_string(rank_); }

  std::vector<char> bytes() const override {
    const std::array<std::uint8_t, 8> bytes = address_of(rank_);
    return {bytes.begin(), bytes.end()};
  }

 private:
  int rank_;
};

// A peer. There is nothing to connect here: Rust makes and authenticates the links.
class Pair final : public gt::Pair {
 public:
  Pair(int me, int peer) : own_(me), peer_(peer) {}

  const gt::Address &address() const override { return own_; }

  // Checks that the address on the board is the peer's; nothing is dialled.
  void connect(const std::vector<char> &bytes) override {
    check_address(peer_, {reinterpret_cast<const std::uint8_t *>(bytes.data()), bytes.size()});
  }

  void close() override {}
  void setSync(bool, bool) override {}
  // A virtual function in newer versions of Gloo only, hence no `override`.
  bool isConnected() { return true; }

  std::unique_ptr<gt::Buffer> createSendBuffer(int, void *, std::size_t) override { refuse(); }
  std::unique_ptr<gt::Buffer> createRecvBuffer(int, void *, std::size_t) override { refuse(); }
  void send(gt::UnboundBuffer *, std::uint64_t, std::size_t, std::size_t) override { refuse(); }
  void recv(gt::UnboundBuffer *, std::uint64_t, std::size_t, std::size_t) override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw std::logic_error("potluck's links serve collectives on unbound buffers only");
  }

  Address own_;
  int peer_;
};

// Memory that messages are sent from and received into. Its destructor waits, in Rust, until no
// thread uses it.
class UnboundBuffer final : public gt::UnboundBuffer {
 public:
  UnboundBuffer(rust::Box<Memory> memory, void *ptr, std::size_t size,
                std::chrono::milliseconds timeout)
      : gt::UnboundBuffer(ptr, size), memory_(std::move(memory)), timeout_(timeout) {}

  using gt::UnboundBuffer::waitRecv;
  using gt::UnboundBuffer::waitSend;

  // Gloo's collectives ignore the result, so every failure throws.
  bool waitRecv(int *rank, std::chrono::milliseconds timeout) override {
    return waited(rank, memory_->wait_recv(milliseconds(timeout)));
  }
  bool waitSend(int *rank, std::chrono::milliseconds timeout) override {
    return waited(rank, memory_->wait_send(milliseconds(timeout)));
  }
  void abortWaitRecv() override { memory_->abort_recv(); }
  void abortWaitSend() override { memory_->abort_send(); }

  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    memory_->send(to, slot, offset, reach(offset, bytes));
  }
  void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    memory_->recv(from, slot, offset, reach(offset, bytes));
  }
  void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset,
            std::size_t bytes) override {
    if (from.size() != 1) throw std::logic_error("potluck's links receive from one rank at a time");
    recv(from.front(), slot, offset, bytes);
  }

 private:
  // An unspecified length means the rest of the buffer. Rust checks the range; an empty message, as
  // bcube has them, may have any offset.
  std::size_t reach(std::size_t offset, std::size_t bytes) const {
    if (bytes != kUnspecifiedByteCount) return bytes;
    return offset < size ? size - offset : 0;
  }

  std::int64_t milliseconds(std::chrono::milliseconds timeout) const {
    return timeout == gt::kUnsetTimeout ? timeout_.count() : timeout.count();
  }

  static bool waited(int *rank, std::int32_t peer) {
    if (rank != nullptr) *rank = peer;
    return true;
  }

  rust::Box<Memory> memory_;
  std::chrono::milliseconds timeout_;
};

class Context final : public gt::Context {
 public:
  Context(std::shared_ptr<rust::Box<MessageLayer>> wire, int rank, int size)
      : gt::Context(rank, size), wire_(std::move(wire)) {}

  std::unique_ptr<gt::Pair> &createPair(int peer) override {
    pairs_.at(peer) = std::make_unique<Pair>(rank, peer);
    return pairs_.at(peer);
  }

  std::unique_ptr<gt::UnboundBuffer> createUnboundBuffer(void *ptr, std::size_t bytes) override {
    auto memory = (*wire_)->memory(static_cast<std::uint8_t *>(ptr), bytes);
    return std::make_unique<UnboundBuffer>(std::move(memory), ptr, bytes, getTimeout());
  }

 private:
  std::shared_ptr<rust::Box<MessageLayer>> wire_;
};

class Device final : public gt::Device {
 public:
  explicit Device(rust::Box<MessageLayer> wire)
      : wire_(std::make_shared<rust::Box<MessageLayer>>(std::move(wire))) {}

  std::string str() const override { return "potluck's links"; }

  const std::string &getPCIBusID() const override {
    static const std::string none;
    return none;
  }

  std::shared_ptr<gt::Context> createContext(int rank, int size) override {
    return std::make_shared<Context>(wire_, rank, size);
  }

 private:
  std::shared_ptr<rust::Box<MessageLayer>> wire_;
};

}  // namespace potluck
