// Kernels for GPUs, in the C++ that NVRTC and a host's compiler both read: the CUDA library compiles this text for the GPU that
// is there (cuda/kernel_launcher.cpp), the tests' fake GPU for the host (testing/fake_gpu/kernels.cpp). Sums in float32, rounded
// once, as the CPU's row kernels have it (kernels.h).
//
// Whoever includes it says before:
//   LOCKSTEP_KERNEL, LOCKSTEP_DEVICE, LOCKSTEP_SHARED    what stands before a kernel, a function and a block's memory
//   LOCKSTEP_KERNEL_OF(threads)    before a kernel of larger blocks: its threads must find registers
//   block_x(), block_y(), thread(), threads(), all_here()   where this thread stands, how many its block has, their barrier
//   bits_of(), float_of(), half_of(), float_of_half()    numbers and their bits
//
// A kernel of rows has a row a block in x, and columns in y; one of numbers has them in x. `W` numbers are read at a time.

using Long = long long;  // NOLINT(google-runtime-int): one size for both compilers

struct Bf16 {
  unsigned short bits;  // NOLINT(google-runtime-int)
};
struct F16 {
  unsigned short bits;  // NOLINT(google-runtime-int)
};

template <typename T, int W>
struct alignas(sizeof(T) * W) Pack {
  T at[W];
};

LOCKSTEP_DEVICE float number(float x) { return x; }
LOCKSTEP_DEVICE float number(Bf16 x) { return float_of(static_cast<unsigned>(x.bits) << 16); }
LOCKSTEP_DEVICE float number(F16 x) { return float_of_half(x.bits); }

