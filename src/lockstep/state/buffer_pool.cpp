#include "lockstep/state/buffer_pool.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <sys/mman.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

/// Sizes grow by an eighth at most, so that blocks are reused without much waste.
size_t size_class(size_t bytes) {
  size_t quantum = 4096;
  while (quantum * 16 < bytes) quantum *= 2;
  return (std::max<size_t>(bytes, 1) + quantum - 1) / quantum * quantum;
}

void* map_block(size_t bytes) {
  void* block = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) throw std::bad_alloc();
  if (bytes >= (size_t{1} << 21)) ::madvise(block, bytes, MADV_HUGEPAGE);
  return block;
}

}  // namespace

struct BufferPool::Impl : std::enable_shared_from_this<BufferPool::Impl> {
  struct Block {
    std::shared_ptr<Impl> home;
    void* data;
    size_t bytes;
  };

  explicit Impl(const std::string& name) : device_name(name), device(name) {}
  ~Impl() { trim(); }

  void* take_block(size_t bytes) {
    const std::lock_guard lock(mutex);  // guards free, alive, peak
    alive += static_cast<int64_t>(bytes);
    peak = std::max(peak, alive);
    auto& list = free[bytes];
    if (list.empty()) return map_block(bytes);
    void* block = list.back();
    list.pop_back();
    return block;
  }

  void give_block(void* data, size_t bytes) {
    const std::lock_guard lock(mutex);
    alive -= static_cast<int64_t>(bytes);
    free[bytes].push_back(data);
  }

  void trim() {
    const std::lock_guard lock(mutex);
    for (auto& [bytes, list] : free) {
      for (void* block : list) ::munmap(block, bytes);
    }
    free.clear();
  }

  static void free_block(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    block->home->give_block(block->data, block->bytes);
  }

  at::DataPtr allocate(size_t bytes) {
    if (!device.is_cpu()) return c10::GetAllocator(device.type())->allocate(bytes);
    const size_t rounded = size_class(bytes);
    auto block = std::make_unique<Block>(Block{shared_from_this(), take_block(rounded), rounded});
    void* data = block->data;
    return {data, block.release(), &free_block, device};
  }

  std::string device_name;
  c10::Device device;
  std::mutex mutex;
  std::map<size_t, std::vector<void*>> free;
  int64_t alive = 0, peak = 0;
};

BufferPool::BufferPool(const std::string& device) : impl_(std::make_shared<Impl>(device)) {}
BufferPool::~BufferPool() { impl_->trim(); }

Tensor BufferPool::take(int64_t numel, Dtype dtype) {
  Tensor tensor = hollow(numel, dtype);
  refill(tensor);
  return tensor;
}

Tensor BufferPool::hollow(int64_t numel, Dtype dtype) const {
  const auto options =
      at::TensorOptions().dtype(static_cast<at::ScalarType>(scalar_type_of(dtype))).device(impl_->device);
  Tensor tensor = at::empty({0}, options);
  const auto bytes = static_cast<size_t>(numel * dtype_bytes(dtype));
  // Not resizable: a resizable storage would need an allocator of its own.
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(nullptr, impl_->device), nullptr, false);
  tensor.set_(storage, 0, {numel}, {1});
  return tensor;
}

void BufferPool::refill(const Tensor& tensor) const {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(impl_->allocate(storage->nbytes()));
}

void BufferPool::drop(const Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, storage->device()));
}

int64_t BufferPool::alive_bytes() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->alive;
}

int64_t BufferPool::peak_bytes() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->peak;
}

void BufferPool::reset_peak() {
  const std::lock_guard lock(impl_->mutex);
  impl_->peak = impl_->alive;
}

void BufferPool::trim() { impl_->trim(); }
const std::string& BufferPool::device() const { return impl_->device_name; }

}  // namespace lockstep
