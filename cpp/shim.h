// Gloo's interface for Rust: one context, its collectives, and exceptions as texts that start with
// a kind.
//
// One thread makes a Group; many use it at once, each with another operation. Rust's threads send
// and receive the bytes, see transport.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include <gloo/common/error.h>
#include <gloo/common/logging.h>

#include "rust/cxx.h"

// cxx calls this for every exception that leaves a bridged function. Rust splits the text at the
// bar. The order of the handlers matters: IoException and InvalidOperationException derive from
// gloo::Exception; EnforceNotMet does not.
namespace rust {
namespace behavior {

template <typename Try, typename Fail>
static void trycatch(Try &&attempt, Fail &&fail) noexcept try {
  attempt();
} catch (const ::rust::Error &error) {
  fail(error.what());  // From one of our callbacks; it already starts with a kind.
} catch (const ::gloo::EnforceNotMet &error) {
  fail(std::string("enforce|") + error.what());
} catch (const ::gloo::IoException &error) {
  fail(std::string("io|") + error.what());
} catch (const ::gloo::InvalidOperationException &error) {
  fail(std::string("invalid|") + error.what());
} catch (const ::gloo::Exception &error) {
  fail(std::string("gloo|") + error.what());
} catch (const std::bad_alloc &) {
  fail("memory|std::bad_alloc");  // Without a copy, which could throw as well.
} catch (const std::exception &error) {
  fail(std::string("std|") + error.what());
} catch (...) {
  fail("unknown|something that is no std::exception was thrown");
}

}  // namespace behavior
}  // namespace rust

namespace gloo {
class Context;
}

namespace potluck {

// Defined in Rust.
struct MessageLayer;
struct Noticeboard;
struct Fold;
enum class Algorithm : std::uint8_t;

// A connected Gloo context over potluck's links. Each collective creates and destroys all of its
// buffers, so nothing refers to the caller's memory after a call, whether it returns or throws.
class Group {
 public:
  explicit Group(std::shared_ptr<::gloo::Context> context);

  void all_reduce(std::uint8_t *data, std::size_t elements, std::size_t element_bytes,
                  const Fold &fold, Algorithm algorithm, std::size_t segment_bytes) const;
  void broadcast(std::uint8_t *data, std::size_t bytes, std::int32_t root) const;
  // The own part is already in its place.
  void all_gather(std::uint8_t *data, std::size_t bytes) const;
  // Sends `in` to all ranks and receives theirs into `out`, in rank order and in one step. The
  // input of each rank has the length in `lengths`, which may be 0. The own place is not written.
  void exchange(const std::uint8_t *in, std::size_t bytes, std::uint8_t *out,
                rust::Slice<const std::size_t> lengths) const;
  // Concurrent calls of one operation have different tags.
  void exchange_parts(std::uint8_t *out, rust::Slice<const std::size_t> out_bytes, std::uint8_t *in,
                      rust::Slice<const std::size_t> in_bytes, std::uint32_t tag) const;
  // The root's `out` receives the `in` of every rank; it is null on the other ranks.
  void gather(const std::uint8_t *in, std::size_t bytes, std::uint8_t *out,
              std::int32_t root) const;
  // The root's `in` has `bytes` bytes for every rank; it is null on the other ranks.
  void scatter(const std::uint8_t *in, std::uint8_t *out, std::size_t bytes,
               std::int32_t root) const;
  // Both have `bytes` bytes, an equal part for every rank.
  void all_to_all(const std::uint8_t *in, std::uint8_t *out, std::size_t bytes) const;
  // Between two ranks. An operation is one message, so all use the same slot.
  void send(const std::uint8_t *data, std::size_t bytes, std::int32_t to) const;
  void recv(std::uint8_t *data, std::size_t bytes, std::int32_t from) const;
  void barrier() const;

 private:
  std::shared_ptr<::gloo::Context> context_;
};

// Makes a context and connects it; blocks until all other ranks have put their addresses on the
// board.
std::unique_ptr<Group> connect_group(rust::Box<MessageLayer> wire, rust::Box<Noticeboard> board,
                                     std::int32_t rank, std::int32_t size,
                                     std::int64_t connect_timeout_ms, std::int64_t patience_ms);

// The Gloo version of this build, for display.
rust::String version();

}  // namespace potluck
