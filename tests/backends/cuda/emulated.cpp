// Runs CUDA C++ on the CPU, one block after another, and checks every access to memory.
//
// The compiler instruments kernels (-fsanitize=thread,...), and the hooks that it calls before each load and store are
// defined here, so that no sanitizer library is needed and Python is not affected. A kernel stops at its first error,
// before the access happens. The checks are those of compute-sanitizer: bounds, alignment, memory that nothing has
// written, data races, barriers that not all threads reach; and undefined behaviour of C++.
#include <algorithm>
#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

typedef uintptr_t Address;
typedef const void *Code;

// An array that the kernel may access: a parameter, or one that a table of addresses points to. `CUDA_ARRAY` of
// emulator.py has the same fields.
struct Array {
    Address begin, end;
    const uint8_t *elements; // 1 for each element between begin and end that belongs to the array; null: all do
    const char *name;
    uint32_t itemsize, writable;
};

// When the elements of a span were last accessed, and by which thread. Times count the intervals between barriers of all
// blocks that ever ran.
struct Cell {
    uint32_t written, first_read, last_read;
    uint16_t writer, reader; // of the interval of `written` and `last_read`
};

// Arrays that overlap, or a shared array.
struct Span {
    Address begin, end;
    uint32_t grain; // bytes of a cell
    bool shared;
    size_t cells; // index of the first one
    std::vector<Array> arrays;
};

// Fibers: each thread runs until a barrier, a shuffle or its end.
enum State { READY, AT_BARRIER, AT_SHUFFLE, ENDED };
struct Fiber {
    ucontext_t context;
    jmp_buf resume;
    bool started;
    State state;
    int site; // which barrier or shuffle of the source it waits at
    uint64_t value;
};

static const unsigned WARP = 32, MAX_THREADS = 1024, SEVERAL = 0xffff;
static const size_t STACK = 1 << 16, FOUND = 256;

static std::vector<Span> spans, shared_spans;
static std::vector<Cell> cells, shared_cells;
static std::map<Address, std::pair<Address, uint8_t *>> undefined_memory; // by its end: begin, 1 for each undefined byte
static Span *found_spans[FOUND]; // of the addresses that were looked up last in this launch
static uint32_t now, launch_began, block_began;

static std::vector<Fiber> fibers;
static Address stacks;
static jmp_buf scheduler, stopped;
static void (*kernel)(void **);
static void **parameters;
static unsigned thread, threads, block, blocks;
static uint32_t order, random_state;
static bool running;
static std::string message;

