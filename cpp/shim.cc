#include "shim.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/scatter.h>
#include <gloo/rendezvous/context.h>

#include "store.h"
#include "transport.h"

namespace potluck {

namespace {

// Any value works: an operation uses it for at most one message from one rank to another.
constexpr std::uint64_t kMessageSlot = 0;

// Gloo takes the size of an element as a type.
template <typename T>
void all_reduce_of(const std::shared_ptr<::gloo::Context> &context, std::uint8_t *data,
                   std::size_t elements, const Fold &fold,
                   ::gloo::AllreduceOptions::Algorithm algorithm, std::size_t segment_bytes) {
  ::gloo::AllreduceOptions options(context);
  options.setAlgorithm(algorithm);
  options.setMaxSegmentSize(segment_bytes);
  options.setOutput(reinterpret_cast<T *>(data), elements);
  options.setReduceFunction([&fold](void *into, const void *a, const void *b, std::size_t n) {
    fold.fold(static_cast<std::uint8_t *>(into), static_cast<const std::uint8_t *>(a),
              static_cast<const std::uint8_t *>(b), n * sizeof(T));
  });
  ::gloo::allreduce(options);
}

template <typename T>
std::vector<T> copied(rust::Slice<const std::size_t> counts) {
  return {counts.begin(), counts.end()};
}

}  // namespace

// The links tell operations apart by their numbers. So Gloo's tags are 0 everywhere, except in
// exchange_parts, whose calls can overlap within one operation.

Group::Group(std::shared_ptr<::gloo::Context> context) : context_(std::move(context)) {}

void Group::all_reduce(std::uint8_t *data, std::size_t elements, std::size_t element_bytes,
                       const Fold &fold, Algorithm algorithm, std::size_t segment_bytes) const {
  const auto chosen = algorithm == Algorithm::Bcube ? ::gloo::AllreduceOptions::Algorithm::BCUBE
                                                    : ::gloo::AllreduceOptions::Algorithm::RING;
  switch (element_bytes) {
    case 1:
      return all_reduce_of<std::uint8_t>(context_, data, elements, fold, chosen, segment_bytes);
    case 2:
      return all_reduce_of<std::uint16_t>(context_, data, elements, fold, chosen, segment_bytes);
    case 4:
      return all_reduce_of<std::uint32_t>(context_, data, elements, fold, chosen, segment_bytes);
    case 8:
      return all_reduce_of<std::uint64_t>(context_, data, elements, fold, chosen, segment_bytes);
    default:
      throw std::invalid_argument("elements of " + std::to_string(element_bytes) +
                                  " bytes cannot be added");
  }
}

void Group::broadcast(std::uint8_t *data, std::size_t bytes, std::int32_t root) const {
  ::gloo::BroadcastOptions options(context_);
  options.setOutput(data, bytes);
  options.setRoot(root);
  ::gloo::broadcast(options);
}

void Group::all_gather(std::uint8_t *data, std::size_t bytes) const {
  ::gloo::AllgatherOptions options(context_);
  options.setOutput(data, bytes);
  ::gloo::allgather(options);
}

// Sends to all ranks at once. Gloo's own all-gather splits every part in two and sends it around a
// ring.
void Group::exchange(const std::uint8_t *in, std::size_t bytes, std::uint8_t *out,
                     rust::Slice<const std::size_t> lengths) const {
  std::vector<std::size_t> starts;
  std::size_t total = 0;
  for (const std::size_t length : lengths) {
    starts.push_back(total);
    total += length;
  }
  auto own = context_->createUnboundBuffer(const_cast<std::uint8_t *>(in), bytes);  // Only read.
  auto all = context_->createUnboundBuffer(out, total);
  const auto with_each_other = [this](auto &&step) {
    for (int distance = 1; distance < context_->size; distance++) {
      step((context_->rank + distance) % context_->size);
    }
  };
  // No message for what is empty.
  const auto receives = [&](int peer) { return lengths[peer] > 0; };
  with_each_other([&](int peer) {
    if (bytes > 0) own->send(peer, kMessageSlot);
  });
  with_each_other([&](int peer) {
    if (receives(peer)) all->recv(peer, kMessageSlot, starts[peer], lengths[peer]);
  });
  with_each_other([&](int peer) {
    if (receives(peer)) all->waitRecv(context_->getTimeout());
  });
  with_each_other([&](int) {
    if (bytes > 0) own->waitSend(context_->getTimeout());
  });
}

void Group::exchange_parts(std::uint8_t *out, rust::Slice<const std::size_t> out_bytes,
                           std::uint8_t *in, rust::Slice<const std::size_t> in_bytes,
                           std::uint32_t tag) const {
  ::gloo::AlltoallvOptions options(context_);
  options.setTag(tag);
  options.setInput(in, copied<std::int64_t>(in_bytes));
  options.setOutput(out, copied<std::int64_t>(out_bytes));
  ::gloo::alltoallv(options);
}

void Group::gather(const std::uint8_t *in, std::size_t bytes, std::uint8_t *out,
                   std::int32_t root) const {
  ::gloo::GatherOptions options(context_);
  options.setInput(const_cast<std::uint8_t *>(in), bytes);  // Only read.
  if (context_->rank == root) options.setOutput(out, bytes * context_->size);
  options.setRoot(root);
  ::gloo::gather(options);
}

void Group::scatter(const std::uint8_t *in, std::uint8_t *out, std::size_t bytes,
                    std::int32_t root) const {
  ::gloo::ScatterOptions options(context_);
  if (context_->rank == root) {
    std::vector<std::uint8_t *> parts;
    for (int peer = 0; peer < context_->size; peer++)
      parts.push_back(const_cast<std::uint8_t *>(in) + peer * bytes);
    options.setInputs(std::move(parts), bytes);
  }
  options.setOutput(out, bytes);
  options.setRoot(root);
  ::gloo::scatter(options);
}

void Group::all_to_all(const std::uint8_t *in, std::uint8_t *out, std::size_t bytes) const {
  ::gloo::AlltoallOptions options(context_);
  options.setInput(const_cast<std::uint8_t *>(in), bytes);  // Only read.
  options.setOutput(out, bytes);
  ::gloo::alltoall(options);
}

void Group::send(const std::uint8_t *data, std::size_t bytes, std::int32_t to) const {
  auto buffer =
      context_->createUnboundBuffer(const_cast<std::uint8_t *>(data), bytes);  // Only read.
  buffer->send(to, kMessageSlot);
  buffer->waitSend(context_->getTimeout());
}

void Group::recv(std::uint8_t *data, std::size_t bytes, std::int32_t from) const {
  auto buffer = context_->createUnboundBuffer(data, bytes);
  buffer->recv(from, kMessageSlot);
  buffer->waitRecv(context_->getTimeout());
}

void Group::barrier() const {
  ::gloo::BarrierOptions options(context_);
  ::gloo::barrier(options);
}

std::unique_ptr<Group> connect_group(rust::Box<MessageLayer> wire, rust::Box<Noticeboard> board,
                                     std::int32_t rank, std::int32_t size,
                                     std::int64_t connect_timeout_ms, std::int64_t patience_ms) {
  std::shared_ptr<gt::Device> device = std::make_shared<Device>(std::move(wire));
  auto store =
      std::make_shared<Store>(std::move(board), std::chrono::milliseconds(connect_timeout_ms));
  auto context = std::make_shared<::gloo::rendezvous::Context>(rank, size);
  context->setTimeout(std::chrono::milliseconds(patience_ms));
#ifdef GLOO_SHARED_STORE
  context->connectFullMesh(store, device);
#else
  context->connectFullMesh(*store, device);
#endif
  return std::make_unique<Group>(std::move(context));
}

rust::String version() {
  std::string text = "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." +
                     std::to_string(GLOO_VERSION_MINOR) + "." + std::to_string(GLOO_VERSION_PATCH);
  // All Gloo versions so far report 0.5.0.
#if defined(GLOO_SHARED_STORE)
  text += " (2025 interface)";
#elif defined(GLOO_STORE_HAS_STORE_V2)
  text += " (2023 interface)";
#else
  text += " (2022 interface)";
#endif
  return text;
}

}  // namespace potluck
