// The functions of cuBLASLt that netspec calls, on the CPU: loops in place of kernels, and looks at whatever the
// library would take on trust. Numbers and structures are those of cublasLt.h 13.10, written down once more.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

enum Status { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum Type { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14 };
const uint64_t TOKEN = 0x6e65747370656331ull;

struct Desc { uint64_t token; int compute, scale; int32_t trans[2]; uint32_t epilogue; const void *bias; int32_t bias_type; };
struct Layout { uint64_t token; int type; uint64_t rows, cols; int64_t ld; int32_t count; int64_t offset; };
struct Preference { uint64_t token; uint64_t workspace; uint32_t mask; uint32_t alignment[4]; };
struct Algo { uint64_t data[8]; };
struct Result { Algo algo; size_t workspace; int state; float waves; int reserved[4]; };

// What a product is, as one number: an algorithm found for one product is none for another.
uint64_t key(const Desc *d, const Layout *const *l) {
    uint64_t hash = 1469598103934665603ull;
    auto add = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211ull; };
    add(d->compute), add(d->trans[0]), add(d->trans[1]), add(d->epilogue), add((uint64_t)(uintptr_t)d->bias % 16);
    for (int i = 0; i < 4; ++i) add(l[i]->type), add(l[i]->rows), add(l[i]->cols), add(l[i]->ld), add(l[i]->count), add(l[i]->offset);
    return hash;
}

size_t size_of(int type) { return type == R_64F ? 8 : type == R_32F ? 4 : 2; }

double half(uint16_t bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                 : exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
    return bits >> 15 ? -value : value;
}

double load(const void *p, int type, int64_t i) {
    if (type == R_64F) return ((const double *)p)[i];
    if (type == R_32F) return ((const float *)p)[i];
    uint16_t bits = ((const uint16_t *)p)[i];
    if (type == R_16F) return half(bits);
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}

void store(void *p, int type, int64_t i, double value) {
    if (type == R_64F) { ((double *)p)[i] = value; return; }
    float one = (float)value;
    if (type == R_32F) { ((float *)p)[i] = one; return; }
    if (type == R_16F) { _Float16 h = (_Float16)one; std::memcpy((uint16_t *)p + i, &h, 2); return; }
    uint32_t bits;
    std::memcpy(&bits, &one, 4);
    if (!std::isnan(one)) bits += 0x7fff + (bits >> 16 & 1);
    ((uint16_t *)p)[i] = bits >> 16;
}

bool fits(const Desc *d, const Layout *const *l) {
    uint64_t m = l[3]->rows, n = l[3]->cols;
    uint64_t k = d->trans[0] ? l[0]->rows : l[0]->cols;
    if ((d->trans[0] ? l[0]->cols : l[0]->rows) != m) return false;
    if ((d->trans[1] ? l[1]->cols : l[1]->rows) != k || (d->trans[1] ? l[1]->rows : l[1]->cols) != n) return false;
    if (l[2]->rows != m || l[2]->cols != n || l[2]->type != l[3]->type) return false;
    for (int i = 0; i < 4; ++i) {
        if (l[i]->ld < (int64_t)l[i]->rows || l[i]->count != l[3]->count) return false;
        if (i >= 2 && l[i]->count > 1 && l[i]->offset < l[i]->ld * (int64_t)(l[i]->cols - 1) + (int64_t)l[i]->rows) return false;
    }
    int in = l[0]->type, out = l[3]->type;
    if (l[1]->type != in) return false;
    if (in == R_64F) return out == R_64F && d->compute == 70 && d->scale == R_64F && d->epilogue == 1;
    if (d->scale != R_32F || (out != in && out != R_32F)) return false;
    if (d->compute != 68 && !(d->compute == 77 && in == R_32F)) return false;
    return d->epilogue == 1 || (d->epilogue == 4 && d->bias && d->bias_type == out);
}

template <class T> int set(T &field, const void *from, size_t size) {
    if (size != sizeof(T)) return INVALID_VALUE;
    std::memcpy(&field, from, size);
    return SUCCESS;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return VERSION; }
const char *cublasLtGetStatusName(int status) {
    return status == INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : status == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED" : "CUBLAS_STATUS_SUCCESS";
}
int cublasLtCreate(void **handle) { *handle = new uint64_t(TOKEN); return SUCCESS; }
int cublasLtDestroy(uint64_t *handle) { delete handle; return SUCCESS; }