[[noreturn]] __attribute__((cold, noinline)) static void fail(Code code, const char *format, ...) {
    char text[600], place[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(place, sizeof place, "%p\tthread %u of %u, block %u of %u: ", code, thread, threads, block, blocks);
    message = std::string(place) + text;
    running = false;
    _longjmp(stopped, 1);
}

// Memory.

static Span *span_among(std::vector<Span> &group, Address address) {
    const auto after =
        std::upper_bound(group.begin(), group.end(), address, [](Address a, const Span &s) { return a < s.begin; });
    return after == group.begin() || address >= (after - 1)->end ? nullptr : &*(after - 1);
}

static Span *span_of(Address address) {
    Span *&known = found_spans[address >> 9 & (FOUND - 1)];
    if (known && address >= known->begin && address < known->end) return known;
    Span *found = span_among(spans, address);
    if (!found) found = span_among(shared_spans, address);
    return found ? known = found : nullptr;
}

static const char *noun(bool write) { return write ? "writes" : "reads"; }

[[noreturn]] __attribute__((cold, noinline)) static void outside(Address address, unsigned size, bool write, Code code) {
    const Array *nearest = nullptr;
    long distance = 0;
    for (const auto *group : {&spans, &shared_spans}) {
        for (const Span &span : *group) {
            for (const Array &array : span.arrays) {
                const long before = (long)(array.begin - address), after = (long)(address - array.end);
                const long own = std::max(before, after);
                if (!nearest || own < distance) nearest = &array, distance = own;
            }
        }
    }
    if (!nearest) fail(code, "%s %u bytes outside of all arrays", noun(write), size);
    fail(code, "%s %u bytes outside of all arrays; `%s` has %ld bytes, and they are at offset %ld", noun(write), size,
         nearest->name, (long)(nearest->end - nearest->begin), (long)(address - nearest->begin));
}

static const Array *array_of(const Span &span, Address address, unsigned size, bool write, Code code) {
    const Array *found = nullptr;
    for (const Array &array : span.arrays) { // one, mostly
        if (address < array.begin || address + size > array.end) continue;
        bool inside = true;
        for (Address at = address; array.elements && at < address + size; at += array.itemsize)
            inside &= array.elements[(at - array.begin) / array.itemsize];
        if (inside && (!found || array.writable)) found = &array;
    }
    if (!found) outside(address, size, write, code);
    if (write && !found->writable) fail(code, "writes `%s`, which is const", found->name);
    return found;
}

static void check_defined(const Array &array, Address address, unsigned size, bool write, Code code) {
    auto memory = undefined_memory.upper_bound(address);
    if (memory == undefined_memory.end() || address < memory->second.first) return;
    uint8_t *bytes = memory->second.second + (address - memory->second.first);
    for (unsigned i = 0; i < size; ++i) {
        if (write) bytes[i] = 0;
        else if (bytes[i])
            fail(code, "reads `%s` at offset %ld, which nothing has written", array.name, (long)(address - array.begin));
    }
}

static void check_race(const Span &span, const Array &array, Address address, unsigned size, bool write, Code code) {
    Cell *first = (span.shared ? shared_cells : cells).data() + span.cells;
    const Cell *last = first + (address + size - 1 - span.begin) / span.grain;
    const uint32_t began = span.shared ? block_began : launch_began;
    const long offset = (long)(address - array.begin);
    for (Cell *cell = first + (address - span.begin) / span.grain; cell <= last; ++cell) {
        if (cell->written >= began) {
            if (cell->written < block_began)
                fail(code, "%s `%s` at offset %ld, which another block writes", noun(write), array.name, offset);
            if (cell->written == now && cell->writer != thread)
                fail(code, "%s `%s` at offset %ld, which thread %u writes without a barrier between them", noun(write),
                     array.name, offset, cell->writer);
        }
        if (write) {
            if (cell->first_read >= began && cell->first_read < block_began)
                fail(code, "writes `%s` at offset %ld, which another block reads", array.name, offset);
            if (cell->last_read == now && cell->reader != thread)
                fail(code, "writes `%s` at offset %ld, which another thread reads without a barrier between them", array.name,
                     offset);
            cell->written = now, cell->writer = thread;
        } else {
            if (span.shared && cell->written < began)
                fail(code, "reads `%s` at offset %ld, which nothing has written", array.name, offset);
            if (cell->first_read < began) cell->first_read = now;
            cell->reader = cell->last_read == now && cell->reader != thread ? SEVERAL : thread;
            cell->last_read = now;
        }
    }
}

static inline void check(Address address, unsigned size, bool write, bool aligned, Code code) {
    if (!running || address - stacks < MAX_THREADS * STACK) return;
    Span *span = span_of(address);
    if (!span) outside(address, size, write, code);
    const Array *array = array_of(*span, address, size, write, code);
    if (aligned && address % size)
        fail(code, "%s %u bytes of `%s` at once at an address that is not a multiple of that", noun(write), size, array->name);
    check_race(*span, *array, address, size, write, code);
    if (!span->shared && !undefined_memory.empty()) check_defined(*array, address, size, write, code);
}

#define CALLER __builtin_return_address(0)
#define HOOKS(size)                                                                                                    \
    void __tsan_read##size(void *at) { check((Address)at, size, false, true, CALLER); }                                \
    void __tsan_write##size(void *at) { check((Address)at, size, true, true, CALLER); }                                \
    void __tsan_volatile_read##size(void *at) { check((Address)at, size, false, true, CALLER); }                       \
    void __tsan_volatile_write##size(void *at) { check((Address)at, size, true, true, CALLER); }                       \
    void __tsan_unaligned_read##size(void *at) { check((Address)at, size, false, false, CALLER); }                     \
    void __tsan_unaligned_write##size(void *at) { check((Address)at, size, true, false, CALLER); }
extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *at, unsigned long size) { check((Address)at, size, false, false, CALLER); }
void __tsan_write_range(void *at, unsigned long size) { check((Address)at, size, true, false, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}

#define UNDEFINED(handler, meaning)                                                                                    \
    void __ubsan_handle_##handler() {                                                                                  \
        if (running) fail(CALLER, "undefined behaviour: " meaning);                                                    \
    }
