// What every kernel begins with: element types, and functions under the names that the generated code calls.

typedef unsigned char uint8;
typedef signed char int8;
typedef unsigned short uint16;
typedef short int16;
typedef unsigned int uint32;
typedef int int32;
typedef long long int64;
typedef unsigned long long uint64;
typedef float float32;
typedef double float64;

#pragma nv_diag_suppress 177 // generated code defines names that only some kernels need
#pragma nv_diag_suppress 186 // whole numbers without a sign are compared with 0 in code that serves all types

#ifndef INFINITY // NVRTC has no headers
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#endif

// Eight exponent bits as float32, eight of the mantissa: kept in memory, never computed with.
struct alignas(2) bfloat16 {
    uint16 bits;
};

// Five exponent bits, ten of the mantissa: kept in memory, never computed with.
struct alignas(2) float16 {
    uint16 bits;
};

#ifdef __CUDACC_RTC__ // whoever else compiles this brings the two along
__device__ inline float half_value(uint16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ inline uint16 half_bits(float value) {
    uint16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ inline uint16 half_bits(double value) {
    uint16 bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));
    return bits;
}
#endif

// Elements that a thread reads and writes at once.
template <typename T> struct alignas(4 * sizeof(T)) Four {
    T at[4];
};

template <typename T> __device__ inline T load(T x) {
    return x;
}

__device__ inline float load(bfloat16 x) {
    return __uint_as_float((uint32)x.bits << 16);
}

__device__ inline float load(float16 x) {
    return half_value(x.bits);
}

template <typename T, typename V> __device__ inline void store(T &target, V value) {
    target = value;
}

// To the nearest, to even where two are as near; NaN stays one.
__device__ inline void store(bfloat16 &target, float value) {
    uint32 bits = __float_as_uint(value);
    target.bits = value != value ? (uint16)(bits >> 16 | 64) : (uint16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Convert through float32, as ml_dtypes does.
__device__ inline void store(bfloat16 &target, double value) {
    store(target, (float)value);
}

// What is too large becomes infinite.
__device__ inline void store(float16 &target, float value) {
    target.bits = half_bits(value);
}

__device__ inline void store(float16 &target, double value) {
    target.bits = half_bits(value);
}

// Of whole numbers, rounded down.
template <typename T> __device__ inline T floor_div(T a, T b) {
    T quotient = a / b;
    return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

#define OF_ONE(name, single, twice)                                                                                    \
    __device__ inline float name##_float32(float x) { return single(x); }                                              \
    __device__ inline double name##_float64(double x) { return twice(x); }
#define OF_TWO(name, single, twice)                                                                                    \
    __device__ inline float name##_float32(float x, float y) { return single(x, y); }                                  \
    __device__ inline double name##_float64(double x, double y) { return twice(x, y); }

OF_ONE(exp, expf, exp)
OF_ONE(expm1, expm1f, expm1)
OF_ONE(log, logf, log)
OF_ONE(log1p, log1pf, log1p)
OF_ONE(sqrt, sqrtf, sqrt)
OF_ONE(sin, sinf, sin)
OF_ONE(cos, cosf, cos)
OF_ONE(sinh, sinhf, sinh)
OF_ONE(cosh, coshf, cosh)
OF_ONE(tanh, tanhf, tanh)
OF_ONE(asin, asinf, asin)
OF_ONE(acos, acosf, acos)
OF_ONE(atan, atanf, atan)
OF_ONE(asinh, asinhf, asinh)
OF_ONE(acosh, acoshf, acosh)
OF_ONE(atanh, atanhf, atanh)
OF_ONE(floor, floorf, floor)
OF_ONE(ceil, ceilf, ceil)
OF_ONE(rint, rintf, rint)
OF_TWO(pow, powf, pow)
OF_TWO(fmod, fmodf, fmod)

// `position`, clipped to the range from 0 to `size`, both included.
__device__ inline int64 within(int64 position, int64 size) {
    return position < 0 ? 0 : position > size ? size : position;
}

// Number of a window's positions in [low, high).
__device__ inline int positions_between(int64 first, int size, int dilation, int64 low, int64 high) {
    int count = 0;
    for (int position = 0; position < size; ++position) {
        count += first + position * dilation >= low && first + position * dilation < high;
    }
    return count;
}

// Philox4x32-10: four words of 32 random bits for a counter and a key (graph/ops/random.py).
struct Words {
    uint32 at[4];
};

__device__ inline Words philox(uint32 c0, uint32 c1, uint32 c2, uint32 c3, uint32 k0, uint32 k1) {
    for (int round = 0; round < 10; ++round) {
        uint64 p0 = (uint64)0xD2511F53u * c0, p1 = (uint64)0xCD9E8D57u * c2;
        c0 = (uint32)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32)p1;
        c2 = (uint32)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return Words{{c0, c1, c2, c3}};
}

// The number that the 32 threads of a warp have together, in the first of them, put together in the order of a fixed tree.
template <typename T, typename Combine> __device__ inline T of_warp(T mine, Combine combine) {
    for (int distance = 16; distance > 0; distance /= 2) {
        mine = combine(mine, __shfl_down_sync(0xffffffff, mine, distance));
    }
    return mine;
}

// The number that all threads of a block have together, in every thread, put together in the order of a fixed tree.
// `scratch` is shared memory for a number of each warp; a block is made of whole warps.
template <typename T, typename Combine> __device__ inline T of_block(T mine, T *scratch, Combine combine) {
    mine = of_warp(mine, combine);
    __syncthreads(); // who is late may still read what the call before left there
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = scratch[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp) mine = combine(mine, scratch[warp]);
    return mine;
}

template <typename T> struct Add {
    __device__ T operator()(T a, T b) const { return a + b; }
};

// The greater one; NaN is greater than all.
template <typename T> struct Greater {
    __device__ T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};

template <typename T> struct Less {
    __device__ T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};

// The sum of the numbers of a row's threads, which are a warp or the whole block, in every one of them.
template <int width, typename T> __device__ inline T of_row(T mine, T *scratch) {
    if (width > 32) return of_block(mine, scratch, Add<T>());
    return __shfl_sync(0xffffffff, of_warp(mine, Add<T>()), 0);
}

// The sum of the numbers of all threads whose number leaves the same rest by `width`, a power of two, in every one of them.
// `scratch` is shared memory for a number of each thread.
template <int width, typename T> __device__ inline T of_columns(T mine, T *scratch) {
    __syncthreads(); // who is late may still read what the call before left there
    scratch[threadIdx.x] = mine;
    __syncthreads();
    for (int distance = blockDim.x / 2; distance >= width; distance /= 2) {
        if (threadIdx.x < distance) scratch[threadIdx.x] += scratch[threadIdx.x + distance];
        __syncthreads();
    }
    return scratch[threadIdx.x % width];
}

// Every unit of work of a kernel, shared out among all threads.
#define UNITS(unit, count)                                                                                             \
    for (Index unit = blockIdx.x * (Index)blockDim.x + threadIdx.x; unit < (count); unit += (Index)gridDim.x * blockDim.x)
// Every unit of work that a whole block does together.
#define BLOCKS(unit, count) for (Index unit = blockIdx.x; unit < (count); unit += gridDim.x)
