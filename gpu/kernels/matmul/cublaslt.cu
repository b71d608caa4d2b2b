/* Products of many rows: cuBLASLt with the caller's workspace, so that it allocates nothing and can
 * be captured; or our own (matmul_tiles.cu), where that was timed to be faster. A table remembers
 * the algorithm of each problem met; a new problem costs a question to the library (tens of
 * microseconds). The table is shared by all ranks under one lock. */
#include <mutex>

#include "gpu/kernels/matmul/cublaslt.cuh"

#define PLANS 1024 /* a power of two; older plans give way */
#define PROBES 8

struct plan_key {
    struct lt_shape shape;
    uint32_t x_stride, y_stride;
    uint32_t device;
    uint32_t align_w, align_x, align_y;
    uint64_t workspace_bytes;
};

struct plan {
    struct plan_key key; /* rows 0: free */
    bool supported, tiles; /* tiles: our own, of which there is no algorithm */
    cublasLtMatmulAlgo_t algorithm;
};

static std::mutex lock;
static struct plan plans[PLANS];
static cublasLtHandle_t handles[DEVICE_PROPS_MAX];

cublasLtHandle_t lt_handle()
{
    std::lock_guard<std::mutex> guard(lock);
    cublasLtHandle_t *handle = &handles[device_props()->ordinal];
    if (!*handle && cublasLtCreate(handle) != CUBLAS_STATUS_SUCCESS)
        *handle = NULL;
    return *handle;
}

extern "C" void matmul_forget(int device)
{
    std::lock_guard<std::mutex> guard(lock);
    cublasLtHandle_t *handle = &handles[device % DEVICE_PROPS_MAX];
    if (*handle)
        (void)cublasLtDestroy(*handle);
    *handle = NULL;
}

static cudaDataType_t data_type(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? CUDA_R_32F : dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static uint32_t alignment(const void *pointer, uint32_t stride, uint32_t element_bytes)
{
    uintptr_t bits =
        reinterpret_cast<uintptr_t>(pointer) | (uintptr_t)stride * element_bytes | 256;
    return static_cast<uint32_t>(bits & (~bits + 1));
}

enum lt_scaling lt_scaling_of(const struct matmul_args *a)
{
    return a->w.format != FORMAT_E4M3 ? LT_PLAIN
           : !a->w.scales.data        ? LT_UNSCALED
           : a->w.scales.k            ? LT_BLOCKS
                                      : LT_OUTER;
}

/* Of w and of x. */
static bool describe_scales(const struct matmul_args *a, enum lt_scaling scaling,
                            struct lt_problem *p)
{
    int32_t w_mode = scaling == LT_OUTER ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
                                         : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    int32_t x_mode = scaling == LT_OUTER ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
                                         : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    if (scaling != LT_OUTER && scaling != LT_BLOCKS)
        return true;
    return !cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
                                           &w_mode, sizeof(w_mode)) &&
           !cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
                                           &x_mode, sizeof(x_mode)) &&
           !cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                           &a->w.scales.data, sizeof(a->w.scales.data)) &&
           !cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                           &a->scratch, sizeof(a->scratch));
}

bool lt_describe(const struct matmul_args *a, struct lt_problem *p)
{
    enum lt_scaling scaling = lt_scaling_of(a);
    bool plain = scaling == LT_PLAIN;
    enum dtype of_w = format_info(a->w.format).dtype;
    cudaDataType_t w_type = plain ? data_type(of_w) : CUDA_R_8F_E4M3;
    cudaDataType_t x_type = plain ? data_type(a->x_dtype) : CUDA_R_8F_E4M3;
    *p = {};
    p->shape = {a->rows.max,
                a->w.n,
                a->w.k,
                static_cast<uint8_t>(a->w.format),
                static_cast<uint8_t>(plain ? a->x_dtype : LT_X_SCALED + scaling),
                static_cast<uint8_t>(a->y_dtype),
                static_cast<uint8_t>(a->bias != NULL)};
    p->workspace_bytes = a->workspace ? a->workspace_bytes : 0;
    p->align_w = alignment(a->w.data, a->w.k, plain ? dtype_bytes(of_w) : 1);
    p->align_x = alignment(a->x, a->x_stride, plain ? dtype_bytes(a->x_dtype) : 1);
    p->align_y = alignment(a->y, a->y_stride, dtype_bytes(a->y_dtype));
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    if (cublasLtMatmulDescInit(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F) ||
        cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                       sizeof(transposed)) ||
        cublasLtMatrixLayoutInit(&p->w, w_type, a->w.k, a->w.n, a->w.k) ||
        cublasLtMatrixLayoutInit(&p->x, x_type, a->w.k, a->rows.max, a->x_stride) ||
        cublasLtMatrixLayoutInit(&p->y, data_type(a->y_dtype), a->w.n, a->rows.max, a->y_stride))
        return false;
    if (a->bias && (cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                   &epilogue, sizeof(epilogue)) ||
                    cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                   &a->bias, sizeof(a->bias))))
        return false;
    return describe_scales(a, scaling, p);
}