UNDEFINED(add_overflow, "a sum of integers overflows")
UNDEFINED(sub_overflow, "a difference of integers overflows")
UNDEFINED(mul_overflow, "a product of integers overflows")
UNDEFINED(negate_overflow, "the negative of an integer overflows")
UNDEFINED(divrem_overflow, "an integer division by 0, or one that overflows")
UNDEFINED(shift_out_of_bounds, "a shift by a negative or too large number, or of a negative one")
UNDEFINED(out_of_bounds, "an index outside of an array of fixed size")
UNDEFINED(type_mismatch_v1, "a null or misaligned pointer")
UNDEFINED(load_invalid_value, "a bool that is neither 0 nor 1")
UNDEFINED(float_cast_overflow, "a float that is outside of the range of the integer type")
}

// Threads.

static void leave(State state, int site) {
    Fiber &own = fibers[thread];
    own.state = state;
    own.site = site;
    if (_setjmp(own.resume) == 0) _longjmp(scheduler, 1);
}

static void fiber() {
    for (;;) { // once for each block
        kernel(parameters);
        leave(ENDED, 0);
    }
}

static void resume(unsigned which) {
    Fiber &own = fibers[thread = which];
    const bool starts = !own.started;
    own.state = READY;
    own.started = true;
    if (_setjmp(scheduler) == 0) {
        if (starts) setcontext(&own.context);
        else _longjmp(own.resume, 1);
    }
}

// 0 … count - 1: forwards, backwards, or shuffled.
static std::vector<unsigned> in_order(unsigned count) {
    std::vector<unsigned> found(count);
    for (unsigned i = 0; i < count; ++i) found[i] = order == 1 ? count - 1 - i : i;
    for (unsigned i = count; order > 1 && i > 1; --i) {
        random_state = random_state * 1664525 + 1013904223;
        std::swap(found[i - 1], found[(random_state >> 8) % i]);
    }
    return found;
}

static void check_together(unsigned first, unsigned last, const char *group) {
    for (thread = first; thread < last; ++thread) {
        if (fibers[thread].state != fibers[first].state || fibers[thread].site != fibers[first].site)
            fail(nullptr, "the threads of a %s are not at the same barrier, shuffle or end", group);
    }
}

static void run_warp(unsigned first, unsigned last) {
    const std::vector<unsigned> lanes = in_order(last - first);
    do {
        for (unsigned lane : lanes) resume(first + lane);
        check_together(first, last, "warp");
    } while (fibers[first].state == AT_SHUFFLE);
}

static void run_block() {
    block_began = now + 1;
    do {
        ++now;
        for (unsigned warp : in_order((threads + WARP - 1) / WARP))
            run_warp(warp * WARP, std::min((warp + 1) * WARP, threads));
        check_together(0, threads, "block");
    } while (fibers[0].state != ENDED);
}

