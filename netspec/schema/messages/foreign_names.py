"""Tables of names in Caffe, PyTorch and Keras that have other names here.

Each line is `foreign names: names here`, optionally followed by `| how to write it`. If the text after the colon starts
with `!`, it is printed unchanged.
"""

from __future__ import annotations

_TRANSFORM = "!a transform of the data belongs under `transforms` in the training file"
_COLUMN = "!columns of tables are converted to numbers when they are read: by `columns` in the training file"
_NOTHING = "!this layer of Keras has no equivalent here"
_LAYERS = {
    "Caffe": """
        InnerProduct: Dense
        Convolution: Conv2D
        Deconvolution: Conv2DTranspose
        Pooling: MaxPooling2D, AveragePooling2D, GlobalAveragePooling2D, StochasticPooling2D
        BatchNorm: BatchNormalization | which replaces BatchNorm and Scale
        Eltwise: Add, WeightedSum, Multiply, Maximum
        Concat: Concatenate
        Embed: Embedding
        Sigmoid: Activation | with `activation: sigmoid`
        TanH: Activation | with `activation: tanh`
        AbsVal: Abs
        PReLU: PReLU
        LRN: LocalResponseNormalization
        SPP: SpatialPyramidPooling
        RNN, Recurrent: SimpleRNN
        Data, ImageData, HDF5Data, MemoryData: !the net declares `inputs`; the training file sets their data
        WindowData, DummyData: !the net declares `inputs`; the training file sets their data
        Input: !the net's inputs are declared under `inputs`
        HDF5Output: !`netspec predict` writes the outputs of a net
        SoftmaxWithLoss: !a loss belongs under `losses`: SparseCategoricalCrossentropy with `from_logits: true`
        SOFTMAX_LOSS: !a loss belongs under `losses`: SparseCategoricalCrossentropy with `from_logits: true`
        SigmoidCrossEntropyLoss: !a loss belongs under `losses`: BinaryCrossentropy with `from_logits: true`
        EuclideanLoss: !a loss belongs under `losses`: Euclidean
        MultinomialLogisticLoss: !a loss belongs under `losses`: MultinomialLogistic
        HingeLoss: !a loss belongs under `losses`: OneVsRestHinge
        ContrastiveLoss: !a loss belongs under `losses`: Contrastive
        InfogainLoss: !a loss belongs under `losses`: InfoGain
        Accuracy: !a metric belongs under `metrics`: SparseCategoricalAccuracy
        Silence: !not needed: an output that nothing reads costs nothing
        Python, Filter: !this layer of Caffe has no equivalent here
        Im2col: !not needed: convolutions extract patches themselves
        LSTMUnit, RNNUnit: !not needed: LSTM and SimpleRNN are layers that include all steps
    """,
    "PyTorch": """
        Linear, LazyLinear: Dense
        Conv1d: Conv1D
        Conv2d, LazyConv2d: Conv2D
        Conv3d: Conv3D
        ConvTranspose2d: Conv2DTranspose
        MaxPool1d: MaxPooling1D
        AvgPool1d: AveragePooling1D
        AdaptiveMaxPool1d: AdaptiveMaxPooling1D
        AdaptiveAvgPool1d: AdaptiveAveragePooling1D
        MaxPool2d: MaxPooling2D
        AvgPool2d: AveragePooling2D
        AdaptiveMaxPool2d: AdaptiveMaxPooling2D
        AdaptiveAvgPool2d: AdaptiveAveragePooling2D
        FractionalMaxPool2d: FractionalMaxPooling2D
        MaxPool3d: MaxPooling3D
        AvgPool3d: AveragePooling3D
        AdaptiveMaxPool3d: AdaptiveMaxPooling3D
        AdaptiveAvgPool3d: AdaptiveAveragePooling3D
        FractionalMaxPool3d: FractionalMaxPooling3D
        BatchNorm1d, BatchNorm2d, BatchNorm3d: BatchNormalization
        LayerNorm: LayerNormalization
        GroupNorm: GroupNormalization
        InstanceNorm1d, InstanceNorm2d, InstanceNorm3d: InstanceNormalization
        RMSNorm: RMSNormalization
        LocalResponseNorm: LocalResponseNormalization
        Dropout2d: SpatialDropout2D
        AlphaDropout: AlphaDropout
        ZeroPad2d: ZeroPadding2D
        Upsample: UpSampling2D
        View, Unflatten: Reshape
        Cat: Concatenate
        Chunk: Split
        Narrow: Slice
        IndexSelect, Take: Gather
        PixelShuffle: DepthToSpace
        PixelUnshuffle: SpaceToDepth
        Unsqueeze: ExpandDims
        Repeat: Tile
        Bmm: MatMul
        Clamp: Clip
        Sum, Mean, Max, Min, Prod: Reduction | with `operation: …`
        Pow: Power
        Tanh: Activation | with `activation: tanh`
        GELU: Activation | with `activation: gelu`
        SiLU: Activation | with `activation: swish`
        LogSigmoid: Activation | with `activation: log_sigmoid`
        ReLU6: Activation | with `activation: relu6`
        CELU: Activation | with `activation: celu`
        SELU: Activation | with `activation: selu`
        GLU: Activation | with `activation: glu`
        Mish: Activation | with `activation: mish`
        Hardtanh: Activation | with `activation: hard_tanh`
        Hardsigmoid: Activation | with `activation: hard_sigmoid`
        Hardshrink: Activation | with `activation: hard_shrink`
        Softshrink: Activation | with `activation: soft_shrink`
        Tanhshrink: Activation | with `activation: tanh_shrink`
        Softsign: Activation | with `activation: softsign`
        Softplus: Activation | with `activation: softplus`
        LogSoftmax: Activation | with `activation: log_softmax`
        Hardswish: Activation | with `activation: hard_swish`
        MultiheadAttention: MultiHeadAttention
        Identity: Activation | with `activation: linear`
        Sequential: !the layers of a net are a plain list under `layers`
        CrossEntropyLoss: !a loss belongs under `losses`: SparseCategoricalCrossentropy with `from_logits: true`
        BCEWithLogitsLoss: !a loss belongs under `losses`: BinaryCrossentropy with `from_logits: true`
        BCELoss: !a loss belongs under `losses`: BinaryCrossentropy
        MSELoss: !a loss belongs under `losses`: MeanSquaredError
        NLLLoss: !a loss belongs under `losses`: SparseCategoricalCrossentropy with `from_logits: true`
        SmoothL1Loss, HuberLoss: !a loss belongs under `losses`: Huber
        TripletMarginLoss: !a loss belongs under `losses`: Triplet
    """,
    "an alias in Keras": """
        Convolution1D: Conv1D
        Convolution2D: Conv2D
        Convolution3D: Conv3D
        Convolution1DTranspose: Conv1DTranspose
        Convolution2DTranspose: Conv2DTranspose
        Convolution3DTranspose: Conv3DTranspose
        SeparableConvolution1D: SeparableConv1D
        SeparableConvolution2D: SeparableConv2D
        MaxPool1D: MaxPooling1D
        MaxPool2D: MaxPooling2D
        MaxPool3D: MaxPooling3D
        AvgPool1D: AveragePooling1D
        AvgPool2D: AveragePooling2D
        AvgPool3D: AveragePooling3D
        GlobalMaxPool1D: GlobalMaxPooling1D
        GlobalMaxPool2D: GlobalMaxPooling2D
        GlobalMaxPool3D: GlobalMaxPooling3D
        GlobalAvgPool1D: GlobalAveragePooling1D
        GlobalAvgPool2D: GlobalAveragePooling2D
        GlobalAvgPool3D: GlobalAveragePooling3D
        InputLayer: !the net's inputs are declared under `inputs`
    """,
    "Keras": f"""
        Rescaling: Power | with `scale` and `shift`; or rescale the data with the transform Rescaling
        Lambda: Expression | with a formula in `expr`; a spec contains no code
        AugMix, AutoContrast, CategoryEncoding, CutMix, Equalization, MelSpectrogram, MixUp: {_TRANSFORM}
        RandAugment, RandomBrightness, RandomColorDegeneration, RandomColorJitter, RandomContrast: {_TRANSFORM}
        RandomCrop, RandomErasing, RandomFlip, RandomGaussianBlur, RandomGrayscale, RandomHue: {_TRANSFORM}
        RandomInvert, RandomPerspective, RandomPosterization, RandomRotation, RandomSaturation: {_TRANSFORM}
        RandomSharpness, RandomShear, RandomTranslation, RandomZoom, Solarization: {_TRANSFORM}
        STFTSpectrogram: Conv1D | with `kernel_initializer: STFT`, for each part; or use the transform MelSpectrogram
        Discretization, Hashing, HashedCrossing, IntegerLookup, StringLookup: {_COLUMN}
        TextVectorization: !text is converted to numbers when it is read: by `tokenizer` of its source
        SimpleRNNCell, LSTMCell, GRUCell, StackedRNNCells: !a cell belongs in the field `cell` of an RNN
        FlaxLayer, JaxLayer, TFSMLayer, TorchModuleWrapper, Pipeline: !a spec contains no code: packages can add layers
        RandomElasticTransform, ContrastLimitedAdaptiveHistogramEqualization: {_NOTHING}
        MaxNumBoundingBoxes: {_NOTHING}
    """,
}
_LOSSES = {
    "Caffe": """
        SoftmaxWithLoss: SparseCategoricalCrossentropy | with `from_logits: true`
        MultinomialLogisticLoss: MultinomialLogistic
        SigmoidCrossEntropyLoss: BinaryCrossentropy | with `from_logits: true`
        EuclideanLoss: Euclidean
        HingeLoss: OneVsRestHinge
        ContrastiveLoss: Contrastive
        InfogainLoss: InfoGain | with `from_logits: true`
    """,
    "PyTorch": """
        CrossEntropyLoss: SparseCategoricalCrossentropy | with `from_logits: true`
        NLLLoss: SparseCategoricalCrossentropy | with `from_logits: true`: logarithms of probabilities are logits
        BCELoss: BinaryCrossentropy
        BCEWithLogitsLoss: BinaryCrossentropy | with `from_logits: true`
        MSELoss: MeanSquaredError
        L1Loss: MeanAbsoluteError
        SmoothL1Loss: Huber | with `delta` set to `beta`, and `weight: 1/beta`
        HuberLoss: Huber
        KLDivLoss: KLDivergence | which takes the probabilities, not their logarithms
        PoissonNLLLoss: Poisson | with `log_input: true`, unless it is false in PyTorch
        GaussianNLLLoss: GaussianNLL
        CosineEmbeddingLoss: CosineEmbedding
        MarginRankingLoss: MarginRanking
        MultiMarginLoss: MultiMargin
        MultiLabelMarginLoss: MultiLabelMargin
        MultiLabelSoftMarginLoss: MultiLabelSoftMargin
        TripletMarginLoss: Triplet
        CTCLoss: CTC
        HingeEmbeddingLoss: HingeEmbedding
        SoftMarginLoss: BinaryCrossentropy | with `from_logits: true` and targets 0 and 1
    """,
    "Keras's short": """
        mse, MSE: MeanSquaredError
        mae, MAE: MeanAbsoluteError
        mape, MAPE: MeanAbsolutePercentageError
        msle, MSLE: MeanSquaredLogarithmicError
        kld, KLD, kullback_leibler_divergence: KLDivergence
        bce, BCE: BinaryCrossentropy
        logcosh: LogCosh
        crossentropy: SparseCategoricalCrossentropy
    """,
}
_METRICS = {
    "Caffe": "Accuracy: SparseCategoricalAccuracy",
    "Keras": """
        binary_focal_crossentropy: !it is a loss here: BinaryFocalCrossentropy, under `losses`
        categorical_focal_crossentropy: !it is a loss here: CategoricalFocalCrossentropy, under `losses`
        huber: !it is a loss here: Huber, under `losses`
    """,
    "Keras's short": """
        accuracy, acc: SparseCategoricalAccuracy
        mse, MSE: MeanSquaredError
        mae, MAE, L1: MeanAbsoluteError
        rmse, RMSE: RootMeanSquaredError
        mape, MAPE: MeanAbsolutePercentageError
        msle, MSLE: MeanSquaredLogarithmicError
        kld, KLD: KLDivergence
        logcosh, LogCosh: LogCoshError
        f1, F1, f1_score: F1Score
        auc: AUC
        iou, mIoU: IoU, MeanIoU
        r2: R2Score
    """,
    "another": "top_k, top5, TopK: SparseTopKCategoricalAccuracy",
}
_ACTIVATIONS = {
    "Caffe": "bnll: softplus",
    "another": """
        exp: exponential
        identity: linear
        logistic: sigmoid
        none, None: !write null for none, or leave the key out
    """,
}
_INITIALIZERS = {
    "Caffe": """
        constant: Constant
        gaussian: RandomNormal
        uniform: RandomUniform
        xavier: VarianceScaling | with `distribution: uniform`
        msra: VarianceScaling | with `scale: 2, distribution: untruncated_normal`
    """,
    "PyTorch": """
        xavier_uniform, xavier_uniform_: GlorotUniform
        xavier_normal, xavier_normal_: GlorotNormal
        kaiming_uniform, kaiming_uniform_, kaiming, he: HeUniform
        kaiming_normal, kaiming_normal_: HeNormal
        normal, normal_: RandomNormal
        uniform_: RandomUniform
        trunc_normal, trunc_normal_: TruncatedNormal
        zeros_: Zeros
        ones_: Ones
        orthogonal_: Orthogonal
        dirac_, eye_, dirac, eye: Identity
        sparse_: RandomNormal | with `sparse: …`
    """,
    "Keras's long": """
        IdentityInitializer: Identity
        OrthogonalInitializer: Orthogonal
        STFTInitializer: STFT
    """,
}
_SOLVERS = {
    "Caffe": """
        Nesterov: SGD | with `nesterov: true`
        AdaGrad: Adagrad
        AdaDelta: Adadelta
        RMSProp: RMSprop
    """,
    "PyTorch": """
        NAdam: Nadam
        AdaMax: Adamax
        RAdamScheduleFree, AdamWScheduleFree: ScheduleFreeAdamW
    """,
    "another": """
        momentum, Momentum: SGD | with `momentum: 0.9`
        FTRL: Ftrl
        LAMB: Lamb
        LBFGS: LBFGS
    """,
    "Keras": """
        LossScaleOptimizer: !not needed: `loss_scale: dynamic` in the training file's `train` scales the losses
        MultiOptimizer, OptimizerMap: !not needed: `groups` of a solver sets another solver for some parameters
    """,
}
_SCHEDULES = {
    "Caffe": """
        fixed: Constant
        step: StepDecay
        multistep: MultiStepDecay
        exp: ExponentialDecay
        inv: InverseTimeDecay
        poly: PolynomialDecay
        sigmoid: SigmoidDecay
    """,
    "PyTorch": """
        StepLR: StepDecay
        MultiStepLR: MultiStepDecay
        ExponentialLR: ExponentialDecay
        CosineAnnealingLR: CosineDecay
        PolynomialLR: PolynomialDecay
        LinearLR: Warmup
        CosineAnnealingWarmRestarts: CosineDecayRestarts
        OneCycleLR: OneCycle
        SequentialLR: Sequence
        ConstantLR: Constant
    """,
}
_REGULARIZERS = {"another": "L1L2: L1, L2\nl1_l2: L1, L2\nweight_decay: L2"}
_SOURCES = {
    "Caffe": """
        Data: lmdb
        LevelDB: !LevelDB is not supported: convert it with Caffe's `convert_imageset -backend lmdb …`, for `lmdb`
        ImageData: image_folder | with a `list`
        HDF5Data: hdf5
    """,
    "PyTorch": "ImageFolder: image_folder\nMNIST: mnist",
}
_TRANSFORMS = {
    "Caffe": "mean_file: MeanImage\nmirror: RandomFlip | with `mode: horizontal`\ncrop_size: RandomCrop, CenterCrop",
    "PyTorch": """
        Normalize: Normalization
        ToTensor: Rescaling | with `scale: ${1/255}`
        RandomHorizontalFlip: RandomFlip | with `mode: horizontal`
        RandomVerticalFlip: RandomFlip | with `mode: vertical`
        ColorJitter: RandomColorJitter
        RandomAffine: RandomRotation, RandomTranslation, RandomZoom, RandomShear
        RandomEqualize: Equalization
        RandomAutocontrast: AutoContrast
        RandomPosterize: RandomPosterization
        RandomSolarize: Solarization
        RandomAdjustSharpness: RandomSharpness
        GaussianBlur: RandomGaussianBlur
        Pad: RandomCrop | with `padding`
        CenterCrop: CenterCrop
        Resize: Resizing
    """,
}
TABLES: dict[str, dict[str, str]] = {
    "layer": _LAYERS,
    "loss": _LOSSES,
    "metric": _METRICS,
    "activation": _ACTIVATIONS,
    "initializer": _INITIALIZERS,
    "solver": _SOLVERS,
    "schedule": _SCHEDULES,
    "regularizer": _REGULARIZERS,
    "data source": _SOURCES,
    "transform": _TRANSFORMS,
}
