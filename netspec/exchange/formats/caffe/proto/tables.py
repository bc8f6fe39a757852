"""The messages and enums of caffe.proto (BVLC, 2020) that nets, weights and solvers are made of, as plain tables.

`number type name = default`; a type that is not a scalar is a message or an enum. `Datum` is read in `netspec.data`.
"""

from __future__ import annotations

ENUMS = """
Phase: TRAIN=0 TEST=1
VarianceNorm: FAN_IN=0 FAN_OUT=1 AVERAGE=2
SnapshotFormat: HDF5=0 BINARYPROTO=1
SolverMode: CPU=0 GPU=1
SolverType: SGD=0 NESTEROV=1 ADAGRAD=2 RMSPROP=3 ADADELTA=4 ADAM=5
DimCheckMode: STRICT=0 PERMISSIVE=1
NormalizationMode: FULL=0 VALID=1 BATCH_SIZE=2 NONE=3
Engine: DEFAULT=0 CAFFE=1 CUDNN=2
DB: LEVELDB=0 LMDB=1
EltwiseOp: PROD=0 SUM=1 MAX=2
Norm: L1=1 L2=2
NormRegion: ACROSS_CHANNELS=0 WITHIN_CHANNEL=1
PoolMethod: MAX=0 AVE=1 STOCHASTIC=2
RoundMode: CEIL=0 FLOOR=1
ReductionOp: SUM=1 ASUM=2 SUMSQ=3 MEAN=4
LayerType: NONE=0 ABSVAL=35 ACCURACY=1 ARGMAX=30 BNLL=2 CONCAT=3 CONTRASTIVE_LOSS=37 CONVOLUTION=4 DATA=5
    DECONVOLUTION=39 DROPOUT=6 DUMMY_DATA=32 EUCLIDEAN_LOSS=7 ELTWISE=25 EXP=38 FLATTEN=8 HDF5_DATA=9 HDF5_OUTPUT=10
    HINGE_LOSS=28 IM2COL=11 IMAGE_DATA=12 INFOGAIN_LOSS=13 INNER_PRODUCT=14 LRN=15 MEMORY_DATA=29
    MULTINOMIAL_LOGISTIC_LOSS=16 MVN=34 POOLING=17 POWER=26 RELU=18 SIGMOID=19 SIGMOID_CROSS_ENTROPY_LOSS=27
    SILENCE=36 SOFTMAX=20 SOFTMAX_LOSS=21 SPLIT=22 SLICE=33 TANH=23 WINDOW_DATA=24 THRESHOLD=31
"""

