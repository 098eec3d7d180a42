// Attention of answers on GPUs: one more token for all rows of a cache at once, in one kernel, or two where a row is long. It
// stands behind gpu_kernels.cuh, whose words it uses, and needs two more:
//   memory_at<T>(address)      the device's memory, whose address stands in a tensor
//   LOCKSTEP_UNROLL            before a loop whose steps are to be written out: what it numbers stays in registers

/// Rows whose keys and values stand in a cache (gpu::HeldRows): of each in `table` where its keys and where its values stand,
/// [kv_heads, room, dim] both; its tokens when that was written, -1 where no row is; room. `steps` tokens more are there now.
struct Held {
  const Long* table;
  Long steps, window, heads, kv_heads, dim, parts;

  LOCKSTEP_DEVICE Long tokens(Long row) const { return table[4 * row + 2] < 0 ? 0 : table[4 * row + 2] + steps; }
  /// That the last query sees.
  LOCKSTEP_DEVICE Long first(Long row) const {
    const Long all = tokens(row);
    return window > 0 && all > window ? all - window : 0;
  }
};

constexpr int kKeysOfPart = 256;  // that a block has at most, whatever rows stand beside: a row's sums are its own
constexpr int kMostHeads = 8;     // queries of a block, which see the same keys
constexpr int kMostHeadDim = 256;

/// What the new token of each row brings: queries, key and value, `dim` numbers a head, one head behind the other. Where there are
/// tables cos, sin [table_rows, dim], the first half again behind it, queries and keys are turned by them, and rounded.
template <typename T>
struct Brought {
  const T *q, *k, *v;
  Long q_stride, kv_stride;  // from a row to the next
  const float *cos, *sin;    // null: as they are
  Long table_rows;

  LOCKSTEP_DEVICE float turned(const T* head, Long c, Long row, Long dim) const {
    if (cos == nullptr) return number(head[c]);
    const Long half = dim / 2, at = row % table_rows * dim + c;
    const float other = c < half ? -number(head[c + half]) : number(head[c - half]);
    T rounded;
    round_to(rounded, number(head[c]) * cos[at] + other * sin[at]);
    return number(rounded);
  }
};

/// What a block has: `heads` queries of a row from `head` on, and keys [begin, end) of the head that they share.
struct Part {
  Long row, kv_head, head, part, begin, end;
  int heads;
  bool is_last;  // the row's new token is among its keys

  LOCKSTEP_DEVICE int keys() const { return static_cast<int>(end - begin); }
};

LOCKSTEP_DEVICE Part part_of(const Held& held) {
  const Long sharing = held.heads / held.kv_heads, bundles = (sharing + kMostHeads - 1) / kMostHeads;
  const Long bundle = block_x() % bundles, left = sharing - bundle * kMostHeads;
  Part out;
  out.kv_head = block_x() / bundles % held.kv_heads;
  out.row = block_x() / bundles / held.kv_heads;
  out.head = out.kv_head * sharing + bundle * kMostHeads;
  out.heads = static_cast<int>(left < kMostHeads ? left : kMostHeads);
  out.part = block_y();
  const Long begin = out.part * kKeysOfPart, end = begin + kKeysOfPart;
  const Long first = held.first(out.row), tokens = held.tokens(out.row);
  out.begin = begin > first ? begin : first;
  out.end = end < tokens ? end : tokens;
  out.is_last = out.end == tokens;
  return out;
}

/// Of a block: its queries in float32, a score for each query and key, and room where its threads meet.
struct Memory {
  float *query, *score, *met;
};

/// met[h][thread] of all threads become one number each, met[h][0].
template <typename Join>
LOCKSTEP_DEVICE void join_threads(const Memory& at, int heads, const Join& join) {
  for (int half = threads() / 2; half > 0; half /= 2) {
    all_here();
    for (int h = 0; thread() < half && h < heads; ++h) {
      float* const mine = at.met + h * kKeysOfPart + thread();
      *mine = join(*mine, mine[half]);
    }
  }
  all_here();
}

