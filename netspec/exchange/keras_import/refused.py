"""Operations of Keras that are not read, and why: a net computes each sample by itself, of sizes that are known."""

from __future__ import annotations

from collections.abc import Mapping

_REASONS: Mapping[str, str] = {
    "it joins samples": (
        "all_close corrcoef correlate cross flipud diag diagflat dot histogram in_top_k inner kron outer segment_max "
        "segment_min segment_prod segment_sum segment_reduction tensordot vdot bincount "
        "search_sorted c_dist trapezoid vander ravel broadcast_to size ndim unravel_index"
    ),
    "its code is not in the file": "associative_scan cond fori_loop jvp map scan switch vectorized_map while_loop",
    "its result has no size that is known before": "nonzero unique ctc_decode",
    "it computes with complex numbers": (
        "angle fft fft2 ifft2 imag irfft isreal istft polar rfft stft view_as_complex view_as_real eig"
    ),
    "it makes matrices anew, by a procedure with steps of its own": (
        "cholesky cholesky_inverse eigh inv logdet lstsq lu_factor matrix_rank pinv qr slogdet solve "
        "solve_triangular svd"
    ),
    "it is a loss": "binary_crossentropy categorical_crossentropy ctc_loss psnr sparse_categorical_crossentropy ssim",
    "it makes data, of no tensor": "arange empty_like full geomspace linspace logspace meshgrid",
    "it sorts, and takes what lies in the middle": (
        "argpartition median percentile quantile nanmedian nanpercentile nanquantile digitize"
    ),
    "it tells numbers that are none from others": (
        "nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum nanvar"
    ),
    "it transforms images in a way for which there is no layer": (
        "affine_transform elastic_transform extract_patches gaussian_blur hsv_to_rgb map_coordinates "
        "perspective_transform rgb_to_hsv scale_and_translate sobel_edges rgb_to_grayscale"
    ),
    "it reads weights that are no layer's": (
        "batch_norm conv_transpose dot_product_attention layer_norm rms_norm separable_conv depthwise_conv"
    ),
    "it puts numbers at places that it reads": "scatter slice_update",
    "no layer computes this function": "arctan2 erfinv gcd i0 isclose is_in lcm nextafter rot90",
    "its pattern is a language of its own": "rearrange",
    "it cuts data into windows that lie over each other": "extract_sequences unfold",
    "it has several results of which each is computed by itself: use operations of one": (
        "moments dstack dsplit vsplit vstack"
    ),
    "its places are told by a second tensor for all samples": "multi_hot saturate_cast",
}
REFUSED: Mapping[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""By the name of the operation."""
