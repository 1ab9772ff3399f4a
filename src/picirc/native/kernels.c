/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of the engine for single precision, each one pass over memory.

   Next to each call in Python there is an equivalent in PyTorch, for when `kernels_for` returns None. Arrays are
   contiguous, with the batch as the last axis. */

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 64      /* data points at a time: with 128 states they fit into the first-level cache */
#define ARITY 16      /* the largest number of parts of a mixture */
#define LEAST -87.3f  /* exponentials of smaller numbers are zero */
#define LANES 16      /* of a vector */
#define SMALL 16384   /* elements below which one thread is faster */

/* ---- threads: those of PyTorch, because a second team would compete with them ---- */

typedef void (*Fork)(void (*)(void *), void *, unsigned, unsigned); /* GOMP_parallel */
typedef void (*Loop)(const void *task, int64_t begin, int64_t end);

typedef struct {
    Loop loop;
    const void *task;
    int64_t items;
    int threads;
    atomic_int arrived;
} Team;

static Fork fork_team = 0;

void picirc_use_threads(void *fork) { fork_team = (Fork)fork; }

static void work(void *data) {
    Team *team = data;
    int64_t number = atomic_fetch_add(&team->arrived, 1);
    for (; number < team->threads; number = atomic_fetch_add(&team->arrived, 1))
        team->loop(team->task, team->items * number / team->threads, team->items * (number + 1) / team->threads);
}

static void run(Loop loop, const void *task, int64_t items, int64_t elements, int threads) {
    if (!fork_team || threads < 2 || elements < SMALL) {
        loop(task, 0, items);
        return;
    }
    Team team = {loop, task, items, threads, 0};
    fork_team(work, &team, (unsigned)threads, 0);
}

/* ---- exponential and logarithm: minimax polynomials that compilers can vectorise ---- */