NET = """
NetParameter:
    1 string name; 2 repeated V1LayerParameter layers; 3 repeated string input; 4 repeated int32 input_dim;
    5 bool force_backward = false; 6 NetState state; 7 bool debug_info = false; 8 repeated BlobShape input_shape;
    100 repeated LayerParameter layer;
NetState:
    1 Phase phase = TEST; 2 int32 level = 0; 3 repeated string stage;
NetStateRule:
    1 Phase phase; 2 int32 min_level; 3 int32 max_level; 4 repeated string stage; 5 repeated string not_stage;
LayerParameter:
    1 string name; 2 string type; 3 repeated string bottom; 4 repeated string top; 5 repeated float loss_weight;
    6 repeated ParamSpec param; 7 repeated BlobProto blobs; 8 repeated NetStateRule include;
    9 repeated NetStateRule exclude; 10 Phase phase; 11 repeated bool propagate_down;
    100 TransformationParameter transform_param; 101 LossParameter loss_param; 102 AccuracyParameter accuracy_param;
    103 ArgMaxParameter argmax_param; 104 ConcatParameter concat_param;
    105 ContrastiveLossParameter contrastive_loss_param; 106 ConvolutionParameter convolution_param;
    107 DataParameter data_param; 108 DropoutParameter dropout_param; 109 DummyDataParameter dummy_data_param;
    110 EltwiseParameter eltwise_param; 111 ExpParameter exp_param; 112 HDF5DataParameter hdf5_data_param;
    113 HDF5OutputParameter hdf5_output_param; 114 HingeLossParameter hinge_loss_param;
    115 ImageDataParameter image_data_param; 116 InfogainLossParameter infogain_loss_param;
    117 InnerProductParameter inner_product_param; 118 LRNParameter lrn_param;
    119 MemoryDataParameter memory_data_param; 120 MVNParameter mvn_param; 121 PoolingParameter pooling_param;
    122 PowerParameter power_param; 123 ReLUParameter relu_param; 124 SigmoidParameter sigmoid_param;
    125 SoftmaxParameter softmax_param; 126 SliceParameter slice_param; 127 TanHParameter tanh_param;
    128 ThresholdParameter threshold_param; 129 WindowDataParameter window_data_param;
    130 PythonParameter python_param; 131 PReLUParameter prelu_param; 132 SPPParameter spp_param;
    133 ReshapeParameter reshape_param; 134 LogParameter log_param; 135 FlattenParameter flatten_param;
    136 ReductionParameter reduction_param; 137 EmbedParameter embed_param; 138 TileParameter tile_param;
    139 BatchNormParameter batch_norm_param; 140 ELUParameter elu_param; 141 BiasParameter bias_param;
    142 ScaleParameter scale_param; 143 InputParameter input_param; 144 CropParameter crop_param;
    145 ParameterParameter parameter_param; 146 RecurrentParameter recurrent_param; 147 SwishParameter swish_param;
    148 ClipParameter clip_param;
ParamSpec:
    1 string name; 2 DimCheckMode share_mode; 3 float lr_mult = 1; 4 float decay_mult = 1;
FillerParameter:
    1 string type = constant; 2 float value = 0; 3 float min = 0; 4 float max = 1; 5 float mean = 0; 6 float std = 1;
    7 int32 sparse = -1; 8 VarianceNorm variance_norm = FAN_IN;
BlobProto:
    1 int32 num = 0; 2 int32 channels = 0; 3 int32 height = 0; 4 int32 width = 0; 5 packed float data;
    6 packed float diff; 7 BlobShape shape; 8 packed double double_data; 9 packed double double_diff;
BlobShape:
    1 packed int64 dim;
AccuracyParameter:
    1 uint32 top_k = 1; 2 int32 axis = 1; 3 int32 ignore_label;
ArgMaxParameter:
    1 bool out_max_val = false; 2 uint32 top_k = 1; 3 int32 axis;
BatchNormParameter:
    1 bool use_global_stats; 2 float moving_average_fraction = 0.999; 3 float eps = 1e-05;
BiasParameter:
    1 int32 axis = 1; 2 int32 num_axes = 1; 3 FillerParameter filler;
ClipParameter:
    1 float min; 2 float max;
ConcatParameter:
    1 uint32 concat_dim = 1; 2 int32 axis = 1;
ContrastiveLossParameter:
    1 float margin = 1; 2 bool legacy_version = false;
ConvolutionParameter:
    1 uint32 num_output; 2 bool bias_term = true; 3 repeated uint32 pad; 4 repeated uint32 kernel_size;
    5 uint32 group = 1; 6 repeated uint32 stride; 7 FillerParameter weight_filler; 8 FillerParameter bias_filler;
    9 uint32 pad_h = 0; 10 uint32 pad_w = 0; 11 uint32 kernel_h; 12 uint32 kernel_w; 13 uint32 stride_h;
    14 uint32 stride_w; 15 Engine engine = DEFAULT; 16 int32 axis = 1; 17 bool force_nd_im2col = false;
    18 repeated uint32 dilation;
CropParameter:
    1 int32 axis = 2; 2 repeated uint32 offset;
DataParameter:
    1 string source; 2 float scale = 1; 3 string mean_file; 4 uint32 batch_size; 5 uint32 crop_size = 0;
    6 bool mirror = false; 7 uint32 rand_skip = 0; 8 DB backend = LEVELDB; 9 bool force_encoded_color = false;
    10 uint32 prefetch = 10;
DropoutParameter:
    1 float dropout_ratio = 0.5;
DummyDataParameter:
    1 repeated FillerParameter data_filler; 2 repeated uint32 num; 3 repeated uint32 channels;
    4 repeated uint32 height; 5 repeated uint32 width; 6 repeated BlobShape shape;
ELUParameter:
    1 float alpha = 1;
EltwiseParameter:
    1 EltwiseOp operation = SUM; 2 repeated float coeff; 3 bool stable_prod_grad = true;
EmbedParameter:
    1 uint32 num_output; 2 uint32 input_dim; 3 bool bias_term = true; 4 FillerParameter weight_filler;
    5 FillerParameter bias_filler;
ExpParameter:
    1 float base = -1; 2 float scale = 1; 3 float shift = 0;
FlattenParameter:
    1 int32 axis = 1; 2 int32 end_axis = -1;
HDF5DataParameter:
    1 string source; 2 uint32 batch_size; 3 bool shuffle = false;
HDF5OutputParameter:
    1 string file_name;
HingeLossParameter:
    1 Norm norm = L1;
ImageDataParameter:
    1 string source; 2 float scale = 1; 3 string mean_file; 4 uint32 batch_size = 1; 5 uint32 crop_size = 0;
    6 bool mirror = false; 7 uint32 rand_skip = 0; 8 bool shuffle = false; 9 uint32 new_height = 0;
    10 uint32 new_width = 0; 11 bool is_color = true; 12 string root_folder;
InfogainLossParameter:
    1 string source; 2 int32 axis = 1;
InnerProductParameter:
    1 uint32 num_output; 2 bool bias_term = true; 3 FillerParameter weight_filler; 4 FillerParameter bias_filler;
    5 int32 axis = 1; 6 bool transpose = false;
InputParameter:
    1 repeated BlobShape shape;
LRNParameter:
    1 uint32 local_size = 5; 2 float alpha = 1; 3 float beta = 0.75; 4 NormRegion norm_region = ACROSS_CHANNELS;
    5 float k = 1; 6 Engine engine = DEFAULT;
LogParameter:
    1 float base = -1; 2 float scale = 1; 3 float shift = 0;
LossParameter:
    1 int32 ignore_label; 2 bool normalize; 3 NormalizationMode normalization = VALID;
MVNParameter:
    1 bool normalize_variance = true; 2 bool across_channels = false; 3 float eps = 1e-09;
MemoryDataParameter:
    1 uint32 batch_size; 2 uint32 channels; 3 uint32 height; 4 uint32 width;
PReLUParameter:
    1 FillerParameter filler; 2 bool channel_shared = false;
ParameterParameter:
    1 BlobShape shape;
PoolingParameter:
    1 PoolMethod pool = MAX; 2 uint32 kernel_size; 3 uint32 stride = 1; 4 uint32 pad = 0; 5 uint32 kernel_h;
    6 uint32 kernel_w; 7 uint32 stride_h; 8 uint32 stride_w; 9 uint32 pad_h = 0; 10 uint32 pad_w = 0;
    11 Engine engine = DEFAULT; 12 bool global_pooling = false; 13 RoundMode round_mode = CEIL;
PowerParameter:
    1 float power = 1; 2 float scale = 1; 3 float shift = 0;
PythonParameter:
    1 string module; 2 string layer; 3 string param_str; 4 bool share_in_parallel = false;
ReLUParameter:
    1 float negative_slope = 0; 2 Engine engine = DEFAULT;
RecurrentParameter:
    1 uint32 num_output = 0; 2 FillerParameter weight_filler; 3 FillerParameter bias_filler;
    4 bool debug_info = false; 5 bool expose_hidden = false;
ReductionParameter:
    1 ReductionOp operation = SUM; 2 int32 axis = 0; 3 float coeff = 1;
ReshapeParameter:
    1 BlobShape shape; 2 int32 axis = 0; 3 int32 num_axes = -1;
SPPParameter:
    1 uint32 pyramid_height; 2 PoolMethod pool = MAX; 6 Engine engine = DEFAULT;
ScaleParameter:
    1 int32 axis = 1; 2 int32 num_axes = 1; 3 FillerParameter filler; 4 bool bias_term = false;
    5 FillerParameter bias_filler;
SigmoidParameter:
    1 Engine engine = DEFAULT;
SliceParameter:
    1 uint32 slice_dim = 1; 2 repeated uint32 slice_point; 3 int32 axis = 1;
SoftmaxParameter:
    1 Engine engine = DEFAULT; 2 int32 axis = 1;
SwishParameter:
    1 float beta = 1;
TanHParameter:
    1 Engine engine = DEFAULT;
ThresholdParameter:
    1 float threshold = 0;
TileParameter:
    1 int32 axis = 1; 2 int32 tiles;
TransformationParameter:
    1 float scale = 1; 2 bool mirror = false; 3 uint32 crop_size = 0; 4 string mean_file; 5 repeated float mean_value;
    6 bool force_color = false; 7 bool force_gray = false;
WindowDataParameter:
    1 string source; 2 float scale = 1; 3 string mean_file; 4 uint32 batch_size; 5 uint32 crop_size = 0;
    6 bool mirror = false; 7 float fg_threshold = 0.5; 8 float bg_threshold = 0.5; 9 float fg_fraction = 0.25;
    10 uint32 context_pad = 0; 11 string crop_mode = warp; 12 bool cache_images = false; 13 string root_folder;
"""

