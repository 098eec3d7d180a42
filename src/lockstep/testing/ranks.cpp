#include "lockstep/testing/ranks.h"

#include <exception>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>

#include "lockstep/comm/rendezvous.h"

namespace lockstep {

Rank::Rank(World world, CommSetup setup) : world_(std::move(world)), setup_(std::move(setup)) {}

void run_ranks(int n, const std::function<void(Rank&)>& body, const RanksOptions& options) {
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
        const ConnectOptions connect_options{
            .transport = options.transport, .patience = options.patience, .rendezvous_patience = options.patience};
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