static inline float from_bits(int32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline int32_t to_bits(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* e^x for −87.3 < x < 88.7; NaN stays NaN. */
static inline float exponential(float x) {
    float whole = rintf(x * 0x1.715476p0f);
    float r = fmaf(whole, -0x1.62e4p-1f, x);
    r = fmaf(whole, -0x1.7f7d1cp-20f, r);
    float p = fmaf(r, 0x1.6a2454p-10f, 0x1.1239d4p-7f);
    p = fmaf(p, r, 0x1.5558f2p-5f);
    p = fmaf(p, r, 0x1.555492p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    float value = fmaf(p * r, r, r) + 1.0f;
    return value * from_bits((int32_t)(((uint32_t)(int32_t)whole + 127u) << 23));
}

/* log x for a normal number x. */
static inline float logarithm(float x) {
    int32_t bits = to_bits(x);
    int32_t exponent = (bits - 0x3f3504f3) >> 23; /* the mantissa is between √½ and √2 */
    float f = from_bits(bits - exponent * (1 << 23)) - 1.0f;
    float power = (float)exponent;
    float square = f * f;
    float low = fmaf(f, -0x1.000006p-2f, 0x1.555547p-2f);
    float middle = fmaf(f, -0x1.555c4dp-3f, 0x1.99a4b5p-3f);
    float high = fmaf(f, -0x1.fc221cp-4f, 0x1.233765p-3f);
    float highest = fmaf(square, 0x1.1456a9p-4f, fmaf(f, -0x1.de3bb9p-4f, 0x1.e6f0aep-4f));
    float p = fmaf(fmaf(fmaf(highest, square, high), square, middle), square, low);
    float value = fmaf(p * f, square, power * -0x1.bd0106p-13f);
    value = fmaf(square, -0.5f, value) + f;
    return fmaf(power, 0x1.63p-1f, value);
}

static inline int is_normal(float x) { return x >= FLT_MIN && x <= FLT_MAX; }

/* Zeros, infinities and NaN take longer, but are rare. A fresh target is overwritten. */
static inline __attribute__((always_inline)) void add_logs(float *restrict target, const float *restrict sums,
                                                           int64_t count, int fresh) {
    int normal = 1;
    for (int64_t j = 0; j < count; j++) normal &= is_normal(sums[j]);
    if (normal)
        for (int64_t j = 0; j < count; j++) target[j] = (fresh ? 0.0f : target[j]) + logarithm(sums[j]);
    else
        for (int64_t j = 0; j < count; j++)
            target[j] = (fresh ? 0.0f : target[j]) + (is_normal(sums[j]) ? logarithm(sums[j]) : logf(sums[j]));
}

/* The maximum; NaN if one of the arguments is NaN. */
static inline float larger(float x, float y) { return x <= y ? y : y == y ? x : y; }

/* ---- scale_rows ---- */

typedef struct {
    float *rows, *shift;
    int64_t states, batch, blocks, beside;
    float headroom, least;
} Scale;

static void scale_loop(const void *task, int64_t begin, int64_t end) {
    const Scale t = *(const Scale *)task;
    int64_t length = t.batch * t.beside, count = t.states / t.beside;
    for (int64_t item = begin; item < end; item++) {
        int64_t fold = item / t.blocks, first = (item % t.blocks) * BLOCK;
        int64_t width = length - first < BLOCK ? length - first : BLOCK;
        float *rows = t.rows + fold * t.states * t.batch + first;
        float *shift = t.shift + fold * t.batch + first;
        float top[BLOCK];
        for (int64_t b = 0; b < width; b++) top[b] = -FLT_MAX;
        for (int64_t s = 0; s < count; s++) {
            const float *row = rows + s * length;
            for (int64_t b = 0; b < width; b++) top[b] = larger(row[b], top[b]);
        }
        if (t.beside > 1) {
            for (int64_t b = t.batch; b < width; b++) top[b] = larger(top[b - t.batch], top[b]);
            for (int64_t b = 0; b < width - t.batch; b++) top[b] = top[width - t.batch + b % t.batch];
        }
        for (int64_t b = 0; b < width; b++) top[b] -= t.headroom;
        memcpy(shift, top, (size_t)(t.beside > 1 ? t.batch : width) * sizeof *shift);
        for (int64_t s = 0; s < count; s++) {
            float *row = rows + s * length;
            for (int64_t b = 0; b < width; b++) {
                float value = row[b] - top[b];
                row[b] = value < t.least ? 0.0f : exponential(value);
            }
        }
    }
}

/* For a small batch, how many states share a vector. */
static int64_t states_beside(int64_t states, int64_t batch) {
    int64_t beside = 1;
    while (states % (2 * beside) == 0 && 2 * beside * batch <= LANES) beside *= 2;
    return beside;
}

void picirc_scale_rows(float *rows, float *shift, int64_t fold, int64_t states, int64_t batch, float headroom,
                       float least, int threads) {
    int64_t beside = states_beside(states, batch), blocks = (batch * beside + BLOCK - 1) / BLOCK;
    Scale task = {rows, shift, states, batch, blocks, beside, headroom, least};
    run(scale_loop, &task, fold * blocks, fold * states * batch, threads);
}

/* ---- add_logs ---- */

typedef struct {
    float *target;
    const int64_t *rows, *sources;
    const uint8_t *fresh;
    const float *sums;
    int64_t count, size;
} AddLogs;

/* Threads share the elements of all rows, because several results may go to one row. */
static void add_logs_loop(const void *task, int64_t begin, int64_t end) {
    const AddLogs t = *(const AddLogs *)task;
    for (int64_t i = 0; i < t.count; i++) {
        float *target = t.target + t.rows[i] * t.size;
        const float *sums = t.sums + (t.sources ? t.sources[i] : i) * t.size;
        for (int64_t first = begin; first < end; first += BLOCK) {
            int64_t width = end - first < BLOCK ? end - first : BLOCK;
            if (t.fresh && t.fresh[i])
                add_logs(target + first, sums + first, width, 1);
            else
                add_logs(target + first, sums + first, width, 0);
        }
    }
}

void picirc_add_logs(float *target, const int64_t *rows, const int64_t *sources, const uint8_t *fresh,
                     const float *sums, int64_t count, int64_t size, int threads) {
    AddLogs task = {target, rows, sources, fresh, sums, count, size};
    run(add_logs_loop, &task, size, count * size, threads);
}

/* ---- add_scales ---- */

typedef struct {
    double *target;
    const int64_t *rows, *sources;
    const double *scales;
    const float *shift;
    int64_t count, edges, batch;
} AddScales;

static void add_scales_loop(const void *task, int64_t begin, int64_t end) {
    const AddScales t = *(const AddScales *)task;
    for (int64_t i = 0; i < t.count; i++) {
        int64_t source = (t.sources ? t.sources[i] : i) / t.edges * t.batch;
        double *target = t.target + t.rows[i] * t.batch;
        for (int64_t b = begin; b < end; b++) target[b] += t.scales[source + b] + t.shift[source + b];
    }
}

void picirc_add_scales(double *target, const int64_t *rows, const int64_t *sources, const double *scales,
                       const float *shift, int64_t count, int64_t edges, int64_t batch, int threads) {
    AddScales task = {target, rows, sources, scales, shift, count, edges, batch};
    run(add_scales_loop, &task, batch, count * batch, threads);
}

/* ---- mix_up ---- */

typedef struct {
    float *out;
    double *out_scales;
    const float *rows;
    const double *scales;
    const int64_t *sources;
    const float *weights;
    int64_t arity, states, batch, blocks, stride;
} Mix;

/* The weight of a part in a state. A part of weight zero must not determine the scale. */
static inline float weight_of(const Mix *t, int64_t fold, int64_t a, int64_t s) {
    return t->weights[(fold * t->arity + a) * t->stride + (t->stride > 1 ? s : 0)];
}

static int has_weight(const Mix *t, int64_t fold, int64_t a) {
    for (int64_t s = 0; s < t->stride; s++)
        if (weight_of(t, fold, a, s) != 0.0f) return 1;
    return 0;
}

/* The scales of the parts relative to that of the mixture, which is the largest of them. */
static void align(const Mix *t, int64_t fold, int64_t first, int64_t width, float (*above)[BLOCK], double *scale) {
    const int64_t *sources = t->sources + fold * t->arity;
    for (int64_t b = 0; b < width; b++) scale[b] = -FLT_MAX;
    for (int64_t a = 0; a < t->arity; a++) {
        if (!has_weight(t, fold, a)) continue;
        const double *own = t->scales + sources[a] * t->batch + first;
        for (int64_t b = 0; b < width; b++) scale[b] = own[b] > scale[b] ? own[b] : scale[b];
    }
    for (int64_t a = 0; a < t->arity; a++) {
        const double *own = t->scales + sources[a] * t->batch + first;
        for (int64_t b = 0; b < width; b++) above[a][b] = (float)(own[b] - scale[b]);
    }
}

static void mix_loop(const void *task, int64_t begin, int64_t end) {
    const Mix t = *(const Mix *)task;
    float above[ARITY][BLOCK], top[BLOCK], sum[BLOCK];
    for (int64_t item = begin; item < end; item++) {
        int64_t fold = item / t.blocks, first = (item % t.blocks) * BLOCK;
        int64_t width = t.batch - first < BLOCK ? t.batch - first : BLOCK;
        const int64_t *sources = t.sources + fold * t.arity;
        align(&t, fold, first, width, above, t.out_scales + fold * t.batch + first);
        for (int64_t s = 0; s < t.states; s++) {
            for (int64_t b = 0; b < width; b++) top[b] = -FLT_MAX, sum[b] = 0.0f;
            for (int64_t a = 0; a < t.arity; a++) {
                if (weight_of(&t, fold, a, s) == 0.0f) continue;
                const float *part = t.rows + (sources[a] * t.states + s) * t.batch + first;
                for (int64_t b = 0; b < width; b++) top[b] = larger(part[b] + above[a][b], top[b]);
            }
            for (int64_t a = 0; a < t.arity; a++) {
                float weight = weight_of(&t, fold, a, s);
                if (weight == 0.0f) continue;
                const float *part = t.rows + (sources[a] * t.states + s) * t.batch + first;
                for (int64_t b = 0; b < width; b++) {
                    float value = part[b] + above[a][b] - top[b];
                    sum[b] += weight * (value < LEAST ? 0.0f : exponential(value));
                }
            }
            float *out = t.out + (fold * t.states + s) * t.batch + first;
            memcpy(out, top, (size_t)width * sizeof *out);
            add_logs(out, sum, width, 0);
        }
    }
}

void picirc_mix_up(float *out, double *out_scales, const float *rows, const double *scales, const int64_t *sources,
                   const float *weights, int64_t fold, int64_t arity, int64_t states, int64_t batch, int64_t stride,
                   int threads) {
    int64_t blocks = (batch + BLOCK - 1) / BLOCK;
    Mix task = {out, out_scales, rows, scales, sources, weights, arity, states, batch, blocks, stride};
    run(mix_loop, &task, fold * blocks, fold * arity * states * batch, threads);
}

/* ---- look_up ---- */

typedef struct {
    const float *table;
    const int32_t *codes;
    float *out;
    int64_t states, values, batch, stride;
} LookUp;

static void look_up_loop(const void *task, int64_t begin, int64_t end) {
    const LookUp t = *(const LookUp *)task;
    for (int64_t item = begin; item < end; item++) {
        int64_t fold = item / t.states, state = item % t.states;
        const float *table = t.table + fold * t.stride + state * t.values;
        const int32_t *codes = t.codes + fold * t.batch;
        float *out = t.out + item * t.batch;
        for (int64_t b = 0; b < t.batch; b++) out[b] = table[codes[b]];
    }
}

void picirc_look_up(const float *table, const int32_t *codes, float *out, int64_t fold, int64_t states, int64_t values,
                    int64_t batch, int shared, int threads) {
    LookUp task = {table, codes, out, states, values, batch, shared ? 0 : states * values};
    run(look_up_loop, &task, fold * states, fold * states * batch, threads);
}

/* ---- count_values ---- */

enum { TOGETHER = 8 };

typedef struct {
    float *out;
    const float *weights;
    const int32_t *codes;
    int64_t fold, states, batch, values, groups;
    int shared;
} CountValues;

/* Neighbours often have the same code, and an addition waits for the one before; those of other states need not. */
static inline __attribute__((always_inline)) void count_group(const CountValues *t, float *restrict out, int64_t fold,
                                                              int64_t first, int64_t states) {
    const float *weights = t->weights + (fold * t->states + first) * t->batch;
    const int32_t *codes = t->codes + fold * t->batch;
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t s = 0; s < states; s++) out[s * t->values + codes[b]] += weights[s * t->batch + b];
}

static void count_loop(const void *task, int64_t begin, int64_t end) {
    const CountValues t = *(const CountValues *)task;
    for (int64_t item = begin; item < end; item++) {
        int64_t first = item % t.groups * TOGETHER, states = t.states - first < TOGETHER ? t.states - first : TOGETHER;
        int64_t fold = t.shared ? 0 : item / t.groups, last = t.shared ? t.fold : fold + 1;
        float *out = t.out + (fold * t.states + first) * t.values;
        memset(out, 0, (size_t)(states * t.values) * sizeof *out);
        for (; fold < last; fold++) {
            if (states == TOGETHER)
                count_group(&t, out, fold, first, TOGETHER);
            else
                count_group(&t, out, fold, first, states);
        }
    }
}

void picirc_count_values(float *out, const float *weights, const int32_t *codes, int64_t fold, int64_t states,
                         int64_t batch, int64_t values, int shared, int threads) {
    int64_t groups = (states + TOGETHER - 1) / TOGETHER;
    CountValues task = {out, weights, codes, fold, states, batch, values, groups, shared};
    run(count_loop, &task, shared ? groups : fold * groups, fold * states * batch, threads);
}

/* ---- collect_quotients ---- */

typedef struct {
    float *out;
    const float *flows;
    const int64_t *rows;
    const float *sums;
    int64_t size;
} Quotients;

static void quotients_loop(const void *task, int64_t begin, int64_t end) {
    const Quotients t = *(const Quotients *)task;
    for (int64_t i = begin; i < end; i++) {
        const float *flows = t.flows + t.rows[i] * t.size, *sums = t.sums + i * t.size;
        float *out = t.out + i * t.size;
        for (int64_t j = 0; j < t.size; j++) out[j] = flows[j] / (sums[j] < FLT_MIN ? FLT_MIN : sums[j]);
    }
}

void picirc_collect_quotients(float *out, const float *flows, const int64_t *rows, const float *sums, int64_t count,
                              int64_t size, int threads) {
    Quotients task = {out, flows, rows, sums, size};
    run(quotients_loop, &task, count, count * size, threads);
}

/* ---- multiply_flows ---- */

typedef struct {
    float *rows;
    const float *arriving;
    float smallest;
} Multiply;

static void multiply_loop(const void *task, int64_t begin, int64_t end) {
    const Multiply t = *(const Multiply *)task;
    for (int64_t i = begin; i < end; i++) {
        float flow = t.rows[i] * t.arriving[i];
        t.rows[i] = fabsf(flow) <= t.smallest ? 0.0f : flow;
    }
}

void picirc_multiply_flows(float *rows, const float *arriving, int64_t elements, float smallest, int threads) {
    Multiply task = {rows, arriving, smallest};
    run(multiply_loop, &task, elements, elements, threads);
}

/* ---- max_product ---- */

typedef struct {
    float *out;
    const float *weights, *rows;
    int64_t results, states, batch, blocks;
} MaxProduct;

/* One result for some data points, which stays in registers if the width is a constant. */
static inline __attribute__((always_inline)) void max_tile(const MaxProduct *t, float *out, const float *weights,
                                                           const float *rows, int64_t width) {
    float top[BLOCK];
    for (int64_t b = 0; b < width; b++) top[b] = -INFINITY;
    for (int64_t z = 0; z < t->states; z++)
        for (int64_t b = 0; b < width; b++) top[b] = larger(rows[z * t->batch + b] + weights[z], top[b]);
    memcpy(out, top, (size_t)width * sizeof *out);
}

static void max_loop(const void *task, int64_t begin, int64_t end) {
    const MaxProduct t = *(const MaxProduct *)task;
    for (int64_t item = begin; item < end; item++) {
        int64_t fold = item / t.blocks, first = (item % t.blocks) * BLOCK;
        const float *rows = t.rows + fold * t.states * t.batch + first;
        for (int64_t o = fold * t.results; o < (fold + 1) * t.results; o++) {
            float *out = t.out + o * t.batch + first;
            const float *weights = t.weights + o * t.states;
            if (t.batch - first < BLOCK)
                max_tile(&t, out, weights, rows, t.batch - first);
            else
                max_tile(&t, out, weights, rows, BLOCK);
        }
    }
}

void picirc_max_product(float *out, const float *weights, const float *rows, int64_t fold, int64_t results,
                        int64_t states, int64_t batch, int threads) {
    int64_t blocks = (batch + BLOCK - 1) / BLOCK;
    MaxProduct task = {out, weights, rows, results, states, batch, blocks};
    run(max_loop, &task, fold * blocks, fold * results * states * batch, threads);
}

/* ---- bisect ---- */

typedef struct {
    int64_t *out;
    const float *tables;
    const int64_t *rows;
    const float *values;
    int64_t entries;
} Bisect;

static void bisect_loop(const void *task, int64_t begin, int64_t end) {
    const Bisect t = *(const Bisect *)task;
    for (int64_t i = begin; i < end; i++) {
        const float *table = t.tables + t.rows[i] * t.entries;
        int64_t low = 0, high = t.entries - 1;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (table[middle] > t.values[i])
                high = middle;
            else
                low = middle + 1;
        }
        t.out[i] = low;
    }
}

void picirc_bisect(int64_t *out, const float *tables, const int64_t *rows, const float *values, int64_t count,
                   int64_t entries, int threads) {
    Bisect task = {out, tables, rows, values, entries};
    run(bisect_loop, &task, count, 8 * count, threads);
}

/* ---- log_softmax ---- */

typedef struct {
    float *out;
    const float *raw;
    int64_t values;
    float limit;
} LogSoftmax;

static inline float within(float x, float limit) { return x < -limit ? -limit : x > limit ? limit : x; }

/* Several maxima and sums side by side, because compilers must not reorder a single one. */
static void log_softmax_loop(const void *task, int64_t begin, int64_t end) {
    const LogSoftmax t = *(const LogSoftmax *)task;
    int64_t even = t.values / LANES * LANES;
    for (int64_t item = begin; item < end; item++) {
        const float *raw = t.raw + item * t.values;
        float *out = t.out + item * t.values, tops[LANES], sums[LANES] = {0}, top = -FLT_MAX, sum = 0.0f;
        for (int l = 0; l < LANES; l++) tops[l] = -FLT_MAX;
        for (int64_t j = 0; j < even; j += LANES)
            for (int l = 0; l < LANES; l++) tops[l] = larger(within(raw[j + l], t.limit), tops[l]);
        for (int64_t j = even; j < t.values; j++) top = larger(within(raw[j], t.limit), top);
        for (int l = 0; l < LANES; l++) top = larger(tops[l], top);
        for (int64_t j = 0; j < t.values; j++) out[j] = within(raw[j], t.limit) - top;
        for (int64_t j = 0; j < even; j += LANES)
            for (int l = 0; l < LANES; l++) sums[l] += out[j + l] < LEAST ? 0.0f : exponential(out[j + l]);
        for (int64_t j = even; j < t.values; j++) sum += out[j] < LEAST ? 0.0f : exponential(out[j]);
        for (int l = 0; l < LANES; l++) sum += sums[l];
        float whole = logf(sum);
        for (int64_t j = 0; j < t.values; j++) out[j] -= whole;
    }
}

void picirc_log_softmax(float *out, const float *raw, int64_t count, int64_t values, float limit, int threads) {
    LogSoftmax task = {out, raw, values, limit};
    run(log_softmax_loop, &task, count, count * values, threads);
}

/* ---- log_softmax_down ---- */

typedef struct {
    float *out;
    const float *raw, *logs, *flows;
    int64_t values;
    float limit;
} LogSoftmaxDown;

static inline float positive_exponential(float x) { return x < LEAST ? 0.0f : exponential(x); }

static void log_softmax_down_loop(const void *task, int64_t begin, int64_t end) {
    const LogSoftmaxDown t = *(const LogSoftmaxDown *)task;
    int64_t even = t.values / LANES * LANES;
    for (int64_t item = begin; item < end; item++) {
        const float *raw = t.raw + item * t.values, *logs = t.logs + item * t.values;
        const float *flows = t.flows + item * t.values;
        float *restrict out = t.out + item * t.values, sums[LANES] = {0}, sum = 0.0f;
        for (int64_t j = 0; j < even; j += LANES)
            for (int l = 0; l < LANES; l++) sums[l] += flows[j + l];
        for (int64_t j = even; j < t.values; j++) sum += flows[j];
        for (int l = 0; l < LANES; l++) sum += sums[l];
        for (int64_t j = 0; j < t.values; j++) {
            float found = flows[j] - positive_exponential(logs[j]) * sum;
            out[j] = fabsf(raw[j]) > t.limit ? 0.0f : found;
        }
    }
}

void picirc_log_softmax_down(float *out, const float *raw, const float *logs, const float *flows, int64_t count,
                             int64_t values, float limit, int threads) {
    LogSoftmaxDown task = {out, raw, logs, flows, values, limit};
    run(log_softmax_down_loop, &task, count, count * values, threads);
}

/* ---- move_logs ---- */

typedef struct {
    float *out;
    const float *old, *counts, *rates;
    int64_t values, states;
    float smoothing;
    int flows;
} MoveLogs;

/* The old values are logarithms and the counts are counts, or the former are probabilities and the latter flows. */
static inline __attribute__((always_inline)) void move_row(float *restrict out, const float *restrict old,
                                                           const float *restrict counts, int64_t values, float rate,
                                                           float smoothing, int flows) {
    int64_t even = values / LANES * LANES;
    float sums[LANES] = {0}, total = 0.0f, share = smoothing / (float)values;
    for (int64_t j = 0; j < values; j++) out[j] = (flows ? old[j] * counts[j] : counts[j]) + share;
    for (int64_t j = 0; j < even; j += LANES)
        for (int l = 0; l < LANES; l++) sums[l] += out[j + l];
    for (int64_t j = even; j < values; j++) total += out[j];
    for (int l = 0; l < LANES; l++) total += sums[l];
    int known = total > FLT_MIN; /* otherwise nothing was counted, and the old distribution stays */
    float rest = known ? 1.0f - rate : 1.0f, part = known ? rate / total : 0.0f;
    for (int64_t j = 0; j < values; j++) {
        float value = rest * (flows ? old[j] : positive_exponential(old[j])) + (known ? part * out[j] : 0.0f);
        value = value < FLT_MIN ? FLT_MIN : value;
        out[j] = value == value ? logarithm(value) : value;
    }
}

static void move_logs_loop(const void *task, int64_t begin, int64_t end) {
    const MoveLogs t = *(const MoveLogs *)task;
    for (int64_t item = begin; item < end; item++) {
        int64_t start = item * t.values;
        float rate = t.rates[item % t.states];
        if (t.flows)
            move_row(t.out + start, t.old + start, t.counts + start, t.values, rate, t.smoothing, 1);
        else
            move_row(t.out + start, t.old + start, t.counts + start, t.values, rate, t.smoothing, 0);
    }
}

void picirc_move_logs(float *out, const float *old, const float *counts, const float *rates, int64_t count,
                      int64_t values, int64_t states, float smoothing, int flows, int threads) {
    MoveLogs task = {out, old, counts, rates, values, states, smoothing, flows};
    run(move_logs_loop, &task, count, count * values, threads);
}
