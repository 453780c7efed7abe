// What Rust sees of Gloo: one context, its collectives, and exceptions as texts with a kind in
// front.
//
// A Group is made by one thread and used by many at once, each with another operation. Bytes move
// on Rust's threads, see transport.h.
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

// cxx leads every exception that leaves a bridged function through here. Rust splits the text at
// the bar. EnforceNotMet is not one of Gloo's own exceptions, and IoException has nothing of its
// own to say: order matters.
namespace rust {
namespace behavior {

template <typename Try, typename Fail>
static void trycatch(Try &&attempt, Fail &&fail) noexcept try {
  attempt();
} catch (const ::rust::Error &error) {
  fail(error.what());  // From a callback of ours, which has put its kind in front already.
} catch (const ::gloo::EnforceNotMet &error) {
  fail(std::string("enforce|") + error.what());
} catch (const ::gloo::IoException &error) {
  fail(std::string("io|") + error.what());
} catch (const ::gloo::InvalidOperationException &error) {
  fail(std::string("invalid|") + error.what());
} catch (const ::gloo::Exception &error) {
  fail(std::string("gloo|") + error.what());
} catch (const std::bad_alloc &error) {
  fail(std::string("memory|") + error.what());
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
struct Wire;
struct Noticeboard;
struct Fold;
enum class Algorithm : std::uint8_t;

// A connected Gloo context over potluck's links. Each collective begins and ends all of its
// buffers, so nothing refers to the caller's memory when a call is over, in whichever way it ends.
class Group {
 public:
  explicit Group(std::shared_ptr<::gloo::Context> context);

  void all_reduce(std::uint8_t *data, std::size_t elements, std::size_t element_bytes, const Fold &fold,
                  Algorithm algorithm, std::size_t segment_bytes) const;
  void broadcast(std::uint8_t *data, std::size_t bytes, std::int32_t root) const;
  // The own part lies in its place already.
  void all_gather(std::uint8_t *data, std::size_t bytes) const;
  // Brings everybody's `in` to its place in `out`, in one step. The own place stays as it is.
  void exchange(const std::uint8_t *in, std::size_t bytes, std::uint8_t *out) const;
  // Calls of one operation that run at the same time have different tags.
  void exchange_parts(std::uint8_t *out, rust::Slice<const std::size_t> out_bytes, std::uint8_t *in,
                      rust::Slice<const std::size_t> in_bytes, std::uint32_t tag) const;
  // The root's `out` takes everybody's `in`; elsewhere it is null.
  void gather(const std::uint8_t *in, std::size_t bytes, std::uint8_t *out, std::int32_t root) const;
  // The root's `in` has a part of `bytes` for everybody; elsewhere it is null.
  void scatter(const std::uint8_t *in, std::uint8_t *out, std::size_t bytes, std::int32_t root) const;
  // Both have so many bytes, an equal part for everybody.
  void all_to_all(const std::uint8_t *in, std::uint8_t *out, std::size_t bytes) const;
  // Between two ranks; an operation is one message, so all of them use one slot.
  void send(const std::uint8_t *data, std::size_t bytes, std::int32_t to) const;
  void recv(std::uint8_t *data, std::size_t bytes, std::int32_t from) const;
  void barrier() const;

 private:
  std::shared_ptr<::gloo::Context> context_;
};

// Makes a context and connects it; blocks until all others have put their addresses on the board.
std::unique_ptr<Group> connect_group(rust::Box<Wire> wire, rust::Box<Noticeboard> board, std::int32_t rank,
                                     std::int32_t size, std::int64_t connect_timeout_ms, std::int64_t patience_ms);

// Which Gloo this was built against, for people.
rust::String version();

}  // namespace potluck