static void prepare_fibers() {
    if (!stacks) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        stacks = (Address)mmap(nullptr, MAX_THREADS * STACK, PROT_READ | PROT_WRITE, flags, -1, 0);
        fibers.resize(MAX_THREADS);
    }
    for (unsigned i = 0; i < MAX_THREADS; ++i) {
        getcontext(&fibers[i].context);
        fibers[i].context.uc_stack.ss_sp = (void *)(stacks + i * STACK);
        fibers[i].context.uc_stack.ss_size = STACK;
        makecontext(&fibers[i].context, fiber, 0);
        fibers[i].started = false;
    }
}

static void add_to(std::vector<Span> &group, const Array &array) {
    if (!group.empty() && array.begin < group.back().end) {
        Span &span = group.back();
        span.end = std::max(span.end, array.end);
        span.grain = std::min(span.grain, array.itemsize);
        span.arrays.push_back(array);
    } else {
        group.push_back(Span{array.begin, array.end, array.itemsize, false, 0, {array}});
    }
}

static void number_cells(std::vector<Span> &group, std::vector<Cell> &pool) {
    size_t count = 0;
    for (Span &span : group) {
        span.cells = count;
        count += (span.end - span.begin) / span.grain + 1;
    }
    if (pool.size() < count) pool.resize(count);
}

extern "C" {
unsigned emulated_thread() { return thread; }
unsigned emulated_threads() { return threads; }
unsigned emulated_block() { return block; }
unsigned emulated_blocks() { return blocks; }

void emulated_barrier(int site) { leave(AT_BARRIER, site); }

// The value of another lane of the warp, or the thread's own value if `lane` is 32 or more.
uint64_t emulated_shuffle(unsigned mask, uint64_t value, unsigned lane, int site) {
    const unsigned other = thread / WARP * WARP + lane;
    if (mask != 0xffffffff) fail(CALLER, "a shuffle with a mask that omits threads of the warp");
    if (lane < WARP && other >= threads) fail(CALLER, "a shuffle from a thread that does not exist");
    fibers[thread].value = value;
    leave(AT_SHUFFLE, site);
    if (lane < WARP) value = fibers[other].value;
    leave(AT_SHUFFLE, -site); // no thread sets its next value before all have read this one
    return value;
}

// A shared array of a library that was loaded.
void emulated_shared(Address begin, size_t size, const char *name) {
    const uint32_t grain = size % 4 ? 1 : 4;
    const Array array{begin, begin + size, nullptr, strdup(name), grain, 1}; // for as long as the process lives
    const auto after = std::upper_bound(shared_spans.begin(), shared_spans.end(), begin,
                                        [](Address a, const Span &s) { return a < s.begin; });
    shared_spans.insert(after, Span{begin, begin + size, grain, true, 0, {array}});
    number_cells(shared_spans, shared_cells);
}

// Sets the map of undefined bytes of the memory: 1 for each byte that nothing has written; null: all are defined.
void emulated_undefined(Address begin, Address end, uint8_t *bytes) {
    undefined_memory.erase(end);
    if (bytes) undefined_memory[end] = {begin, bytes};
}

// Runs a kernel. Returns its first error, after the address of the code and a tab, or null. `arrays` are sorted by their
// begin. Blocks and threads run forwards (turn 0), backwards (1), or in a random order that `turn` seeds.
const char *emulated_run(void (*function)(void **), void **values, unsigned grid, unsigned size, const Array *arrays,
                         unsigned count, uint32_t turn) {
    kernel = function, parameters = values, blocks = grid, threads = size, order = random_state = turn;
    spans.clear();
    for (unsigned i = 0; i < count; ++i) {
        if (arrays[i].begin < arrays[i].end) add_to(spans, arrays[i]);
    }
    number_cells(spans, cells);
    std::fill(found_spans, found_spans + FOUND, nullptr);
    launch_began = now + 1;
    if (!stacks) prepare_fibers();
    if (_setjmp(stopped) == 0) {
        running = true;
        for (unsigned which : in_order(blocks)) {
            block = which;
            run_block();
        }
        running = false;
        return nullptr;
    }
    prepare_fibers(); // some are in the middle of the kernel
    return message.c_str();
}
}
