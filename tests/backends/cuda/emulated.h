// CUDA C++ on the processor: one block after another, its threads as fibers that take turns at __syncthreads().
#include <math.h>
#include <string.h>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(threads)
#define __restrict__

struct Dim {
    unsigned int x;
};
static Dim threadIdx, blockIdx, blockDim, gridDim;

static inline float __uint_as_float(unsigned int bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static inline unsigned int __float_as_uint(float x) {
    unsigned int bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static inline float half_value(unsigned short bits) {
    int exponent = bits >> 10 & 31, rest = bits & 1023;
    float whole = exponent < 31 ? ldexpf(1024 + rest, exponent - 25) : rest ? NAN : INFINITY;
    float size = exponent == 0 ? ldexpf(rest, -24) : whole;
    return bits >> 15 ? -size : size;
}

static inline unsigned short half_bits(float value) {
    float size = fabsf(value);
    unsigned short sign = signbit(value) ? 0x8000 : 0;
    if (size != size) return 0x7fff;
    if (size >= 65520) return sign | 0x7c00;
    if (size < ldexpf(1, -14)) return sign | (unsigned short)rintf(ldexpf(size, 24));
    int exponent;
    float part = frexpf(size, &exponent);
    return sign | (((exponent + 14) << 10) + (int)rintf(ldexpf(part, 11)) - 1024);
}

namespace emulated {
const size_t STACK = 1 << 16;
static ucontext_t scheduler;
static std::vector<ucontext_t> fibers;
static std::vector<char> stacks;
static std::vector<bool> ended;
static unsigned int current;
static void (*work)(void **);
static void **values;
// Every other run goes through blocks and threads from the last to the first: what comes out must not depend on it.
static bool backwards = true;

static unsigned int nth(unsigned int place, unsigned int count) {
    return backwards ? count - 1 - place : place;
}

static void fiber() {
    work(values);
    ended[current] = true;
    swapcontext(&fibers[current], &scheduler);
}

// All threads of a block come to each barrier, or none does: who ended while others wait there is a mistake.
static bool block(unsigned int threads) {
    fibers.resize(threads);
    stacks.resize(threads * STACK);
    ended.assign(threads, false);
    for (unsigned int t = 0; t < threads; ++t) {
        getcontext(&fibers[t]);
        fibers[t].uc_stack.ss_sp = &stacks[t * STACK];
        fibers[t].uc_stack.ss_size = STACK;
        fibers[t].uc_link = &scheduler;
        makecontext(&fibers[t], fiber, 0);
    }
    for (;;) {
        unsigned int left = 0;
        for (unsigned int t = 0; t < threads; ++t) {
            threadIdx.x = current = nth(t, threads);
            swapcontext(&scheduler, &fibers[current]);
            left += !ended[current];
        }
        if (left == 0) return true;
        if (left != threads) return false;
    }
}

static bool run(void (*kernel)(void **), void **arguments, unsigned int blocks, unsigned int threads, bool meets) {
    blockDim.x = threads;
    gridDim.x = blocks;
    work = kernel;
    values = arguments;
    backwards = !backwards;
    for (unsigned int b = 0; b < blocks; ++b) {
        blockIdx.x = nth(b, blocks);
        if (meets) {
            if (!block(threads)) return false;
        } else {
            for (unsigned int t = 0; t < threads; ++t) {
                threadIdx.x = nth(t, threads);
                kernel(arguments);
            }
        }
    }
    return true;
}
} // namespace emulated

static inline void __syncthreads() {
    swapcontext(&emulated::fibers[emulated::current], &emulated::scheduler);
}
