// CUDA C++ on the processor: one block after another, its threads as fibers that take turns at __syncthreads() and where
// the threads of a warp exchange numbers.
#include <math.h>
#include <setjmp.h>
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
const unsigned int WARP = 32;
// Where a thread is: on its way, or waiting for those of its block or of its warp.
enum State { RUNNING, AT_BLOCK, AT_WARP, ENDED };
static jmp_buf back; // fibers are begun by ucontext, and resumed by longjmp: it asks the system for nothing
static std::vector<ucontext_t> fibers;
static std::vector<jmp_buf *> places;
static std::vector<char> stacks;
static std::vector<State> states;
static std::vector<double> given; // what each thread gives the others of its warp
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
    states[current] = ENDED;
    _longjmp(back, 1);
}

static void wait(State at) {
    const unsigned int own = current;
    states[own] = at;
    if (_setjmp(*places[own]) == 0) _longjmp(back, 1);
}

static void resume(unsigned int thread) {
    const bool begins = places[thread] == nullptr;
    if (begins) places[thread] = new jmp_buf[1];
    threadIdx.x = current = thread;
    states[thread] = RUNNING;
    if (_setjmp(back) == 0) {
        if (begins) setcontext(&fibers[thread]);
        else _longjmp(*places[thread], 1);
    }
}

// Runs the threads of a warp until all wait for their block, or all have ended; false where they are not together.
static bool warp(unsigned int first, unsigned int last) {
    for (;;) {
        for (unsigned int t = 0; t < last - first; ++t) resume(first + nth(t, last - first));
        for (unsigned int t = first; t < last; ++t) {
            if (states[t] != states[first]) return false;
        }
        if (states[first] != AT_WARP) return true;
    }
}

// All threads of a block come to each barrier, or none does: who ended while others wait there is a mistake.
static bool block(unsigned int threads) {
    fibers.resize(threads);
    stacks.resize(threads * STACK);
    given.assign(threads, NAN);
    states.assign(threads, RUNNING);
    for (jmp_buf *one : places) delete[] one;
    places.assign(threads, nullptr);
    for (unsigned int t = 0; t < threads; ++t) {
        getcontext(&fibers[t]);
        fibers[t].uc_stack.ss_sp = &stacks[t * STACK];
        fibers[t].uc_stack.ss_size = STACK;
        fibers[t].uc_link = nullptr; // none returns
        makecontext(&fibers[t], fiber, 0);
    }
    const unsigned int warps = (threads + WARP - 1) / WARP;
    do {
        for (unsigned int w = 0; w < warps; ++w) {
            const unsigned int first = nth(w, warps) * WARP;
            if (!warp(first, first + WARP < threads ? first + WARP : threads)) return false;
        }
        for (unsigned int t = 0; t < threads; ++t) {
            if (states[t] != states[0]) return false;
        }
    } while (states[0] != ENDED);
    return true;
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
    emulated::wait(emulated::AT_BLOCK);
}

// The number that a thread of the warp gives. All must take part.
template <typename T> static inline T exchanged(unsigned int mask, T mine, unsigned int other) {
    static_assert(sizeof(T) <= sizeof(double), "a thread gives a number");
    using namespace emulated;
    memcpy(&given[current], &mine, sizeof(T));
    wait(AT_WARP);
    if (mask == 0xffffffff && other < given.size()) memcpy(&mine, &given[other], sizeof(T));
    wait(AT_WARP); // nobody gives another number before all have read this one
    return mine;
}

// Of the thread so many places further on; its own where there is none.
template <typename T> static inline T __shfl_down_sync(unsigned int mask, T mine, unsigned int distance) {
    const unsigned int own = emulated::current;
    return exchanged(mask, mine, own % emulated::WARP + distance < emulated::WARP ? own + distance : own);
}

template <typename T> static inline T __shfl_sync(unsigned int mask, T mine, unsigned int lane) {
    return exchanged(mask, mine, emulated::current / emulated::WARP * emulated::WARP + lane % emulated::WARP);
}
