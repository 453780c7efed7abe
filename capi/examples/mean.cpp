// The mean of a buffer over all members of a group, in C++17: handles that free themselves, and
// errors as exceptions.
//
//   mean NAMESPACE MEMBERS
//
// Start it on every machine. Without a cluster key, on one machine: set POTLUCK_EXAMPLE_LOOPBACK=1.
#include <potluck.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

template <auto free> struct Free {
    template <class Handle> void operator()(Handle *handle) const { free(handle); }
};
using Config = std::unique_ptr<potluck_config, Free<potluck_config_free>>;
using Cluster = std::unique_ptr<potluck_cluster, Free<potluck_leave>>;
using Context = std::unique_ptr<potluck_context, Free<potluck_context_free>>;
using Call = std::unique_ptr<potluck_call, Free<potluck_call_free>>;
using Error = std::unique_ptr<potluck_error, Free<potluck_error_free>>;

// Calls `function` with a place for an error, and throws that.
template <class Function> void checked(Function function) {
    potluck_error *error = nullptr;
    if (function(&error) == POTLUCK_OK)
        return;
    Error owned(error);
    throw std::runtime_error(std::string(potluck_error_code(error)) + ": " +
                             potluck_error_message(error));
}

Cluster joined(const std::string &space, const std::string &members) {
    Config config(potluck_config_new());
    auto set = [&](const char *key, const std::string &value) {
        checked([&](auto error) {
            return potluck_config_set(config.get(), key, value.c_str(), error);
        });
    };
    if (std::getenv("POTLUCK_EXAMPLE_LOOPBACK")) {
        set("network", "loopback");
        set("open", space);
    } else {
        set("namespace", space);
    }
    set("job", "mean");
    set("members", members);
    set("stateless", "true");
    potluck_cluster *cluster = nullptr;
    checked([&](auto error) { return potluck_join(config.get(), &cluster, error); });
    return Cluster(cluster);
}

void run(const std::string &space, const std::string &members) {
    Cluster cluster = joined(space, members);
    potluck_context *made = nullptr;
    checked([&](auto error) { return potluck_context_get(cluster.get(), 60000, &made, error); });
    Context context(made);
    std::vector<double> data(1000, static_cast<double>(potluck_rank(context.get())));
    potluck_options options = {};
    options.size = sizeof options;
    options.deadline_ms = 60000;
    Call call(potluck_all_reduce(context.get(), data.data(), data.size(), POTLUCK_F64, POTLUCK_MEAN,
                                 &options));
    checked([&](auto error) { return potluck_call_wait(call.get(), -1, error); });
    double right = static_cast<double>(potluck_size(context.get()) - 1) / 2;
    for (double element : data)
        if (element != right)
            throw std::runtime_error("the mean is wrong");
    std::printf("rank %zu: the mean is %g\n", potluck_rank(context.get()), right);
}

} // namespace

int main(int argc, char **argv) try {
    if (argc != 3) {
        std::fprintf(stderr, "usage: mean NAMESPACE MEMBERS\n");
        return 2;
    }
    run(argv[1], argv[2]);
    return 0;
} catch (const std::exception &problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
}
