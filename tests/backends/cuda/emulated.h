// CUDA C++ keywords and functions for a C++ compiler; emulated.cpp runs the compiled kernels.
#include <math.h>
#include <string.h>

#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(threads)
#define __restrict__

extern "C" {
__attribute__((const)) unsigned emulated_thread();
__attribute__((const)) unsigned emulated_threads();
__attribute__((const)) unsigned emulated_block();
__attribute__((const)) unsigned emulated_blocks();
void emulated_barrier(int site);
unsigned long emulated_shuffle(unsigned mask, unsigned long value, unsigned lane, int site);
struct EmulatedArray;
const char *emulated_run(void (*kernel)(void **), void **values, unsigned blocks, unsigned threads,
                         const EmulatedArray *arrays, unsigned count, unsigned turn);
}

struct Dim {
    unsigned int x;
};
#define threadIdx (Dim{emulated_thread()})
#define blockDim (Dim{emulated_threads()})
#define blockIdx (Dim{emulated_block()})
#define gridDim (Dim{emulated_blocks()})

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

static inline unsigned short half_bits(double value) { // also for floats: nothing is rounded twice
    double size = fabs(value);
    unsigned short sign = signbit(value) ? 0x8000 : 0;
    if (size != size) return 0x7fff;
    if (size >= 65520) return sign | 0x7c00;
    if (size < ldexp(1, -14)) return sign | (unsigned short)rint(ldexp(size, 24));
    int exponent;
    double part = frexp(size, &exponent);
    return sign | (((exponent + 14) << 10) + (int)rint(ldexp(part, 11)) - 1024);
}

template <typename T> static inline T emulated_exchange(int site, unsigned mask, T value, unsigned lane) {
    static_assert(sizeof(T) <= sizeof(unsigned long), "a shuffle exchanges at most 8 bytes");
    unsigned long bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = emulated_shuffle(mask, bits, lane, site);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

// Number of a barrier or shuffle in the source: all threads must be at the same one.
#define EMULATED_SITE (__COUNTER__ + 1)
#define __syncthreads() emulated_barrier(EMULATED_SITE)
#define __shfl_down_sync(mask, value, distance)                                                                        \
    emulated_exchange(EMULATED_SITE, mask, value, emulated_thread() % 32 + (distance))
#define __shfl_sync(mask, value, lane) emulated_exchange(EMULATED_SITE, mask, value, (lane) % 32u)