int lt_candidates(cublasLtHandle_t handle, struct lt_problem *p,
                  cublasLtMatmulHeuristicResult_t *candidates, int max)
{
    cublasLtMatmulPreferenceOpaque_t wish;
    uint64_t workspace = p->workspace_bytes;
    int found = 0;
    if (cublasLtMatmulPreferenceInit(&wish) ||
        cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof(workspace)) ||
        cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                             &p->align_w, sizeof(p->align_w)) ||
        cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                             &p->align_x, sizeof(p->align_x)) ||
        cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                             &p->align_y, sizeof(p->align_y)) ||
        cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                             &p->align_y, sizeof(p->align_y)) ||
        cublasLtMatmulAlgoGetHeuristic(handle, &p->operation, &p->w, &p->x, &p->y, &p->y, &wish,
                                       max, candidates, &found))
        return 0;
    return found;
}

cudaError_t lt_run(cublasLtHandle_t handle, struct lt_problem *p, const struct matmul_args *args,
                   const cublasLtMatmulAlgo_t *algorithm, cudaStream_t stream)
{
    float one = 1, before = args->adds ? 1 : 0;
    cublasStatus_t status = cublasLtMatmul(handle, &p->operation, &one, args->w.data, &p->w,
                                           args->x, &p->x, &before, args->y, &p->y, args->y, &p->y,
                                           algorithm, args->workspace, p->workspace_bytes, stream);
    if (status == CUBLAS_STATUS_SUCCESS)
        return cudaSuccess;
    cudaError_t cause = cudaPeekAtLastError();
    return cause != cudaSuccess                       ? cause
           : status == CUBLAS_STATUS_NOT_SUPPORTED    ? cudaErrorNotSupported
           : status == CUBLAS_STATUS_EXECUTION_FAILED ? cudaErrorLaunchFailure
                                                      : cudaErrorUnknown;
}

static uint32_t key_hash(const struct plan_key *key)
{
    const uint32_t *words = reinterpret_cast<const uint32_t *>(key);
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < sizeof(*key) / sizeof(*words); i++)
        hash = (hash ^ words[i]) * 16777619u;
    return hash ^ hash >> 15;
}

static bool key_same(const struct plan_key *a, const struct plan_key *b)
{
    return __builtin_memcmp(a, b, sizeof(*a)) == 0;
}

static void key_make(const struct matmul_args *args, const struct lt_problem *problem,
                     struct plan_key *key)
{
    __builtin_memset(key, 0, sizeof(*key)); /* compared as bytes, gaps included */
    key->shape = problem->shape;
    key->x_stride = args->x_stride;
    key->y_stride = args->y_stride;
    key->device = static_cast<uint32_t>(device_props()->ordinal);
    key->align_w = problem->align_w;
    key->align_x = problem->align_x;
    key->align_y = problem->align_y;
    key->workspace_bytes = problem->workspace_bytes;
}

static bool plan_find(const struct plan_key *key, struct plan *ret_plan)
{
    uint32_t home = key_hash(key);
    std::lock_guard<std::mutex> guard(lock);
    for (uint32_t i = 0; i < PROBES; i++) {
        const struct plan *at = &plans[(home + i) % PLANS];
        if (key_same(&at->key, key)) {
            *ret_plan = *at;
            return true;
        }
    }
    return false;
}