int cublasLtMatmulDescCreate(Desc **made, int compute, int scale) {
    *made = new Desc{TOKEN, compute, scale, {0, 0}, 1, nullptr, -1};
    return SUCCESS;
}
int cublasLtMatmulDescDestroy(Desc *one) { one->token = 0; delete one; return SUCCESS; }
int cublasLtMatmulDescSetAttribute(Desc *d, int what, const void *from, size_t size) {
    switch (what) {
    case 3: return set(d->trans[0], from, size);
    case 4: return set(d->trans[1], from, size);
    case 7: return set(d->epilogue, from, size);
    case 8: return set(d->bias, from, size);
    case 26: return set(d->bias_type, from, size);
    }
    return INVALID_VALUE;
}

int cublasLtMatrixLayoutCreate(Layout **made, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    *made = new Layout{TOKEN, type, rows, cols, ld, 1, 0};
    return SUCCESS;
}
int cublasLtMatrixLayoutDestroy(Layout *one) { one->token = 0; delete one; return SUCCESS; }
int cublasLtMatrixLayoutSetAttribute(Layout *l, int what, const void *from, size_t size) {
    return what == 5 ? set(l->count, from, size) : what == 6 ? set(l->offset, from, size) : INVALID_VALUE;
}

int cublasLtMatmulPreferenceCreate(Preference **made) {
    *made = new Preference{TOKEN, 0, 7, {256, 256, 256, 256}};
    return SUCCESS;
}
int cublasLtMatmulPreferenceDestroy(Preference *one) { one->token = 0; delete one; return SUCCESS; }
int cublasLtMatmulPreferenceSetAttribute(Preference *p, int what, const void *from, size_t size) {
    if (what == 1) return set(p->workspace, from, size);
    if (what == 3) return set(p->mask, from, size);
    return what >= 5 && what <= 8 ? set(p->alignment[what - 5], from, size) : INVALID_VALUE;
}

int cublasLtMatmulAlgoGetHeuristic(uint64_t *handle, Desc *d, Layout *a, Layout *b, Layout *c, Layout *out, Preference *p,
                                   int wanted, Result *results, int *count) {
    const Layout *l[4] = {a, b, c, out};
    *count = 0;
    if (*handle != TOKEN || d->token != TOKEN || p->token != TOKEN || wanted < 1) return INVALID_VALUE;
    if (!fits(d, l)) return NOT_SUPPORTED;
    Result found = {};
    found.algo.data[0] = key(d, l);
    for (int i = 0; i < 4; ++i) found.algo.data[1 + i] = p->alignment[i];
    // Half of the products want some workspace, and write all over it.
    found.workspace = found.algo.data[0] % 2 && p->workspace >= 4096 ? 4096 : 0;
    found.algo.data[5] = found.workspace;
    found.algo.data[6] = p->mask;
    results[0] = found;
    *count = 1;
    return SUCCESS;
}

int cublasLtMatmul(uint64_t *handle, Desc *d, const void *alpha, const void *a, Layout *la, const void *b, Layout *lb,
                   const void *beta, const void *c, Layout *lc, void *out, Layout *lo, const Algo *algo, void *workspace,
                   size_t given, void *stream) {
    const Layout *l[4] = {la, lb, lc, lo};
    const void *pointers[4] = {a, b, c, out};
    if (*handle != TOKEN || d->token != TOKEN || stream) return INVALID_VALUE;
    for (int i = 0; i < 4; ++i) {
        if (l[i]->token != TOKEN) return INVALID_VALUE;
        if ((uintptr_t)pointers[i] % algo->data[1 + i]) return EXECUTION_FAILED;  // a misaligned address
    }
    if (algo->data[0] != key(d, l) || algo->data[6] != 2 || given < algo->data[5]) return INVALID_VALUE;
    if (given && ((uintptr_t)workspace % 256 || !workspace)) return EXECUTION_FAILED;
    if (algo->data[5]) std::memset(workspace, 0xff, given);
    const bool wide = d->scale == R_64F;
    const double by = wide ? *(const double *)alpha : *(const float *)alpha;
    if (wide ? *(const double *)beta : *(const float *)beta) return NOT_SUPPORTED;
    const int64_t k = d->trans[0] ? la->rows : la->cols;
    for (int64_t one = 0; one < lo->count; ++one)
        for (int64_t j = 0; j < (int64_t)lo->cols; ++j)
            for (int64_t i = 0; i < (int64_t)lo->rows; ++i) {
                double total = 0;
                for (int64_t p = 0; p < k; ++p)
                    total += load(a, la->type, one * la->offset + (d->trans[0] ? p + i * la->ld : i + p * la->ld)) *
                             load(b, lb->type, one * lb->offset + (d->trans[1] ? j + p * lb->ld : p + j * lb->ld));
                total *= by;
                if (d->epilogue == 4) total += load(d->bias, d->bias_type, i);
                store(out, lo->type, one * lo->offset + i + j * lo->ld, total);
            }
    return SUCCESS;
}
}