/// Scores of the block's keys.
template <typename T, int W>
LOCKSTEP_DEVICE void score_keys(const T* keys, const Memory& at, const Part& part, Long dim) {
  for (int j = thread(); j < part.keys(); j += threads()) {
    float dot[kMostHeads] = {};
    for (Long c = 0; c < dim; c += W) {
      const auto key = load<T, W>(keys + (part.begin + j) * dim + c);
      for (int i = 0; i < W; ++i) {
        for (int h = 0; h < kMostHeads; ++h) {
          if (h < part.heads) dot[h] += at.query[h * dim + c + i] * number(key.at[i]);
        }
      }
    }
    for (int h = 0; h < kMostHeads; ++h) {
      if (h < part.heads) at.score[h * kKeysOfPart + j] = dot[h];
    }
  }
  all_here();
}

/// Scores become weights e^(score - most); the largest score and the sum of weights of each query.
LOCKSTEP_DEVICE void weigh_keys(const Memory& at, const Part& part, float* most, float* sum) {
  for (int h = 0; h < part.heads; ++h) {
    float mine = -3.0e38F;
    for (int j = thread(); j < part.keys(); j += threads()) {
      const float one = at.score[h * kKeysOfPart + j];
      mine = one > mine ? one : mine;
    }
    at.met[h * kKeysOfPart + thread()] = mine;
  }
  join_threads(at, part.heads, [](float a, float b) { return a > b ? a : b; });
  LOCKSTEP_UNROLL
  for (int h = 0; h < kMostHeads; ++h) most[h] = h < part.heads ? at.met[h * kKeysOfPart] : 0.0F;
  all_here();
  LOCKSTEP_UNROLL
  for (int h = 0; h < kMostHeads; ++h) {
    float mine = 0.0F;
    for (int j = thread(); h < part.heads && j < part.keys(); j += threads()) {
      float* const one = at.score + h * kKeysOfPart + j;
      *one = expf(*one - most[h]);
      mine += *one;
    }
    at.met[h * kKeysOfPart + thread()] = mine;
  }
  join_threads(at, part.heads, [](float a, float b) { return a + b; });
  LOCKSTEP_UNROLL
  for (int h = 0; h < kMostHeads; ++h) sum[h] = h < part.heads ? at.met[h * kKeysOfPart] : 1.0F;
}

/// say(query, column, sum of weight * value), of all of the block's. A thread has W columns of every `sets`-th key; where there are
/// fewer threads than columns it has several of them, and all keys.
template <typename T, int W, typename Say>
LOCKSTEP_DEVICE void sum_values(const T* values, const Memory& at, const Part& part, Long dim, const Say& say) {
  const int lanes = static_cast<int>(dim) / W, sets = threads() < lanes ? 1 : threads() / lanes;
  int item = thread();
  do {
    const bool works = item < lanes * sets;
    const int column = item % lanes * W, set = item / lanes;
    float all[kMostHeads][W] = {};
    for (int j = set; works && j < part.keys(); j += sets) {
      const auto value = load<T, W>(values + (part.begin + j) * dim + column);
      for (int h = 0; h < kMostHeads; ++h) {
        const float weight = h < part.heads ? at.score[h * kKeysOfPart + j] : 0.0F;
        for (int i = 0; i < W; ++i) all[h][i] += weight * number(value.at[i]);
      }
    }
    LOCKSTEP_UNROLL
    for (int h = 0; h < kMostHeads; ++h) {
      if (h >= part.heads) continue;
      if (sets == 1) {
        for (int i = 0; works && i < W; ++i) say(h, column + i, all[h][i]);
        continue;
      }
      all_here();
      for (int i = 0; works && i < W; ++i) at.met[set * dim + column + i] = all[h][i];
      all_here();
      for (int c = thread(); c < dim; c += threads()) {
        float whole = 0.0F;
        for (int s = 0; s < sets; ++s) whole += at.met[s * dim + c];
        say(h, c, whole);
      }
    }
    item += threads();
  } while (item < lanes * sets);
}

