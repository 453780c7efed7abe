// Gloo alone, over its own TCP transport: the baseline of `potluck-bench` for potluck's engines.
//
//   bare RANK SIZE STORE ADDRESS SIZES ALGORITHM CALLS
//   bare RANK SIZE STORE ADDRESS -
//
// With `-` it reads commands `SIZES ALGORITHM CALLS` from standard input, one per line.
//
// STORE is a directory shared by all ranks, which is empty or missing at the start. ADDRESS is an
// address of this machine as a literal, SIZES a comma-separated list of bytes, ALGORITHM ring,
// bcube or auto (Gloo's default), CALLS the number of timed calls per size. If CALLS is 0, only one
// sum is checked, which also warms up.
//
// Prints one line of JSON per size: the time of every call in microseconds, the processor seconds
// of this process for these calls (user and system), and whether the checked sum was correct (null
// if none was checked).
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;
using Group = std::shared_ptr<gloo::rendezvous::Context>;

// Longer than any call here; only a failing run reaches it.
constexpr auto kPatience = std::chrono::seconds(60);
// Gloo matches messages by tags; consecutive operations need different ones.
constexpr uint32_t kSumTag = 0;
constexpr uint32_t kBarrierTag = 1;

struct Order {
  std::vector<size_t> sizes;
  std::string algorithm;
  int calls;
};

Algorithm algorithm(const std::string& name) {
  if (name == "ring") return Algorithm::RING;
  if (name == "bcube") return Algorithm::BCUBE;
  if (name == "auto") return Algorithm::UNSPECIFIED;
  throw std::invalid_argument("no algorithm " + name + ": ring, bcube or auto");
}

Order order(const std::string& sizes, const std::string& name, const std::string& calls) {
  algorithm(name);
  Order order{{}, name, std::stoi(calls)};
  std::istringstream words(sizes);
  for (std::string size; std::getline(words, size, ',');) order.sizes.push_back(std::stoull(size));
  return order;
}

Group join(int rank, int size, const std::string& store, const std::string& address) {
  // The first rank creates it; for the others it exists.
  mkdir(store.c_str(), 0700);
  gloo::transport::tcp::attr attr(address.c_str());
  auto device = gloo::transport::tcp::CreateDevice(attr);
  auto group = std::make_shared<gloo::rendezvous::Context>(rank, size);
  group->setTimeout(kPatience);
#ifdef GLOO_SHARED_STORE
  group->connectFullMesh(std::make_shared<gloo::rendezvous::FileStore>(store), device);
#else
  gloo::rendezvous::FileStore files(store);
  group->connectFullMesh(files, device);
#endif
  return group;
}

void barrier(const Group& group) {
  gloo::BarrierOptions options(group);
  options.setTag(kBarrierTag);
  gloo::barrier(options);
}

void sum(const Group& group, std::vector<float>& buffer, Algorithm algorithm) {
  gloo::AllreduceOptions options(group);
  options.setOutput(buffer.data(), buffer.size());
  using Sum = void (*)(void*, const void*, const void*, size_t);
  options.setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
  options.setAlgorithm(algorithm);
  options.setTag(kSumTag);
  gloo::allreduce(options);
}

double processor_s() {
  rusage spent{};
  getrusage(RUSAGE_SELF, &spent);
  const auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec / 1e6; };
  return seconds(spent.ru_utime) + seconds(spent.ru_stime);
}

// The time of a wrong sum is meaningless.
bool is_right(const Group& group, std::vector<float>& buffer, Algorithm algorithm) {
  std::fill(buffer.begin(), buffer.end(), float(group->rank + 1));
  barrier(group);
  sum(group, buffer, algorithm);
  const float expected = float(group->size * (group->size + 1) / 2);
  const auto is_right = [=](float x) { return x == expected; };
  const bool right = std::all_of(buffer.begin(), buffer.end(), is_right);
  // Zeros stay zeros in repeated sums.
  std::fill(buffer.begin(), buffer.end(), 0.0f);
  return right;
}

void measure(const Group& group, const Order& order, std::vector<float>& buffer) {
  const auto chosen = algorithm(order.algorithm);
  for (size_t bytes : order.sizes) {
    // Reused between commands: new memory would cause page faults in the first call.
    if (buffer.size() != bytes / sizeof(float)) buffer.assign(bytes / sizeof(float), 0.0f);
    const char* right = "null";
    if (order.calls == 0) right = is_right(group, buffer, chosen) ? "true" : "false";
    std::vector<double> us;
    double cpu_s = 0;
    for (int call = 0; call < order.calls; call++) {
      barrier(group);
      const double spent = processor_s();
      const auto start = std::chrono::steady_clock::now();
      sum(group, buffer, chosen);
      const auto end = std::chrono::steady_clock::now();
      cpu_s += processor_s() - spent;
      us.push_back(std::chrono::duration<double, std::micro>(end - start).count());
    }
    printf("{\"bytes\":%zu,\"algorithm\":\"%s\",\"right\":%s,\"cpu_s\":%.6f,\"us\":[", bytes,
           order.algorithm.c_str(), right, cpu_s);
    for (size_t call = 0; call < us.size(); call++) printf("%s%.1f", call ? "," : "", us[call]);
    printf("]}\n");
    fflush(stdout);
  }
}

int run(const std::vector<std::string>& words) {
  const bool told = words.size() == 5 && words[4] == "-";
  if (!told && words.size() != 7) {
    fprintf(stderr, "bare RANK SIZE STORE ADDRESS (SIZES ALGORITHM CALLS | -)\n");
    return 2;
  }
  const auto group = join(std::stoi(words[0]), std::stoi(words[1]), words[2], words[3]);
  printf("{\"ready\":true}\n");
  fflush(stdout);
  std::vector<float> buffer;
  if (!told) {
    measure(group, order(words[4], words[5], words[6]), buffer);
  }
  std::string sizes, name, calls;
  while (told && std::cin >> sizes >> name >> calls) {
    measure(group, order(sizes, name, calls), buffer);
  }
  // A rank that exits first would close its connections during the others' last call.
  barrier(group);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fprintf(stderr, "bare: %s\n", error.what());
    return 1;
  }
}
