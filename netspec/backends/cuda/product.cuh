// Tiles of matrix products: a block has 64 rows and 64 columns of the result, each of its 256 threads 4 x 4 of them, and
// 16 steps of the depth at a time in shared memory. An operand says where its elements are: it has lines, which are rows of
// the left one and columns of the right one, and steps along the depth, both decoded apart from each other, since a thread
// meets the same few of them again and again. `ALONG` says whether neighbouring threads best read along the depth.

#define TILE 64
#define DEPTH 16

// A matrix with a step in memory along both axes.
template <typename T, typename Index, bool along> struct Matrix {
    enum { ALONG = along };
    const T *first;
    Index lines, from_line, from_step;

    __device__ Index line(Index number) const { return number < lines ? number * from_line : -1; }
    __device__ Index step(Index number) const { return number * from_step; }
    __device__ auto at(Index line, Index step) const { return line < 0 ? 0 : load(first[line + step]); }
};

// Puts a tile's part of an operand into shared memory; what lies outside of it is 0.
template <typename Index, typename Operand> struct Loader {
    enum { LINES = Operand::ALONG ? 4 : 1 };
    typedef decltype(((Operand *)0)->line(0)) Line;
    const Operand &operand;
    Line lines[LINES];

    __device__ Loader(const Operand &given, Index first) : operand(given) {
        for (int i = 0; i < LINES; ++i) {
            lines[i] = operand.line(first + (Operand::ALONG ? threadIdx.x / DEPTH + DEPTH * i : threadIdx.x % TILE));
        }
    }

    template <typename Number> __device__ void load_tile(Index first, Index last, Number (&to)[DEPTH][TILE + 1]) const {
        for (int i = 0; i < 4; ++i) {
            const int depth = Operand::ALONG ? threadIdx.x % DEPTH : threadIdx.x / TILE + 4 * i;
            const int line = Operand::ALONG ? threadIdx.x / DEPTH + DEPTH * i : threadIdx.x % TILE;
            const bool inside = first + depth < last;
            to[depth][line] = inside ? operand.at(lines[Operand::ALONG ? i : 0], operand.step(first + depth)) : 0;
        }
    }
};

// Sums over the depth from `first` to before `last`, for rows from `top` and columns from `side` on; thread t has those that
// are t / 16 and t % 16 further on, and each 16th after that.
template <typename Number, typename Index, typename Left, typename Right>
__device__ inline void tile_of_product(const Left &left, const Right &right, Index top, Index side, Index first,
                                       Index last, Number (&sums)[4][4]) {
    __shared__ Number a[DEPTH][TILE + 1], b[DEPTH][TILE + 1];
    const Loader<Index, Left> from_left(left, top);
    const Loader<Index, Right> from_right(right, side);
    const int row = threadIdx.x / 16, column = threadIdx.x % 16;
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) sums[i][j] = 0;
    }
    for (Index start = first; start < last; start += DEPTH) {
        __syncthreads();
        from_left.load_tile(start, last, a);
        from_right.load_tile(start, last, b);
        __syncthreads();
        for (int k = 0; k < DEPTH; ++k) {
            for (int i = 0; i < 4; ++i) {
                for (int j = 0; j < 4; ++j) sums[i][j] += a[k][row + 16 * i] * b[k][column + 16 * j];
            }
        }
    }
}

// What convolutions multiply, channels last: sizes of the window, steps, padding before, and dilation, along depth, height
// and width of an image.
template <int kd, int kh, int kw, int sd, int sh, int sw, int pd, int ph, int pw, int dd, int dh, int dw> struct Window {
    enum { KD = kd, KH = kh, KW = kw, SD = sd, SH = sh, SW = sw, PD = pd, PH = ph, PW = pw, DD = dd, DH = dh, DW = dw };
};

template <typename Index> struct Sizes {
    Index d, h, w;
};

// A position in an image: the offset of the image in memory, and the coordinates of a window or an element.
template <typename Index> struct Spot {
    Index image, d, h, w;
};

// One element of a window, and a channel.
template <typename Index> struct Tap {
    Index d, h, w, channel;
};