/// One query a row, behind its token's key and value, which are kept. out [rows, heads, dim] := the result where there is one part;
/// else found [rows, heads, parts, 2 + dim]: the largest score, the sum of e^(score - largest), and that of the values by these.
template <typename T, int W>
LOCKSTEP_DEVICE void attend_one(const Brought<T>& brought, T* out, float* found, const Held& held, float scale) {
  LOCKSTEP_SHARED float query[kMostHeads * kMostHeadDim];
  LOCKSTEP_SHARED float score[kMostHeads * kKeysOfPart];
  LOCKSTEP_SHARED float met[kMostHeads * kKeysOfPart];
  const Memory at{query, score, met};
  const Part part = part_of(held);
  const Long dim = held.dim, first_head = part.row * held.heads + part.head;
  if (part.end == 0) {  // no row is there
    for (Long i = thread(); part.part == 0 && i < part.heads * dim; i += threads()) {
      round_to(out[first_head * dim + i], 0.0F);
    }
    return;
  }
  if (part.begin >= part.end) return;
  const Long at_head = part.kv_head * held.table[4 * part.row + 3] * dim;
  T* const keys = memory_at<T>(held.table[4 * part.row]) + at_head;
  T* const values = memory_at<T>(held.table[4 * part.row + 1]) + at_head;
  const Long at_new = part.row * brought.kv_stride + part.kv_head * dim;
  for (Long c = thread(); part.is_last && c < dim; c += threads()) {
    round_to(keys[(part.end - 1) * dim + c], brought.turned(brought.k + at_new, c, part.row, dim));
    values[(part.end - 1) * dim + c] = brought.v[at_new + c];
  }
  const T* const queries = brought.q + part.row * brought.q_stride + part.head * dim;
  for (Long i = thread(); i < part.heads * dim; i += threads()) {
    query[i] = brought.turned(queries + i / dim * dim, i % dim, part.row, dim) * scale;
  }
  all_here();
  score_keys<T, W>(keys, at, part, dim);
  float most[kMostHeads], sum[kMostHeads];
  weigh_keys(at, part, most, sum);
  sum_values<T, W>(values, at, part, dim, [&](int h, Long c, float whole) {
    const Long head = first_head + h;
    if (held.parts == 1) return round_to(out[head * dim + c], whole / sum[h]);
    float* const of_part = found + (head * held.parts + part.part) * (dim + 2);
    of_part[2 + c] = whole;
    if (c == 0) of_part[0] = most[h], of_part[1] = sum[h];
  });
}

/// out [rows, heads, dim] of what attend_one has found of each part; a block has a head of a row.
template <typename T, int W>
LOCKSTEP_DEVICE void attend_join(const float* found, T* out, const Held& held) {
  const Long row = block_x() / held.heads, stride = held.dim + 2, tokens = held.tokens(row);
  if (tokens == 0) return;  // zeros are there
  const Long begin = held.first(row) / kKeysOfPart, end = (tokens + kKeysOfPart - 1) / kKeysOfPart;
  const float* const of_head = found + block_x() * held.parts * stride;
  float most = of_head[begin * stride];
  for (Long p = begin + 1; p < end; ++p) most = of_head[p * stride] > most ? of_head[p * stride] : most;
  for (Long c = thread(); c < held.dim; c += threads()) {
    float sum = 0.0F, whole = 0.0F;
    for (Long p = begin; p < end; ++p) {
      const float weight = expf(of_head[p * stride] - most);
      sum += of_head[p * stride + 1] * weight;
      whole += of_head[p * stride + 2 + c] * weight;
    }
    round_to(out[block_x() * held.dim + c], whole / sum);
  }
}