OLDER = """
V1LayerParameter:
    1 V0LayerParameter layer; 2 repeated string bottom; 3 repeated string top; 4 string name; 5 LayerType type;
    6 repeated BlobProto blobs; 7 repeated float blobs_lr; 8 repeated float weight_decay;
    9 ConcatParameter concat_param; 10 ConvolutionParameter convolution_param; 11 DataParameter data_param;
    12 DropoutParameter dropout_param; 13 HDF5DataParameter hdf5_data_param; 14 HDF5OutputParameter hdf5_output_param;
    15 ImageDataParameter image_data_param; 16 InfogainLossParameter infogain_loss_param;
    17 InnerProductParameter inner_product_param; 18 LRNParameter lrn_param; 19 PoolingParameter pooling_param;
    20 WindowDataParameter window_data_param; 21 PowerParameter power_param; 22 MemoryDataParameter memory_data_param;
    23 ArgMaxParameter argmax_param; 24 EltwiseParameter eltwise_param; 25 ThresholdParameter threshold_param;
    26 DummyDataParameter dummy_data_param; 27 AccuracyParameter accuracy_param;
    29 HingeLossParameter hinge_loss_param; 30 ReLUParameter relu_param; 31 SliceParameter slice_param;
    32 repeated NetStateRule include; 33 repeated NetStateRule exclude; 34 MVNParameter mvn_param;
    35 repeated float loss_weight; 36 TransformationParameter transform_param; 37 TanHParameter tanh_param;
    38 SigmoidParameter sigmoid_param; 39 SoftmaxParameter softmax_param;
    40 ContrastiveLossParameter contrastive_loss_param; 41 ExpParameter exp_param; 42 LossParameter loss_param;
    1001 repeated string param; 1002 repeated DimCheckMode blob_share_mode;
V0LayerParameter:
    1 string name; 2 string type; 3 uint32 num_output; 4 bool biasterm = true; 5 FillerParameter weight_filler;
    6 FillerParameter bias_filler; 7 uint32 pad = 0; 8 uint32 kernelsize; 9 uint32 group = 1; 10 uint32 stride = 1;
    11 PoolMethod pool = MAX; 12 float dropout_ratio = 0.5; 13 uint32 local_size = 5; 14 float alpha = 1;
    15 float beta = 0.75; 16 string source; 17 float scale = 1; 18 string meanfile; 19 uint32 batchsize;
    20 uint32 cropsize = 0; 21 bool mirror = false; 22 float k = 1; 50 repeated BlobProto blobs;
    51 repeated float blobs_lr; 52 repeated float weight_decay; 53 uint32 rand_skip = 0;
    54 float det_fg_threshold = 0.5; 55 float det_bg_threshold = 0.5; 56 float det_fg_fraction = 0.25;
    58 uint32 det_context_pad = 0; 59 string det_crop_mode = warp; 60 int32 new_num = 0; 61 int32 new_channels = 0;
    62 int32 new_height = 0; 63 int32 new_width = 0; 64 bool shuffle_images = false; 65 uint32 concat_dim = 1;
    1001 HDF5OutputParameter hdf5_output_param;
"""