static void plan_keep(const struct plan *plan)
{
    uint32_t home = key_hash(&plan->key), place = home % PLANS;
    std::lock_guard<std::mutex> guard(lock);
    for (uint32_t i = 0; i < PROBES; i++)
        if (plans[(home + i) % PLANS].key.shape.rows == 0) {
            place = (home + i) % PLANS;
            break;
        }
    plans[place] = *plan;
}

/* The library's candidate of this number. */
static bool candidate(cublasLtHandle_t handle, struct lt_problem *problem, uint32_t number,
                      cublasLtMatmulAlgo_t *ret_algorithm)
{
    cublasLtMatmulHeuristicResult_t candidates[TUNE_CANDIDATES];
    int count = lt_candidates(handle, problem, candidates, number ? TUNE_CANDIDATES : 1);
    if (count <= static_cast<int>(number))
        return false;
    *ret_algorithm = candidates[number].algo;
    return true;
}

/* The algorithm that was timed, for a product of just as many rows as then. The library is asked
 * for it once: other row counts come here too. */
static bool timed(cublasLtHandle_t handle, const struct matmul_args *args, uint32_t number,
                  cublasLtMatmulAlgo_t *ret_algorithm)
{
    struct lt_problem problem;
    struct plan plan;
    struct plan_key key;
    if (!lt_describe(args, &problem))
        return false;
    key_make(args, &problem, &key);
    if (!plan_find(&key, &plan)) {
        plan.key = key;
        plan.tiles = false;
        plan.supported = candidate(handle, &problem, number, &plan.algorithm) ||
                         candidate(handle, &problem, 0, &plan.algorithm);
        plan_keep(&plan);
    }
    *ret_algorithm = plan.algorithm;
    return plan.supported;
}

/* What was timed to be the fastest for as many rows or somewhat more, if it can do these; else the
 * library's first. */
static void choose(cublasLtHandle_t handle, struct lt_problem *problem,
                   const struct matmul_args *args, struct plan *to)
{
    cublasLtMatmulHeuristicResult_t checked;
    uint32_t rows, number;
    bool known = tune_find(&problem->shape, &rows, &number);
    to->tiles = known && number == TUNE_TILES && tiles_can(args);
    to->supported = to->tiles;
    if (known && number < TUNE_CANDIDATES) {
        struct matmul_args as_timed = *args;
        as_timed.rows.max = rows;
        to->supported = timed(handle, &as_timed, number, &to->algorithm) &&
                        cublasLtMatmulAlgoCheck(
                            handle, &problem->operation, &problem->w, &problem->x, &problem->y,
                            &problem->y, &to->algorithm, &checked) == CUBLAS_STATUS_SUCCESS &&
                        checked.workspaceSize <= problem->workspace_bytes;
    }
    if (!to->supported)
        to->supported = candidate(handle, problem, 0, &to->algorithm);
}

void lt_forget()
{
    std::lock_guard<std::mutex> guard(lock);
    for (struct plan &plan : plans)
        plan.key.shape.rows = 0;
}

bool matmul_lt_can(const struct matmul_args *a)
{
    bool plain = a->w.format == format_plain(a->x_dtype); /* of others a copy comes here */
    return plain && (a->y_dtype == a->x_dtype || a->y_dtype == DTYPE_F32) &&
           (!a->bias || (a->bias_dtype == a->y_dtype && !a->adds));
}

cudaError_t matmul_lt(const struct matmul_args *args, cudaStream_t stream)
{
    cublasLtHandle_t handle = lt_handle();
    struct lt_problem problem;
    if (!handle)
        return cudaErrorInitializationError;
    if (!lt_describe(args, &problem))
        return cudaErrorNotSupported;
    struct plan_key key;
    key_make(args, &problem, &key);
    struct plan plan;
    if (!plan_find(&key, &plan)) {
        struct plan other;
        plan.key = key;
        choose(handle, &problem, args, &plan);
        if (!plan_find(&key, &other)) /* a product of just as many rows as were timed: it is kept */
            plan_keep(&plan);
    }
    if (!plan.supported)
        return cudaErrorNotSupported;
    return plan.tiles ? tiles_run(args, stream)
                      : lt_run(handle, &problem, args, &plan.algorithm, stream);
}