LOCKSTEP_DEVICE void round_to(float& to, float x) { to = x; }
LOCKSTEP_DEVICE void round_to(F16& to, float x) { to.bits = half_of(x); }
/// To the nearest, of two to the even one; NaN stays NaN.
LOCKSTEP_DEVICE void round_to(Bf16& to, float x) {
  const unsigned bits = bits_of(x);
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  to.bits = static_cast<decltype(to.bits)>(nan ? 0x7FC0U : (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

template <typename T, int W>
LOCKSTEP_DEVICE Pack<T, W> load(const T* from) {
  return *reinterpret_cast<const Pack<T, W>*>(from);
}
template <typename T, int W>
LOCKSTEP_DEVICE void store(T* to, const Pack<T, W>& pack) {
  *reinterpret_cast<Pack<T, W>*>(to) = pack;
}

LOCKSTEP_DEVICE Long column(int width) { return (static_cast<Long>(block_y()) * threads() + thread()) * width; }
LOCKSTEP_DEVICE Long place(int width) { return (static_cast<Long>(block_x()) * threads() + thread()) * width; }

/// gate_up [rows, 2 * dim] -> y [rows, dim].
template <typename T, int W>
LOCKSTEP_DEVICE void swiglu(const T* gate_up, T* y, Long dim) {
  const Long row = block_x(), at = column(W);
  if (at >= dim) return;
  const auto gate = load<T, W>(gate_up + row * 2 * dim + at), up = load<T, W>(gate_up + row * 2 * dim + dim + at);
  Pack<T, W> out;
  for (int i = 0; i < W; ++i) {
    const float g = number(gate.at[i]);
    round_to(out.at[i], g / (1.0F + expf(-g)) * number(up.at[i]));
  }
  store(y + row * dim + at, out);
}

template <typename T, int W>
LOCKSTEP_DEVICE void swiglu_backward(const T* grad, const T* gate_up, T* d_gate_up, Long dim) {
  const Long row = block_x(), at = column(W);
  if (at >= dim) return;
  const auto dy = load<T, W>(grad + row * dim + at);
  const auto gate = load<T, W>(gate_up + row * 2 * dim + at), up = load<T, W>(gate_up + row * 2 * dim + dim + at);
  Pack<T, W> d_gate, d_up;
  for (int i = 0; i < W; ++i) {
    const float g = number(gate.at[i]), d = number(dy.at[i]), s = 1.0F / (1.0F + expf(-g));
    round_to(d_up.at[i], d * g * s);
    round_to(d_gate.at[i], d * number(up.at[i]) * s * (1.0F + g * (1.0F - s)));
  }
  store(d_gate_up + row * 2 * dim + at, d_gate);
  store(d_gate_up + row * 2 * dim + dim + at, d_up);
}

/// Of a token: N query heads, K key heads, K value heads of H numbers each; cos, sin [table_rows, H], the first again behind
/// the last.
struct Heads {
  Long heads, kv_heads, dim, table_rows;
  LOCKSTEP_DEVICE Long width() const { return (heads + 2 * kv_heads) * dim; }
};

/// A part of both halves of a head that is turned.
template <typename T, int W, bool back>
LOCKSTEP_DEVICE void turn(const T* from, T* to, const float* cos, const float* sin, Long half) {
  const auto a = load<T, W>(from), b = load<T, W>(from + half);
  Pack<T, W> x, y;
  for (int i = 0; i < W; ++i) {
    const float p = number(a.at[i]), q = number(b.at[i]);
    const float s1 = back ? sin[half + i] : -sin[i], s2 = back ? -sin[i] : sin[half + i];
    round_to(x.at[i], p * cos[i] + q * s1);
    round_to(y.at[i], q * cos[half + i] + p * s2);
  }
  store(to, x);
  store(to + half, y);
}

/// Between a fused projection [tokens, width] and q [tokens, N, H], k, v [tokens, K, H]; `back`: from these to its gradient.
template <typename T, int W, bool back>
LOCKSTEP_DEVICE void heads_of(T* fused, T* q, T* k, T* v, const float* cos, const float* sin, const Heads& shape) {
  const Long token = block_x(), half = shape.dim / 2, lanes = half / W, item = column(1);
  const Long head = item / lanes, at = item % lanes * W;
  if (head >= shape.heads + 2 * shape.kv_heads) return;
  T* const whole = fused + token * shape.width() + head * shape.dim + at;
  const Long key = head - shape.heads, value = key - shape.kv_heads;
  T* const part = (key < 0     ? q + (token * shape.heads + head) * shape.dim
                   : value < 0 ? k + (token * shape.kv_heads + key) * shape.dim
                               : v + (token * shape.kv_heads + value) * shape.dim) +
                  at;
  const T* const from = back ? part : whole;
  T* const to = back ? whole : part;
  if (value < 0) {
    const Long row = token % shape.table_rows * shape.dim + at;
    turn<T, W, back>(from, to, cos + row, sin + row, half);
  } else {
    store(to, load<T, W>(from));
    store(to + half, load<T, W>(from + half));
  }
}

constexpr int kRowThreads = 1024;  // of a block that has a row, at most

/// sum := x + y, rounded; norm := sum * w / the root of the mean of its squares and epsilon. A block has a row of `dim`.
template <typename T, int W>
LOCKSTEP_DEVICE void add_norm(const T* x, const T* y, const T* w, T* sum, T* norm, Long dim, float epsilon) {
  LOCKSTEP_SHARED float met[kRowThreads];
  const Long row = block_x() * dim, step = static_cast<Long>(threads()) * W;
  float squares = 0.0F;
  for (Long c = thread() * W; c < dim; c += step) {
    const auto a = load<T, W>(x + row + c), b = load<T, W>(y + row + c);
    Pack<T, W> out;
    for (int i = 0; i < W; ++i) {
      round_to(out.at[i], number(a.at[i]) + number(b.at[i]));
      squares += number(out.at[i]) * number(out.at[i]);
    }
    store(sum + row + c, out);
  }
  met[thread()] = squares;
  for (int half = threads() / 2; half > 0; half /= 2) {
    all_here();
    if (thread() < half) met[thread()] += met[thread() + half];
  }
  all_here();
  const float by = 1.0F / sqrtf(met[0] / static_cast<float>(dim) + epsilon);
  for (Long c = thread() * W; c < dim; c += step) {  // those that this thread has written
    const auto all = load<T, W>(sum + row + c), weight = load<T, W>(w + c);
    Pack<T, W> out;
    for (int i = 0; i < W; ++i) round_to(out.at[i], number(all.at[i]) * by * number(weight.at[i]));
    store(norm + row + c, out);
  }
}

/// What a thread has seen of a row of logits: the largest, the first that is so large, and the sum of e^(x - largest).
struct Seen {
  float most, sum;
  Long at;
};

LOCKSTEP_DEVICE Seen both(const Seen& a, const Seen& b) {
  const float most = a.most > b.most ? a.most : b.most;
  const bool first = a.most > b.most || (a.most == b.most && a.at < b.at);
  return {most, a.sum * expf(a.most - most) + b.sum * expf(b.most - most), first ? a.at : b.at};
}

/// Cross entropy of a row; it becomes weight * (softmax - one_hot) when `grads` is set, zeros where the target is below 0.
template <typename T, int W>
LOCKSTEP_DEVICE void cross_entropy(T* logits, const Long* targets, double* losses, unsigned char* hits, Long dim,
                                   float weight, Long grads) {
  LOCKSTEP_SHARED Seen seen[kRowThreads];
  const Long row = block_x(), target = targets[row], step = static_cast<Long>(threads()) * W;
  T* const x = logits + row * dim;
  if (target < 0) {
    Pack<T, W> zeros;
    for (int i = 0; i < W; ++i) round_to(zeros.at[i], 0.0F);
    for (Long c = thread() * W; grads != 0 && c < dim; c += step) store(x + c, zeros);
    if (thread() == 0) losses[row] = 0, hits[row] = 0;
    return;
  }
  Seen mine{-3.0e38F, 0.0F, dim};
  for (Long c = thread() * W; c < dim; c += step) {
    const auto pack = load<T, W>(x + c);
    for (int i = 0; i < W; ++i) {
      const float value = number(pack.at[i]);
      if (value > mine.most) {
        mine = {value, mine.sum * expf(mine.most - value) + 1.0F, c + i};
      } else {
        mine.sum += expf(value - mine.most);
      }
    }
  }
  seen[thread()] = mine;
  for (int half = threads() / 2; half > 0; half /= 2) {
    all_here();
    if (thread() < half) seen[thread()] = both(seen[thread()], seen[thread() + half]);
  }
  all_here();
  const Seen all = seen[0];
  if (thread() == 0) {
    losses[row] =
        log(static_cast<double>(all.sum)) + (static_cast<double>(all.most) - static_cast<double>(number(x[target])));
    hits[row] = all.at == target ? 1 : 0;
  }
  all_here();  // before the target's logit is written
  const float scale = weight / all.sum;
  for (Long c = thread() * W; grads != 0 && c < dim; c += step) {
    auto pack = load<T, W>(x + c);
    for (int i = 0; i < W; ++i) {
      const float p = expf(number(pack.at[i]) - all.most) * scale;
      round_to(pack.at[i], c + i == target ? p - weight : p);
    }
    store(x + c, pack);
  }
}

/// to := from, or += when `adds`.
template <typename T, int W>
LOCKSTEP_DEVICE void accumulate(float* to, const T* from, Long count, Long adds) {
  const Long at = place(W);
  if (at >= count) return;
  const auto pack = load<T, W>(from + at);
  Pack<float, W> sum;
  if (adds != 0) sum = load<float, W>(to + at);
  for (int i = 0; i < W; ++i) sum.at[i] = (adds != 0 ? sum.at[i] : 0.0F) + number(pack.at[i]);
  store(to + at, sum);
}

/// The same of up to four, each the y of its blocks: gradients so small that a launch costs more than they do.
template <typename T, int W>
LOCKSTEP_DEVICE void accumulate_few(float* to0, const T* from0, Long count0, float* to1, const T* from1, Long count1,
                                    float* to2, const T* from2, Long count2, float* to3, const T* from3, Long count3,
                                    Long adds) {
  const Long which = block_y();
  if (which == 0) accumulate<T, W>(to0, from0, count0, adds);
  if (which == 1) accumulate<T, W>(to1, from1, count1, adds);
  if (which == 2) accumulate<T, W>(to2, from2, count2, adds);
  if (which == 3) accumulate<T, W>(to3, from3, count3, adds);
}

/// x *= by, one number on the device.
template <typename T, int W>
LOCKSTEP_DEVICE void scale(T* x, const float* by, Long count) {
  const Long at = place(W);
  if (at >= count) return;
  auto pack = load<T, W>(x + at);
  for (int i = 0; i < W; ++i) round_to(pack.at[i], number(pack.at[i]) * *by);
  store(x + at, pack);
}

/// Splitmix64 at a place of a sequence (kernels_rows.h); to = x * scale where its upper half reaches `threshold`, else 0.
template <typename T, int W>
LOCKSTEP_DEVICE void drop(T* to, const T* x, Long count, Long key, Long threshold, float scale) {
  using Bits = unsigned long long;  // NOLINT(google-runtime-int)
  const Long at = place(W);
  if (at >= count) return;
  auto pack = load<T, W>(x + at);
  for (int i = 0; i < W; ++i) {
    Bits z = static_cast<Bits>(key) + static_cast<Bits>(at + i + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    z ^= z >> 31;
    round_to(pack.at[i], (z >> 32) >= static_cast<Bits>(threshold) ? number(pack.at[i]) * scale : 0.0F);
  }
  store(to + at, pack);
}

/// AdamW: keep = 1 - rate * decay; step_size and root_correction are corrected for the moments' beginning. `weights`, unless
/// null, become the new master, rounded.
template <typename T, int W>
LOCKSTEP_DEVICE void adamw(T* weights, float* master, const float* grad, float* exp_avg, float* exp_avg_sq, Long count,
                           float keep, float step_size, float beta1, float beta2, float epsilon, float root_correction,
                           float divisor) {
  const Long at = place(W);
  if (at >= count) return;
  const auto g = load<float, W>(grad + at);
  auto p = load<float, W>(master + at), m = load<float, W>(exp_avg + at), v = load<float, W>(exp_avg_sq + at);
  for (int i = 0; i < W; ++i) {
    const float d = g.at[i] / divisor;
    m.at[i] = beta1 * m.at[i] + (1.0F - beta1) * d;
    v.at[i] = beta2 * v.at[i] + (1.0F - beta2) * d * d;
    p.at[i] = p.at[i] * keep - step_size * m.at[i] / (sqrtf(v.at[i]) / root_correction + epsilon);
  }
  store(exp_avg + at, m);
  store(exp_avg_sq + at, v);
  store(master + at, p);
  if (weights == nullptr) return;
  Pack<T, W> rounded;
  for (int i = 0; i < W; ++i) round_to(rounded.at[i], p.at[i]);
  store(weights + at, rounded);
}

// NOLINTBEGIN(bugprone-macro-parentheses): names and types
#define LOCKSTEP_INSTANCES(T, W, NAME)                                                                               \
  LOCKSTEP_KERNEL swiglu_##NAME(const T* gate_up, T* y, Long dim) { swiglu<T, W>(gate_up, y, dim); }                 \
  LOCKSTEP_KERNEL swiglu_backward_##NAME(const T* grad, const T* gate_up, T* d_gate_up, Long dim) {                  \
    swiglu_backward<T, W>(grad, gate_up, d_gate_up, dim);                                                            \
  }                                                                                                                  \
  LOCKSTEP_KERNEL split_heads_##NAME(T* fused, T* q, T* k, T* v, const float* cos, const float* sin, Long heads,     \
                                     Long kv_heads, Long dim, Long table_rows) {                                     \
    heads_of<T, W, false>(fused, q, k, v, cos, sin, {heads, kv_heads, dim, table_rows});                             \
  }                                                                                                                  \
  LOCKSTEP_KERNEL join_heads_##NAME(T* fused, T* q, T* k, T* v, const float* cos, const float* sin, Long heads,      \
                                    Long kv_heads, Long dim, Long table_rows) {                                      \
    heads_of<T, W, true>(fused, q, k, v, cos, sin, {heads, kv_heads, dim, table_rows});                              \
  }                                                                                                                  \
  LOCKSTEP_KERNEL add_norm_##NAME(const T* x, const T* y, const T* w, T* sum, T* norm, Long dim, float epsilon) {    \
    add_norm<T, W>(x, y, w, sum, norm, dim, epsilon);                                                                \
  }                                                                                                                  \
  LOCKSTEP_KERNEL_OF(kRowThreads)                                                                                    \
  cross_entropy_##NAME(T* logits, const Long* targets, double* losses, unsigned char* hits, Long dim, float weight,  \
                       Long grads) {                                                                                 \
    cross_entropy<T, W>(logits, targets, losses, hits, dim, weight, grads);                                          \
  }                                                                                                                  \
  LOCKSTEP_KERNEL accumulate_##NAME(float* to, const T* from, Long count, Long adds) {                               \
    accumulate<T, W>(to, from, count, adds);                                                                         \
  }                                                                                                                  \
  LOCKSTEP_KERNEL accumulate_few_##NAME(float* to0, const T* from0, Long count0, float* to1, const T* from1,         \
                                        Long count1, float* to2, const T* from2, Long count2, float* to3,            \
                                        const T* from3, Long count3, Long adds) {                                    \
    accumulate_few<T, W>(to0, from0, count0, to1, from1, count1, to2, from2, count2, to3, from3, count3, adds);      \
  }                                                                                                                  \
  LOCKSTEP_KERNEL scale_##NAME(T* x, const float* by, Long count) { scale<T, W>(x, by, count); }                     \
  LOCKSTEP_KERNEL drop_##NAME(T* to, const T* x, Long count, Long key, Long threshold, float scale) {                \
    drop<T, W>(to, x, count, key, threshold, scale);                                                                 \
  }                                                                                                                  \
  LOCKSTEP_KERNEL attend_one_##NAME(const T* q, const T* k, const T* v, Long q_stride, Long kv_stride,               \
                                    const float* cos, const float* sin, Long table_rows, T* out, float* found,       \
                                    const Long* table, Long steps, Long window, Long heads, Long kv_heads, Long dim, \
                                    Long parts, float scale) {                                                       \
    attend_one<T, W>({q, k, v, q_stride, kv_stride, cos, sin, table_rows}, out, found,                               \
                     {table, steps, window, heads, kv_heads, dim, parts}, scale);                                    \
  }                                                                                                                  \
  LOCKSTEP_KERNEL attend_join_##NAME(const float* found, T* out, const Long* table, Long steps, Long window,         \
                                     Long heads, Long kv_heads, Long dim, Long parts) {                              \
    attend_join<T, W>(found, out, {table, steps, window, heads, kv_heads, dim, parts});                              \
  }                                                                                                                  \
  LOCKSTEP_KERNEL adamw_##NAME(T* weights, float* master, const float* grad, float* exp_avg, float* exp_avg_sq,      \
                               Long count, float keep, float step_size, float beta1, float beta2, float epsilon,     \
                               float root_correction, float divisor) {                                               \
    adamw<T, W>(weights, master, grad, exp_avg, exp_avg_sq, count, keep, step_size, beta1, beta2, epsilon,           \
                root_correction, divisor);                                                                           \
  }

// Of these a text for a GPU says one, which takes half a second to compile, and a host's all.
#define LOCKSTEP_f32_wide LOCKSTEP_INSTANCES(float, 4, f32_wide)
#define LOCKSTEP_f32 LOCKSTEP_INSTANCES(float, 1, f32)
#define LOCKSTEP_bf16_wide LOCKSTEP_INSTANCES(Bf16, 8, bf16_wide)
#define LOCKSTEP_bf16 LOCKSTEP_INSTANCES(Bf16, 1, bf16)
#define LOCKSTEP_f16_wide LOCKSTEP_INSTANCES(F16, 8, f16_wide)
#define LOCKSTEP_f16 LOCKSTEP_INSTANCES(F16, 1, f16)
// NOLINTEND(bugprone-macro-parentheses)