SOLVER = """
SolverParameter:
    1 string train_net; 2 repeated string test_net; 3 repeated int32 test_iter; 4 int32 test_interval = 0;
    5 float base_lr; 6 int32 display; 7 int32 max_iter; 8 string lr_policy; 9 float gamma; 10 float power;
    11 float momentum; 12 float weight_decay; 13 int32 stepsize; 14 int32 snapshot = 0; 15 string snapshot_prefix;
    16 bool snapshot_diff = false; 17 SolverMode solver_mode = GPU; 18 int32 device_id = 0;
    19 bool test_compute_loss = false; 20 int64 random_seed = -1; 21 NetParameter train_net_param;
    22 repeated NetParameter test_net_param; 23 bool debug_info = false; 24 string net; 25 NetParameter net_param;
    26 NetState train_state; 27 repeated NetState test_state; 28 bool snapshot_after_train = true;
    29 string regularization_type = L2; 30 SolverType solver_type = SGD; 31 float delta = 1e-08;
    32 bool test_initialization = true; 33 int32 average_loss = 1; 34 repeated int32 stepvalue;
    35 float clip_gradients = -1; 36 int32 iter_size = 1; 37 SnapshotFormat snapshot_format = BINARYPROTO;
    38 float rms_decay = 0.99; 39 float momentum2 = 0.999; 40 string type = SGD; 41 bool layer_wise_reduce = true;
    42 repeated string weights;
SolverState:
    1 int32 iter; 2 string learned_net; 3 repeated BlobProto history; 4 int32 current_step = 0;
"""