template <typename W, typename Index> __device__ inline Tap<Index> tap_of(Index number, Index channels) {
    const Index offset = number / channels;
    return {offset / (W::KH * W::KW) * W::DD, offset / W::KW % W::KH * W::DH, offset % W::KW * W::DW, number % channels};
}

template <typename Index> __device__ inline Spot<Index> spot_of(Index number, Index count, const Sizes<Index> &over) {
    if (number >= count) return {-1, 0, 0, 0};
    return {number / over.w / over.h / over.d, number / over.w / over.h % over.d, number / over.w % over.h, number % over.w};
}

// The operand of a convolution as a matrix: positions of the result, and elements of the window at each.
template <typename W, typename T, typename Index> struct Patches {
    const T *first;
    Index count, channels, own; // positions; channels of an image, and of a group
    Sizes<Index> in, out;

    __device__ Spot<Index> spot(Index number) const {
        const Spot<Index> at = spot_of(number, count, out);
        return {at.image, at.d * W::SD - W::PD, at.h * W::SH - W::PH, at.w * W::SW - W::PW};
    }
    __device__ Tap<Index> tap(Index number) const { return tap_of<W>(number, own); }
    __device__ auto value(const Spot<Index> &spot, const Tap<Index> &tap) const {
        const Index d = spot.d + tap.d, h = spot.h + tap.h, w = spot.w + tap.w;
        const bool inside = spot.image >= 0 && d >= 0 && h >= 0 && w >= 0 && d < in.d && h < in.h && w < in.w;
        return inside ? load(first[(((spot.image * in.d + d) * in.h + h) * in.w + w) * channels + tap.channel]) : 0;
    }
};

// Gradients of a convolution's result as a matrix: positions of the operand, and the windows that contain them.
template <typename W, typename T, typename Index> struct Flows {
    const T *first;
    Index count, channels, own;
    Sizes<Index> in, out;

    __device__ Spot<Index> spot(Index number) const {
        const Spot<Index> at = spot_of(number, count, in);
        return {at.image, at.d + W::PD, at.h + W::PH, at.w + W::PW};
    }
    __device__ Tap<Index> tap(Index number) const { return tap_of<W>(number, own); }
    __device__ auto value(const Spot<Index> &spot, const Tap<Index> &tap) const {
        const Index front = spot.d - tap.d, top = spot.h - tap.h, left = spot.w - tap.w;
        const Index d = front / W::SD, h = top / W::SH, w = left / W::SW;
        const bool inside = spot.image >= 0 && front >= 0 && top >= 0 && left >= 0 && front % W::SD == 0 &&
                            top % W::SH == 0 && left % W::SW == 0 && d < out.d && h < out.h && w < out.w;
        return inside ? load(first[(((spot.image * out.d + d) * out.h + h) * out.w + w) * channels + tap.channel]) : 0;
    }
};

// Such a matrix as the left operand of a product: its lines are positions.
template <typename Index, typename Seen> struct ByPlace {
    enum { ALONG = true };
    const Seen seen;

    __device__ Spot<Index> line(Index number) const { return seen.spot(number); }
    __device__ Tap<Index> step(Index number) const { return seen.tap(number); }
    __device__ auto at(const Spot<Index> &line, const Tap<Index> &step) const { return seen.value(line, step); }
};

// And as the right one, turned: its lines are elements of the window.
template <typename Index, typename Seen> struct ByTap {
    enum { ALONG = false };
    const Seen seen;
    Index lines;

    __device__ Tap<Index> line(Index number) const { return seen.tap(number < lines ? number : 0); }
    __device__ Spot<Index> step(Index number) const { return seen.spot(number); }
    __device__ auto at(const Tap<Index> &line, const Spot<Index> &step) const { return seen.value(step, line); }
};

// The kernel of a convolution as the right operand: lines are its filters or its channels, steps the elements of the window
// for each of the others.
template <typename W, typename T, typename Index, bool along> struct Kernels {
    enum { ALONG = along };
    const T *first;
    Index lines, from_line, own, from_other;

    __device__ Index line(Index number) const { return number < lines ? number * from_line : -1; }
    __device__ Index step(Index number) const { return number % own * from_other + number / own; }
    __device__ auto at(Index line, Index step) const { return line < 0 ? 0 : load(first[line + step]); }
};
