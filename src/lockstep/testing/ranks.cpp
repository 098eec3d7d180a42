#include "lockstep/testing/ranks.h"

#include <exception>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <unistd.h>

#include "lockstep/comm/rendezvous.h"
#include "lockstep/guard/agent.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep {

namespace {

/// A recorder whose board the agent reads.
std::shared_ptr<Recorder> adopted(Agent& agent, const World& world) {
  const Identity identity{
      .rank = world.rank, .world_size = world.size, .local_rank = world.local_rank, .pid = ::getpid()};
  auto recorder = std::make_shared<Recorder>();
  recorder->introduce(identity);
  agent.adopt(identity, recorder->memory());
  return recorder;
}

}  // namespace

Rank::Rank(World world, CommSetup setup) : world_(std::move(world)), setup_(std::move(setup)) {}

void run_ranks(int n, const std::function<void(Rank&)>& body, const RanksOptions& options) {
  (void)DeviceMemory::host();  // sets the environment of LibTorch's libraries, which every thread reads
  at::set_num_threads(1);
  const auto rendezvous = Rendezvous::in_process();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(n));
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      at::set_num_threads(1);  // the setting belongs to the thread
      try {
        const World world{.rank = r, .size = n, .local_rank = r, .local_size = n, .source = "threads"};
        ConnectOptions connect_options{
            .transport = options.transport, .patience = options.patience, .rendezvous_patience = options.patience};
        if (options.device) connect_options.device = options.device(r);
        if (gpu_of(connect_options.device)) {
          connect_options.transport = Transport::kAuto;
          stand_on_gpu(connect_options.device);
        }
        if (options.agent != nullptr) connect_options.recorder = adopted(*options.agent, world);
        Rank rank(world, n == 1 ? connect(world, connect_options) : connect_over(world, *rendezvous, connect_options));
        body(rank);
      } catch (...) {
        errors[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  }
  threads.clear();  // joins
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace lockstep
