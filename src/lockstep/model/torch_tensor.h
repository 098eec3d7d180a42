// One tensor of torch.save's pickle: which storage, and where in it. Sizes, strides and offsets are a stranger's numbers
// and are held against the storage's bytes here.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/model/pickle.h"
#include "lockstep/model/stored_tensor.h"
#include "lockstep/model/zip_members.h"

namespace lockstep {

/// What torch.save's pickle of a dict of tensors may speak of. They are compared, never looked up.
std::span<const std::string_view> torch_names();

/// Whether `node` is an OrderedDict as it is pickled, or a dict.
bool is_dict(const Pickle& pickle, const Pickle::Node& node);

/// The member of a storage's key, nullptr when there is none; `dtype`: what its elements are said to be.
using StorageOf = std::function<const ZipMember*(std::string_view key, Dtype dtype)>;

/// The tensor that `value` describes. `who`: the file and the tensor, for messages. Throws UserError(kCheckpoint): no tensor, an unknown dtype, sizes or bytes that
/// cannot be.
StoredTensor torch_tensor(const Pickle& pickle, const Pickle::Node& value, const std::string& name,
                          const std::string& who, const StorageOf& storage_of);

}  // namespace lockstep
